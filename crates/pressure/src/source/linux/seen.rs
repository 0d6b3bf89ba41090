//! How much is available between two full readings, from what is free and what this process holds. Pure; knows no file.
//!
//! What is available changes with what is free, except where the kernel's cache of files grows or gives way. Where either could be
//! meant, nothing is concluded and everything is read.

/// Where free memory and this process's own together have moved by more than this part of the whole, others have moved, or the cache
/// has. Less than half of the least margin that the budget keeps for what others may take.
const MOVED: u64 = 256;
/// Where less than this part of the whole is free the kernel may be giving its cache away, unseen by what is free.
const SCARCE: u64 = 64;

/// Free memory stands still while it moves by no more than this part of the whole, nor by more than this many bytes.
const STILL: u64 = 4096;
const STILL_MOST_BYTES: u64 = 4 << 20;

/// What a full reading found, bytes.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    /// Of the machine, or a group's limit.
    pub(super) total_bytes: u64,
    /// What could be taken.
    pub(super) available_bytes: u64,
    /// What nothing is in, not even a cache.
    pub(super) free_bytes: u64,
    /// What this process held.
    pub(super) own_bytes: u64,
}

impl Seen {
    /// Free memory has stood still since it was `then_bytes`: this process has not moved, unless others moved against it by as much.
    pub(super) fn is_still(&self, then_bytes: u64, free_bytes: u64) -> bool {
        then_bytes.abs_diff(free_bytes) <= (self.total_bytes / STILL).min(STILL_MOST_BYTES)
    }

    /// Bytes available now, at most four thousandths of the whole off; nothing where that takes a full reading. `fresh` says that this
    /// is the first question: where little is free there is no second one.
    pub(super) fn available_bytes(
        &self,
        free_bytes: u64,
        own_bytes: u64,
        fresh: bool,
    ) -> Option<u64> {
        let moved = (self.free_bytes + self.own_bytes).abs_diff(free_bytes + own_bytes);
        let scarce = free_bytes < self.total_bytes / SCARCE;
        if moved > self.total_bytes / MOVED || (scarce && !fresh) {
            return None;
        }
        let available = (self.available_bytes + free_bytes).saturating_sub(self.free_bytes);
        Some(available.min(self.total_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEN: Seen = Seen {
        total_bytes: 16 << 20,
        available_bytes: 10 << 20,
        free_bytes: 6 << 20,
        own_bytes: 1 << 20,
    };

    #[test]
    fn what_this_process_takes_is_no_longer_available() {
        for taken in [0, 100, 3 << 20] {
            let available = SEEN.available_bytes((6 << 20) - taken, (1 << 20) + taken, false);
            assert_eq!(available, Some((10 << 20) - taken));
        }
        let given_back = SEEN.available_bytes(7 << 20, 0, false);
        assert_eq!(given_back, Some(11 << 20));
    }

    #[test]
    fn what_others_move_is_followed_four_thousandths_far_and_then_read() {
        let least = 64 << 10;
        for (free, available) in [
            ((6 << 20) - least, Some((10 << 20) - least)),
            ((6 << 20) + least, Some((10 << 20) + least)),
            ((6 << 20) - least - 1, None),
            ((6 << 20) + least + 1, None),
        ] {
            assert_eq!(
                SEEN.available_bytes(free, 1 << 20, false),
                available,
                "{free}"
            );
        }
    }

    #[test]
    fn free_memory_stands_still_within_a_part_of_the_whole_and_of_a_large_one_within_4_mb() {
        let still = |total_bytes, moved| {
            let then = 1 << 40;
            let seen = Seen {
                total_bytes,
                ..SEEN
            };
            [then - moved, then + moved].map(|free| seen.is_still(then, free))
        };
        let gb = 1 << 30;
        for (total, most) in [(4 * gb, 1 << 20), (16 * gb, 4 << 20), (512 * gb, 4 << 20)] {
            assert_eq!(still(total, most), [true, true], "{total}");
            assert_eq!(still(total, most + 1), [false, false], "{total}");
        }
    }

    #[test]
    fn where_little_is_free_a_full_reading_is_asked_once() {
        let scarce = (16 << 20) / 64;
        let own = (7 << 20) - scarce;
        let available = Some((4 << 20) + scarce);
        assert_eq!(SEEN.available_bytes(scarce, own, false), available);
        let less = |fresh| SEEN.available_bytes(scarce - 1, own + 1, fresh);
        assert_eq!(
            (less(true), less(false)),
            (available.map(|it| it - 1), None)
        );
    }
}
