//! Compares the highest footprint of a run with its estimate, and remembers the result for later
//! estimates on this machine.

use crate::estimate_history::{EstimateHistory, RunsOn};
use crate::paths::estimates_path;
use pressure::{Action, Moments, Phase};
use runlog::{RunEvent, format_bytes};
use trainer::estimate::{MemoryEstimate, Target, Variants};
use trainer::{Plan, predict_device_kind};

/// A run of fewer steps has not reached its highest footprint.
const MIN_STEPS: u64 = 8;
/// The dry runs use micro-batches of up to twice this many samples. A run that used smaller ones
/// may have had no memory for them.
const MIN_MICRO_BATCH: u32 = 8;
/// The dry runs of a slower model would take long after the run has ended.
const MIN_SAMPLES_PER_SECOND: f64 = 1.0;

/// What a run needed, according to its events.
pub struct MeasuredFootprint {
    in_window: bool,
    /// This process before the run.
    target: Target,
    peak_bytes: u64,
    /// The largest micro-batch of training.
    micro_batch: u32,
    steps: u64,
    samples_per_second: f64,
    /// Whether the run kept everything in memory that the plan has there.
    is_as_planned: bool,
}

impl MeasuredFootprint {
    /// Begins before the run and everything that it holds in memory. `in_window`: this process
    /// shows the window.
    pub fn before(plan: &Plan, in_window: bool) -> Self {
        // Memory that the allocator still holds after the inspection is not part of the program.
        crate::allocator::purge();
        let kind = predict_device_kind(plan.device);
        MeasuredFootprint {
            in_window,
            target: Target::new(kind, plan.threads as usize, u64::MAX),
            peak_bytes: 0,
            micro_batch: 0,
            steps: 0,
            samples_per_second: 0.0,
            is_as_planned: true,
        }
    }

    /// Takes an event of the run.
    pub fn receive(&mut self, event: &RunEvent, plan: &Plan) {
        match event {
            RunEvent::Memory { sample, peak, .. } => {
                let own_bytes = peak.map_or(sample.own_bytes, |peak| peak.own_bytes);
                self.peak_bytes = self.peak_bytes.max(own_bytes);
                // What the samples that are decoded in advance may take depends on this.
                let cap = plan.memory_cap_bytes.unwrap_or(u64::MAX);
                self.target.ceiling_bytes = sample.total_bytes.min(cap);
            }
            RunEvent::Decision {
                phase: Phase::Train,
                decision,
                ..
            } if decision.action == Action::Run => {
                self.micro_batch = self.micro_batch.max(decision.micro_batch);
                self.is_as_planned &= decision.moments == Moments::Resident
                    && decision.checkpoint_blocks == plan.checkpoint_blocks;
            }
            RunEvent::Step {
                samples_per_second, ..
            } => {
                self.steps += 1;
                self.samples_per_second = self.samples_per_second.max(*samples_per_second);
            }
            _ => {}
        }
    }

    /// Compares a run that has ended with its estimate, and remembers the result. Returns a
    /// sentence about it; `None` if the run cannot be compared.
    pub fn compare(&self, plan: &Plan) -> Option<String> {
        let is_comparable = self.is_as_planned
            && self.micro_batch >= MIN_MICRO_BATCH
            && self.steps >= MIN_STEPS
            && self.samples_per_second >= MIN_SAMPLES_PER_SECOND;
        if !is_comparable {
            return None;
        }
        let (model, side) = (plan.model, plan.input_size);
        let estimate =
            MemoryEstimate::for_plan(plan, model, side, self.target, Variants::Planned).ok()?;
        let blocks = plan.checkpoint_blocks;
        let estimated_bytes =
            estimate.peak_bytes(blocks, self.micro_batch, plan.effective_batch)?;
        let path = estimates_path();
        let on = RunsOn {
            device: self.target.kind,
            in_window: self.in_window,
        };
        let mut history = EstimateHistory::load(&path);
        if !history.add(on, estimated_bytes, self.peak_bytes) {
            return None;
        }
        let saved = history.save(&path);
        let correction = history.correction(on);
        let off = 100.0 * (self.peak_bytes as f64 / estimated_bytes as f64 - 1.0);
        let compared = format!(
            "Memory: at most {}; the estimate for micro-batches of {} was {} ({off:+.0} %)",
            format_bytes(self.peak_bytes),
            self.micro_batch,
            format_bytes(estimated_bytes),
        );
        Some(match saved {
            Ok(()) => format!(
                "{compared}. Estimates on this device are now multiplied by {:.2}",
                correction.factor
            ),
            Err(error) => format!(
                "{compared}. The factor that corrects later estimates could not be saved: {error}"
            ),
        })
    }
}
