//! Available memory between two full readings, estimated from free memory and this process's
//! footprint. Pure.
//!
//! Available memory changes with free memory, except when the page cache grows or shrinks. If
//! either could be the case, there is no estimate, and everything is read.

/// A fast sample becomes a full one if others moved by more than memory divided by this. That is
/// less than half of `min_margin_fraction`.
const FAST_SAMPLE_MOVED_PART: u64 = 256;
/// Below memory divided by this, the kernel may be dropping caches, which free memory does not
/// show.
const FAST_SAMPLE_SCARCE_PART: u64 = 64;
/// Free memory counts as unchanged while it moves by at most memory divided by this...
const UNCHANGED_PART: u64 = 4096;
/// ...and by at most this many bytes.
const UNCHANGED_MAX_BYTES: u64 = 4 << 20;

/// A full reading, in bytes.
#[derive(Clone, Copy)]
pub(super) struct FullReading {
    /// Memory of the machine, or the limit of a group.
    pub(super) total_bytes: u64,
    /// Available memory.
    pub(super) available_bytes: u64,
    /// Free memory, excluding the page cache.
    pub(super) free_bytes: u64,
    /// Footprint of this process.
    pub(super) own_bytes: u64,
}

impl FullReading {
    /// Whether free memory is practically unchanged since it was `then_bytes`. Then this process's
    /// footprint is too, unless others moved by as much in the other direction.
    pub(super) fn is_unchanged(&self, then_bytes: u64, free_bytes: u64) -> bool {
        let tolerance = (self.total_bytes / UNCHANGED_PART).min(UNCHANGED_MAX_BYTES);
        then_bytes.abs_diff(free_bytes) <= tolerance
    }

    /// Available bytes now, with an error of at most 0.4 % of the total; `None` if a full reading
    /// is necessary. `fresh`: this is the first estimate since the full reading. If little memory
    /// is free, only the first is allowed.
    pub(super) fn available_bytes(
        &self,
        free_bytes: u64,
        own_bytes: u64,
        fresh: bool,
    ) -> Option<u64> {
        let moved = (self.free_bytes + self.own_bytes).abs_diff(free_bytes + own_bytes);
        let scarce = free_bytes < self.total_bytes / FAST_SAMPLE_SCARCE_PART;
        if moved > self.total_bytes / FAST_SAMPLE_MOVED_PART || (scarce && !fresh) {
            return None;
        }
        let available = (self.available_bytes + free_bytes).saturating_sub(self.free_bytes);
        Some(available.min(self.total_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: FullReading = FullReading {
        total_bytes: 16 << 20,
        available_bytes: 10 << 20,
        free_bytes: 6 << 20,
        own_bytes: 1 << 20,
    };

    #[test]
    fn memory_that_this_process_takes_is_not_available() {
        for taken in [0, 100, 3 << 20] {
            let available = FULL.available_bytes((6 << 20) - taken, (1 << 20) + taken, false);
            assert_eq!(available, Some((10 << 20) - taken));
        }
        let given_back = FULL.available_bytes(7 << 20, 0, false);
        assert_eq!(given_back, Some(11 << 20));
    }

    #[test]
    fn changes_of_others_are_followed_up_to_0_4_percent() {
        let least = 64 << 10;
        for (free, available) in [
            ((6 << 20) - least, Some((10 << 20) - least)),
            ((6 << 20) + least, Some((10 << 20) + least)),
            ((6 << 20) - least - 1, None),
            ((6 << 20) + least + 1, None),
        ] {
            assert_eq!(
                FULL.available_bytes(free, 1 << 20, false),
                available,
                "{free}"
            );
        }
    }

    #[test]
    fn small_changes_of_free_memory_count_as_unchanged() {
        let still = |total_bytes, moved| {
            let then = 1 << 40;
            let full = FullReading {
                total_bytes,
                ..FULL
            };
            [then - moved, then + moved].map(|free| full.is_unchanged(then, free))
        };
        let gb = 1 << 30;
        for (total, most) in [(4 * gb, 1 << 20), (16 * gb, 4 << 20), (512 * gb, 4 << 20)] {
            assert_eq!(still(total, most), [true, true], "{total}");
            assert_eq!(still(total, most + 1), [false, false], "{total}");
        }
    }

    #[test]
    fn with_little_free_memory_only_one_estimate_is_allowed() {
        let scarce = (16 << 20) / 64;
        let own = (7 << 20) - scarce;
        let available = Some((4 << 20) + scarce);
        assert_eq!(FULL.available_bytes(scarce, own, false), available);
        let less = |fresh| FULL.available_bytes(scarce - 1, own + 1, fresh);
        assert_eq!(
            (less(true), less(false)),
            (available.map(|it| it - 1), None)
        );
    }
}
