//! Who follows a download: the terminal, or a job of the window.

use super::RemoteFile;
use indicatif::{ProgressBar, ProgressStyle};
use std::cell::RefCell;

/// Follows a download, and may end it.
pub trait Observer {
    /// Receives a line about what happens.
    fn print(&self, line: &str);

    /// `done` bytes of the file are on the disk.
    fn progress(&self, file: &RemoteFile, done: u64);

    /// Whether the download should end. What was downloaded stays.
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// Prints lines, and draws a bar while a file is downloaded.
pub struct TerminalObserver<'a> {
    print: &'a dyn Fn(&str),
    bar: RefCell<Option<ProgressBar>>,
}

impl<'a> TerminalObserver<'a> {
    pub fn new(print: &'a dyn Fn(&str)) -> Self {
        TerminalObserver {
            print,
            bar: RefCell::default(),
        }
    }

    fn clear(&self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Observer for TerminalObserver<'_> {
    fn print(&self, line: &str) {
        self.clear();
        (self.print)(line);
    }

    fn progress(&self, file: &RemoteFile, done: u64) {
        if done >= file.size {
            return self.clear();
        }
        let mut bar = self.bar.borrow_mut();
        let bar = bar.get_or_insert_with(|| {
            let bar = ProgressBar::new(file.size).with_position(done);
            match ProgressStyle::with_template("  {bytes} of {total_bytes}, {bytes_per_sec}") {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            }
        });
        bar.set_position(done);
    }
}

impl Drop for TerminalObserver<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}
