//! What a training will need, before it trains: the footprint by model, resolution, micro-batch, checkpointed blocks, precision
//! and optimizer. State is counted from the shapes; what a piece takes is rehearsed. Refuses to know what fits: that is
//! [`pressure::suggest_config`]'s to say.

mod alignment;
mod arena;
mod fewest;
mod heap;
mod reach;
mod refusal;
mod rehearsal;
mod seconds;
mod stand;

pub use alignment::alignment;
pub use reach::Target;
pub use refusal::{does_not_fit, settle};
pub use seconds::{seconds_a_sample, seconds_of};

use crate::bench::Workload;
use crate::error::Result;
use crate::feed::Ahead;
use crate::optimizer::Optimizer;
use crate::plan::{ModelKind, OptimizerKind, Plan};
use candle_core::DType;
use dataset::Task;
use heap::Heap;
use pressure::{ModelVariant, ModelNeed, Peak, sensible_sizes};
use rehearsal::{PlanPiece, WorkloadPiece};
use serde::Serialize;
use std::time::Duration;
use tape::Parameters;

/// Sides of images that suit every model, and that a plan lists.
pub const IMAGE_SIZES: [u32; 8] = [32, 48, 64, 96, 128, 160, 192, 224];
/// How long the rehearsals of one form may take; one and two samples are rehearsed however long they take.
const PATIENCE: Duration = Duration::from_millis(2000);
/// The same for one of many that are listed.
const HASTE: Duration = Duration::from_millis(150);
/// What a block computed twice costs, as a fraction of the time of a step with none: one more forward pass, a third of a step.
const AGAIN_FRACTION: f64 = 0.33;

/// Footprint that does not depend on the piece, by what it is for, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Standing {
    /// Code, stacks, libraries, and what kernels keep for themselves.
    pub base_bytes: u64,
    /// Weights as the optimizer moves them.
    pub weights_bytes: u64,
    /// Their rounded copy, in a half precision.
    pub copy_bytes: u64,
    /// The optimizer's moments.
    pub moments_bytes: u64,
    /// The weights' moving average.
    pub averages_bytes: u64,
    /// One gradient of everything: it is there while pieces are added up.
    pub gradients_bytes: u64,
    /// Samples decoded ahead and photographs kept.
    pub waiting_bytes: u64,
    /// Texts as tokens, which stay for the whole run.
    pub texts_bytes: u64,
}

impl Fit {
    /// Pieces of a step.
    fn pieces(&self) -> u32 {
        self.effective_batch.div_ceil(self.micro_batch.max(1))
    }
}

impl Standing {
    /// What stays when no piece is at work and none was added.
    pub fn state_bytes(&self) -> u64 {
        self.base_bytes + self.held_bytes()
    }

    /// What of it lies on the heap.
    fn held_bytes(&self) -> u64 {
        self.weights_bytes
            + self.copy_bytes
            + self.moments_bytes
            + self.averages_bytes
            + self.waiting_bytes
            + self.texts_bytes
    }
}

/// Which forms are forecast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forms {
    /// As planned alone.
    Planned,
    /// As planned; where that does not fit also with all blocks checkpointed, and with as few as fit.
    Fewest(Fit),
}

/// What is to fit: the smallest piece that may be worked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fit {
    /// Footprint that Ebb may reach, in bytes.
    pub budget_bytes: u64,
    /// Samples of the piece.
    pub micro_batch: u32,
    /// Samples a step.
    pub effective_batch: u32,
    /// Whether samples decoded ahead count.
    pub waiting: Waiting,
}

/// Samples decoded ahead, in a forecast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// They take their part of the footprint.
    Counts,
    /// They give way before a piece does.
    GivesWay,
}

/// A forecast for one model at one resolution.
#[derive(Debug, Clone)]
pub struct Forecast {
    /// `convnet`, `gpt`, …
    pub model: String,
    /// Side of the image in pixels, or tokens of a sequence.
    pub resolution: u32,
    /// Trained parameters.
    pub parameters: u64,
    /// What does not depend on the piece.
    pub standing: Standing,
    /// Element type of a piece.
    pub precision: &'static str,
    /// Bytes that the host keeps of each sample of an effective batch until the step ends.
    batch_sample_bytes: u64,
    /// Blocks that stand before any piece, bytes.
    stand: Vec<u64>,
    forms: Vec<(u32, Heap)>,
    blocks: u32,
    target: Target,
}

impl Forecast {
    /// For a plan, or for its choices with another model or image size.
    pub fn of_plan(
        plan: &Plan,
        model: ModelKind,
        image_size: u32,
        target: Target,
        forms: Forms,
    ) -> Result<Self> {
        let (piece, masters) = PlanPiece::of(plan, model, image_size)?;
        let patience = match forms {
            Forms::Planned => HASTE,
            Forms::Fewest(_) => PATIENCE,
        };
        let ahead = Ahead::at(plan, image_size, target.workers(plan), target.ceiling_bytes);
        let averages_bytes = plan.ema_decay.map_or(0, |_| masters.bytes());
        let rounded = match plan.precision.is_half() {
            true => masters
                .rounded(plan.precision.dtype())?
                .bytes_in(plan.precision.dtype()),
            false => 0,
        };
        let standing = Standing {
            base_bytes: target.training_base_bytes(),
            copy_bytes: rounded,
            averages_bytes,
            waiting_bytes: match plan.task() {
                Task::ImageClassification => ahead.waiting_most_bytes(plan),
                _ => 0,
            },
            texts_bytes: plan.texts_bytes,
            ..standing(&masters, plan.optimizer, target)?
        };
        let rounded = plan.precision.is_half().then(|| plan.precision.dtype());
        let averaged = plan.ema_decay.map(|_| DType::F32);
        let copies: Vec<DType> = rounded.into_iter().chain(averaged).collect();
        let forecast = Forecast {
            model: model.name().to_owned(),
            resolution: image_size,
            parameters: masters.count() as u64,
            standing,
            precision: plan.precision.name(),
            batch_sample_bytes: 0,
            stand: stand::blocks_bytes(&masters, plan.optimizer, &copies)?,
            forms: Vec::new(),
            blocks: plan.blocks_of(model, image_size),
            target,
        };
        forecast.rehearsed(&piece, plan.checkpoint_blocks, forms, patience)
    }

