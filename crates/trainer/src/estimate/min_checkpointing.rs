//! How many blocks to checkpoint: as planned if that fits, otherwise the smallest number that fits.
//! Every candidate needs a dry run, so Ebb first interpolates linearly between no block and all
//! blocks.

use super::dry_run::{DryRun, PlanDryRun};
use super::micro_batch_memory::HeapProfile;
use super::{DRY_RUN_TIME, MemoryEstimate, Prefetched, Requirement, Variants};
use crate::error::Result;
use crate::plan::Plan;
use std::time::Duration;

/// Candidates between a number of blocks that is too small and all blocks.
const TRIES: u32 = 3;

impl MemoryEstimate {
    /// Adds the variants, with dry runs that take about `time` each.
    pub(super) fn with_variants(
        mut self,
        dry_run: &dyn DryRun,
        planned: u32,
        variants: Variants,
        time: Duration,
    ) -> Result<Self> {
        let (mut too_few, mut enough) = (planned.min(self.blocks), self.blocks);
        self.add_variant(dry_run, too_few, time)?;
        let Variants::MinCheckpointing(requirement) = variants else {
            return Ok(self);
        };
        if too_few == enough || self.excess_bytes(too_few, &requirement) <= 0.0 {
            return Ok(self);
        }
        self.add_variant(dry_run, enough, time)?;
        for _ in 0..TRIES {
            let over = self.excess_bytes(too_few, &requirement);
            let under = self.excess_bytes(enough, &requirement);
            if enough - too_few < 2 || under > 0.0 {
                break;
            }
            let fraction = over / (over - under).max(1.0);
            let guess = too_few + (fraction * f64::from(enough - too_few)).ceil() as u32;
            let guess = guess.clamp(too_few + 1, enough - 1);
            self.add_variant(dry_run, guess, time)?;
            if self.excess_bytes(guess, &requirement) <= 0.0 {
                enough = guess;
            } else {
                too_few = guess;
            }
        }
        self.variants.sort_by_key(|(blocks, _)| *blocks);
        Ok(self)
    }

    /// Adds the variant of a plan with all blocks checkpointed, unless it was estimated. Takes
    /// about as long as another estimate.
    ///
    /// # Errors
    /// The dry run fails.
    pub fn with_all_blocks(mut self, plan: &Plan) -> Result<Self> {
        let blocks = self.blocks;
        if self.variant(blocks).is_none() {
            let (dry_run, _) = PlanDryRun::new(plan, plan.model, self.measured_resolution)?;
            self.add_variant(&dry_run, blocks, DRY_RUN_TIME)?;
        }
        Ok(self)
    }

    fn add_variant(
        &mut self,
        dry_run: &dyn DryRun,
        checkpointed: u32,
        time: Duration,
    ) -> Result<()> {
        let heap = HeapProfile::measure(dry_run, checkpointed, &self.target, time)?;
        self.variants.push((checkpointed, heap));
        Ok(())
    }

    /// Bytes by which the footprint exceeds the budget; negative if it fits.
    fn excess_bytes(&self, checkpointed: u32, requirement: &Requirement) -> f64 {
        let (micro_batch, effective_batch) = (requirement.micro_batch, requirement.effective_batch);
        let heap = self.heap_bytes(checkpointed, micro_batch, effective_batch);
        let heap = heap.map(|bytes| match requirement.prefetched {
            Prefetched::Included => bytes,
            Prefetched::Excluded => bytes - self.baseline.prefetch_bytes,
        });
        let peak = heap.and_then(|bytes| self.process_bytes(checkpointed, micro_batch, bytes));
        peak.map_or(f64::INFINITY, |peak| peak as f64) - requirement.budget_bytes as f64
    }
}
