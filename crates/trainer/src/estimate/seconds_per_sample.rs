//! How long training takes on this machine's CPU, from a measured micro-batch.

use super::dry_run::PlanDryRun;
use crate::error::Result;
use crate::plan::Plan;
use crate::threads::on_threads;

impl Plan {
    /// Time of a sample of `tokens` tokens, relative to one of the plan's length, by the number of
    /// multiplications: each token is multiplied by all weights, and compared with half of the
    /// tokens. 1 for other tasks than language models from pretrained weights.
    pub fn relative_sample_time(&self, tokens: u32) -> f64 {
        let Some(pretrained) = &self.pretrained else {
            return 1.0;
        };
        if !pretrained.is_language_model() {
            return 1.0;
        }
        let weights = pretrained.folder().count_values() as f64;
        let width = pretrained.total_width() as f64;
        let products = |tokens: u32| f64::from(tokens) * (weights + width * f64::from(tokens));
        products(tokens) / products(self.input_size.max(1))
    }

    /// Seconds per sample on the CPU, measured on a micro-batch of `samples`.
    ///
    /// # Errors
    /// The network cannot be built, or the process has too little memory.
    pub fn seconds_per_sample(&self, samples: usize, checkpointed: u32) -> Result<f64> {
        let (network, _) = PlanDryRun::new(self, self.model, self.input_size)?;
        on_threads(self.threads as usize, || {
            network.seconds_per_sample(samples, checkpointed as usize)
        })
    }
}
