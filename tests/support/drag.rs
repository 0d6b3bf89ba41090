//! Drags a folder onto the window with the mouse, as from a file manager: a small GTK window offers
//! the folder's address, and xdotool moves the mouse. Needs a window manager, which it starts.

use super::until;
use super::xdotool::{PATIENCE, found, manager, place, running, xdotool};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Offers one folder under the mouse.
const SOURCE: &str = r#"
import sys, gi
gi.require_version("Gdk", "3.0")
gi.require_version("Gtk", "3.0")
from gi.repository import Gdk, GLib, Gtk
uri = GLib.filename_to_uri(sys.argv[1], None)
box = Gtk.EventBox()
box.add(Gtk.Label(label="DRAG"))
box.drag_source_set(Gdk.ModifierType.BUTTON1_MASK, [], Gdk.DragAction.COPY)
box.drag_source_add_uri_targets()
box.connect("drag-data-get", lambda w, c, data, i, t: data.set_uris([uri]))
window = Gtk.Window(title="ebb-test-source")
window.set_default_size(160, 120)
window.set_keep_above(True)
window.add(box)
window.show_all()
window.move(0, 0)
Gtk.main()
"#;

/// Releases the mouse button, whatever happens: a button that stays pressed would disturb the next
/// test.
struct Held;

impl Held {
    fn press() -> Self {
        let _ = xdotool(&["mousedown", "1"]);
        Held
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = xdotool(&["mouseup", "1"]);
    }
}

fn move_to(x: i32, y: i32) {
    let _ = xdotool(&["mousemove", &x.to_string(), &y.to_string()]);
}

/// Drags `folder` onto the window titled Ebb. `over` is called before the release and `dropped`
/// after it: the source must live until the window has asked it for the address.
pub fn drag(folder: &Path, over: impl FnOnce(), dropped: impl FnOnce()) {
    let _manager = manager();
    let mut python = Command::new("/usr/bin/python3");
    let _source = running(
        python.args(["-c", SOURCE]).arg(folder),
        "python3 is missing: run scripts/setup test",
    );
    let (target, source) = (found("Ebb"), found("ebb-test-source"));
    let _ = xdotool(&["windowmove", "--sync", &target, "300", "150"]);
    let _ = xdotool(&["windowraise", &source]);
    let pause = |ms| std::thread::sleep(Duration::from_millis(ms));
    pause(500);
    let [sx, sy, sw, sh] = until("the source's place", PATIENCE, || place(&source));
    let [tx, ty, tw, th] = until("the window's place", PATIENCE, || place(&target));
    let (from, to) = ((sx + sw / 2, sy + sh / 2), (tx + tw / 3, ty + th / 2));
    move_to(from.0, from.1);
    let held = Held::press();
    pause(300);
    for i in 1..=30 {
        move_to(
            from.0 + (to.0 - from.0) * i / 30,
            from.1 + (to.1 - from.1) * i / 30,
        );
        pause(60);
    }
    pause(700);
    over();
    drop(held);
    dropped();
}
