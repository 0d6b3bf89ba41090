//! Notices that the disk of a run is nearly full, while a checkpoint may still fit.

/// Free space below which a disk is short, in bytes.
const MIN_FREE_BYTES: u64 = 2 << 30;
/// Another program may write a file and remove it at once: the disk must be short for this time,
/// in milliseconds.
const SHORT_AFTER_MS: u64 = 1_000;

/// The free space of one disk. If it had little from the beginning, it is short once half of that
/// is gone.
#[derive(Debug, Default)]
pub struct DiskWatch {
    at_start_bytes: Option<u64>,
    short_since_ms: Option<u64>,
    /// Whether the caller knows, and the disk has not recovered since.
    is_known: bool,
}

impl DiskWatch {
    /// Takes the free space at this time. Returns true once when the disk is nearly full; again
    /// only if it had twice the least space in between.
    pub fn becomes_short(&mut self, free_bytes: u64, now_ms: u64) -> bool {
        let at_start = *self.at_start_bytes.get_or_insert(free_bytes);
        let least = MIN_FREE_BYTES.min(at_start / 2);
        if free_bytes >= least {
            self.short_since_ms = None;
            self.is_known &= free_bytes < 2 * least;
            return false;
        }
        let since = *self.short_since_ms.get_or_insert(now_ms);
        now_ms >= since + SHORT_AFTER_MS && !std::mem::replace(&mut self.is_known, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1 << 30;

    /// The times at which a disk with these free bytes, one reading per second, becomes short.
    fn reported(free: &[u64]) -> Vec<usize> {
        let mut watch = DiskWatch::default();
        let mut is_reported = |at: usize| watch.becomes_short(free[at], 1_000 * at as u64);
        (0..free.len()).filter(|at| is_reported(*at)).collect()
    }

    #[test]
    fn a_full_disk_is_noticed_once() {
        let (full, little) = (50 * GB, GB);
        assert_eq!(reported(&[full, little, little, little, 0]), [2]);
        // A file that was removed at once.
        assert_eq!(reported(&[full, little, full, little, full]), [0; 0]);
        // Around the limit it is one shortage; after twice the limit it is another.
        assert_eq!(reported(&[full, 0, 0, 2 * GB, 0, 0, 3 * GB, 0, 0]), [2]);
        assert_eq!(reported(&[full, 0, 0, 4 * GB, 0, 0]), [2, 5]);
    }

    #[test]
    fn a_small_disk_is_short_at_half_of_its_space() {
        assert_eq!(reported(&[GB, GB / 2, GB / 2, GB / 2]), [0; 0]);
        assert_eq!(reported(&[GB, GB / 2 - 1, GB / 2 - 1]), [2]);
        // There is nothing to lose.
        assert_eq!(reported(&[0, 0, 0, 0]), [0; 0]);
    }
}
