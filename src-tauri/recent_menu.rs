//! *Open recent* in the File menu. Only a Mac has a menu bar; elsewhere the welcome page has the
//! list.

use crate::app_state::Shell;
use crate::language::translate;
use crate::lock_mutex::lock;
use crate::recent_folders::RecentView;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use tauri::async_runtime::spawn_blocking;
use tauri::menu::{MenuItem, MenuItemKind, PredefinedMenuItem, Submenu};
use tauri::{AppHandle, Manager, Wry};

/// The id of the submenu.
pub const SUBMENU: &str = "open-recent";
/// The id of the item that clears the list.
const CLEAR: &str = "clear-recent";

/// Fills of the submenu, one at a time.
struct Fills(Mutex<State>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Filling,
    /// The list changed during a fill.
    FillingAgain,
}

static FILLS: Fills = Fills(Mutex::new(State::Idle));

impl Fills {
    /// Runs `fill` on this thread. If another thread is at it, that thread fills once more and this
    /// one does not wait.
    fn run(&self, mut fill: impl FnMut()) {
        {
            let mut state = lock(&self.0);
            if *state != State::Idle {
                *state = State::FillingAgain;
                return;
            }
            *state = State::Filling;
        }
        loop {
            fill();
            let mut state = lock(&self.0);
            if *state != State::FillingAgain {
                *state = State::Idle;
                return;
            }
            *state = State::Filling;
        }
    }
}

/// Fills the submenu with the folders that were opened last, on a thread that may wait for their
/// disks.
pub fn refresh(app: &AppHandle) {
    let app = app.clone();
    spawn_blocking(move || {
        FILLS.run(|| {
            if let Err(error) = fill(&app) {
                eprintln!("ebb: the menu of recent folders cannot be shown: {error}");
            }
        });
    });
}

/// Shows the folders at once, and again if a disk lacks one: a disk may take minutes to answer.
fn fill(app: &AppHandle) -> tauri::Result<()> {
    if app.menu().is_none() {
        return Ok(());
    }
    let shell = Arc::clone(&app.state::<Arc<Shell>>());
    let listed = shell.recent.listed();
    show(app, listed.clone())?;
    let seen = shell.recent.views();
    if seen == listed {
        return Ok(());
    }
    show(app, seen)
}

/// Shows these folders, on the main thread.
fn show(app: &AppHandle, recent: Vec<RecentView>) -> tauri::Result<()> {
    let (done, shown) = channel();
    let on_main_thread = app.clone();
    app.run_on_main_thread(move || drop(done.send(replace_items(&on_main_thread, &recent))))?;
    // There is no answer only if the app ends.
    shown.recv().unwrap_or(Ok(()))
}

fn replace_items(app: &AppHandle, recent: &[RecentView]) -> tauri::Result<()> {
    let Some(submenu) = submenu(app)? else {
        return Ok(());
    };
    while submenu.remove_at(0)?.is_some() {}
    for view in recent {
        let text = if view.missing {
            translate(&format!("{} (not found)", view.name))
        } else {
            view.name.clone()
        };
        let item = MenuItem::with_id(app, &view.id, text, !view.missing, None::<&str>)?;
        submenu.append(&item)?;
    }
    if !recent.is_empty() {
        submenu.append(&PredefinedMenuItem::separator(app)?)?;
    }
    let clear = MenuItem::with_id(
        app,
        CLEAR,
        translate("Clear"),
        !recent.is_empty(),
        None::<&str>,
    )?;
    submenu.append(&clear)
}

fn submenu(app: &AppHandle) -> tauri::Result<Option<Submenu<Wry>>> {
    let Some(menu) = app.menu() else {
        return Ok(None);
    };
    for item in menu.items()? {
        let MenuItemKind::Submenu(outer) = item else {
            continue;
        };
        if let Some(MenuItemKind::Submenu(found)) = outer.get(SUBMENU) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Performs an item of the submenu. Returns whether it is one.
pub fn perform(app: &AppHandle, id: &str) -> bool {
    let shell = Arc::clone(&app.state::<Arc<Shell>>());
    if id == CLEAR {
        spawn_blocking(move || shell.recent.clear());
        return true;
    }
    if !shell.recent.knows(id) {
        return false;
    }
    let (app, id) = (app.clone(), id.to_owned());
    // A folder on a sleeping network volume may take long to answer.
    spawn_blocking(move || {
        match shell.recent.path(&id) {
            Ok(path) => {
                let show = shell.open(&path);
                shell.show(&app, show);
            }
            Err(refused) => {
                shell.report_failure(&app, &refused.message);
                refresh(&app);
            }
        }
        crate::show_window::show_window(&app);
    });
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fill_that_waits_for_a_disk_holds_up_no_one_and_is_repeated_once() {
        let fills = &Fills(Mutex::new(State::Idle));
        let (begun, begins) = channel();
        let (answer, disk) = channel();
        std::thread::scope(move |scope| {
            let filling = scope.spawn(move || {
                let mut count = 0;
                fills.run(|| {
                    count += 1;
                    begun.send(()).expect("the test waits for it");
                    disk.recv().expect("the test answers");
                });
                count
            });
            begins.recv().expect("the first fill begins");
            for _ in 0..3 {
                fills.run(|| panic!("another thread fills"));
            }
            answer.send(()).expect("the fill waits");
            begins.recv().expect("the second fill begins");
            answer.send(()).expect("the fill waits");
            assert_eq!(filling.join().expect("it ends"), 2);
        });
        let mut is_filled = false;
        fills.run(|| is_filled = true);
        assert!(is_filled, "the next change fills the menu again");
    }
}
