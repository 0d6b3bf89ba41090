//! Reads a folder as a config asks for, and shows how much of it is read if that takes long.

use super::output::status;
use dataset::{DatasetError, DetectedDataset, Duplicates, ReadProgress};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use runlog::{RunConfig, format_bytes, format_count, format_duration};
use std::cell::Cell;
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

/// Nothing is shown before this time.
const SHOWN_AFTER: Duration = Duration::from_secs(1);
/// Least fraction that was read before the time left is shown.
const LEAST_FRACTION: f64 = 0.01;
/// Interval between two lines if stderr is not a terminal.
const PLAIN_EVERY: Duration = Duration::from_secs(10);

/// Reads a folder. Ctrl-C ends the process as usual, unless the command handles it already.
///
/// # Errors
/// The folder cannot be read, or a list of classes cannot.
pub fn read_folder(folder: &Path, config: &RunConfig) -> trainer::Result<DetectedDataset> {
    let line = ReadingLine::new();
    let found = trainer::read_dataset(folder, config, &|read| line.show(read));
    if let Some(bar) = line.bar {
        bar.finish_and_clear();
    }
    found
}

/// Finds the duplicates of a dataset, and shows how many samples are compared.
///
/// # Errors
/// A file of texts has changed since the inspection.
pub fn find_duplicates(found: &DetectedDataset) -> Result<Option<Duplicates>, DatasetError> {
    let line = ReadingLine::new();
    let all_files = found.sample_count();
    let duplicates = dataset::find_duplicates(found, &|files| {
        line.show(ReadProgress {
            files,
            all_files,
            compares: true,
            ..ReadProgress::default()
        });
        true
    });
    if let Some(bar) = line.bar {
        bar.finish_and_clear();
    }
    duplicates
}

/// The line that shows how much is read.
struct ReadingLine {
    bar: Option<ProgressBar>,
    /// When the reading of headers or texts began.
    begun: Cell<Instant>,
    /// Whether bytes of texts are read, and whether samples are compared.
    phase: Cell<[bool; 2]>,
    /// Time of the newest plain line.
    printed: Cell<Option<Instant>>,
}

impl ReadingLine {
    fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
            let style = ProgressStyle::with_template("{wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        ReadingLine {
            bar,
            begun: Cell::new(Instant::now()),
            phase: Cell::new([false; 2]),
            printed: Cell::new(None),
        }
    }

    fn show(&self, read: ReadProgress) {
        let now = Instant::now();
        let phase = [read.all_bytes > 0, read.compares];
        if phase != self.phase.get() {
            self.phase.set(phase);
            self.begun.set(now);
        }
        let elapsed = now - self.begun.get();
        if elapsed < SHOWN_AFTER {
            return;
        }
        match &self.bar {
            Some(bar) => bar.set_message(reading(read, elapsed)),
            None => {
                let last = self.printed.get();
                if last.is_none_or(|last| now - last >= PLAIN_EVERY) {
                    self.printed.set(Some(now));
                    status!("{}", reading(read, elapsed));
                }
            }
        }
    }
}

/// "Reading 1.2 GB of 9.3 GB of texts · 0:12 left".
fn reading(read: ReadProgress, elapsed: Duration) -> String {
    if read.files > read.all_files && !read.compares {
        return format!("Listing files, {} so far", format_count(read.files));
    }
    let line = if read.all_bytes > 0 {
        let (done, all) = (format_bytes(read.bytes), format_bytes(read.all_bytes));
        format!("Reading {done} of {all} of texts")
    } else {
        let (done, all) = (format_count(read.files), format_count(read.all_files));
        if read.compares {
            format!("Comparing {done} of {all} samples")
        } else {
            format!("Reading {done} of {all} files")
        }
    };
    let fraction = read.fraction();
    if fraction < LEAST_FRACTION {
        return line;
    }
    let left = elapsed.as_secs_f64() * (1.0 / fraction - 1.0).max(0.0);
    format!("{line} · {} left", format_duration(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_the_remaining_time() {
        let headers = ReadProgress {
            files: 250_000,
            all_files: 1_000_000,
            ..ReadProgress::default()
        };
        assert_eq!(
            reading(headers, Duration::from_secs(10)),
            "Reading 250,000 of 1,000,000 files · 0:30 left"
        );
        let texts = ReadProgress {
            bytes: 1 << 30,
            all_bytes: 2 << 30,
            ..headers
        };
        let line = reading(texts, Duration::from_secs(65));
        assert_eq!(line, "Reading 1.0 GB of 2.0 GB of texts · 1:05 left");
        let listed = ReadProgress {
            files: 250_000,
            ..ReadProgress::default()
        };
        let line = reading(listed, Duration::from_secs(2));
        assert_eq!(line, "Listing files, 250,000 so far");
        let begun = ReadProgress {
            files: 1024,
            ..headers
        };
        let line = reading(begun, Duration::from_secs(20));
        assert_eq!(line, "Reading 1,024 of 1,000,000 files");
        let compared = ReadProgress {
            compares: true,
            ..headers
        };
        assert_eq!(
            reading(compared, Duration::from_secs(10)),
            "Comparing 250,000 of 1,000,000 samples · 0:30 left"
        );
        let none = ReadProgress::default();
        assert_eq!(
            reading(none, Duration::from_secs(2)),
            "Reading 0 of 0 files"
        );
    }
}
