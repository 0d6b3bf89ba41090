//! Every file of the corpus, with 2 GB of address space: each takes at most two seconds and 1 GB.

use crate::corpus_of;
use crate::large::{MOST_BYTES, forget_peak, peak_bytes, slowdown};
use crate::readers::READERS;
use crate::small_child::{CHILD, run_in_small_child};
use std::fs;
use std::time::{Duration, Instant};

/// What the child prints last.
const DONE: &str = "read the whole corpus";
/// Longest time for one file. Most take less than a millisecond.
const LONGEST: Duration = Duration::from_secs(2);

/// Runs itself in a child process with 2 GB of address space.
#[test]
fn every_file_is_read_or_refused_with_a_sentence() {
    if std::env::var_os(CHILD).is_some() {
        return read_corpus();
    }
    run_in_small_child(2_000_000, "1", DONE);
}

/// Runs in the child process, whose output names the file that ended it.
fn read_corpus() {
    for (name, read) in READERS {
        for file in corpus_of(name) {
            let bytes = fs::read(&file).expect("it can be read");
            println!("{}", file.display());
            forget_peak();
            let before = peak_bytes();
            let begin = Instant::now();
            let outcome = read(&bytes);
            // Without the system's counter, nothing is measured.
            if let Some((peak, before)) = peak_bytes().zip(before) {
                let grown = peak.saturating_sub(before);
                assert!(grown <= MOST_BYTES, "{}: {grown} bytes", file.display());
            }
            if begin.elapsed() > LONGEST {
                // Another process may have had the machine.
                let again = Instant::now();
                drop(read(&bytes));
                let took = again.elapsed();
                let longest = LONGEST.max(LONGEST.mul_f64(slowdown()));
                assert!(took <= longest, "{}: {took:?}", file.display());
            }
            if let Err(sentence) = outcome {
                let words = sentence.split_whitespace().count();
                assert!(words >= 3, "{}: {sentence:?}", file.display());
            }
        }
    }
    println!("{DONE}");
}
