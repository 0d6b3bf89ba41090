//! The words between the training loop and the controller: what is asked, what is answered, what came of it.
//! Plain data; the logic is in `controller.rs`.

use crate::sample::{Component, MemorySample};
use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// Which kind of work a piece does. The memory model learns each apart.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize, TS,
)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Forward and backward.
    #[default]
    Train,
    /// Forward only.
    Evaluate,
}

/// What one sample costs, in pixels or tokens. Samples of one image task all cost the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleCost(pub u64);

/// Everything that changes a piece's memory beside its samples: the key under which peaks are learnt.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
pub struct PieceKind {
    /// Training or evaluation.
    pub phase: Phase,
    /// How many blocks are checkpointed. In an [`Ask`] the fewest: the controller may add some.
    pub checkpoint_blocks: u32,
    /// Bytes of one activation element: 8, 4 or 2.
    pub element_bytes: u32,
    /// Image side or sequence length.
    pub resolution: u32,
}

/// "What may I do next?": asked before every piece.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The newest reading. Its `at_ms` is the only clock.
    pub sample: MemorySample,
    /// The samples of the effective batch that are still to be worked off, in order.
    pub remaining: &'a [SampleCost],
    /// What kind of piece it will be.
    pub kind: PieceKind,
    /// Bytes of the own footprint that decoding less far ahead gives back: samples that wait, pictures that are kept.
    pub spare_bytes: u64,
}

/// A piece that ended, however it ended.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Piece {
    /// When it ended, on the sample's clock.
    pub at_ms: u64,
    /// What kind of piece it was.
    pub kind: PieceKind,
    /// Its samples.
    pub micro_batch: u32,
    /// The sum of its samples' costs.
    pub cost: u64,
    /// Highest footprint of this process while it ran, less what was spare when it began. 0 when not measured.
    pub peak_bytes: u64,
    /// How long it took.
    pub ms: f64,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a piece ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Confirmed by the device.
    Ok,
    /// An allocation was refused.
    Memory,
    /// Cancelled between two operations.
    Cancelled,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Work a piece of `micro_batch` samples.
    #[default]
    Run,
    /// Wait: even one sample does not fit now. Caches are given back meanwhile.
    Pause,
    /// Checkpoint, drop everything, come back by itself.
    Park,
    /// Checkpoint and end the run: waiting longer would not help.
    Stop,
}

/// How a decision differs from the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// The first decision of a run or of a phase.
    #[default]
    Start,
    /// Same micro-batch as before.
    Hold,
    /// Smaller than before.
    Shrink,
    /// Larger than before.
    Grow,
    /// The running piece was cancelled and is retried smaller.
    Cancel,
    /// Waiting begins.
    Pause,
    /// Everything is given back.
    Park,
    /// Work goes on after a pause or park.
    Continue,
    /// Same micro-batch, another prefetch.
    Prefetch,
    /// One block more keeps its input only and is computed again in backward.
    CheckpointMore,
    /// One block more keeps its activations again.
    CheckpointLess,
    /// The optimizer's moments go to a file, or come back from it.
    Moments,
    /// The run ends, with a checkpoint on disk.
    Stop,
}

/// How far ahead of the training samples are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Prefetch {
    /// As far as the loader was set up for; decoded pictures are kept.
    #[default]
    Long,
    /// One sample a worker; nothing is kept.
    Short,
}

/// Where the optimizer's moments are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Moments {
    /// In memory.
    #[default]
    Resident,
    /// In a memory-mapped file, read and written one parameter at a time: the system may take its pages back.
    Mapped,
}

/// The answer to an [`Ask`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, TS)]
pub struct Decision {
    /// Run, pause, park or stop.
    pub action: Action,
    /// Samples of the next piece; 0 unless `action` is `run`.
    pub micro_batch: u32,
    /// How this differs from the decision before.
    pub change: Change,
    /// Give cached memory back before the piece starts.
    pub release_caches: bool,
    /// Checkpoint the last whole step first, unless the newest checkpoint is of it: the run may have to park soon.
    #[serde(default)]
    pub checkpoint_first: bool,
    /// How far ahead samples are decoded from now on.
    #[serde(default)]
    pub prefetch: Prefetch,
    /// Blocks that keep their input only in the next piece; none in an evaluation.
    #[serde(default)]
    pub checkpoint_blocks: u32,
    /// Where the optimizer's moments are from now on.
    #[serde(default)]
    pub moments: Moments,
    /// Footprint that the piece is expected to reach; 0 without a model.
    pub predicted_peak_bytes: u64,
    /// Footprint that Ebb allows itself now.
    pub budget_bytes: u64,
    /// Which component of the signal spoke.
    pub cause: Component,
    /// Why, as the end of a sentence: "another app took 6.1 GB in 20 s".
    pub reason: String,
}

impl Decision {
    /// The size of the next piece, or `None` when the answer is to wait.
    pub fn micro_batch(&self) -> Option<usize> {
        (self.action == Action::Run).then_some(self.micro_batch as usize)
    }
}
