//! How often a run is evaluated during training, and on how many held-out samples.

use super::Plan;

/// Held-out tokens that an evaluation during training reads at most, so that it takes seconds for a
/// text of any length. `ebb evaluate` reads all.
const MAX_EVALUATED_TOKENS: u64 = 1 << 17;
/// Held-out tokens that the evaluation of the shortest training reads.
const MIN_EVALUATED_TOKENS: u64 = 1 << 13;
/// Held-out images or labeled texts that an evaluation during training reads at most. The accuracy
/// of so many samples is known to about one percentage point.
const MAX_EVALUATED_SAMPLES: u64 = 5000;
/// Evaluations of a run with long epochs, about.
const EVALUATIONS: u64 = 30;
/// Training samples between two evaluations, per evaluated sample, so that evaluations take less
/// than a tenth of the time.
const TRAINED_PER_EVALUATED: u64 = 4;
/// Steps between two evaluations of a part of an epoch, at least.
const MIN_STEPS: u64 = 200;

impl Plan {
    /// Held-out tokens of documents that each evaluation during training reads: at most as many as
    /// the run trains on, so that a short training does not end with a long evaluation. They are
    /// the same in all evaluations.
    pub(crate) fn evaluated_tokens(&self) -> usize {
        let of_samples = u64::from(self.effective_batch) * u64::from(self.input_size);
        let of_step = self.effective_batch_tokens.map_or(of_samples, u64::from);
        let trained = self.steps.saturating_mul(of_step);
        trained.clamp(MIN_EVALUATED_TOKENS, MAX_EVALUATED_TOKENS) as usize
    }

    /// The most held-out samples that an evaluation during training reads.
    pub(crate) fn max_evaluated_samples(&self) -> usize {
        if self.task().is_on_documents() {
            self.evaluated_tokens()
                .div_ceil(self.input_size.max(1) as usize)
        } else {
            MAX_EVALUATED_SAMPLES as usize
        }
    }

    /// Steps between two evaluations. If the user chose no number of epochs, that is one epoch, or
    /// more if the epochs are short. It is a part of an epoch if the run has few epochs, and if
    /// evaluations then still take little of the time.
    pub(crate) fn evaluation_interval(&self) -> u64 {
        let per_epoch = self.steps_per_epoch.max(1);
        if let Some(epochs) = self.evaluate_every_epochs {
            return epochs.saturating_mul(per_epoch).max(1);
        }
        let evaluated = self
            .held_out_samples
            .min(self.max_evaluated_samples() as u64);
        let trained = TRAINED_PER_EVALUATED * evaluated;
        let least = trained.div_ceil(u64::from(self.effective_batch.max(1)));
        default_interval(self.steps, per_epoch, least)
    }
}

/// The default interval of a run of `steps` steps, in steps. An interval of `least` steps or more
/// takes little of the time.
fn default_interval(steps: u64, per_epoch: u64, least: u64) -> u64 {
    let whole_epochs = (steps / per_epoch / EVALUATIONS).max(1) * per_epoch;
    let part = (steps / EVALUATIONS).max(least).max(MIN_STEPS);
    if 2 * part <= per_epoch {
        part
    } else {
        whole_epochs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_evaluated_after_whole_epochs_if_they_are_short() {
        // A fifth of the samples is held out: 4 samples are trained per evaluated one in an epoch.
        assert_eq!(default_interval(1000, 20, 20), 20);
        assert_eq!(default_interval(100, 50, 50), 50);
        // More than 30 epochs: several per evaluation.
        assert_eq!(default_interval(1000, 10, 10), 30);
        assert_eq!(default_interval(3, 1, 0), 1);
        assert_eq!(default_interval(0, 1, 0), 1);
        assert_eq!(default_interval(600, 300, 10), 300);
    }

    #[test]
    fn a_long_epoch_is_evaluated_about_thirty_times() {
        assert_eq!(default_interval(130_000, 130_000, 256), 4333);
        assert_eq!(default_interval(60_000, 20_000, 1250), 2000);
        assert_eq!(default_interval(4000, 1000, 10), 200);
        // But not so often that the evaluations take much of the time.
        assert_eq!(default_interval(6000, 6000, 256), 256);
        assert_eq!(default_interval(100, 1000, 256), 256);
    }
}
