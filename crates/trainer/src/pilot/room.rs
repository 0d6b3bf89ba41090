//! What cannot fit does not start. On the CPU a refused allocation ends the process, so the pilot refuses first: a piece
//! larger than the machine, its group or the limits on this process allow, and a wait that nobody else could end.

use super::Pilot;
use crate::control::Control;
use crate::error::{Result, TrainError};
use crate::plan::Plan;
use dataset::Task;
use pressure::{
    Action, Change, Decision, MemorySample, Moments, Outcome, Phase, MicroBatchKind, Shortage, cheapest_setting,
    settings_that_help,
};
use runlog::format_bytes;

/// Answers in a row to wait, before a wait for oneself is refused: two seconds.
const STUCK_AFTER: u32 = 20;
/// Times in a row that a device may refuse a piece that cannot be made smaller: two seconds.
const REFUSED_AT_MOST: u32 = 20;
/// Bytes of a pixel of a sample, before the first piece was measured: twice what the networks here keep in f32. Evaluation
/// keeps nothing and needs a quarter.
const ROUGH_PIXEL_BYTES: u64 = 2048;
/// Sizes that are worked before anything is measured.
const ROUGH_MOST: u32 = 2;

/// The part of what a sample needs that must be there on top where the controller would rather wait.
const SAFETY: u64 = 4;

const SMALLER: &str = "choose a smaller --micro-batch, or auto";
const RAISE: &str = "use smaller images, shorter texts (--tokens) or another model, or raise the limit that is set on this process (ulimit -v, ulimit -d)";

/// Why a run waits, or goes on small, where nobody else could help.
const LIMITED: &str = "the limit set on this process leaves room for no more";

/// Values that a block keeps of each token for its backward pass, in widths, roughly.
const ROUGH_WIDTHS: u64 = 24;

/// Bytes in f32 of what a sample's cost is counted in, roughly: of a pixel, or of a token.
pub(super) fn rough_cost_bytes(plan: &Plan) -> u64 {
    let widths = match (plan.text_model(), &plan.origin) {
        (Some(model), _) => (model.shape().width * model.shape().depth) as u64,
        (None, Some(origin)) if plan.task() != Task::ImageClassification => origin.widths(),
        (None, _) => return ROUGH_PIXEL_BYTES,
    };
    4 * ROUGH_WIDTHS * widths
}

impl Pilot {
    /// What one of the samples that are asked about next costs: pixels of an image, tokens of the longest text.
    pub fn set_sample_cost(&mut self, cost: u64) {
        self.sample_cost = cost.max(1);
    }

    pub(super) fn kind(&self, phase: Phase) -> MicroBatchKind {
        MicroBatchKind {
            phase,
            // Evaluation keeps nothing for a backward pass: there is nothing to checkpoint.
            checkpoint_blocks: match phase {
                Phase::Train => self.checkpoint_blocks,
                Phase::Evaluate => 0,
            },
            element_bytes: self.element_bytes,
            input_size: self.image_size,
        }
    }

    /// The micro-batch is fixed, and nothing says yet what it needs.
    pub fn must_weigh(&self) -> bool {
        let fixed = self.policy.fixed_micro_batch;
        self.gated
            && fixed.is_some_and(|size| size > ROUGH_MOST)
            && !self.model.is_ready(self.kind(Phase::Train))
    }

    /// The next piece only measures; nothing was decided.
    pub fn begin_weighing(&mut self) -> Result<()> {
        let sample = self.monitor.sample_now()?;
        self.next = Some((self.kind(Phase::Train), sample));
        Ok(())
    }

    /// The device refused the piece: caches go, the next answer is smaller. What cannot be smaller is tried again for a while,
    /// since others may give memory back.
    ///
    /// # Errors
    /// It is refused still.
    pub fn refused(&mut self, error: TrainError, control: &Control) -> Result<()> {
        let micro_batch = self.piece.as_ref().map_or(1, |piece| piece.micro_batch);
        let fixed = self.policy.fixed_micro_batch.is_some();
        self.retreat(Outcome::Memory)?;
        if micro_batch > 1 && !fixed {
            return Ok(());
        }
        self.refused += 1;
        if self.refused < REFUSED_AT_MOST {
            self.wait(control);
            return Ok(());
        }
        let help = self.cheapest_setting(micro_batch, 1);
        Err(TrainError::Refused {
            micro_batch,
            times: self.refused,
            source: Box::new(error),
            next: help.unwrap_or_else(|| "train on --device cpu".to_owned()),
        })
    }

    /// The first setting that would free so many bytes, in words, where a training piece of `micro_batch` is stuck.
    pub fn cheapest_setting(&self, micro_batch: u32, missing_bytes: u64) -> Option<String> {
        let kind = MicroBatchKind {
            checkpoint_blocks: self.state.checkpoint_blocks(self.kind(Phase::Train)),
            ..self.kind(Phase::Train)
        };
        let cost = u64::from(micro_batch) * self.sample_cost;
        let rough = cost * self.rough_cost_bytes * u64::from(self.element_bytes) / 4;
        let state = self.model.state_bytes(kind).unwrap_or(0);
        let needed = self.model.upper_bytes(kind, cost).unwrap_or(state + rough);
        let stuck = self.stuck(kind, needed, missing_bytes);
        let help = cheapest_setting(&Shortage {
            micro_batch,
            ..stuck
        });
        help.map(|help| format!("what would help first: {help}"))
    }

