//! Prints lines on the terminal. A closed pipe ends the output, but not the work, and nothing here
//! can panic. Other errors of stdout are reported at the end. Control characters in names and texts
//! cannot steer the terminal.

use std::borrow::Cow;
use std::fmt::Arguments;
use std::io::{Error, ErrorKind, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The error of the first line that could not be written.
static LOST: Mutex<Option<Error>> = Mutex::new(None);

/// Whether another process of the same training prints.
static IS_SILENT: AtomicBool = AtomicBool::new(false);

/// Prints nothing from now on: another process of the same training prints.
pub fn silence() {
    IS_SILENT.store(true, Ordering::Relaxed);
}

/// Whether [`silence`] was called.
pub fn is_silent() -> bool {
    IS_SILENT.load(Ordering::Relaxed)
}

/// Writes a line to stdout.
pub fn write_out(line: Arguments) {
    if is_silent() {
        return;
    }
    let text = line.to_string();
    let mut out = std::io::stdout().lock();
    keep(writeln!(out, "{}", harmless(&text)));
}

/// Writes a part of a line to stdout at once. Returns whether it arrived.
pub fn write_part(text: &str) -> bool {
    if is_silent() {
        return true;
    }
    let mut out = std::io::stdout().lock();
    let written = out
        .write_all(harmless(text).as_bytes())
        .and_then(|()| out.flush());
    let arrived = written.is_ok();
    keep(written);
    arrived
}

/// Writes a line to stderr.
pub fn write_status(line: Arguments) {
    if is_silent() {
        return;
    }
    let text = line.to_string();
    let _ = writeln!(std::io::stderr().lock(), "{}", harmless(&text));
}

fn keep(written: Result<(), Error>) {
    let Err(error) = written else {
        return;
    };
    if error.kind() != ErrorKind::BrokenPipe
        && let Ok(mut lost) = LOST.lock()
    {
        lost.get_or_insert(error);
    }
}

/// The reason why some output was lost; `None` if all of it was written or the reader closed the
/// pipe.
pub fn lost() -> Option<Error> {
    keep(std::io::stdout().flush());
    LOST.lock().ok()?.take()
}

/// Replaces control characters with their codes, except line feeds and tabs. The codes are those of
/// JSON, so that a line of JSON stays valid.
fn harmless(text: &str) -> Cow<'_, str> {
    let steers = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(steers) {
        return text.into();
    }
    let mut harmless = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) {
            harmless.push_str(&format!("\\u{:04x}", u32::from(c)))
        } else {
            harmless.push(c)
        }
    }
    harmless.into()
}

/// Like `println!`, but does not panic if stdout is a closed pipe.
macro_rules! out {
    ($($text:tt)*) => { $crate::cli::output::write_out(format_args!($($text)*)) };
}

/// Like `eprintln!`, but does not panic if the terminal is closed.
macro_rules! status {
    ($($text:tt)*) => { $crate::cli::output::write_status(format_args!($($text)*)) };
}

pub(crate) use {out, status};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_steer_the_terminal() {
        assert_eq!(harmless("\u{1b}[2Jcls\r"), "\\u001b[2Jcls\\u000d");
        // serde_json does not escape control characters above U+007E.
        let line = serde_json::json!({"text": "caf\u{85}"}).to_string();
        let read: serde_json::Value = serde_json::from_str(&harmless(&line)).expect("it is JSON");
        assert_eq!(read["text"], "caf\u{85}");
        assert_eq!(harmless("two\nlines\tof Äpfel"), "two\nlines\tof Äpfel");
    }
}
