//! Checks early in a run whether the training loss falls.

use crate::lr_schedule::LrSchedule;
use crate::plan::Plan;
use dataset::Task;
use runlog::format_count;

/// Steps whose losses are averaged at the start and before the check.
const WINDOW: u64 = 20;
/// The check takes place after this part of all steps.
const CHECKED_PART: u64 = 10;
/// The loss of a small batch varies too much for an earlier check.
const MIN_STEPS: u64 = 100;
/// The loss has fallen if it is below this fraction of the loss at the start.
const FALLEN: f64 = 0.99;

/// The mean losses of a run that trains from its first step.
#[derive(Debug, Clone, Default)]
pub struct LearningCheck {
    /// The step after which the loss is checked; 0 if it is not, or was.
    checked_step: u64,
    first: MeanLoss,
    recent: MeanLoss,
}

/// The mean loss of some steps. After a failure of the device, steps are repeated.
#[derive(Debug, Clone, Default)]
struct MeanLoss {
    steps: u32,
    sum: f64,
}

impl MeanLoss {
    fn add(&mut self, loss: f64) {
        self.steps += 1;
        self.sum += loss;
    }

    /// NaN without steps.
    fn value(&self) -> f64 {
        self.sum / f64::from(self.steps)
    }
}

impl LearningCheck {
    /// The check of a run of which `done` steps are trained, unless its loss is meant not to fall:
    /// a search for a learning rate raises it, and the loss of a token compression depends on the
    /// temperature.
    pub fn for_plan(plan: &Plan, done: u64) -> Self {
        let falls = plan.lr_schedule == LrSchedule::Cosine && plan.task() != Task::TokenCompression;
        LearningCheck::new(if falls { plan.steps } else { 0 }, done)
    }

    /// The check of a run of `steps` steps, of which `done` are trained. A run that is too short or
    /// was resumed is not checked.
    pub fn new(steps: u64, done: u64) -> Self {
        let checked_step = (steps / CHECKED_PART).max(MIN_STEPS);
        let is_checked = done == 0 && checked_step < steps;
        LearningCheck {
            checked_step: if is_checked { checked_step } else { 0 },
            ..LearningCheck::default()
        }
    }

    /// Adds the loss of a step. At the step of the check, says what to do if the loss has not
    /// fallen.
    pub fn observe(&mut self, step: u64, loss: f64) -> Option<String> {
        if step > self.checked_step {
            return None;
        }
        if step <= WINDOW {
            self.first.add(loss);
        }
        if step + WINDOW > self.checked_step {
            self.recent.add(loss);
        }
        if step < self.checked_step {
            return None;
        }
        self.checked_step = 0;
        let (first, recent) = (self.first.value(), self.recent.value());
        // A loss that is not finite has a message of its own.
        let has_fallen = recent < FALLEN * first;
        if has_fallen || !recent.is_finite() || !first.is_finite() {
            return None;
        }
        Some(format!(
            "the training loss has not fallen in the first {} steps: it was {first:.3} at first and is now {recent:.3}; look at the labels with `ebb inspect`, or try another learning rate with `ebb find-lr`",
            format_count(step)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message after each step of a run with these losses.
    fn messages(mut check: LearningCheck, loss: impl Fn(u64) -> f64) -> Vec<(u64, String)> {
        let observed = (1..=400).filter_map(|step| Some((step, check.observe(step, loss(step))?)));
        observed.collect()
    }

    #[test]
    fn a_loss_that_does_not_fall_is_reported_once() {
        let found = messages(LearningCheck::new(2000, 0), |_| 2.3);
        assert_eq!(
            found,
            [(
                200,
                "the training loss has not fallen in the first 200 steps: it was 2.300 at first and is now 2.300; look at the labels with `ebb inspect`, or try another learning rate with `ebb find-lr`".to_owned()
            )]
        );
        let short = messages(LearningCheck::new(400, 0), |step| 2.3 + step as f64 / 1e3);
        assert_eq!(
            short.iter().map(|(step, _)| *step).collect::<Vec<_>>(),
            [100]
        );
    }

    #[test]
    fn a_falling_loss_is_not_reported() {
        let falling = |step: u64| 2.3 - step as f64 / 1e3;
        assert!(messages(LearningCheck::new(2000, 0), falling).is_empty());
    }

    /// After a failure of the device the run continues from step 185.
    #[test]
    fn repeated_steps_do_not_count_twice() {
        let mut check = LearningCheck::new(2000, 0);
        let loss = |step: u64| if step <= 20 { 2.3 } else { 1.6 };
        let mut observed = (1..=195).chain(186..=200);
        assert!(observed.all(|step| check.observe(step, loss(step)).is_none()));
        // The check itself is not repeated.
        let mut check = LearningCheck::new(2000, 0);
        let steps = (1..=200).chain(186..=400);
        let found = steps.filter(|step| check.observe(*step, 2.3).is_some());
        assert_eq!(found.collect::<Vec<u64>>(), [200]);
    }

    #[test]
    fn a_short_or_resumed_run_or_one_without_a_loss_is_not_checked() {
        for check in [
            LearningCheck::new(100, 0),
            LearningCheck::new(20, 0),
            LearningCheck::new(2000, 1),
        ] {
            assert!(messages(check, |_| 2.3).is_empty());
        }
        assert!(messages(LearningCheck::new(2000, 0), |_| f64::NAN).is_empty());
    }
}
