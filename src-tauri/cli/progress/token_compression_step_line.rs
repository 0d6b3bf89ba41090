//! The line that a training with token compression prints.

use pressure::MemorySample;
use runlog::{Figures, MISSING, format_count};
use std::fmt::Write;

/// Number of steps from one line to the next.
pub const EVERY: u64 = 10;

/// The line, such as "step 10 · unified memory 24.3 GB (50.7 %) · loss 1.234 · kept 50.0 % · reward
/// -1.734 · entropy 0.412 · NaN 0 · Inf 0". The first numbers are the memory that all processes
/// use, and its percentage of the total memory. The line says "unified memory" if CPU and GPU share
/// one memory.
pub fn line(step: u64, unified: bool, memory: Option<&MemorySample>, figures: &Figures) -> String {
    let mut line = format!("step {}", format_count(step));
    if let Some(sample) = memory {
        let used = sample.total_bytes.saturating_sub(sample.available_bytes);
        // Writing to a string cannot fail.
        let _ = write!(
            line,
            " · {}memory {:.1} GB ({:.1} %)",
            if unified { "unified " } else { "" },
            used as f64 / (1u64 << 30) as f64,
            100.0 * used as f64 / sample.total_bytes.max(1) as f64
        );
    }
    let measure = |name: &str| figures.step_metrics.get(name).copied();
    let parts = [
        ("loss", measure("reconstruction_loss"), 1.0, 3, ""),
        ("kept", measure("kept_fraction"), 100.0, 1, " %"),
        ("reward", measure("reward"), 1.0, 3, ""),
        ("entropy", measure("policy_entropy"), 1.0, 3, ""),
        ("NaN", measure("nan_gradients"), 1.0, 0, ""),
        ("Inf", measure("infinite_gradients"), 1.0, 0, ""),
    ];
    for (name, value, factor, digits, unit) in parts {
        let value = value.map_or(MISSING.to_owned(), |value| {
            format!("{:.digits$}{unit}", factor * value)
        });
        let _ = write!(line, " · {name} {value}");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_reports_memory_and_policy_metrics() {
        let sample = MemorySample {
            total_bytes: 48 << 30,
            available_bytes: (48u64 << 30) * 4932 / 10_000,
            ..MemorySample::default()
        };
        let mut figures = Figures::default();
        for (name, value) in [
            ("reconstruction_loss", 1.25),
            ("kept_fraction", 0.5),
            ("reward", -1.75),
            ("policy_entropy", 0.4125),
            ("nan_gradients", 0.0),
            ("infinite_gradients", 2.0),
        ] {
            figures.step_metrics.insert(name.to_owned(), value);
        }
        assert_eq!(
            line(10, true, Some(&sample), &figures),
            "step 10 · unified memory 24.3 GB (50.7 %) · loss 1.250 · kept 50.0 % · reward -1.750 · entropy 0.412 · NaN 0 · Inf 2"
        );
        let bare = line(20, false, None, &Figures::default());
        assert!(bare.starts_with("step 20 · loss –"), "{bare}");
    }
}
