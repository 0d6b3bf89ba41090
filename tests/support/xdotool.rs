//! The display of a test: a window manager, windows by title, keys and mouse by xdotool.

use super::until;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for a window to appear.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Longest wait for a window to get the keyboard focus.
const GIVEN_WITHIN: Duration = Duration::from_secs(1);

/// Longest wait until a text is in a field.
const TYPED_WITHIN: Duration = Duration::from_secs(60);

/// Prints the selected text.
const SELECTED: &str = r#"
import gi
gi.require_version("Gdk", "3.0")
gi.require_version("Gtk", "3.0")
from gi.repository import Gdk, Gtk
print(Gtk.Clipboard.get(Gdk.SELECTION_PRIMARY).wait_for_text() or "")
"#;

/// A window manager, so that windows have focus and can be asked to close.
pub fn manager() -> Running {
    running(
        &mut Command::new("openbox"),
        "openbox is missing: run scripts/setup test",
    )
}

/// The newest visible window of this title.
pub fn found(title: &str) -> String {
    let name = format!("^{title}$");
    until(
        &format!("a window titled {title} (python3-gi and gir1.2-gtk-3.0 are needed)"),
        PATIENCE,
        || {
            let ids = xdotool(&["search", "--onlyvisible", "--name", &name])?;
            ids.lines().last().map(str::to_owned)
        },
    )
}

/// A process that ends with the test.
pub struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn running(command: &mut Command, missing: &str) -> Running {
    Running(command.stdout(Stdio::null()).spawn().expect(missing))
}

/// The output of xdotool; `None` if it fails or prints nothing.
pub fn xdotool(args: &[&str]) -> Option<String> {
    let asked = Command::new("xdotool")
        .args(args)
        .stderr(Stdio::null())
        .output();
    let answer = asked.expect("xdotool is missing: run scripts/setup test");
    let text = String::from_utf8_lossy(&answer.stdout).trim().to_owned();
    (answer.status.success() && !text.is_empty()).then_some(text)
}

/// Gives a window the keyboard focus, and returns whether it has it: a window in front of it may
/// keep the focus. Does not wait as long as xdotool's own `--sync`, which takes a quarter of a
/// minute.
pub fn activate(window: &str) -> bool {
    let _ = xdotool(&["windowactivate", window]);
    let begin = Instant::now();
    while begin.elapsed() < GIVEN_WITHIN {
        if xdotool(&["getactivewindow"]).as_deref() == Some(window) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// Types a text into the field of a window that has the keyboard, in place of what is there. Tries
/// again until all of it is there: a window that is still being drawn loses letters.
pub fn fill_in(window: &str, text: &str) {
    until(&format!("{text} is typed"), TYPED_WITHIN, || {
        activate(window);
        let _ = xdotool(&["key", "ctrl+a"]);
        let _ = xdotool(&["type", "--delay", "5", text]);
        let _ = xdotool(&["key", "ctrl+a"]);
        let mut python = Command::new("/usr/bin/python3");
        let selected = python.args(["-c", SELECTED]).output();
        let selected = selected.expect("python3 is missing: run scripts/setup test");
        (String::from_utf8_lossy(&selected.stdout).trim() == text).then_some(())
    });
}

/// Position and size of a window: x, y, width, height.
pub fn place(window: &str) -> Option<[i32; 4]> {
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
