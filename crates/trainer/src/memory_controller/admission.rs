//! Rejects micro-batches that cannot fit, and gives up those that the device refuses. On the CPU a
//! failed allocation ends the process, so the controller rejects first: a micro-batch larger than
//! the machine, its cgroup or the limits on this process allow, and a wait for memory that no other
//! app can free.

use super::memory_usage::Usage;
use super::micro_batch_cost::Workload;
use crate::error::{TrainError, samples};
use pressure::{
    Action, Change, ControllerState, Decision, MemoryModel, MemorySample, MicroBatchKind, Monitor,
    Outcome, Phase, Policy, Shortage, cheapest_setting, settings_that_help,
};
use runlog::format_bytes;

/// Consecutive decisions to wait after which a wait for this process's own memory ends: 2 seconds.
const MOST_WAITS: u32 = 20;
/// Consecutive refusals by the device of a micro-batch that cannot be smaller: 2 seconds.
const MOST_REFUSALS: u32 = 20;
/// Largest fixed micro-batch that runs without a probe.
const UNPROBED_MICRO_BATCH: u32 = 2;
/// One part in this many of the needed bytes is added if the controller would rather wait.
const SAFETY: u64 = 4;

const SMALLER: &str = "choose a smaller --micro-batch, or auto";
const RAISE: &str = "use smaller images, shorter texts (--tokens) or another model, or raise the limit set on this process (ulimit -v, ulimit -d)";
const LESS_WORK: &str = "resume from the newest checkpoint, or start a new run with smaller images, fewer --tokens or --device cpu";
/// Reason of a decision while a limit on this process is the cause.
const LIMITED: &str = "the limit set on this process allows no more memory";

/// Counts consecutive waits and refusals.
pub(super) struct Admission {
    /// Whether a failed allocation ends the process.
    is_strict: bool,
    waits: u32,
    refusals: u32,
}

/// What an admission depends on.
pub(super) struct Situation<'a> {
    pub policy: &'a Policy,
    pub state: &'a ControllerState,
    pub model: &'a MemoryModel,
    pub monitor: &'a Monitor,
    pub workload: &'a Workload,
    pub usage: &'a Usage,
}

/// A micro-batch that cannot be smaller and that the device refused too often.
pub(super) struct Refusal {
    pub micro_batch: u32,
    /// How it ended, each time.
    pub outcome: Outcome,
    /// Number of consecutive refusals.
    pub times: u32,
    /// The device's last error.
    pub error: TrainError,
}

/// A micro-batch that does not fit.
struct Excess {
    kind: MicroBatchKind,
    micro_batch: u32,
    needed_bytes: u64,
    available_bytes: u64,
}

impl Admission {
    /// If `is_strict`, a failed allocation would end the process and nothing too large may start.
    pub fn new(is_strict: bool) -> Self {
        Admission {
            is_strict,
            waits: 0,
            refusals: 0,
        }
    }

    /// Whether the micro-batch is fixed and its peak is not known yet.
    pub fn needs_probe(&self, at: &Situation) -> bool {
        let fixed = at.policy.fixed_micro_batch;
        self.is_strict
            && fixed.is_some_and(|size| size > UNPROBED_MICRO_BATCH)
            && !at.model.is_ready(at.workload.kind(Phase::Train))
    }

    /// A micro-batch was confirmed.
    pub fn confirmed(&mut self) {
        self.refusals = 0;
    }

    /// The device refused a micro-batch that cannot be smaller. Returns the number of consecutive
    /// refusals once there are too many.
    pub fn count_refusal(&mut self) -> Option<u32> {
        self.refusals += 1;
        (self.refusals >= MOST_REFUSALS).then_some(self.refusals)
    }

