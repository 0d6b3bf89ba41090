//! `ebb controller` answers memory samples and micro-batches over JSON lines, and refuses invalid
//! lines.

use crate::support::{EBB, TestHome};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

const GB: u64 = 1 << 30;

/// `ebb controller` with its stdin and stdout.
struct Controller {
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    at_ms: u64,
}

impl Controller {
    fn send(&mut self, line: &Value) {
        writeln!(self.stdin, "{line}").expect("the controller reads its input");
    }

    /// Sends a sample of a machine of 16 GB.
    fn send_sample(&mut self, others_bytes: u64, own_bytes: u64) {
        self.at_ms += 100;
        let available = 16 * GB - others_bytes - own_bytes;
        let at_ms = self.at_ms;
        self.send(&json!({"kind": "sample", "at_ms": at_ms, "total_bytes": 16 * GB, "available_bytes": available, "own_bytes": own_bytes}));
    }

    fn read_answer(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("an read_answer");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// Asks for a micro-batch and reports that it needed 1 GB plus 0.25 GB per sample. Returns its
    /// size.
    fn run_micro_batch(&mut self, others_bytes: u64) -> u64 {
        self.send_sample(others_bytes, GB);
        self.send(&json!({"kind": "ask", "remaining": 16}));
        let decision = self.read_answer();
        assert_eq!(decision["kind"], "decision");
        assert!(
            decision["reason"]
                .as_str()
                .is_some_and(|reason| !reason.is_empty())
        );
        let size = decision["micro_batch"].as_u64().expect("a number");
        let peak_bytes = GB + size * GB / 4;
        if decision["action"] == "run" {
            self.send(&json!({"kind": "micro_batch", "size": size, "peak_bytes": peak_bytes, "ms": 90, "outcome": "ok"}));
        }
        size
    }
}

#[test]
fn the_controller_grows_shrinks_and_cancels() {
    let mut child = Command::new(EBB)
        .args(["controller", "--max-system-fraction", "0.9"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("ebb starts");
    let mut controller = Controller {
        stdin: child.stdin.take().expect("the stream is piped"),
        stdout: BufReader::new(child.stdout.take().expect("the stream is piped")),
        at_ms: 0,
    };
    let calm = (0..30).map(|_| controller.run_micro_batch(4 * GB)).last();
    assert_eq!(calm, Some(16));
    let pressed = (0..30).map(|_| controller.run_micro_batch(11 * GB)).last();
    // 0.9 of 16 GB less 11 GB leave 3.4 GB. Nine samples need 3.25 GB.
    assert!(pressed <= Some(9), "{pressed:?}");
    controller.send(&json!({"kind": "ask", "remaining": 16}));
    controller.read_answer();
    controller.send_sample(13 * GB, 2 * GB + GB / 2);
    let cancel = controller.read_answer();
    assert_eq!(cancel["kind"], "cancel", "{cancel}");
    drop(controller);
    assert_eq!(
        child
            .wait()
            .expect("the process ends with its input")
            .code(),
        Some(0)
    );
}

#[track_caller]
fn check_refused(trace: &str, expected: &str) {
    let home = TestHome::new();
    let file = home.file("trace", trace);
    let input = std::fs::File::open(file).expect("it was just written");
    let output = Command::new(EBB).arg("controller").stdin(input).output();
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
        "Line 2: times must not decrease, but 100 ms follows 200 ms",
    );
    check_refused(
        &format!("{}\n\n{}\n", sample(0), sample(100)),
        "Line 2: the line is empty",
    );
    check_refused(
        &format!("{}\n{}\n", sample(0), sample(60_000)),
        "Line 2: 60000 ms passed without a memory sample; the longest allowed gap is ",
    );
    check_refused("tea\n", "Line 1: this is not JSON");
    check_refused(&" ".repeat(2 << 20), "a line is longer than 1 MB");
}
