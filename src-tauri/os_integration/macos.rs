//! macOS: the notification center, Finder, and the menu bar. Same functions as `linux.rs`.

use objc2_core_foundation::{
    CFOptionFlags, CFString, CFUserNotification, kCFUserNotificationStopAlertLevel,
};
use objc2_foundation::NSBundle;
use std::io::IsTerminal;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use tauri::AppHandle;

/// What the file manager is called.
pub const FILE_MANAGER: &str = "Finder";
/// A closed window is opened again by a click on the Dock icon.
pub const CLOSING_HIDES: bool = true;
/// A fullscreen window has a Space of its own, which stays if the window is hidden.
pub const FULLSCREEN_HAS_SPACE: bool = true;
/// The app's identifier, as in `tauri.conf.json`.
const IDENTIFIER: &str = "dev.ebb.desk";

/// Shows a notification. Does nothing if the user turned them off, or if Ebb was not started from
/// its bundle: the notification would come from Terminal, or from an Ebb that is installed besides.
pub fn notify(title: &str, body: &str) {
    if !is_bundled() {
        return;
    }
    let (title, body) = (title.to_owned(), body.to_owned());
    tauri::async_runtime::spawn_blocking(move || {
        let _ = mac_notification_sys::send_notification(&title, None, &body, None);
    });
}

/// Whether this process was started from Ebb's bundle, and macOS knows this bundle.
fn is_bundled() -> bool {
    static BUNDLED: OnceLock<bool> = OnceLock::new();
    *BUNDLED.get_or_init(|| {
        let identifier = NSBundle::mainBundle().bundleIdentifier();
        // Without `set_application` the crate would look for an identifier of its own. If macOS has
        // not registered the bundle, it fails, and the crate would notify in Terminal's name.
        identifier.is_some_and(|own| own.to_string() == IDENTIFIER)
            && mac_notification_sys::set_application(IDENTIFIER).is_ok()
    })
}

/// Shows a user who has no terminal why Ebb does not open, and waits until it is read.
pub fn show_alert(title: &str, body: &str) {
    if std::io::stderr().is_terminal() {
        return;
    }
    let (title, body) = (CFString::from_str(title), CFString::from_str(body));
    let mut answer: CFOptionFlags = 0;
    // SAFETY: Apple allows all other arguments to be null; `answer` outlives the call.
    unsafe {
        CFUserNotification::display_alert(
            0.0,
            kCFUserNotificationStopAlertLevel,
            None,
            None,
            None,
            Some(&title),
            Some(&body),
            None,
            None,
            None,
            &raw mut answer,
        );
    }
}

/// Brings the app back after *Hide Ebb*, which hides its windows with it.
pub fn unhide_app(app: &AppHandle) {
    // Fails only if the app ends.
    let _ = app.show();
}

/// The menu bar always has room for an item.
pub fn has_tray() -> bool {
    true
}

/// Selects a file or folder in Finder.
pub fn reveal(path: &Path) -> std::io::Result<()> {
    let mut open = Command::new("/usr/bin/open");
    let status = open.arg("-R").arg(path).status()?;
    if status.success() {
        Ok(())
    } else {
        Err(std::io::Error::other("Finder does not answer"))
    }
}
