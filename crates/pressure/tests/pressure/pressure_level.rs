//! The pressure signal compared with the source of its thresholds: the kernel's own tests on its
//! page counts, for entering and leaving every level.

use pressure::{Level, LevelTracker, MemorySample, pressure};

const GB: u64 = 1 << 30;
/// Pages that the kernel counts for its level: active, inactive, free, speculative and compressed
/// ones.
const PAGES: u64 = 1_000_000;

/// A machine with plenty of memory whose compressor leaves `left` of those pages.
fn sample(left: u64, kernel_level: Option<Level>) -> MemorySample {
    MemorySample {
        total_bytes: 36 * GB,
        available_bytes: 36 * GB,
        compressor_fraction: Some(1.0 - left as f64 / PAGES as f64),
        kernel_level,
        ..MemorySample::default()
    }
}

/// The level that the macOS kernel goes to: `vm_pageout.c` on machines of more than 3 GB with a
/// solid-state disk.
fn kernel(before: Level, left: u64) -> Level {
    let below = |numerator: u64, denominator: u64| left < PAGES * numerator / denominator;
    match before {
        Level::Critical if !below(14, 35) => kernel(Level::Warning, left),
        Level::Critical => Level::Critical,
        _ if below(12, 35) => Level::Critical,
        Level::Warning if !below(12, 20) => Level::Normal,
        Level::Normal if !below(10, 20) => Level::Normal,
        Level::Normal | Level::Warning => Level::Warning,
    }
}

#[test]
fn the_compressor_curve_has_the_thresholds_of_the_kernel() {
    let marks = [
        ("warning", PAGES * 10 / 20, 0.5),
        ("critical", PAGES * 12 / 35, 0.8),
        ("hard throttle", PAGES * 9 / 50, 1.0),
    ];
    for (mark, left, value) in marks {
        let got = pressure(&sample(left, None)).value;
        assert!((got - value).abs() < 1e-3, "{mark}: {got}, not {value}");
    }
}

#[test]
fn a_level_begins_with_the_kernel_and_ends_no_earlier() {
    let (mut theirs, mut ours) = (Level::Normal, LevelTracker::default());
    let up_and_down = (0..=900u64).chain((0..900).rev());
    let mut changes = Vec::new();
    for (i, compressed) in up_and_down.enumerate() {
        let left = PAGES - compressed * PAGES / 1_000;
        let before = theirs;
        theirs = kernel(theirs, left);
        let level = ours.update(100 * i as u64, pressure(&sample(left, Some(theirs))).value);
        assert!(
            level >= theirs,
            "{level:?} at {compressed} per mille, the kernel says {theirs:?}"
        );
        if theirs != before {
            changes.push((theirs, compressed, level));
        }
    }
    // Up at .500 and .657, down at .600 and .400; ours leaves 2 s later.
    use Level::{Critical, Normal, Warning};
    let expected = [
        (Warning, 501, Warning),
        (Critical, 658, Critical),
        (Warning, 600, Critical),
        (Normal, 400, Warning),
    ];
    assert_eq!(changes, expected);
    assert_eq!(ours.level(), Normal);
}
