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
    /// The failures.
    pub faults: Vec<ScheduledFault>,
    /// The user stops the run after this step and resumes it.
    pub stop_after: Option<u64>,
    /// The memory controller chooses the micro-batches.
    pub automatic: bool,
    /// The user asks for checkpoints all the time, also within a step.
    pub saves_within_steps: bool,
}

impl Schedule {
    /// The schedule of a seed, for a run of about `dispatches` dispatches.
    pub fn from_seed(seed: u64, dispatches: u64) -> Self {
        let stream = Rng::new(seed).site("faults");
        let below = |index: u64, count: u64| (stream.uniform(index) * count as f64) as u64;
        let mut faults = Vec::new();
        for i in 0..1 + below(0, 4) {
            let stream = stream.at(i);
            let fault = Fault::ALL[(stream.uniform(0) * Fault::ALL.len() as f64) as usize];
            let at = (stream.uniform(1) * 1.1 * dispatches as f64) as u64;
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
        }
        faults.sort_by_key(|fault| fault.at);
        Schedule {
            seed,
            faults,
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
            stop_after: None,
            automatic,
            saves_within_steps: false,
        }
    }
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
        Ok(())
    }
}