    /// For a workload of the bench, in f32 with AdamW.
    pub fn of_workload(
        workload: Workload,
        checkpointed: u32,
        target: Target,
        forms: Forms,
    ) -> Result<Self> {
        let (piece, parameters) = WorkloadPiece::of(workload)?;
        let forecast = Forecast {
            model: workload.name().to_owned(),
            resolution: workload.resolution() as u32,
            parameters: parameters.count() as u64,
            standing: standing(&parameters, OptimizerKind::AdamW, target)?,
            precision: "f32",
            batch_sample_bytes: workload.sample_bytes(),
            stand: stand::blocks_bytes(&parameters, OptimizerKind::AdamW, &[])?,
            forms: Vec::new(),
            blocks: workload.blocks() as u32,
            target,
        };
        forecast.rehearsed(&piece, checkpointed, forms, PATIENCE)
    }

    /// Highest footprint while pieces of `micro_batch` make up an effective batch, in bytes; nothing for a number of checkpointed
    /// blocks that was not forecast.
    pub fn peak_bytes(
        &self,
        checkpointed: u32,
        micro_batch: u32,
        effective_batch: u32,
    ) -> Option<u64> {
        let heap_bytes = self.heap_bytes(checkpointed, micro_batch, effective_batch)?;
        let pieces = effective_batch.div_ceil(micro_batch.max(1));
        self.process_bytes(checkpointed, (micro_batch, pieces), heap_bytes)
    }

    /// What the process takes where so much of its heap is in use in steps of pieces of `micro_batch`.
    fn process_bytes(
        &self,
        checkpointed: u32,
        (micro_batch, pieces): (u32, u32),
        heap_bytes: u64,
    ) -> Option<u64> {
        let holes_bytes = (self.form(checkpointed)?).holes_bytes(micro_batch, pieces);
        Some(self.standing.base_bytes + self.target.kept_bytes(heap_bytes, holes_bytes))
    }

    fn form(&self, checkpointed: u32) -> Option<&Heap> {
        let mut forms = self.forms.iter();
        let (_, heap) = forms.find(|(blocks, _)| *blocks == checkpointed)?;
        Some(heap)
    }

    /// What of it is in use on the heap, in bytes.
    pub fn heap_bytes(
        &self,
        checkpointed: u32,
        micro_batch: u32,
        effective_batch: u32,
    ) -> Option<u64> {
        let piece = self.piece_bytes(checkpointed, micro_batch)?;
        let sums = match micro_batch < effective_batch {
            true => self.standing.gradients_bytes,
            false => 0,
        };
        let samples = u64::from(effective_batch) * self.batch_sample_bytes;
        Some(self.standing.held_bytes() + sums + samples + piece)
    }

    /// What a piece takes beside what stands, in bytes; nothing for a number of checkpointed blocks that was not forecast.
    pub fn piece_bytes(&self, checkpointed: u32, micro_batch: u32) -> Option<u64> {
        let heap = self.form(checkpointed)?;
        Some(heap.peak_bytes(micro_batch, self.target.allocator))
    }

    /// The same with nothing decoded ahead.
    pub fn without_waiting(mut self) -> Self {
        self.standing.waiting_bytes = 0;
        self
    }

    /// What [`pressure::suggest_config`] asks for, at these micro-batches beside the sensible ones.
    pub fn need(&self, effective_batch: u32, also: &[u32]) -> ModelNeed {
        let mut sizes = sensible_sizes(effective_batch);
        sizes.extend(also);
        let form = |&(checkpoint_blocks, _): &(u32, Heap)| ModelVariant {
            checkpoint_blocks,
            extra_time_fraction: AGAIN_FRACTION * f64::from(checkpoint_blocks)
                / f64::from(self.blocks.max(1)),
            peaks: sizes
                .iter()
                .filter_map(|&micro_batch| {
                    let peak_bytes =
                        self.peak_bytes(checkpoint_blocks, micro_batch, effective_batch)?;
                    Some(Peak {
                        micro_batch,
                        peak_bytes,
                    })
                })
                .collect(),
        };
        ModelNeed {
            state_bytes: self.standing.state_bytes(),
            precision: self.precision.to_owned(),
            variants: self.forms.iter().map(form).collect(),
        }
    }
}

fn standing(masters: &Parameters, optimizer: OptimizerKind, target: Target) -> Result<Standing> {
    // Zeros that nothing is written to: counted, not taken.
    let moments_bytes = Optimizer::new(optimizer, 0.0, masters)?.bytes();
    Ok(Standing {
        base_bytes: target.base_bytes,
        weights_bytes: masters.bytes() + masters.frozen_bytes(),
        moments_bytes,
        gradients_bytes: masters.bytes(),
        ..Standing::default()
    })
}
