//! Prints lines on the terminal. A closed pipe ends the output, but not the work, and nothing here
//! can panic. Other errors of stdout are reported at the end. Control characters in names and texts
//! cannot steer the terminal.

use std::borrow::Cow;
use std::fmt::Arguments;
use std::io::{Error, ErrorKind, Write};
use std::sync::Mutex;

/// The error of the first line that could not be written.
static LOST: Mutex<Option<Error>> = Mutex::new(None);

/// A line on stdout.
pub fn write_out(line: Arguments) {
    let text = line.to_string();
    let mut out = std::io::stdout().lock();
    keep(writeln!(out, "{}", harmless(&text)));
}

/// A line on stderr.
pub fn write_status(line: Arguments) {
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

/// Why some output was lost; `None` if all of it was written or the reader closed the pipe.
pub fn lost() -> Option<Error> {
    keep(std::io::stdout().flush());
    LOST.lock().ok()?.take()
}

/// Replaces control characters with their codes, except line feeds and tabs.
fn harmless(text: &str) -> Cow<'_, str> {
    let steers = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(steers) {
        return text.into();
    }
    let mut harmless = String::with_capacity(text.len());
    for c in text.chars() {
        match steers(c) {
            true => harmless.extend(c.escape_default()),
            false => harmless.push(c),
        }
    }
    harmless.into()
}

/// `println!` that survives a closed pipe.
macro_rules! out {
    ($($text:tt)*) => { $crate::cli::output::write_out(format_args!($($text)*)) };
}

/// `eprintln!` that survives a closed terminal.
macro_rules! status {
    ($($text:tt)*) => { $crate::cli::output::write_status(format_args!($($text)*)) };
}

pub(crate) use {out, status};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_steer_the_terminal() {
        assert_eq!(harmless("\u{1b}[2Jcls\r"), "\\u{1b}[2Jcls\\r");
        assert_eq!(harmless("two\nlines\tof Äpfel"), "two\nlines\tof Äpfel");
    }
}