    /// Checks a micro-batch before it starts.
    ///
    /// # Errors
    /// It would need more than other apps could ever free.
    pub fn check(
        &self,
        at: &Situation,
        kind: MicroBatchKind,
        sample: &MemorySample,
        micro_batch: u32,
    ) -> Result<(), TrainError> {
        if !self.is_strict {
            return Ok(());
        }
        let needed_bytes = at.needed_bytes(kind, kind.phase, sample, micro_batch);
        let available_bytes = sample.own_bytes + sample.available_bytes;
        if needed_bytes <= available_bytes || sample.total_bytes == 0 {
            return Ok(());
        }
        let advice = match at.policy.fixed_micro_batch {
            Some(size) if size > 1 => SMALLER,
            _ => RAISE,
        };
        let excess = Excess {
            kind,
            micro_batch,
            needed_bytes,
            available_bytes,
        };
        Err(at.too_large(&excess, advice))
    }

    /// Whether `decision` waits for memory that no other app can free, because a limit on this
    /// process is the cause.
    pub fn is_own_wait(&self, at: &Situation, sample: &MemorySample, decision: &Decision) -> bool {
        let waits = self.is_strict && matches!(decision.action, Action::Pause | Action::Suspend);
        let headroom = waits.then(|| at.monitor.own_headroom_bytes()).flatten();
        headroom.is_some_and(|headroom| headroom <= sample.available_bytes)
    }

    /// Counts consecutive own waits.
    pub fn count_wait(&mut self, is_own_wait: bool) -> u32 {
        self.waits = if is_own_wait { self.waits + 1 } else { 0 };
        self.waits
    }
}

