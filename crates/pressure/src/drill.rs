//! How much a drill may take: memory taken on purpose for a while, so that a user can watch Ebb react. Pure; whoever drills
//! asks before and while it takes. Refuses to endanger the machine.

use crate::budget::reserve_bytes;
use crate::error::PressureError;
use crate::policy::Policy;
use crate::sample::{Level, MemorySample};

/// Without a wish a drill takes this part of what is available.
const PART: u64 = 4;
/// Less than this nobody would notice, bytes.
const LEAST_BYTES: u64 = 16 << 20;

/// Bytes that a drill takes: `wished`, or a quarter of what is available. The reserve that Ebb keeps free for everybody is
/// left in any case.
///
/// # Errors
/// A wish for more than that, a machine that has no more to give, and one that cannot be read.
pub fn drill_bytes(sample: &MemorySample, wished: Option<u64>) -> Result<u64, PressureError> {
    let reserve = reserve_bytes(&Policy::default(), sample);
    let most = sample.available_bytes.saturating_sub(reserve);
    let calm = sample.kernel_level.unwrap_or_default() == Level::Normal;
    let refuse = |why: String| Err(PressureError::NoDrill { why });
    if sample.total_bytes == 0 {
        return refuse("This machine's memory cannot be read, so no drill is safe".into());
    }
    if most < LEAST_BYTES || !calm {
        return refuse(
            "Memory is short already: there is nothing to drill. Close other apps first".into(),
        );
    }
    let bytes = wished.unwrap_or((sample.available_bytes / PART).min(most));
    if bytes == 0 {
        return refuse(format!(
            "A drill takes something: choose 1 to {} MB",
            most >> 20
        ));
    }
    if bytes > most {
        return refuse(format!(
            "A drill of {} MB would endanger this machine: choose 1 to {} MB, which leaves {} MB to everybody",
            bytes >> 20,
            most >> 20,
            reserve >> 20
        ));
    }
    Ok(bytes)
}

/// Whether a drill at work takes no more: the reserve is all that is left.
pub fn drill_is_full(sample: &MemorySample) -> bool {
    sample.available_bytes <= reserve_bytes(&Policy::default(), sample)
}

/// Whether a drill at work must give everything back at once: half of the reserve is gone, or the system suffers.
pub fn drill_is_over(sample: &MemorySample) -> bool {
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

    /// 20 GB, of which Ebb keeps 2 free, less a byte of rounding.
    #[test]
    fn a_drill_leaves_the_reserve_to_everybody() {
        let granted = |available, wished| drill_bytes(&sample(available), wished).ok();
        for (available, wished, expected) in [
            (16 * GB, None, Some(4 * GB)),
            (GB * 5 / 2 - 1, None, Some(GB / 2)), // a quarter would leave less than the reserve
            (16 * GB, Some(14 * GB), Some(14 * GB)),
            (16 * GB, Some(14 * GB + 2), None),
            (16 * GB, Some(0), None),
            (2 * GB, None, None),
            (0, Some(GB), None),
        ] {
            assert_eq!(
                granted(available, wished),
                expected,
                "{available} {wished:?}"
            );
        }
    }

    #[test]
    fn a_refusal_says_what_would_do() {
        let said = |sample, wished| {
            drill_bytes(&sample, wished)
                .expect_err("refused")
                .to_string()
        };
        let large = said(sample(4 * GB), Some(3 * GB));
        assert!(
            large.contains("3072 MB") && large.contains("1 to 2048 MB"),
            "{large}"
        );
        let nothing = said(sample(4 * GB), Some(0));
        assert!(
            nothing.contains("1 to 2048 MB") && !nothing.contains("endanger"),
            "{nothing}"
        );
        assert!(said(MemorySample::default(), None).contains("cannot be read"));
        let warned = MemorySample {
            kernel_level: Some(Level::Warning),
            ..sample(16 * GB)
        };
        assert!(said(warned, None).contains("short already"));
    }

    #[test]
    fn a_drill_at_work_stops_at_the_reserve_and_gives_back_at_half_of_it() {
        for (available, full, over) in [
            (3 * GB, false, false),
            (2 * GB - 1, true, false),
            (GB - 1, true, true),
        ] {
            let sample = sample(available);
            assert_eq!(
                (drill_is_full(&sample), drill_is_over(&sample)),
                (full, over)
            );
        }
        let critical = MemorySample {
            kernel_level: Some(Level::Critical),
            ..sample(16 * GB)
        };
        assert!(drill_is_over(&critical));
    }
}
