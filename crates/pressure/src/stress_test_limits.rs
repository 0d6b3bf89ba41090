//! How much memory a stress test may take. A stress test takes memory on purpose for a while, so
//! that a user can watch Ebb react. Pure: the caller asks before and while it takes memory. Never
//! endangers the machine.

use crate::budget::reserve_bytes;
use crate::error::PressureError;
use crate::memory_sample::{Level, MemorySample};
use crate::policy::{MIN_STRESS_TEST_BYTES, Policy, STRESS_TEST_PART};
use format::format_bytes;

/// Bytes that a stress test takes: `requested`, or a quarter of available memory. The reserve that
/// Ebb leaves to other apps stays free in any case.
///
/// # Errors
/// The request is 0 or too large, memory is short already, or the machine cannot be read.
pub fn stress_test_bytes(
    sample: &MemorySample,
    requested: Option<u64>,
) -> Result<u64, PressureError> {
    let reserve = reserve_bytes(&Policy::default(), sample);
    let most = sample.available_bytes.saturating_sub(reserve);
    let calm = sample.kernel_level.unwrap_or_default() == Level::Normal;
    let refuse = |reason: String| Err(PressureError::StressTestRefused { reason });
    if sample.total_bytes == 0 {
        return refuse(
            "This machine's memory cannot be read, so a stress test would not be safe".into(),
        );
    }
    if most < MIN_STRESS_TEST_BYTES || !calm {
        return refuse("Memory is short already. Close other apps before a stress test".into());
    }
    let bytes = requested.unwrap_or((sample.available_bytes / STRESS_TEST_PART).min(most));
    if bytes == 0 {
        let most = most >> 20;
        return refuse(format!("A stress test needs a size of 1 to {most} MB"));
    }
    if bytes > most {
        return refuse(format!(
            "A stress test of {} would endanger this machine: choose 1 to {} MB to leave {} to other apps",
            format_bytes(bytes),
            most >> 20,
            format_bytes(reserve)
        ));
    }
    Ok(bytes)
}

/// Whether a running stress test must not take more: only the reserve is left.
pub fn stress_test_is_full(sample: &MemorySample) -> bool {
    sample.available_bytes <= reserve_bytes(&Policy::default(), sample)
}

/// Whether a running stress test must free everything at once: half of the reserve is used, or the
/// system is critical.
pub fn stress_test_is_over(sample: &MemorySample) -> bool {
    sample.available_bytes <= reserve_bytes(&Policy::default(), sample) / 2
        || sample.kernel_level == Some(Level::Critical)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1 << 30;

    fn sample(available_bytes: u64) -> MemorySample {
        MemorySample {
            total_bytes: 20 * GB,
            available_bytes,
            ..MemorySample::default()
        }
    }

    /// Of 20 GB, Ebb leaves 2 GB free, less a byte of rounding.
    #[test]
    fn a_stress_test_leaves_the_reserve_free() {
        let granted = |available, requested| stress_test_bytes(&sample(available), requested).ok();
        for (available, requested, expected) in [
            (16 * GB, None, Some(4 * GB)),
            (GB * 5 / 2 - 1, None, Some(GB / 2)), // a quarter would leave less than the reserve
            (16 * GB, Some(14 * GB), Some(14 * GB)),
            (16 * GB, Some(14 * GB + 2), None),
            (16 * GB, Some(0), None),
            (2 * GB, None, None),
            (0, Some(GB), None),
        ] {
            assert_eq!(
                granted(available, requested),
                expected,
                "{available} {requested:?}"
            );
        }
    }

    #[test]
    fn a_refusal_names_what_is_possible() {
        let message = |sample, requested| {
            stress_test_bytes(&sample, requested)
                .expect_err("refused")
                .to_string()
        };
        let large = message(sample(4 * GB), Some(3 * GB));
        assert!(
            large.contains("3.0 GB") && large.contains("1 to 2048 MB"),
            "{large}"
        );
        let nothing = message(sample(4 * GB), Some(0));
        assert!(
            nothing.contains("1 to 2048 MB") && !nothing.contains("endanger"),
            "{nothing}"
        );
        assert!(message(MemorySample::default(), None).contains("cannot be read"));
        let warned = MemorySample {
            kernel_level: Some(Level::Warning),
            ..sample(16 * GB)
        };
        assert!(message(warned, None).contains("short already"));
    }

    #[test]
    fn a_stress_test_stops_at_the_reserve_and_ends_at_half_of_it() {
        for (available, full, over) in [
            (3 * GB, false, false),
            (2 * GB - 1, true, false),
            (GB - 1, true, true),
        ] {
            let sample = sample(available);
            assert_eq!(
                (stress_test_is_full(&sample), stress_test_is_over(&sample)),
                (full, over)
            );
        }
        let critical = MemorySample {
            kernel_level: Some(Level::Critical),
            ..sample(16 * GB)
        };
        assert!(stress_test_is_over(&critical));
    }
}
