//! When a checkpoint is due: after an interval, and soon again if writing failed. Checkpoints that
//! the run chooses to write cost at most a fraction of the training time, those that fail included.

use super::saving_cost::SavingCost;
use runlog::CheckpointInterval;

/// Least time between two tries on a disk that fails, in milliseconds.
const MIN_RETRY_MS: u64 = 1_000;

/// What has been written, and what failed.
#[derive(Debug)]
pub struct SaveSchedule {
    /// Shortest automatic interval, in milliseconds.
    shortest_ms: u64,
    /// What saving has cost.
    cost: SavingCost,
    /// Training time of the newest checkpoint.
    saved_at_ms: u64,
    /// Training time at the end of the last try, if it failed.
    failed_at_ms: Option<u64>,
    /// Tries that failed since the newest checkpoint.
    failures: u32,
}

impl SaveSchedule {
    /// `saved_at_ms` is the training time of the newest checkpoint of earlier sessions.
    pub fn new(shortest_ms: u64, saved_at_ms: u64) -> Self {
        SaveSchedule {
            shortest_ms,
            cost: SavingCost::default(),
            saved_at_ms,
            failed_at_ms: None,
            failures: 0,
        }
    }

    /// A checkpoint of the state at `at_ms` is complete. Writing it took `duration_ms`.
    pub fn saved(&mut self, at_ms: u64, now_ms: u64, duration_ms: f64) {
        self.saved_at_ms = at_ms;
        self.failed_at_ms = None;
        self.failures = 0;
        self.cost.record(now_ms, duration_ms);
    }

    /// A checkpoint could not be written. The try took `duration_ms`.
    pub fn failed(&mut self, now_ms: u64, duration_ms: f64) {
        self.failed_at_ms = Some(now_ms);
        self.failures += 1;
        self.cost.record(now_ms, duration_ms);
    }

    /// Whether a checkpoint is due after `step`. After a failure it is due again as soon as
    /// another try is affordable, even within the interval.
    pub fn is_due(
        &self,
        every: CheckpointInterval,
        steps_per_epoch: u64,
        step: u64,
        now_ms: u64,
    ) -> bool {
        if self.failures > 0 && self.may_retry(now_ms) {
            return true;
        }
        let last_ms = self.failed_at_ms.unwrap_or(self.saved_at_ms);
        match every {
            CheckpointInterval::Automatic => {
                now_ms >= last_ms + self.shortest_ms && self.cost.is_affordable(now_ms)
            }
            CheckpointInterval::Minutes(minutes) => now_ms >= last_ms + minutes * 60_000,
            CheckpointInterval::Epochs(epochs) => {
                step.is_multiple_of((epochs * steps_per_epoch).max(1))
            }
            CheckpointInterval::Steps(steps) => step.is_multiple_of(steps),
        }
    }

    /// Whether the checkpoint of the best evaluation costs too much now, so that it should wait. It
    /// never does if the session has spent next to no time on checkpoints.
    pub fn is_best_too_costly(&self, now_ms: u64) -> bool {
        !self.cost.is_affordable(now_ms) && !self.cost.is_negligible()
    }

    /// Whether the checkpoint of the best evaluation may be written now.
    pub fn may_save_best(&self, now_ms: u64) -> bool {
        self.may_retry(now_ms) && !self.is_best_too_costly(now_ms)
    }

    /// Whether another try is affordable after a failure; without one, always.
    pub fn may_retry(&self, now_ms: u64) -> bool {
        let Some(failed_at_ms) = self.failed_at_ms else {
            return true;
        };
        now_ms >= failed_at_ms + MIN_RETRY_MS && self.cost.is_affordable(now_ms)
    }

