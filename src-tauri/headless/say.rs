//! Lines for the terminal. A reader that has gone away ends the output, never the work: nothing here can panic.

use std::fmt::Arguments;
use std::io::Write;

/// A line on stdout.
pub fn write_out(line: Arguments) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// A line on stderr.
pub fn write_aside(line: Arguments) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// `println!` that survives a closed pipe.
macro_rules! out {
    ($($text:tt)*) => { $crate::headless::say::write_out(format_args!($($text)*)) };
}

/// `eprintln!` that survives a closed terminal.
macro_rules! aside {
    ($($text:tt)*) => { $crate::headless::say::write_aside(format_args!($($text)*)) };
}

pub(crate) use {aside, out};
