//! Random fault schedules: when the device fails and how, and what the user does meanwhile. A
//! schedule is a function of its seed.

use std::fmt;
use tape::Rng;
use tape::fault_injection::{Fault, ScheduledFault};

/// Optimizer steps of every run.
pub const STEPS: u64 = 6;

/// What happens during one run.
pub struct Schedule {
    pub seed: u64,
    /// The failures in training.
    pub faults: Vec<ScheduledFault>,
    /// The trained model is evaluated, answers and is exported.
    pub uses_model: bool,
    /// The failures meanwhile, counted from the end of the training.
    pub usage_faults: Vec<ScheduledFault>,
    /// The user stops the run after this step and resumes it.
    pub stop_after: Option<u64>,
    /// The memory controller chooses the micro-batches.
    pub automatic: bool,
    /// The user asks for checkpoints all the time, also within a step.
    pub saves_within_steps: bool,
}

impl Schedule {
    /// The schedule of a seed, for a run of about `training` dispatches and about `usage` after it.
    pub fn from_seed(seed: u64, training: u64, usage: u64) -> Self {
        let stream = Rng::new(seed).site("faults");
        let below = |index: u64, count: u64| (stream.uniform(index) * count as f64) as u64;
        let in_training = drawn_faults(stream, 1 + below(0, 4), training);
        let uses_model = stream.uniform(5) < 0.4;
        let in_usage = if uses_model { 1 + below(6, 3) } else { 0 };
        Schedule {
            seed,
            faults: in_training,
            uses_model,
            usage_faults: drawn_faults(stream.site("usage"), in_usage, usage),
            stop_after: (stream.uniform(1) < 0.3).then(|| 1 + below(2, STEPS - 1)),
            automatic: stream.uniform(3) < 0.25,
            saves_within_steps: stream.uniform(4) < 0.1,
        }
    }

    /// A schedule without faults.
    pub fn calm(automatic: bool) -> Self {
        Schedule {
            seed: 0,
            faults: Vec::new(),
            uses_model: true,
            usage_faults: Vec::new(),
            stop_after: None,
            automatic,
            saves_within_steps: false,
        }
    }
}

/// This many times a fault, once or several times in a row, within about `dispatches`.
fn drawn_faults(stream: Rng, count: u64, dispatches: u64) -> Vec<ScheduledFault> {
    let mut faults = Vec::new();
    for i in 0..count {
        let stream = stream.at(i);
        let mut fault = Fault::ALL[(stream.uniform(0) * Fault::ALL.len() as f64) as usize];
        let mut at = (stream.uniform(1) * 1.1 * dispatches as f64) as u64;
        if fault == Fault::AliasedCopy {
            // A run copies tensors when it starts, and rarely later. Each such fault ends it.
            if stream.uniform(4) < 0.3 {
                at = 0;
            } else {
                fault = Fault::Timeout;
            }
        }
        // A device that fails often fails several times in a row.
        let times = match stream.uniform(2) {
            draw if draw < 0.8 => 1,
            draw => 2 + (draw * 1000.0) as u64 % 5,
        };
        let distance = (stream.uniform(3) * 40.0) as u64;
        faults.extend((0..times).map(|n| ScheduledFault {
            at: at + n * distance,
            fault,
        }));
        // The first failure hides a page fault before the device reports it.
        if !fault.is_immediate() && stream.uniform(5) < 0.4 {
            faults.push(ScheduledFault {
                at: at + 1 + (stream.uniform(6) * 10.0) as u64,
                fault: Fault::PageFault,
            });
        }
    }
    faults.sort_by_key(|fault| fault.at);
    faults
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let micro_batches = if self.automatic { "automatic" } else { "fixed" };
        write!(f, "  {micro_batches} micro-batches")?;
        if let Some(step) = self.stop_after {
            write!(f, ", stopped and resumed after step {step}")?;
        }
        if self.saves_within_steps {
            write!(f, ", with checkpoints within steps")?;
        }
        for ScheduledFault { at, fault } in &self.faults {
            write!(f, "\n  dispatch {at}: {fault:?}")?;
        }
        for ScheduledFault { at, fault } in &self.usage_faults {
            write!(f, "\n  dispatch {at} after the training: {fault:?}")?;
        }
        Ok(())
    }
}
