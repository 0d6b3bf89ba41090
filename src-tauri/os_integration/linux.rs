//! Linux: everything goes through the session bus, as the desktops specify. Same functions as
//! `macos.rs`.

use gio::glib::{Variant, VariantTy};
use gio::prelude::*;
use gio::{BusType, Cancellable, DBusCallFlags, DBusConnection};
use std::path::Path;
use std::process::{Command, Stdio};
use tauri::AppHandle;

/// What the file manager is called.
pub const FILE_MANAGER: &str = "the file manager";
/// A window that is hidden without a tray could not be reached.
pub const CLOSING_HIDES: bool = false;
/// A fullscreen window can be hidden like any other.
pub const FULLSCREEN_HAS_SPACE: bool = false;
/// How long another program may take to answer, in milliseconds.
const ANSWER_WAIT_MS: i32 = 1000;
/// Show a notification for as long as the desktop usually does.
const USUAL_DURATION: i32 = -1;
/// The libraries that draw a tray icon; one of them is enough. Without them, creating an icon
/// panics.
const TRAY_LIBRARIES: [&std::ffi::CStr; 2] =
    [c"libayatana-appindicator3.so.1", c"libappindicator3.so.1"];

/// An interface of a program on the session bus.
struct BusInterface {
    name: &'static str,
    path: &'static str,
    interface: &'static str,
}

const NOTIFICATIONS: BusInterface = BusInterface {
    name: "org.freedesktop.Notifications",
    path: "/org/freedesktop/Notifications",
    interface: "org.freedesktop.Notifications",
};
const FILES: BusInterface = BusInterface {
    name: "org.freedesktop.FileManager1",
    path: "/org/freedesktop/FileManager1",
    interface: "org.freedesktop.FileManager1",
};
const BUS: BusInterface = BusInterface {
    name: "org.freedesktop.DBus",
    path: "/org/freedesktop/DBus",
    interface: "org.freedesktop.DBus",
};
/// Owns this name if there is a tray.
const TRAY: &str = "org.kde.StatusNotifierWatcher";

impl BusInterface {
    fn call(&self, method: &str, arguments: &Variant) -> Result<Variant, gio::glib::Error> {
        let bus: DBusConnection = gio::bus_get_sync(BusType::Session, Cancellable::NONE)?;
        bus.call_sync(
            Some(self.name),
            self.path,
            self.interface,
            method,
            Some(arguments),
            None::<&VariantTy>,
            DBusCallFlags::NONE,
            ANSWER_WAIT_MS,
            Cancellable::NONE,
        )
    }
}

/// Shows a notification. Does nothing if the desktop shows none.
pub fn notify(title: &str, body: &str) {
    let hints = std::collections::HashMap::<String, Variant>::new();
    let arguments = (
        "Ebb",
        0_u32,
        "ebb",
        title,
        body,
        Vec::<String>::new(),
        hints,
        USUAL_DURATION,
    );
    let arguments = arguments.to_variant();
    tauri::async_runtime::spawn_blocking(move || drop(NOTIFICATIONS.call("Notify", &arguments)));
}

/// Does nothing: who starts Ebb without a terminal finds its messages in the session's log.
pub fn show_alert(_title: &str, _body: &str) {}

/// Does nothing: only windows can be hidden.
pub fn unhide_app(_app: &AppHandle) {}

/// Whether the desktop shows tray icons, and the library for them is installed.
pub fn has_tray() -> bool {
    let owner = BUS.call("NameHasOwner", &(TRAY,).to_variant());
    let shown = owner.is_ok_and(|owner| owner.get::<(bool,)>() == Some((true,)));
    let can_load = |name: &&std::ffi::CStr| {
        // SAFETY: `name` is a C string; the library only registers types when it is loaded.
        !unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY) }.is_null()
    };
    shown && TRAY_LIBRARIES.iter().any(can_load)
}

/// Selects a file or folder in the file manager, or opens the folder that contains it.
pub fn reveal(path: &Path) -> std::io::Result<()> {
    let uri = gio::File::for_path(path).uri().to_string();
    if FILES
        .call("ShowItems", &(vec![uri], "").to_variant())
        .is_ok()
    {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(path);
    let mut open = Command::new("xdg-open");
    open.arg(folder).stdout(Stdio::null()).stderr(Stdio::null());
    open.spawn().map(drop)
}