    /// Whether the disk fails again and again, so that nothing should be written that can wait.
    pub fn is_failing(&self, now_ms: u64) -> bool {
        self.failures > 1 && !self.may_retry(now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORTEST_MS: u64 = 5 * 60_000;

    /// Trains for ten hours with steps of a second. Writing takes `duration_ms` and fails if
    /// `fails` says so for the training time. Returns when each try ended, and whether it failed.
    fn train(
        every: CheckpointInterval,
        duration_ms: u64,
        fails: impl Fn(u64) -> bool,
    ) -> Vec<(u64, bool)> {
        let mut schedule = SaveSchedule::new(SHORTEST_MS, 0);
        let (mut tries, mut now_ms, mut step) = (Vec::new(), 0, 0);
        while now_ms < 36_000_000 {
            now_ms += 1_000;
            step += 1;
            if schedule.is_due(every, 1_000, step, now_ms) {
                let at_ms = now_ms;
                now_ms += duration_ms;
                if fails(at_ms) {
                    schedule.failed(now_ms, duration_ms as f64);
                } else {
                    schedule.saved(at_ms, now_ms, duration_ms as f64);
                }
                tries.push((now_ms, fails(at_ms)));
            }
        }
        tries
    }

    /// A disk takes as long as `duration_ms` says for the number of the checkpoint and the training
    /// time. Returns the part of ten hours that saving takes, and the number of checkpoints.
    fn cost_of_disk(duration_ms: impl Fn(u64, u64) -> u64) -> (f64, u64) {
        const HOURS_MS: u64 = 36_000_000;
        let mut schedule = SaveSchedule::new(SHORTEST_MS, 0);
        let (mut now_ms, mut saves, mut total_ms) = (0, 0, 0);
        while now_ms < HOURS_MS {
            now_ms += 1_000;
            if schedule.is_due(CheckpointInterval::Automatic, 1_000, 1, now_ms) {
                let (at_ms, took_ms) = (now_ms, duration_ms(saves, now_ms));
                now_ms += took_ms;
                schedule.saved(at_ms, now_ms, took_ms as f64);
                (saves, total_ms) = (saves + 1, total_ms + took_ms);
            }
        }
        (total_ms as f64 / now_ms as f64, saves)
    }

    /// The share of the time is printed for the record: `--no-capture` shows it.
    #[test]
    fn saving_costs_at_most_three_percent_on_every_disk() {
        type Disk = (&'static str, fn(u64, u64) -> u64);
        let disks: [Disk; 8] = [
            ("0.3 s", |_, _| 300),
            ("3 s", |_, _| 3_000),
            ("20 s", |_, _| 20_000),
            ("2 min", |_, _| 120_000),
            ("1 s, every fourth 40 s", |save, _| {
                if save % 4 == 3 { 40_000 } else { 1_000 }
            }),
            ("2 s, after five hours 30 s", |_, now| {
                if now > 18_000_000 { 30_000 } else { 2_000 }
            }),
            ("30 s, after five hours 2 s", |_, now| {
                if now > 18_000_000 { 2_000 } else { 30_000 }
            }),
            ("10 s, each a second longer", |save, _| {
                10_000 + 1_000 * save
            }),
        ];
        for (disk, duration_ms) in disks {
            let (share, saves) = cost_of_disk(duration_ms);
            println!(
                "{disk}: {saves} checkpoints, {:.2} % of the time",
                100.0 * share
            );
            // The first is saved without a measurement.
            let first = duration_ms(0, 0) as f64 / 36_000_000.0;
            assert!(
                share <= 0.03 + first && saves >= 5,
                "{disk}: {share}, {saves}"
            );
        }
    }

    /// Every evaluation is the best one so far. A checkpoint that may not be written yet waits, and
    /// a better one replaces it. Returns the fraction of ten hours that saving takes, the number of
    /// checkpoints, and the longest wait for a checkpoint of the best evaluation, in milliseconds.
    fn evaluate_every(evaluation_ms: u64, duration_ms: u64) -> (f64, u64, u64) {
        let mut schedule = SaveSchedule::new(SHORTEST_MS, 0);
        let (mut now_ms, mut saves, mut longest_ms) = (0, 0, 0);
        let (mut waits, mut saved_at_ms) = (false, 0);
        while now_ms < 36_000_000 {
            now_ms += 1_000;
            waits |= now_ms % evaluation_ms < 1_000;
            if waits && schedule.may_save_best(now_ms) {
                let at_ms = now_ms;
                now_ms += duration_ms;
                schedule.saved(at_ms, now_ms, duration_ms as f64);
                longest_ms = longest_ms.max(now_ms - saved_at_ms);
                (waits, saved_at_ms, saves) = (false, now_ms, saves + 1);
            }
        }
        (
            (saves * duration_ms) as f64 / now_ms as f64,
            saves,
            longest_ms,
        )
    }

    /// The share of the time is printed for the record: `--no-capture` shows it.
    #[test]
    fn checkpoints_of_best_evaluations_cost_at_most_three_percent() {
        for duration_ms in [20, 300, 3_000, 20_000] {
            for evaluation_ms in [2_000, 20_000, 600_000] {
                let (share, saves, longest_ms) = evaluate_every(evaluation_ms, duration_ms);
                let case = format!("{duration_ms} ms every {evaluation_ms} ms");
                println!(
                    "{case}: {saves} checkpoints, {:.2} % of the time",
                    100.0 * share
                );
                // The first is saved without a measurement, and two seconds are negligible.
                let free = (duration_ms + 2_000) as f64 / 36_000_000.0;
                assert!(share <= 0.03 + free, "{case}: {share}");
                let due_ms = evaluation_ms.max(duration_ms * 100 / 3);
                assert!(longest_ms <= 3 * due_ms + 10_000, "{case}: {longest_ms}");
                assert!(saves >= 36_000_000 / (3 * due_ms), "{case}: {saves}");
            }
        }
    }

    #[test]
    fn a_small_model_saves_its_first_best_evaluations_at_once() {
        let mut schedule = SaveSchedule::new(SHORTEST_MS, 0);
        let mut saves = 0;
        while schedule.may_save_best(50 * saves) && saves < 1_000 {
            schedule.saved(50 * saves, 50 * saves + 20, 20.0);
            saves += 1;
        }
        assert_eq!(saves, 100, "20 ms each");
        assert!(!schedule.may_save_best(50 * saves));
    }

    /// A disk that fails at the end of each write takes no more time than one that works.
    #[test]
    fn a_disk_that_always_fails_costs_at_most_three_percent() {
        for every in [
            CheckpointInterval::Automatic,
            CheckpointInterval::Minutes(30),
        ] {
            for duration_ms in [50, 2_000, 30_000] {
                let tries = train(every, duration_ms, |_| true).len() as u64;
                let fraction = (tries * duration_ms) as f64 / 36_000_000.0;
                let first = duration_ms as f64 / 36_000_000.0;
                assert!(
                    (2..=36_000).contains(&tries) && fraction <= 0.03 + first,
                    "{every:?}, {duration_ms}: {tries} tries, {fraction}"
                );
            }
        }
    }

    /// The next try does not wait for the rest of the interval.
    #[test]
    fn a_failed_checkpoint_is_tried_again_soon() {
        for every in [
            CheckpointInterval::Automatic,
            CheckpointInterval::Minutes(30),
            CheckpointInterval::Steps(1_800),
            CheckpointInterval::Epochs(2),
        ] {
            let tries = train(every, 300, |at_ms| at_ms < 2_005_000);
            let Some(success) = tries.iter().position(|(_, failed)| !failed) else {
                panic!("{every:?}: no checkpoint was written");
            };
            let (failed_at, saved_at) = (tries[success - 1].0, tries[success].0);
            let waited_ms = saved_at - failed_at;
            assert!(
                (10_000..15_000).contains(&waited_ms),
                "{every:?}: {waited_ms}"
            );
            assert!(saved_at < 2_030_000, "{every:?}: {saved_at}");
        }
    }

    #[test]
    fn only_a_disk_that_fails_again_and_again_is_failing() {
        let mut schedule = SaveSchedule::new(SHORTEST_MS, 0);
        assert!(schedule.may_retry(0) && !schedule.is_failing(0));
        schedule.failed(10_000, 300.0);
        assert!(!schedule.may_retry(19_000) && schedule.may_retry(20_000));
        assert!(!schedule.is_failing(10_001));
        schedule.failed(20_000, 300.0);
        assert!(schedule.is_failing(20_001));
        schedule.saved(40_000, 40_300, 300.0);
        assert!(!schedule.is_failing(40_301));
    }
}
