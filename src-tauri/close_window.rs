//! Closing the window while a training runs: the training continues, and the window can be opened
//! again from the Dock, the tray, or by starting Ebb once more.

use crate::app_state::Shell;
use crate::language::translate;
use crate::os_integration;
use crate::quit::{self, Quit};
use crate::show_window::hide_window;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tauri::{AppHandle, Manager};

/// What closing depends on.
#[derive(Default)]
pub struct Closing {
    /// Whether there is a tray icon to open the window from.
    pub has_tray: AtomicBool,
    /// Whether the user knows that the training continues.
    explained: AtomicBool,
}

/// True if the window may close, which ends the app. While a training runs, the window is hidden
/// instead, or minimized if nothing could open it again.
pub fn request(app: &AppHandle) -> bool {
    let Some(training) = app.state::<Arc<Shell>>().active.running() else {
        return quit::request(app);
    };
    if !app.state::<Quit>().is_open() {
        return quit::request(app);
    }
    let closing = app.state::<Closing>();
    let hides = os_integration::CLOSING_HIDES || closing.has_tray.load(Ordering::Relaxed);
    if hides {
        hide_window(app);
    } else if let Some(window) = app.get_webview_window("main") {
        // Fails only if the window is closing anyway.
        let _ = window.minimize();
    }
    if !closing.explained.swap(true, Ordering::Relaxed) {
        let name = crate::training_summary::for_training(&training)
            .map_or_else(|| "The training".to_owned(), |active| active.name);
        let body = "Training continues without the window. Start Ebb again to open the window; choose Quit to stop training.";
        os_integration::notify(
            &translate(&format!("{name} is still training")),
            &translate(body),
        );
    }
    false
}
