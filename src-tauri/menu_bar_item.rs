//! The item in the menu bar, or the tray icon: the pressure level, what trains, Pause, Open, Quit.

use crate::language::{Language, current, translate};
use crate::window_types::{ActiveView, RunRequest};
use pressure::Level;
use runlog::RunStatus;
use tauri::image::Image;
use tauri::menu::{Menu, MenuItem, PredefinedMenuItem};
use tauri::tray::{TrayIcon, TrayIconBuilder};
use tauri::{AppHandle, Wry};

/// Ids of the items that the page does not perform.
pub const OPEN: &str = "open-window";
pub const PAUSE: &str = "pause-from-menu-bar";
pub const QUIT: &str = "quit-from-menu-bar";

/// Side of the icon, in pixels: 18 points at double density.
const SIDE: u32 = 36;

/// The item. Its texts change only if they differ.
pub struct MenuBarItem {
    icon: TrayIcon<Wry>,
    level: MenuItem<Wry>,
    training: MenuItem<Wry>,
    pause: MenuItem<Wry>,
    open: MenuItem<Wry>,
    quit: MenuItem<Wry>,
    shown: Option<(Level, Option<String>, Option<bool>, Language)>,
}

impl MenuBarItem {
    /// Adds the item. Call this on the main thread.
    pub fn new(app: &AppHandle<Wry>) -> tauri::Result<MenuBarItem> {
        let item = |id: &str, text: &str, enabled: bool| {
            MenuItem::with_id(app, id, translate(text), enabled, None::<&str>)
        };
        let level = item("level", "Memory", false)?;
        let training = item("training-line", "Nothing is training", false)?;
        let pause = item(PAUSE, "Pause", false)?;
        let open = item(OPEN, "Open Ebb", true)?;
        let quit = item(QUIT, "Quit Ebb", true)?;
        let menu = Menu::with_items(
            app,
            &[
                &level,
                &training,
                &PredefinedMenuItem::separator(app)?,
                &pause,
                &open,
                &quit,
            ],
        )?;
        let icon = TrayIconBuilder::with_id("ebb")
            .menu(&menu)
            .icon(image(Level::Normal))
            .icon_as_template(true)
            .tooltip("Ebb")
            .build(app)?;
        Ok(MenuBarItem {
            icon,
            level,
            training,
            pause,
            open,
            quit,
            shown: None,
        })
    }

    /// Shows this state.
    pub fn update(&mut self, level: Level, active: Option<&ActiveView>) -> tauri::Result<()> {
        let paused = active.map(|active| active.status == RunStatus::Paused);
        let now = (level, active.map(ActiveView::line), paused, current());
        if self.shown.as_ref() == Some(&now) {
            return Ok(());
        }
        if self.shown.as_ref().is_none_or(|shown| shown.0 != level) {
            self.icon.set_icon(Some(image(level)))?;
            self.icon.set_icon_as_template(true)?;
        }
        self.level
            .set_text(translate(&format!("Memory {}", word(level))))?;
        let line = now.1.as_deref().unwrap_or("Nothing is training");
        self.training.set_text(translate(line))?;
        let continues = paused == Some(true);
        self.pause
            .set_text(translate(if continues { "Continue" } else { "Pause" }))?;
        self.pause.set_enabled(paused.is_some())?;
        self.open.set_text(translate("Open Ebb"))?;
        self.quit.set_text(translate("Quit Ebb"))?;
        self.shown = Some(now);
        Ok(())
    }
}

/// What *Pause* or *Continue* asks of a run of this status.
pub fn pause_request(status: RunStatus) -> RunRequest {
    match status {
        RunStatus::Paused => RunRequest::Continue,
        _ => RunRequest::Pause,
    }
}

fn word(level: Level) -> &'static str {
    match level {
        Level::Normal => "normal",
        Level::Warning => "warning",
        Level::Critical => "critical",
    }
}

/// The shape of a level, as in the window: circle, triangle or octagon. Gray is visible on light
/// and dark bars; a Mac uses only the shape.
fn image(level: Level) -> Image<'static> {
    let half = SIDE as f32 / 2.0;
    let mut rgba = Vec::with_capacity((SIDE * SIDE * 4) as usize);
    for row in 0..SIDE {
        for column in 0..SIDE {
            let (x, y) = (column as f32 + 0.5 - half, row as f32 + 0.5 - half);
            // Positive inside the shape; one pixel of it is the soft edge.
            let inside = depth(level, x / half, y / half) * half;
            let alpha = (inside + 0.5).clamp(0.0, 1.0) * 255.0;
            rgba.extend([128, 130, 136, alpha as u8]);
        }
    }
    Image::new_owned(rgba, SIDE, SIDE)
}

/// How far a point is inside the shape, which fills most of the square from -1 to 1.
fn depth(level: Level, x: f32, y: f32) -> f32 {
    match level {
        Level::Normal => 0.8 - x.hypot(y),
        // Two sides that fall by 1.75, and the base.
        Level::Warning => ((y + 0.85 - 1.75 * x.abs()) / 1.75_f32.hypot(1.0)).min(0.75 - y),
        Level::Critical => {
            let straight = x.abs().max(y.abs());
            let slanted = (x.abs() + y.abs()) * std::f32::consts::FRAC_1_SQRT_2;
            0.8 - straight.max(slanted)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_has_a_shape_of_its_own() {
        let ink = |level| {
            let image = image(level);
            let alphas = image.rgba().iter().skip(3).step_by(4);
            alphas.map(|alpha| u32::from(*alpha)).sum::<u32>() / 255
        };
        let (circle, triangle, octagon) = (
            ink(Level::Normal),
            ink(Level::Warning),
            ink(Level::Critical),
        );
        assert!(
            triangle < circle && circle < octagon,
            "{triangle} {circle} {octagon}"
        );
        assert!(triangle > SIDE * SIDE / 5 && octagon < SIDE * SIDE * 3 / 4);
    }
}
