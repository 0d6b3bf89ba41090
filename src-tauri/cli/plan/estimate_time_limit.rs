//! Decides which rows of the table are estimated within the time limit. A dry run of a GPU's
//! operations takes a second for a large image.

use std::cell::Cell;
use std::time::Instant;
use trainer::ModelId;

/// The time limit, and how long the estimate of the last row took.
pub(super) struct TimeLimit {
    start: Instant,
    limit_s: f64,
    /// Seconds per unit of `cost`, measured on the last row.
    cost_s: Cell<f64>,
}

/// Relative time that the estimate of a row takes: the area of its images.
fn cost(side: u32) -> f64 {
    f64::from(side) * f64::from(side)
}

/// The order in which to estimate `listed`, as indices: `first`, then the others from cheap to
/// expensive.
pub(super) fn by_cost(listed: &[(ModelId, u32)], first: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..listed.len()).collect();
    places.sort_by_key(|&place| (place != first, listed[place].1));
    places
}

impl TimeLimit {
    /// Allows `limit_s` seconds from `start`.
    pub fn new(start: Instant, limit_s: f64) -> Self {
        TimeLimit {
            start,
            limit_s,
            cost_s: Cell::new(0.0),
        }
    }

    /// Whether the estimate of a row with this resolution would end in time, at the speed of the
    /// last row.
    pub fn has_time_for(&self, side: u32) -> bool {
        self.start.elapsed().as_secs_f64() + self.cost_s.get() * cost(side) <= self.limit_s
    }

    /// Runs `work`, which makes the estimate of one row, and records how fast it was.
    pub fn timed<T>(&self, side: u32, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let done = work();
        self.cost_s.set(start.elapsed().as_secs_f64() / cost(side));
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_planned_model_comes_first_and_then_cheap_ones() {
        let model = ModelId::CONV_NET;
        let listed = [(model, 32), (model, 224), (model, 64), (model, 48)];
        assert_eq!(by_cost(&listed, 2), [2, 0, 3, 1]);
    }

    #[test]
    fn a_row_that_would_take_too_long_is_left_out() {
        let limit = TimeLimit::new(Instant::now(), 3600.0);
        limit.timed(10, || {
            std::thread::sleep(std::time::Duration::from_millis(10))
        });
        // 0.1 ms per pixel: twice the side takes four times as long.
        assert!(limit.has_time_for(20));
        assert!(!limit.has_time_for(10_000));
    }
}
