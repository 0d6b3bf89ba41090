//! The steps of a run that were skipped because gradients were not finite.

use crate::amounts::{counted, format_count};
use crate::event::NonFiniteGradient;

/// The skipped steps, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct NonFiniteGradients {
    skipped: Vec<SkippedStep>,
    /// Steps at which an early version skipped a file or a step, without saying which.
    unknown: Vec<u64>,
}

/// A step whose gradients were not finite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SkippedStep {
    step: u64,
    nan: u64,
    infinite: u64,
}

impl NonFiniteGradients {
    /// Adds a step. `gradients` is empty if a file was skipped instead, and `None` if an early
    /// version did not count them.
    pub fn add(&mut self, step: u64, gradients: Option<&[NonFiniteGradient]>) {
        let Some(gradients) = gradients else {
            self.unknown.push(step);
            return;
        };
        if !gradients.is_empty() {
            self.skipped.push(SkippedStep {
                step,
                nan: gradients.iter().map(|gradient| gradient.nan).sum(),
                infinite: gradients.iter().map(|gradient| gradient.infinite).sum(),
            });
        }
    }

    /// Discards the steps after `step`, from which the run was resumed.
    pub fn truncate_after(&mut self, step: u64) {
        self.skipped.retain(|skipped| skipped.step <= step);
        self.unknown.retain(|unknown| *unknown <= step);
    }

    /// Sums up the run until `step`; `None` before the first step, and if an early version did not
    /// count.
    pub fn describe(&self, step: u64) -> Option<String> {
        if step == 0 || !self.unknown.is_empty() {
            return None;
        }
        let steps = counted(step, "step", "steps");
        if self.skipped.is_empty() {
            return Some(format!("no NaN or infinite gradients in {steps}"));
        }
        let sum = |count: fn(&SkippedStep) -> u64| {
            let counts = self.skipped.iter().map(count);
            format_count(counts.fold(0, u64::saturating_add))
        };
        Some(format!(
            "{} of {steps} skipped: {} NaN and {} infinite values in gradients",
            format_count(self.skipped.len() as u64),
            sum(|skipped| skipped.nan),
            sum(|skipped| skipped.infinite)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gradient(nan: u64, infinite: u64) -> NonFiniteGradient {
        NonFiniteGradient {
            parameter: "head.weight".to_owned(),
            nan,
            infinite,
        }
    }

    #[test]
    fn skipped_steps_are_summed_up_and_files_are_not() {
        let mut health = NonFiniteGradients::default();
        assert_eq!(health.describe(0), None);
        let describe =
            |health: &NonFiniteGradients| health.describe(1200).expect("steps were made");
        assert_eq!(
            describe(&health),
            "no NaN or infinite gradients in 1,200 steps"
        );
        health.add(7, Some(&[]));
        health.add(8, Some(&[gradient(1000, 0), gradient(500, 2)]));
        health.add(9, Some(&[gradient(1, 1)]));
        assert_eq!(
            describe(&health),
            "2 of 1,200 steps skipped: 1,501 NaN and 3 infinite values in gradients"
        );
        health.truncate_after(8);
        assert_eq!(
            describe(&health),
            "1 of 1,200 steps skipped: 1,500 NaN and 2 infinite values in gradients"
        );
    }
    #[test]
    fn what_an_early_version_did_not_count_is_unknown() {
        let mut health = NonFiniteGradients::default();
        health.add(8, None);
        assert_eq!(health.describe(1200), None);
        health.truncate_after(7);
        assert!(health.describe(1200).is_some(), "that step is repeated");
    }
}