    /// What others leave too little for, in bytes: one sample, or the state alone where that is all that is known.
    pub fn missing_bytes(&self) -> u64 {
        let kind = self.kind(Phase::Train);
        let one = self.model.upper_bytes(kind, self.sample_cost);
        let sample = self.monitor.latest().unwrap_or_default();
        let there = self.budget_bytes(&sample).max(1);
        one.map_or(1, |one| one.saturating_sub(there).max(1))
    }

    /// A piece of which more is known to be needed than there is, whatever others give back.
    pub(super) fn refuse_too_large(
        &self,
        kind: MicroBatchKind,
        sample: &MemorySample,
        micro_batch: u32,
    ) -> Result<()> {
        let cost_bytes = match kind.phase {
            Phase::Train => self.rough_cost_bytes,
            Phase::Evaluate => self.rough_cost_bytes / 4,
        };
        let cost = u64::from(micro_batch) * self.sample_cost;
        let (rough, measured) = (cost * cost_bytes, self.model.upper_bytes(kind, cost));
        let needed = match measured {
            Some(peak) => peak + self.spare_bytes,
            None => sample.own_bytes + rough * u64::from(self.element_bytes) / 4,
        };
        let there = sample.own_bytes + sample.available_bytes;
        if needed <= there || sample.total_bytes == 0 {
            return Ok(());
        }
        let next = match self.policy.fixed_micro_batch {
            Some(size) if size > 1 => SMALLER,
            _ => RAISE,
        };
        Err(self.no_room((kind, micro_batch), (needed, there), next))
    }

    /// Others may give memory back; a limit on this process gives nothing, and what it leaves is nobody else's: after a while
    /// half of what was worked already is worked again, or one sample where it fits; where it does not the run ends.
    pub(super) fn never_wait_for_oneself(
        &mut self,
        kind: MicroBatchKind,
        sample: &MemorySample,
        remaining: u32,
        decision: Decision,
    ) -> Result<Decision> {
        let waits = self.gated && matches!(decision.action, Action::Pause | Action::Suspend);
        let headroom = waits.then(|| self.monitor.own_headroom_bytes()).flatten();
        if headroom.is_none_or(|headroom| headroom > sample.available_bytes) {
            self.stuck = 0;
            return Ok(decision);
        }
        self.stuck += 1;
        if self.stuck < STUCK_AFTER {
            // The controller knows no such limit and would blame other apps.
            return Ok(Decision {
                reason: LIMITED.to_owned(),
                ..decision
            });
        }
        let one = self.sample_cost;
        let rough = one * self.rough_cost_bytes * u64::from(self.element_bytes) / 4;
        let needed = match self.model.upper_bytes(kind, one) {
            Some(peak) => peak + self.spare_bytes,
            None => sample.own_bytes + rough,
        };
        let safely = needed + needed / SAFETY;
        let there = sample.own_bytes + sample.available_bytes;
        // What a piece needed is still mapped: one of half its size finds it there.
        let worked = self.model.largest(kind) / 2;
        if worked == 0 && safely > there {
            return Err(self.no_room((kind, 1), (safely, there), RAISE));
        }
        Ok(Decision {
            action: Action::Run,
            micro_batch: worked.clamp(1, remaining.max(1)),
            change: match self.stuck {
                STUCK_AFTER => Change::Continue,
                _ => Change::Hold,
            },
            predicted_peak_bytes: needed,
            reason: LIMITED.to_owned(),
            ..decision
        })
    }

    /// The refusal, with the first move and the rungs that would free what is missing.
    fn no_room(
        &self,
        (kind, micro_batch): (MicroBatchKind, u32),
        (needed, there): (u64, u64),
        first: &str,
    ) -> TrainError {
        let stuck = self.stuck(kind, needed, needed.saturating_sub(there));
        let next = match settings_that_help(&stuck) {
            Some(help) => format!("{first}; {help}"),
            None => first.to_owned(),
        };
        TrainError::NoRoom {
            micro_batch,
            needed: format_bytes(needed),
            available: format_bytes(there),
            next,
        }
    }
    fn stuck(&self, kind: MicroBatchKind, needed: u64, missing_bytes: u64) -> Shortage {
        let beside = self.model.state_bytes(kind).unwrap_or(0) + self.spare_bytes;
        Shortage {
            missing_bytes,
            prefetched_bytes: self.spare_bytes,
            activations_bytes: needed.saturating_sub(beside),
            moments_bytes: match self.moments {
                Moments::Resident => self.full_moments_bytes,
                Moments::Mapped => 0,
            },
            own_bytes: needed,
            // What can be said about it is said first.
            micro_batch: 1,
            checkpointed_blocks: match kind.phase {
                Phase::Train => kind.checkpoint_blocks,
                Phase::Evaluate => u32::MAX,
            },
            element_bytes: kind.element_bytes,
            ..Shortage::default()
        }
    }
}
