//! Counts the failures of the device, so that a run with a broken one ends.

/// Most failures of a device that can be used again, without a new step in between.
const MOST_REPEATS: u32 = 20;
/// Most losses of the device without a new step in between.
const MOST_RESTORES: u32 = 5;

/// Failures since the last step that no earlier attempt had reached.
#[derive(Default)]
pub struct FaultCounts {
    repeats: u32,
    restores: u32,
    /// The highest step that was completed.
    reached: u64,
}

impl FaultCounts {
    /// The device has confirmed an optimizer step. `step` is the number of steps done.
    pub fn confirmed(&mut self, step: u64) {
        if step > self.reached {
            *self = FaultCounts {
                reached: step,
                ..FaultCounts::default()
            };
        }
    }

    /// The highest step that was completed in this session.
    pub fn reached(&self) -> u64 {
        self.reached
    }

    /// A step is repeated, or those since a checkpoint. Returns the number of repetitions once
    /// there are too many.
    pub fn count_repeat(&mut self) -> Option<u32> {
        self.repeats += 1;
        (self.repeats > MOST_REPEATS).then_some(self.repeats)
    }

    /// The device was lost, and a checkpoint is loaded. Returns the number of failures once there
    /// are too many.
    pub fn count_restore(&mut self) -> Option<u32> {
        self.restores += 1;
        (self.restores > MOST_RESTORES).then_some(self.restores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_new_step_starts_the_count_of_restores_again() {
        let mut counts = FaultCounts::default();
        counts.confirmed(7);
        for _ in 0..MOST_RESTORES {
            assert_eq!(counts.count_restore(), None);
            // The steps since the checkpoint are done again.
            counts.confirmed(6);
            counts.confirmed(7);
        }
        assert_eq!(counts.count_restore(), Some(MOST_RESTORES + 1));
        counts.confirmed(8);
        assert_eq!(counts.count_restore(), None);
    }

    #[test]
    fn a_step_is_repeated_a_limited_number_of_times() {
        let mut counts = FaultCounts::default();
        for _ in 0..MOST_REPEATS {
            assert_eq!(counts.count_repeat(), None);
        }
        assert!(counts.count_repeat().is_some());
        counts.confirmed(1);
        assert_eq!(counts.count_repeat(), None);
    }
}
