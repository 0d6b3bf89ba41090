//! How many rows of the list there is time for. Where pieces are rehearsed as a GPU works them, a large photograph takes a second.

use std::cell::Cell;
use std::time::Instant;
use trainer::ModelId;

/// The time that is left, and what a row has taken of late.
pub(super) struct Clock {
    begun: Instant,
    within_s: f64,
    /// Seconds of a unit of cost.
    pace_s: Cell<f64>,
}

/// How long it takes.
pub(super) struct Time {
    pub seconds: f64,
    pub of: &'static str,
    /// "a measured piece".
    pub from: &'static str,
}

/// What a row costs, in any unit: photographs by their area.
fn cost(side: u32) -> f64 {
    f64::from(side) * f64::from(side)
}

/// Places of `listed`, what is to be trained first, then the cheaper ones first.
pub(super) fn by_cost(listed: &[(ModelId, u32)], first: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..listed.len()).collect();
    places.sort_by_key(|&place| (place != first, listed[place].1));
    places
}

impl Clock {
    /// A clock that began at `begun`.
    pub fn new(begun: Instant, within_s: f64) -> Self {
        Clock {
            begun,
            within_s,
            pace_s: Cell::new(0.0),
        }
    }

    /// Whether a row of this resolution would be done in time, at the pace of the one before.
    pub fn has_time_for(&self, side: u32) -> bool {
        self.begun.elapsed().as_secs_f64() + self.pace_s.get() * cost(side) <= self.within_s
    }

    /// Does a row and remembers its pace.
    pub fn timed<T>(&self, side: u32, work: impl FnOnce() -> T) -> T {
        let at = Instant::now();
        let done = work();
        self.pace_s.set(at.elapsed().as_secs_f64() / cost(side));
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_trained_comes_first_and_then_what_is_cheap() {
        let model = ModelId::CONV_NET;
        let listed = [(model, 32), (model, 224), (model, 64), (model, 48)];
        assert_eq!(by_cost(&listed, 2), [2, 0, 3, 1]);
    }

    #[test]
    fn a_row_that_would_take_too_long_is_not_begun() {
        let clock = Clock::new(Instant::now(), 3600.0);
        clock.timed(10, || {
            std::thread::sleep(std::time::Duration::from_millis(10))
        });
        // A tenth of a millisecond a pixel: ten pixels a side more take four times as long, and so on.
        assert!(clock.has_time_for(20));
        assert!(!clock.has_time_for(10_000));
    }
}