impl Situation<'_> {
    /// Ends an own wait, the `waits`th in a row, after two seconds: half of the largest micro-batch
    /// so far runs, or a single sample if it fits. Returns other decisions unchanged.
    ///
    /// # Errors
    /// Not even a single sample fits.
    pub fn limit_wait(
        &self,
        waits: u32,
        kind: MicroBatchKind,
        sample: &MemorySample,
        remaining: u32,
        decision: Decision,
    ) -> Result<Decision, TrainError> {
        if waits == 0 {
            return Ok(decision);
        }
        if waits < MOST_WAITS {
            // The controller does not know this limit and would name other apps as the cause.
            return Ok(Decision {
                reason: LIMITED.to_owned(),
                ..decision
            });
        }
        let needed_bytes = self.needed_bytes(kind, Phase::Train, sample, 1);
        let safe_bytes = needed_bytes + needed_bytes / SAFETY;
        let available_bytes = sample.own_bytes + sample.available_bytes;
        // The memory of the largest micro-batch is still mapped: one of half its size fits into it.
        let half = self.model.largest(kind) / 2;
        if half == 0 && safe_bytes > available_bytes {
            let excess = Excess {
                kind,
                micro_batch: 1,
                needed_bytes: safe_bytes,
                available_bytes,
            };
            return Err(self.too_large(&excess, RAISE));
        }
        Ok(Decision {
            action: Action::Run,
            micro_batch: half.clamp(1, remaining.max(1)),
            change: match waits {
                MOST_WAITS => Change::Continue,
                _ => Change::Hold,
            },
            predicted_peak_bytes: needed_bytes,
            reason: LIMITED.to_owned(),
            ..decision
        })
    }

    /// Advice for the user: the first setting that would free `missing_bytes` for a run
    /// micro-batch of `micro_batch` samples.
    pub fn advice(&self, micro_batch: u32, missing_bytes: u64) -> Option<String> {
        let planned = self.workload.kind(Phase::Train);
        let kind = MicroBatchKind {
            checkpoint_blocks: self.state.checkpoint_blocks(planned),
            ..planned
        };
        let cost = self.workload.cost(micro_batch);
        let rough_bytes = self.workload.rough_bytes(Phase::Train, cost);
        let state_bytes = self.model.state_bytes(kind).unwrap_or(0);
        let predicted = self.model.upper_bytes(kind, cost);
        let needed_bytes = predicted.unwrap_or(state_bytes + rough_bytes);
        let help = cheapest_setting(&Shortage {
            micro_batch,
            ..self.shortage(kind, needed_bytes, missing_bytes)
        });
        help.map(|help| format!("try this first: {help}"))
    }

    /// The error that ends the run after a refusal.
    pub fn refused(&self, refusal: Refusal) -> TrainError {
        let Refusal {
            micro_batch,
            outcome,
            times,
            error,
        } = refusal;
        if outcome == Outcome::TooLong {
            return TrainError::DeviceFailed {
                what: format!("a micro-batch of {}", samples(micro_batch)),
                times,
                source: Box::new(error),
                next: LESS_WORK,
            };
        }
        let advice = self.advice(micro_batch, 1);
        TrainError::DeviceOutOfMemory {
            micro_batch,
            times,
            source: Box::new(error),
            next: advice.unwrap_or_else(|| "train on --device cpu".to_owned()),
        }
    }

    /// Footprint that a micro-batch is expected to reach, in bytes. Without a prediction it is
    /// guessed as one of `guess_phase`.
    fn needed_bytes(
        &self,
        kind: MicroBatchKind,
        guess_phase: Phase,
        sample: &MemorySample,
        micro_batch: u32,
    ) -> u64 {
        let cost = self.workload.cost(micro_batch);
        match self.model.upper_bytes(kind, cost) {
            Some(peak_bytes) => peak_bytes + self.usage.prefetched_bytes(),
            None => sample.own_bytes + self.workload.rough_bytes(guess_phase, cost),
        }
    }

    /// The error for a micro-batch that does not fit, with `advice` and the settings that would
    /// free the missing bytes.
    fn too_large(&self, excess: &Excess, advice: &str) -> TrainError {
        let (needed_bytes, available_bytes) = (excess.needed_bytes, excess.available_bytes);
        let missing_bytes = needed_bytes.saturating_sub(available_bytes);
        let shortage = self.shortage(excess.kind, needed_bytes, missing_bytes);
        TrainError::MicroBatchTooLarge {
            micro_batch: excess.micro_batch,
            needed: needed_text(needed_bytes, available_bytes),
            available: format_bytes(available_bytes),
            next: match settings_that_help(&shortage) {
                Some(help) => format!("{advice}; {help}"),
                None => advice.to_owned(),
            },
        }
    }

    /// What a micro-batch that needs `needed_bytes` and misses `missing_bytes` could free.
    fn shortage(&self, kind: MicroBatchKind, needed_bytes: u64, missing_bytes: u64) -> Shortage {
        let prefetched_bytes = self.usage.prefetched_bytes();
        let other_bytes = self.model.state_bytes(kind).unwrap_or(0) + prefetched_bytes;
        Shortage {
            missing_bytes,
            prefetched_bytes,
            activations_bytes: needed_bytes.saturating_sub(other_bytes),
            moments_bytes: self.usage.reducible_moments_bytes(),
            own_bytes: needed_bytes,
            // Advice about the micro-batch itself is given separately.
            micro_batch: 1,
            checkpointed_blocks: match kind.phase {
                Phase::Train => kind.checkpoint_blocks,
                Phase::Evaluate => u32::MAX,
            },
            element_bytes: kind.element_bytes,
            can_freeze: self.workload.can_freeze,
            lighter_tuning: self.workload.lighter_tuning,
            reads_texts: self.workload.reads_texts,
            ..Shortage::default()
        }
    }
}

/// `needed_bytes` as text, rounded up if it would otherwise be the text of `available_bytes`.
fn needed_text(needed_bytes: u64, available_bytes: u64) -> String {
    let available = format_bytes(available_bytes);
    let larger = (0..).map(|i| needed_bytes + i * (needed_bytes / 200).max(1));
    let mut texts = larger.map(format_bytes);
    let other = texts.find(|text| *text != available);
    other.expect("larger amounts have other texts")
}

#[cfg(test)]
mod tests {
    use super::needed_text;

    const MB: u64 = 1 << 20;

    #[test]
    fn a_need_never_looks_like_what_is_available() {
        assert_eq!(needed_text(1114 * MB / 10, 1106 * MB / 10), "112 MB");
        assert_eq!(needed_text(1114 * MB / 10, 98 * MB), "111 MB");
    }
}
