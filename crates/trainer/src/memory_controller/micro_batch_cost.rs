//! Describes the micro-batches of a run, and roughly estimates their memory before any is measured.

use crate::plan::Plan;
use dataset::Task;
use pressure::{LighterTuning, MicroBatchKind, Phase};

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
    /// Cost of one sample in pixels or tokens.
    sample_cost: u64,
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

    /// Sets the cost of one of the next samples: pixels of an image, tokens of the longest text.
    pub fn set_sample_cost(&mut self, cost: u64) {
        self.sample_cost = cost.max(1);
    }

    /// Cost of one sample in pixels or tokens.
    pub fn sample_cost(&self) -> u64 {
        self.sample_cost
    }

    /// Cost of a micro-batch in pixels or tokens.
    pub fn cost(&self, micro_batch: u32) -> u64 {
        u64::from(micro_batch) * self.sample_cost
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
