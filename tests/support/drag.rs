//! A folder dragged onto the window by the mouse, as from a file manager: a small GTK window offers the folder's address,
//! xdotool moves the mouse. Needs a window manager, which it starts.

use super::until;
use std::path::Path;
use std::process::{Child, Command, Stdio};
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

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn running(command: &mut Command, missing: &str) -> Running {
    Running(command.stdout(Stdio::null()).spawn().expect(missing))
}

fn xdotool(args: &[&str]) -> Option<String> {
    let asked = Command::new("xdotool")
        .args(args)
        .stderr(Stdio::null())
        .output();
    let answer = asked.expect("xdotool is missing: run scripts/setup test");
    let text = String::from_utf8_lossy(&answer.stdout).trim().to_owned();
    (answer.status.success() && !text.is_empty()).then_some(text)
}

/// Position and size of a window: x, y, width, height.
fn place(window: &str) -> Option<[i32; 4]> {
    let text = xdotool(&["getwindowgeometry", "--shell", window])?;
    let value = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_once('=')?.1.parse().ok()
    };
    Some([
        value("X=")?,
        value("Y=")?,
        value("WIDTH=")?,
        value("HEIGHT=")?,
    ])
}

fn move_to(x: i32, y: i32) {
    let _ = xdotool(&["mousemove", &x.to_string(), &y.to_string()]);
}

/// Drags `folder` onto the window titled Ebb. `over` is called while it hangs there.
pub fn drag(folder: &Path, over: impl FnOnce()) {
    let patience = Duration::from_secs(20);
    let _manager = running(
        &mut Command::new("openbox"),
        "openbox is missing: run scripts/setup test",
    );
    let mut python = Command::new("/usr/bin/python3");
    let _source = running(
        python.args(["-c", SOURCE]).arg(folder),
        "python3 is missing: run scripts/setup test",
    );
    let found = |title: &str| {
        let title = format!("^{title}$");
        until(
            "a window with this title (python3-gi and gir1.2-gtk-3.0 are needed)",
            patience,
            || {
                let ids = xdotool(&["search", "--onlyvisible", "--name", &title])?;
                ids.lines().last().map(str::to_owned)
            },
        )
    };
    let (target, source) = (found("Ebb"), found("ebb-test-source"));
    let _ = xdotool(&["windowmove", "--sync", &target, "300", "150"]);
    let _ = xdotool(&["windowraise", &source]);
    let pause = |ms| std::thread::sleep(Duration::from_millis(ms));
    pause(500);
    let [sx, sy, sw, sh] = until("the source's place", patience, || place(&source));
    let [tx, ty, tw, th] = until("the window's place", patience, || place(&target));
    let (from, to) = ((sx + sw / 2, sy + sh / 2), (tx + tw / 3, ty + th / 2));
    move_to(from.0, from.1);
    let _ = xdotool(&["mousedown", "1"]);
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
    let _ = xdotool(&["mouseup", "1"]);
}
