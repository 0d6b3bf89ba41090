//! On a Mac the shell's own default loads the page again. Same surface as `linux.rs`.

use objc2::runtime::AnyObject;
use objc2_core_graphics::CGSessionCopyCurrentDictionary;
use objc2_foundation::{NSDictionary, NSUserDefaults, ns_string};
use tauri::WebviewWindow;

/// Why there is no display to open a window on, if there is none: a session over SSH has no window
/// server unless the user is logged in at the screen.
pub fn missing_display() -> Option<&'static str> {
    let missing = CGSessionCopyCurrentDictionary().is_none();
    missing.then_some(super::NO_SESSION)
}

/// Keeps `AppKit` from opening the command line's words as files: `ebb app FOLDER` would also be
/// asked to open a document "app". Folders on the Dock icon arrive all the same.
pub fn prepare() {
    let key = ns_string!("NSTreatUnknownArgumentsAsOpen");
    let no: &AnyObject = ns_string!("NO");
    let defaults = NSDictionary::from_slices(&[key], &[no]);
    // SAFETY: keys are strings and values are property lists, as the method expects. The values
    // stay in memory.
    unsafe { NSUserDefaults::standardUserDefaults().registerDefaults(&defaults) };
}

/// Nothing to do here.
pub fn load_anew_when_killed(_window: &WebviewWindow) -> tauri::Result<()> {
    Ok(())
}
