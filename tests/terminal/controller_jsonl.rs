//! The pilot flown from outside by a recorded trace: a calm, an app that takes memory, its leaving;
//! and traces that are refused.

use crate::support::{EBB, TestHome};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

const GB: u64 = 1 << 30;

/// Answers are read as they come: whoever asks waits for them.
struct PressedTraining {
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
    at_ms: u64,
}

impl PressedTraining {
    fn print(&mut self, line: &Value) {
        writeln!(self.ask, "{line}").expect("the pilot listens");
    }

    /// A machine of 16 GB where others use so much and Ebb `own_bytes`.
    fn see(&mut self, others_bytes: u64, own_bytes: u64) {
        self.at_ms += 100;
        let available = 16 * GB - others_bytes - own_bytes;
        let at_ms = self.at_ms;
        self.print(&json!({"kind": "sample", "at_ms": at_ms, "total_bytes": 16 * GB, "available_bytes": available, "own_bytes": own_bytes}));
    }

    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("an answer");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// Asks and works a piece of 1 GB and a quarter for each sample; its micro-batch.
    fn work(&mut self, others_bytes: u64) -> u64 {
        self.see(others_bytes, GB);
        self.print(&json!({"kind": "ask", "remaining": 16}));
        let decision = self.answer();
        assert_eq!(decision["kind"], "decision");
        assert!(
            decision["reason"]
                .as_str()
                .is_some_and(|reason| !reason.is_empty())
        );
        let size = decision["micro_batch"].as_u64().expect("a number");
        let peak_bytes = GB + size * GB / 4;
        if decision["action"] == "run" {
            self.print(&json!({"kind": "piece", "size": size, "peak_bytes": peak_bytes, "ms": 90, "outcome": "ok"}));
        }
        size
    }
}

#[test]
fn the_controller_grows_shrinks_and_cancels() {
    let mut child = Command::new(EBB)
        .args(["pilot", "--max_system_fraction", "0.9"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("ebb starts");
    let mut training = PressedTraining {
        ask: child.stdin.take().expect("it is a pipe"),
        answers: BufReader::new(child.stdout.take().expect("it is a pipe")),
        at_ms: 0,
    };
    let calm = (0..30).map(|_| training.work(4 * GB)).last();
    assert_eq!(calm, Some(16));
    let pressed = (0..30).map(|_| training.work(11 * GB)).last();
    assert!(pressed < Some(8), "{pressed:?}");
    training.print(&json!({"kind": "ask", "remaining": 16}));
    training.answer();
    training.see(13 * GB, 2 * GB + GB / 2);
    let cancel = training.answer();
    assert_eq!(cancel["kind"], "cancel", "{cancel}");
    drop(training);
    assert_eq!(
        child.wait().expect("it ends with its input").code(),
        Some(0)
    );
}

#[track_caller]
fn check_refused(trace: &str, expected: &str) {
    let home = TestHome::new();
    let file = home.file("trace", trace);
    let input = std::fs::File::open(file).expect("it was just written");
    let output = Command::new(EBB).arg("pilot").stdin(input).output();
    let output = output.expect("ebb starts");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains(expected), "{errors}");
}

#[test]
fn invalid_lines_are_refused_by_line_number() {
    let sample = |at_ms: u64| {
        json!({"kind": "sample", "at_ms": at_ms, "total_bytes": 8, "available_bytes": 4, "own_bytes": 1}).to_string()
    };
    check_refused(
        &format!("{}\n{}\n", sample(200), sample(100)),
        "Line 2: time must go on",
    );
    check_refused(
        &format!("{}\n\n{}\n", sample(0), sample(100)),
        "Line 2: the line is empty",
    );
    check_refused(
        &format!("{}\n{}\n", sample(0), sample(60_000)),
        "Line 2: 60000 ms without a sample",
    );
    check_refused("tea\n", "Line 1: this is not JSON");
}
