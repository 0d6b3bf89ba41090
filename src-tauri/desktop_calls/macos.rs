//! macOS: the notification center, Finder, and the menu bar. Same functions as `linux.rs`.

use std::path::Path;
use std::process::Command;
use std::sync::Once;
use trash::TrashContext;
use trash::macos::{DeleteMethod, TrashContextExtMacos};

/// What the file manager is called.
pub const FILE_MANAGER: &str = "Finder";
/// A closed window is opened again by a click on the Dock icon.
pub const CLOSING_HIDES: bool = true;
/// The app's identifier, as in `tauri.conf.json`.
const IDENTIFIER: &str = "dev.ebb.desk";

/// Shows a notification. Does nothing if the user turned them off.
pub fn notify(title: &str, body: &str) {
    static IDENTIFIED: Once = Once::new();
    // Fails if the app was not started from its bundle; then the notification has no icon.
    IDENTIFIED.call_once(|| drop(mac_notification_sys::set_application(IDENTIFIER)));
    let (title, body) = (title.to_owned(), body.to_owned());
    std::thread::spawn(move || {
        let _ = mac_notification_sys::send_notification(&title, None, &body, None);
    });
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

/// Moves a folder to the trash. The default method would control Finder, which macOS asks the user
/// to allow.
pub fn move_to_trash(path: &Path) -> Result<(), trash::Error> {
    let mut context = TrashContext::default();
    context.set_delete_method(DeleteMethod::NsFileManager);
    context.delete(path)
}
