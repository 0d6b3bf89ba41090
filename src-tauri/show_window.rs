//! Hides the window, and brings it back: it may be hidden, minimized, or behind others.

use crate::lock_mutex::lock;
use crate::os_integration;
use std::sync::Mutex;
use tauri::{AppHandle, Manager};

/// On a Mac, a fullscreen window has a Space of its own. If the window were hidden there, the Space
/// would stay, black and without controls, so the window leaves fullscreen first.
#[derive(Debug, Default)]
pub struct Hiding(Mutex<State>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Still,
    /// The system moves the window out of fullscreen.
    LeavingFullscreen { then_hide: bool },
}

impl Hiding {
    /// The window is to be hidden. False if it must leave fullscreen first.
    fn may_hide_now(&self, is_fullscreen: bool) -> bool {
        let mut state = lock(&self.0);
        if *state == State::Still && !is_fullscreen {
            return true;
        }
        *state = State::LeavingFullscreen { then_hide: true };
        false
    }

    /// The window is to be shown.
    fn stay(&self) {
        let mut state = lock(&self.0);
        if let State::LeavingFullscreen { then_hide } = &mut *state {
            *then_hide = false;
        }
    }

    /// The window has left fullscreen. Returns whether it is to be hidden now.
    fn left_fullscreen(&self) -> bool {
        let before = std::mem::take(&mut *lock(&self.0));
        before == State::LeavingFullscreen { then_hide: true }
    }
}

/// Shows the window in front of the others.
pub fn show_window(app: &AppHandle) {
    app.state::<Hiding>().stay();
    os_integration::unhide_app(app);
    if let Some(window) = app.get_webview_window("main") {
        // Each fails only if the window is closing.
        let _ = window.show();
        let _ = window.unminimize();
        let _ = window.set_focus();
    }
}

/// Shows the window if it is hidden or minimized. The menu bar of a Mac can be used while the
/// window is hidden, but the results of its actions would then not be visible.
pub fn show_if_hidden(app: &AppHandle) {
    let Some(window) = app.get_webview_window("main") else {
        return;
    };
    // Fails only if the window is closing.
    if !window.is_visible().unwrap_or(true) {
        show_window(app);
    }
}

/// Hides the window, after it has left fullscreen.
pub fn hide_window(app: &AppHandle) {
    let Some(window) = app.get_webview_window("main") else {
        return;
    };
    let is_fullscreen =
        os_integration::FULLSCREEN_HAS_SPACE && window.is_fullscreen().unwrap_or(false);
    // Each fails only if the window is closing.
    let _ = if app.state::<Hiding>().may_hide_now(is_fullscreen) {
        window.hide()
    } else {
        window.set_fullscreen(false)
    };
}

/// The window has left fullscreen, by Ebb's request or by the user's.
#[cfg_attr(
    not(target_os = "macos"),
    allow(dead_code, reason = "only macOS gives a fullscreen window a Space")
)]
pub fn left_fullscreen(app: &AppHandle) {
    if !app.state::<Hiding>().left_fullscreen() {
        return;
    }
    let app = app.clone();
    // The toolkit first reacts to the end of fullscreen, too.
    tauri::async_runtime::spawn(async move {
        if let Some(window) = app.get_webview_window("main") {
            // Fails only if the window is closing.
            let _ = window.hide();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fullscreen_window_is_hidden_once_it_has_left_fullscreen() {
        let hiding = Hiding::default();
        assert!(hiding.may_hide_now(false));
        assert!(!hiding.left_fullscreen(), "the user left fullscreen");
        assert!(!hiding.may_hide_now(true));
        // Closed again while the system moves the window, which counts as small already.
        assert!(!hiding.may_hide_now(false));
        assert!(hiding.left_fullscreen());
        assert!(!hiding.left_fullscreen(), "it is hidden once");
        assert!(hiding.may_hide_now(false));
    }

    #[test]
    fn a_window_that_is_shown_again_meanwhile_stays() {
        let hiding = Hiding::default();
        hiding.stay();
        assert!(hiding.may_hide_now(false), "nothing moves");
        assert!(!hiding.may_hide_now(true));
        hiding.stay();
        assert!(!hiding.left_fullscreen());
        assert!(!hiding.may_hide_now(true));
        hiding.stay();
        assert!(!hiding.may_hide_now(false), "the system still moves it");
        assert!(hiding.left_fullscreen());
    }
}
