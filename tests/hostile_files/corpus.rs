//! Every file of the corpus, with 2 GB of address space.

use crate::corpus_of;
use crate::readers::READERS;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

/// Environment variable of the child process.
const CHILD: &str = "EBB_TEST_READS_CORPUS";
/// What the child prints last.
const DONE: &str = "read the whole corpus";
/// Longest time for one file. Most take less than a millisecond.
const LONGEST: Duration = Duration::from_secs(2);

/// Runs itself in a child process, because a refused allocation aborts the process.
#[test]
fn every_file_is_read_or_refused_with_a_sentence() {
    if std::env::var_os(CHILD).is_some() {
        return read_corpus();
    }
    let thread = std::thread::current();
    let out = Command::new("sh")
        // macOS has no such limit; the sentences are checked there all the same.
        .args([
            "-c",
            "ulimit -v 2000000 2>/dev/null; exec \"$0\" --exact \"$1\" --nocapture",
        ])
        .arg(std::env::current_exe().expect("the test has a path"))
        .arg(thread.name().expect("test threads have names"))
        .env(CHILD, "1")
        .output()
        .expect("sh can be started");
    let text =
        String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(
        out.status.success() && text.contains(DONE),
        "{} {text}",
        out.status
    );
}

/// Runs in the child process, whose output names the file that ended it.
fn read_corpus() {
    for (name, read) in READERS {
        for file in corpus_of(name) {
            let bytes = fs::read(&file).expect("it can be read");
            println!("{}", file.display());
            let begin = Instant::now();
            let outcome = read(&bytes);
            if begin.elapsed() > LONGEST {
                // Another process may have had the machine.
                let again = Instant::now();
                drop(read(&bytes));
                let took = again.elapsed();
                assert!(took <= LONGEST, "{}: {took:?}", file.display());
            }
            if let Err(sentence) = outcome {
                let words = sentence.split_whitespace().count();
                assert!(words >= 3, "{}: {sentence:?}", file.display());
            }
        }
    }
    println!("{DONE}");
}
