//! How long training takes on this machine's CPU, from a measured micro-batch.

use super::dry_run::PlanDryRun;
use crate::error::Result;
use crate::plan::Plan;
use crate::threads::on_threads;

impl Plan {
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
