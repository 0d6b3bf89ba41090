//! The formatters of this crate and those of the window (`ui/src/format.ts`) are tested with the
//! same amounts, so that they agree.

use format::{format_bytes, format_count, format_duration, format_in_unit, format_percent};
use serde_json::Value;

/// Formats the amounts under `name` in the file, each of which is beside its expected text.
fn check(name: &str, format: impl Fn(&Value) -> String) {
    let vectors: Value =
        serde_json::from_str(include_str!("vectors.json")).expect("the file is JSON");
    let cases = vectors[name].as_array().expect("it is a list");
    assert!(cases.len() > 5, "{name}");
    for case in cases {
        assert_eq!(format(&case[0]), case[1], "{name}: {}", case[0]);
    }
}

/// A whole number.
fn whole(amount: &Value) -> u64 {
    amount.as_u64().expect("it is a whole number")
}

/// A number; a missing one is not a number.
fn float(amount: &Value) -> f64 {
    amount.as_f64().unwrap_or(f64::NAN)
}

#[test]
fn amounts_read_as_in_the_window() {
    check("bytes", |bytes| format_bytes(whole(bytes)));
    check("counts", |count| format_count(whole(count)));
    check("durations", |seconds| format_duration(float(seconds)));
    check("fractions", |fraction| format_percent(float(fraction)));
    check("targets", |value| format_in_unit(float(value)));
}
