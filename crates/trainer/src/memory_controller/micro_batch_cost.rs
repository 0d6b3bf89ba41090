//! Describes the micro-batches of a run, and roughly estimates their memory before any is measured.

use crate::plan::Plan;
use dataset::Task;
use pressure::{LighterTuning, MicroBatchKind, Phase, SampleCost};

/// Rough bytes per pixel of a sample in f32: twice what Ebb's networks save.
const BYTES_PER_PIXEL: u64 = 2048;
/// Rough number of values that a block saves per token for its backward pass, in units of its
/// width.
const WIDTHS_PER_TOKEN: u64 = 24;

/// Describes the micro-batches of a run.
pub(super) struct Workload {
    input_size: u32,
    checkpoint_blocks: u32,
    element_bytes: u32,
    /// Whether a part of a pretrained network that trains could be frozen.
    pub can_freeze: bool,
    /// What lighter ways to fine-tune would free.
    pub lighter_tuning: LighterTuning,
    /// Whether the samples are texts.
    pub reads_texts: bool,
    /// Cost of the largest sample of the step in pixels or tokens.
    sample_cost: u64,
    /// Costs of micro-batches of the next one, two, … samples; empty if each sample costs as much
    /// as the largest.
    costs: Vec<u64>,
    /// Rough bytes per unit of cost in f32.
    bytes_per_cost: u64,
    /// Most samples that an evaluation processes at once, if the user limits it.
    max_evaluated: Option<u32>,
}

impl Workload {
    /// `element_bytes` is the size of one activation element.
    pub fn new(plan: &Plan, element_bytes: u32) -> Self {
        Workload {
            input_size: plan.input_size,
            checkpoint_blocks: plan.checkpoint_blocks,
            element_bytes,
            can_freeze: plan.can_freeze(),
            // Only advice needs it.
            lighter_tuning: plan.lighter_tuning().unwrap_or_default(),
            reads_texts: plan.task() != Task::ImageClassification,
            sample_cost: plan.sample_cost(),
            costs: Vec::new(),
            bytes_per_cost: bytes_per_cost(plan),
            max_evaluated: plan.config.evaluation_batch,
        }
    }

    /// What runs of a micro-batch that the controller allows: less if the user limits evaluations.
    pub fn limited(&self, phase: Phase, micro_batch: u32) -> u32 {
        match (phase, self.max_evaluated) {
            (Phase::Evaluate, Some(most)) => micro_batch.min(most),
            (Phase::Evaluate | Phase::Train, _) => micro_batch,
        }
    }

    /// Sets the costs of the next samples in their order: pixels of an image, tokens of a text.
    /// Without them, each costs as much as the `largest` of the step.
    pub fn set_sample_costs(&mut self, largest: u64, costs: Option<Vec<u64>>) {
        self.sample_cost = largest.max(1);
        self.costs = padded_costs(&costs.unwrap_or_default());
    }

    /// Cost of the largest sample of the step in pixels or tokens.
    pub fn sample_cost(&self) -> u64 {
        self.sample_cost
    }

    /// Cost of a micro-batch of the next samples in pixels or tokens, with padding.
    pub fn cost(&self, micro_batch: u32) -> u64 {
        let next = micro_batch.checked_sub(1);
        let known = next.and_then(|next| self.costs.get(next as usize));
        known.map_or_else(|| self.largest_cost(micro_batch), |cost| *cost)
    }

    /// The most that a micro-batch of the step may cost in pixels or tokens.
    pub fn largest_cost(&self, micro_batch: u32) -> u64 {
        u64::from(micro_batch) * self.sample_cost
    }

    /// What each of the next `remaining` samples adds to the cost of a micro-batch, so that those
    /// of the first samples add up to the cost of a micro-batch of them.
    pub fn added_costs(&self, remaining: usize) -> Vec<SampleCost> {
        let added = |next: u32| {
            let before = self.cost(next);
            SampleCost(self.cost(next + 1).saturating_sub(before))
        };
        (0..remaining as u32).map(added).collect()
    }

    /// Rough bytes that a micro-batch of this cost needs. An evaluation saves no activations and
    /// needs a quarter.
    pub fn rough_bytes(&self, phase: Phase, cost: u64) -> u64 {
        let bytes_per_cost = match phase {
            Phase::Train => self.bytes_per_cost,
            Phase::Evaluate => self.bytes_per_cost / 4,
        };
        cost * bytes_per_cost * u64::from(self.element_bytes) / 4
    }

    /// The kind of micro-batch that the plan asks for. An evaluation has nothing to checkpoint.
    pub fn kind(&self, phase: Phase) -> MicroBatchKind {
        MicroBatchKind {
            phase,
            checkpoint_blocks: match phase {
                Phase::Train => self.checkpoint_blocks,
                Phase::Evaluate => 0,
            },
            element_bytes: self.element_bytes,
            input_size: self.input_size,
        }
    }
}

/// Costs of micro-batches of the first one, two, … samples; each is padded to its largest sample.
fn padded_costs(costs: &[u64]) -> Vec<u64> {
    let mut largest = 1;
    let samples = (1..).zip(costs);
    samples
        .map(|(samples, cost): (u64, &u64)| {
            largest = largest.max(*cost);
            samples * largest
        })
        .collect()
}

/// Rough bytes in f32 per unit of cost: per pixel, or per token.
fn bytes_per_cost(plan: &Plan) -> u64 {
    let widths = match (plan.text_model(), &plan.pretrained) {
        (Some(model), _) => (model.shape().width * model.shape().depth) as u64,
        (None, Some(pretrained)) if plan.task() != Task::ImageClassification => {
            pretrained.total_width()
        }
        (None, _) => return BYTES_PER_PIXEL,
    };
    4 * WIDTHS_PER_TOKEN * widths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload() -> Workload {
        Workload {
            input_size: 1024,
            checkpoint_blocks: 0,
            element_bytes: 4,
            can_freeze: false,
            lighter_tuning: LighterTuning::default(),
            reads_texts: true,
            sample_cost: 1024,
            costs: Vec::new(),
            bytes_per_cost: 1,
            max_evaluated: None,
        }
    }

    #[test]
    fn a_micro_batch_costs_its_samples_padded_to_the_longest_of_them() {
        let mut workload = workload();
        let lengths = vec![64, 32, 1024, 128];
        workload.set_sample_costs(1024, Some(lengths));
        let costs = [1, 2, 3, 4].map(|samples| workload.cost(samples));
        assert_eq!(costs, [64, 128, 3 * 1024, 4 * 1024]);
        let added = workload.added_costs(4).into_iter().map(|cost| cost.0);
        let sums: Vec<u64> = added
            .scan(0, |sum, cost| {
                *sum += cost;
                Some(*sum)
            })
            .collect();
        assert_eq!(sums, costs, "the controller adds them up");
        assert_eq!(workload.largest_cost(2), 2048);
    }

    #[test]
    fn samples_of_unknown_length_cost_as_much_as_the_largest() {
        let mut workload = workload();
        workload.set_sample_costs(512, None);
        assert_eq!([1, 3].map(|samples| workload.cost(samples)), [512, 1536]);
        assert_eq!(workload.added_costs(3), [SampleCost(512); 3]);
        // More samples than known ones, which cannot be, cost the most.
        workload.set_sample_costs(512, Some(vec![32]));
        assert_eq!(workload.cost(2), 1024);
    }
}
