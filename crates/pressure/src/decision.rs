//! The types between the training loop and the controller: the question, the answer, and the result
//! that is reported back. Plain data; the rules are called from `controller.rs`.

use crate::memory_sample::{Component, MemorySample};
use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// The kind of work a micro-batch does. The memory model learns each separately.
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

/// The cost of one sample, in pixels or tokens. All samples of an image task cost the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleCost(pub u64);

/// Everything that affects the memory of a micro-batch besides its samples: the key under which
/// peaks are learned.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
pub struct MicroBatchKind {
    /// Training or evaluation.
    pub phase: Phase,
    /// Number of checkpointed blocks. In a [`DecisionInput`] this is the minimum; the controller
    /// may add some.
    pub checkpoint_blocks: u32,
    /// Bytes of one activation element: 8, 4 or 2.
    pub element_bytes: u32,
    /// Side of an image in pixels, or length of a sequence in tokens.
    #[serde(alias = "resolution")]
    pub input_size: u32,
}

/// The question before every micro-batch: what may run next?
#[derive(Debug, Clone, Copy)]
pub struct DecisionInput<'a> {
    /// The newest sample. Its `at_ms` is the only clock.
    pub sample: MemorySample,
    /// The samples of the effective batch that are still to be processed, in order.
    pub remaining: &'a [SampleCost],
    /// The kind of micro-batch that will run.
    pub kind: MicroBatchKind,
    /// Bytes of Ebb's footprint that a shorter prefetch would free: samples decoded ahead and
    /// cached images.
    pub spare_bytes: u64,
}

/// A micro-batch that ended, successfully or not.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MicroBatchRecord {
    /// When it ended, on the sample's clock.
    pub at_ms: u64,
    /// What kind of micro-batch it was.
    pub kind: MicroBatchKind,
    /// Number of samples.
    pub micro_batch: u32,
    /// Sum of the samples' costs.
    pub cost: u64,
    /// Highest footprint of this process meanwhile, less the `spare_bytes` at its start. 0 if it
    /// was not measured.
    pub peak_bytes: u64,
    /// Duration in milliseconds.
    pub ms: f64,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a micro-batch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The device confirmed it.
    Ok,
    /// An allocation was refused.
    Memory,
    /// The device ended it because it held the device for too long.
    TooLong,
    /// It was cancelled between two operations.
    Cancelled,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Run a micro-batch of `micro_batch` samples.
    #[default]
    Run,
    /// Wait: not even one sample fits now. Caches are released meanwhile.
    Pause,
    /// Checkpoint, free everything, and resume when memory is back.
    #[serde(alias = "park")]
    Suspend,
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
    /// The micro-batch stays.
    Hold,
    /// The micro-batch is smaller.
    Shrink,
    /// The micro-batch is larger.
    Grow,
    /// The running micro-batch was cancelled and is retried smaller.
    Cancel,
    /// A pause begins.
    Pause,
    /// A suspension begins: everything is freed.
    #[serde(alias = "park")]
    Suspend,
    /// The run continues after a pause or a suspension.
    Continue,
    /// The micro-batch stays, the prefetch changes.
    Prefetch,
    /// One more block saves only its input and recomputes its activations in the backward pass.
    CheckpointMore,
    /// One more block saves its activations again.
    CheckpointLess,
    /// The optimizer's moments move to a file, or back to memory.
    Moments,
    /// The run ends, with a checkpoint on disk.
    Stop,
}

impl Change {
    /// Whether this change of an evaluation is shown to the user. That an evaluation starts small
    /// and grows is in the events only.
    pub fn is_shown_in_evaluation(self) -> bool {
        !matches!(self, Change::Start | Change::Hold | Change::Grow)
    }
}

/// How far ahead of the training samples are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Prefetch {
    /// As far as the loader was configured for; decoded images are cached.
    #[default]
    Long,
    /// One sample per worker; nothing is cached.
    Short,
}

/// Where the optimizer's moments are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Moments {
    /// In memory.
    #[default]
    Resident,
    /// In a memory-mapped file, read and written one parameter at a time. The system may reclaim
    /// its pages.
    Mapped,
}

/// The answer to a [`DecisionInput`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, TS)]
pub struct Decision {
    /// Run, pause, suspend or stop.
    pub action: Action,
    /// Samples of the next micro-batch; 0 unless `action` is `run`.
    pub micro_batch: u32,
    /// How this differs from the decision before.
    pub change: Change,
    /// Release cached memory before the micro-batch starts.
    pub release_caches: bool,
    /// Save a checkpoint first, unless the newest checkpoint already contains the last completed
    /// step: the run may be suspended soon.
    #[serde(default)]
    pub checkpoint_first: bool,
    /// How far ahead samples are decoded from now on.
    #[serde(default)]
    pub prefetch: Prefetch,
    /// Number of blocks that the next micro-batch checkpoints; 0 in an evaluation.
    #[serde(default)]
    pub checkpoint_blocks: u32,
    /// Where the optimizer's moments are from now on.
    #[serde(default)]
    pub moments: Moments,
    /// Footprint that the micro-batch is expected to reach, in bytes; 0 without a prediction.
    pub predicted_peak_bytes: u64,
    /// Footprint that Ebb allows itself now, in bytes.
    pub budget_bytes: u64,
    /// The component of the pressure signal behind the decision.
    pub cause: Component,
    /// The reason, as the end of a sentence: "another app took 6.1 GB in 20 s".
    pub reason: String,
}

impl Decision {
    /// The size of the next micro-batch; `None` unless the action is [`Action::Run`].
    pub fn micro_batch(&self) -> Option<usize> {
        (self.action == Action::Run).then_some(self.micro_batch as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_of_an_older_version_can_be_read() {
        let json = r#"{"action":"park","micro_batch":0,"change":"park","release_caches":true,
            "predicted_peak_bytes":0,"budget_bytes":7,"cause":"headroom","reason":"because"}"#;
        let decision: Decision = serde_json::from_str(json).expect("the old names are accepted");
        assert_eq!(decision.action, Action::Suspend);
        assert_eq!(decision.change, Change::Suspend);
        let written = serde_json::to_string(&decision).expect("it can be written");
        assert!(written.contains(r#""action":"suspend""#), "{written}");
    }
}
