//! Where the machine's power comes from, and how hot it is. Each platform has a file with the same
//! interface; tests use [`ScriptedPower`].

#[cfg_attr(target_os = "macos", path = "power/macos.rs")]
#[cfg_attr(not(target_os = "macos"), path = "power/linux.rs")]
mod platform;

use crate::memory_sample::Thermal;

/// The machine's power at one instant. What is unknown is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PowerState {
    /// The battery is being discharged. `Some(false)` also on a machine without one.
    pub on_battery: Option<bool>,
    /// Charge of the battery, `0.0..=1.0`.
    pub charge_fraction: Option<f64>,
    /// Low power mode is on.
    pub low_power: Option<bool>,
    /// The thermal state.
    pub thermal: Option<Thermal>,
}

/// Reads the machine's power.
pub trait PowerSource: Send {
    /// The state now. Takes about a millisecond.
    fn read(&mut self) -> PowerState;
}

/// The power of this machine.
pub fn open_power_source() -> Box<dyn PowerSource> {
    Box::new(platform::Power::open())
}

/// States one after another, for tests. The last one stays.
pub struct ScriptedPower {
    states: Vec<PowerState>,
    next: usize,
}

impl ScriptedPower {
    /// Plays `states`; without any, everything is unknown.
    pub fn new(states: Vec<PowerState>) -> Self {
        ScriptedPower { states, next: 0 }
    }
}

impl PowerSource for ScriptedPower {
    fn read(&mut self) -> PowerState {
        let last = self.states.len().saturating_sub(1);
        let state = self.states.get(self.next.min(last)).copied();
        self.next += 1;
        state.unwrap_or_default()
    }
}
