//! Power of the machine during a session: rests between micro-batches, and checkpoints before sleep
//! and at low battery. The rules are in `pressure::PowerPolicy`.

use crate::machine_sources::Machine;
use crate::plan::Plan;
use crate::run_control::Control;
use pressure::{PowerPolicy, PowerPolicyChange, PowerPolicyMode, PowerSource, SleepWatch};
use std::time::{Duration, Instant};

/// Time between two readings of the power's state.
const READING_INTERVAL: Duration = Duration::from_secs(5);
/// How long the machine waits for a checkpoint before it sleeps. macOS allows 30 seconds.
const SLEEP_LIMIT: Duration = Duration::from_secs(20);

/// Watches the power and rests as the rule asks.
pub struct PowerMonitor {
    source: Box<dyn PowerSource>,
    courtesy: PowerPolicy,
    read_at: Option<Instant>,
    /// When the work since the last rest began.
    working_since: Option<Instant>,
    control: Control,
    _sleep: Option<Box<dyn SleepWatch>>,
}

impl PowerMonitor {
    /// Starts to watch.
    pub fn new(plan: &Plan, machine: &Machine, control: &Control) -> Self {
        let asked = control.clone();
        PowerMonitor {
            source: (machine.power)(),
            courtesy: PowerPolicy::new(plan.courtesy),
            read_at: None,
            working_since: None,
            control: control.clone(),
            _sleep: (machine.sleep)(Box::new(move || {
                asked.save_before_sleep(SLEEP_LIMIT);
            })),
        }
    }

    /// Rests as `mode` tells from the next reading on, which is the next call of `observe`.
    pub fn set_mode(&mut self, mode: PowerPolicyMode) {
        self.courtesy.set_mode(mode);
        self.read_at = None;
    }

    /// Reads the power's state if the last reading is old, and returns what follows from it.
    pub fn observe(&mut self) -> PowerPolicyChange {
        if self
            .read_at
            .is_some_and(|at| at.elapsed() < READING_INTERVAL)
        {
            return PowerPolicyChange::default();
        }
        self.read_at = Some(Instant::now());
        self.courtesy.observe(&self.source.read())
    }

    /// Rests after the micro-batch before. A request ends the rest.
    pub fn rest(&mut self) {
        let worked = self.working_since.map_or(Duration::ZERO, |at| at.elapsed());
        let rest_ms = self.courtesy.rest_ms(worked.as_secs_f64() * 1000.0);
        if rest_ms > 0.0 {
            self.control.wait(Duration::from_secs_f64(rest_ms / 1000.0));
        }
        self.working_since = Some(Instant::now());
    }
}

impl Drop for PowerMonitor {
    /// The session ends: a machine that waits for its checkpoint may sleep.
    fn drop(&mut self) {
        self.control.end_answers();
    }
}
