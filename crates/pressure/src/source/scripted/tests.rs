//! Valid scripts by time and by sample, and invalid ones.

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::{TempDir, tempdir};

const GOOD: &str = r#"{"at_ms":100,"total_bytes":1000,"others_bytes":100}
{"at_ms":300,"total_bytes":1000,"others_bytes":500,"level":"warning"}
{"at_ms":600,"total_bytes":1000,"others_bytes":950}
"#;

fn open(text: &str, advance: Advance) -> Result<(TempDir, Scripted), PressureError> {
    let folder = tempdir().expect("a scratch folder");
    let path = folder.path().join("wave.jsonl");
    std::fs::write(&path, text).expect("a file can be written");
    Scripted::open(&path, advance, || 100).map(|scripted| (folder, scripted))
}

fn row(sample: MemorySample) -> (u64, u64, u64, Option<Level>) {
    (
        sample.at_ms,
        sample.available_bytes,
        sample.others_bytes(),
        sample.kernel_level,
    )
}

#[test]
fn by_sample_each_sample_is_the_next_line_and_the_last_stays() {
    let (_folder, mut scripted) = open(GOOD, Advance::Sample).expect("a good script");
    let rows: Vec<_> = (0..5)
        .map(|_| row(scripted.sample().expect("a script is readable")))
        .collect();
    assert_eq!(
        rows,
        [
            (100, 800, 100, None),
            (300, 400, 500, Some(Level::Warning)),
            (600, 0, 900, None), // others and Ebb together use more than the total
            (900, 0, 900, None),
            (1200, 0, 900, None),
        ]
    );
    assert!(scripted.is_stepped());
}

#[test]
fn by_time_the_newest_line_that_is_due_applies() {
    let now = Arc::new(AtomicU64::new(0));
    let clock = {
        let now = now.clone();
        Box::new(move || now.load(Ordering::Relaxed))
    };
    let (_folder, mut scripted) = open(GOOD, Advance::Time(clock)).expect("a good script");
    for (at_ms, available) in [
        (0, 800),
        (100, 800),
        (299, 800),
        (300, 400),
        (599, 400),
        (600, 0),
        (99_000, 0),
    ] {
        now.store(at_ms, Ordering::Relaxed);
        let sample = scripted.sample().expect("a script is readable");
        assert_eq!((sample.at_ms, sample.available_bytes), (at_ms, available));
    }
    assert!(!scripted.is_stepped());
}

#[test]
fn a_bad_script_is_refused_with_line_and_reason() {
    let good = r#"{"at_ms":100,"total_bytes":1000,"others_bytes":100}"#;
    for (bad, reason) in [
        ("", "the line is empty"),
        (
            r#"{"at_ms":100,"total_bytes":1000,"others_bytes":100}"#,
            "time must increase, but 100 ms follows 100 ms",
        ),
        (
            r#"{"at_ms":50,"total_bytes":1000,"others_bytes":100}"#,
            "time must increase, but 50 ms follows 100 ms",
        ),
        (
            r#"{"at_ms":200,"total_bytes":1000,"others":100}"#,
            r#"the key "others" is unknown"#,
        ),
        (
            r#"{"at_ms":200,"total_bytes":1000}"#,
            r#""others_bytes" is missing"#,
        ),
        (
            r#"{"at_ms":200,"total_bytes":1000,"others_bytes":-1}"#,
            r#""others_bytes" is -1, not a whole number"#,
        ),
        (
            r#"{"at_ms":200,"total_bytes":1.5,"others_bytes":1}"#,
            r#""total_bytes" is 1.5, not a whole number"#,
        ),
        (
            r#"{"at_ms":200,"total_bytes":0,"others_bytes":0}"#,
            r#""total_bytes" must not be 0"#,
        ),
        (
            r#"{"at_ms":200,"total_bytes":10,"others_bytes":11}"#,
            "other apps use 11 bytes, more than the total of 10 bytes",
        ),
        (
            r#"{"at_ms":200,"total_bytes":9,"others_bytes":1,"level":"high"}"#,
            r#""level" is "high", not "normal""#,
        ),
        (
            r#"{"at_ms":200,"total_bytes":9,"others_bytes":1,"disk_free_bytes":"2GB"}"#,
            r#""disk_free_bytes" is "2GB", not a whole number"#,
        ),
        (
            r#"{"at_ms":18446744073709551615,"total_bytes":9,"others_bytes":1}"#,
            r#""at_ms" is 18446744073709551615, not a whole number from 0 to 9007199254740992"#,
        ),
        ("[1]", "not a JSON object"),
        (r#"{"at_ms":200"#, "this is not JSON"),
    ] {
        let text = format!("{good}\n{bad}\n{good}\n");
        let message = open(&text, Advance::Sample)
            .map(|_| ())
            .expect_err(bad)
            .to_string();
        assert!(message.contains(reason), "{bad}\n{message}");
        assert!(message.contains("wave.jsonl, line 2: "), "{message}");
    }
}

#[test]
fn an_empty_or_missing_script_is_refused() {
    let empty = open("", Advance::Sample)
        .map(|_| ())
        .expect_err("an empty script")
        .to_string();
    assert!(
        empty.contains("is empty. Write at least one line"),
        "{empty}"
    );
    let path = Path::new("/nowhere/wave.jsonl");
    let missing = Scripted::open(path, Advance::Sample, || 0)
        .map(|_| ())
        .expect_err("a missing script")
        .to_string();
    assert!(
        missing.starts_with("The memory script /nowhere/wave.jsonl could not be read"),
        "{missing}"
    );
}
