//! A menu of a Mac runs an event loop of its own until it closes. Same surface as `other.rs`.

use block2::RcBlock;
use objc2_foundation::NSTimer;
use std::ptr::NonNull;
use tauri::AppHandle;

/// Opens a menu with `popup`, from a timer of the main run loop. A task of `run_on_main_thread` is
/// a callback of the toolkit, which holds a lock meanwhile (tao 0.37, `Handler::callback`). A click
/// on the Dock icon, a folder that is dropped there, and quitting take the same lock on the same
/// thread (`AppState::reopen`, `open_urls`, `exit`): in the menu's event loop they would hang the
/// app.
pub fn open(
    app: &AppHandle,
    popup: impl Fn() -> tauri::Result<()> + Send + 'static,
) -> tauri::Result<()> {
    app.run_on_main_thread(move || {
        let show = RcBlock::new(move |_: NonNull<NSTimer>| {
            // Fails only if the window is closing.
            let _ = popup();
        });
        // SAFETY: this is the main thread, and its run loop calls the block on the main thread.
        let timer =
            unsafe { NSTimer::scheduledTimerWithTimeInterval_repeats_block(0.0, false, &show) };
        // The run loop keeps the timer.
        drop(timer);
    })
}
