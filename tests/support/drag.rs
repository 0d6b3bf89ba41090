//! Drags a folder onto the window with the mouse, as from a file manager, or a part of the page off
//! the window: a small GTK window offers or takes addresses, and xdotool moves the mouse. Needs a
//! window manager, which it starts.

use super::until;
use super::window::Window;
use super::xdotool::{PATIENCE, Running, found, manager, place, running, xdotool};
use std::fs;
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

/// Takes addresses: marks in one file that they are over it, and writes them into another one.
const TARGET: &str = r#"
import sys, gi
gi.require_version("Gdk", "3.0")
gi.require_version("Gtk", "3.0")
from gi.repository import Gdk, Gtk
box = Gtk.EventBox()
box.add(Gtk.Label(label="DROP"))
box.drag_dest_set(Gtk.DestDefaults.ALL, [], Gdk.DragAction.COPY | Gdk.DragAction.LINK)
box.drag_dest_add_uri_targets()

def moved(widget, context, x, y, time):
    open(sys.argv[1], "w").close()
    return False

def received(widget, context, x, y, data, info, time):
    with open(sys.argv[2], "w") as file:
        file.write("\n".join(data.get_uris()) + "\n")

box.connect("drag-motion", moved)
box.connect("drag-data-received", received)
window = Gtk.Window(title="ebb-test-target")
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

fn pause(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

/// Moves the mouse in small steps.
fn move_slowly(from: (i32, i32), to: (i32, i32)) {
    for i in 1..=30 {
        move_to(
            from.0 + (to.0 - from.0) * i / 30,
            from.1 + (to.1 - from.1) * i / 30,
        );
        pause(60);
    }
}

/// Starts another app from its Python source, and places it beside the window titled Ebb. Returns
/// its process, the window of Ebb, and that of the app, which has the title `title`.
fn beside_the_window(source: &str, args: &[&Path], title: &str) -> (Running, String, String) {
    let mut python = Command::new("/usr/bin/python3");
    let app = running(
        python.args(["-c", source]).args(args),
        "python3 is missing: run scripts/setup test",
    );
    let (ebb, other) = (found("Ebb"), found(title));
    let _ = xdotool(&["windowmove", "--sync", &ebb, "300", "150"]);
    let _ = xdotool(&["windowraise", &other]);
    pause(500);
    (app, ebb, other)
}

/// Drags `folder` onto the window titled Ebb. `over` is called before the release and `dropped`
/// after it: the source must live until the window has asked it for the address.
pub fn drag(folder: &Path, over: impl FnOnce(), dropped: impl FnOnce()) {
    let _manager = manager();
    let (_app, target, source) = beside_the_window(SOURCE, &[folder], "ebb-test-source");
    let [sx, sy, sw, sh] = until("the source's place", PATIENCE, || place(&source));
    let [tx, ty, tw, th] = until("the window's place", PATIENCE, || place(&target));
    let (from, to) = ((sx + sw / 2, sy + sh / 2), (tx + tw / 3, ty + th / 2));
    move_to(from.0, from.1);
    let held = Held::press();
    pause(300);
    move_slowly(from, to);
    pause(700);
    over();
    drop(held);
    dropped();
}

/// Where the page begins on the screen: the page says where in it the mouse is.
fn page_begins(window: &Window) -> (i32, i32) {
    let [x, y, width, height] = until("the window's place", PATIENCE, || place(&found("Ebb")));
    window.run("addEventListener('pointermove', ({clientX, clientY}) => (window.ebbMouse = [clientX, clientY]))");
    let mut moves = 0;
    until("the page feels the mouse", PATIENCE, || {
        moves += 1;
        let at = (x + width / 2 + moves % 2, y + height / 2);
        window.run("window.ebbMouse = null");
        move_to(at.0, at.1);
        pause(200);
        let mouse = window.run("return window.ebbMouse");
        let inside = |axis: usize| mouse[axis].as_f64().map(|pixels| pixels as i32);
        Some((at.0 - inside(0)?, at.1 - inside(1)?))
    })
}

/// Drags an element of the page to another app, once it can be dragged. Returns the addresses that
/// the app receives, one per line.
pub fn drag_off(window: &Window, selector: &str) -> String {
    let _manager = manager();
    let files = tempfile::tempdir().expect("a temporary folder");
    let (over, dropped) = (files.path().join("over"), files.path().join("dropped"));
    let (_app, _, target) = beside_the_window(TARGET, &[&over, &dropped], "ebb-test-target");
    let begin = page_begins(window);
    let middle = window.run(&format!(
        "const {{left, top, width, height}} = document.querySelector({selector:?}).getBoundingClientRect(); \
         return [Math.round(left + width / 2), Math.round(top + height / 2)]"
    ));
    let pixels = |axis: usize| middle[axis].as_i64().expect("it has a place") as i32;
    let from = (begin.0 + pixels(0), begin.1 + pixels(1));
    move_to(from.0, from.1);
    window.wait_for(
        "it can be dragged",
        &format!("return document.querySelector({selector:?}).draggable || null"),
    );
    let held = Held::press();
    pause(300);
    let [x, y, width, height] = until("the target's place", PATIENCE, || place(&target));
    let to = (x + width / 2, y + height / 2);
    move_slowly(from, to);
    let mut moves = 0;
    until("the other app knows of the drag", PATIENCE, || {
        moves += 1;
        move_to(to.0 + moves % 2, to.1);
        pause(200);
        over.exists().then_some(())
    });
    drop(held);
    until("the other app has the addresses", PATIENCE, || {
        let text = fs::read_to_string(&dropped).ok()?;
        text.ends_with('\n').then(|| text.trim().to_owned())
    })
}
