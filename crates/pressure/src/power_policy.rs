//! Rule: how much training rests between micro-batches so that the machine stays cool and its
//! battery lasts, and when the battery is so low that a checkpoint must be written. Pure: the state
//! of the power comes in as a value.

use crate::memory_sample::Thermal;
use crate::power::PowerState;

/// Charge below which a checkpoint is written, and above which the next one may be.
const LOW_CHARGE: f64 = 0.05;
const CHARGED: f64 = 0.10;
/// Rest as a multiple of the time that the micro-batch before took.
const REST: f64 = 1.0;
const REST_IF_TOO_HOT: f64 = 3.0;
/// Longest rest after one micro-batch, in milliseconds.
const LONGEST_REST_MS: f64 = 10_000.0;

/// When training rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PowerPolicyMode {
    /// On battery, in low power mode and while the machine is hot.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Off,
}

/// Why training rests, the strongest reason first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestCause {
    /// The machine must cool down.
    TooHot,
    /// The system has slowed the processors down.
    Hot,
    /// Low power mode is on.
    LowPower,
    /// The machine runs on its battery.
    Battery,
    /// The user asked for it.
    Asked,
}

impl RestCause {
    /// The cause at the beginning of a sentence.
    fn text(self) -> &'static str {
        match self {
            RestCause::TooHot => "the machine is too hot",
            RestCause::Hot => "the machine is hot",
            RestCause::LowPower => "low power mode is on",
            RestCause::Battery => "the machine runs on its battery",
            RestCause::Asked => "courtesy is set to always",
        }
    }

    /// Rest per time of work.
    fn rest(self) -> f64 {
        match self {
            RestCause::TooHot => REST_IF_TOO_HOT,
            _ => REST,
        }
    }
}

/// What follows from a new state of the power.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PowerPolicyChange {
    /// A sentence for the user, if the training begins or ends to rest.
    pub message: Option<String>,
    /// The training rests from now on.
    pub rests: bool,
    /// The battery is low: write a checkpoint now. `true` once per discharge.
    pub checkpoint: bool,
}

/// Decides how much training rests.
#[derive(Debug, Clone, Default)]
pub struct PowerPolicy {
    mode: PowerPolicyMode,
    cause: Option<RestCause>,
    has_saved: bool,
}

impl PowerPolicy {
    /// Rests as `mode` tells.
    pub fn new(mode: PowerPolicyMode) -> Self {
        PowerPolicy {
            mode,
            ..PowerPolicy::default()
        }
    }

    /// Rests as `mode` tells from the next state of the power on.
    pub fn set_mode(&mut self, mode: PowerPolicyMode) {
        self.mode = mode;
    }

    /// Takes a new state of the power.
    pub fn observe(&mut self, power: &PowerState) -> PowerPolicyChange {
        let cause = cause(self.mode, power);
        let before = std::mem::replace(&mut self.cause, cause);
        PowerPolicyChange {
            message: (cause != before).then(|| message(cause)),
            rests: cause.is_some(),
            checkpoint: self.must_save(power),
        }
    }

    /// How long to rest after `worked_ms` milliseconds of work, in milliseconds.
    pub fn rest_ms(&self, worked_ms: f64) -> f64 {
        let rest = self.cause.map_or(0.0, |cause| cause.rest() * worked_ms);
        rest.clamp(0.0, LONGEST_REST_MS)
    }

    fn must_save(&mut self, power: &PowerState) -> bool {
        let Some(charge) = power.charge_fraction else {
            return false;
        };
        let on_battery = power.on_battery == Some(true);
        if !on_battery || charge > CHARGED {
            self.has_saved = false;
        }
        let must = on_battery && charge <= LOW_CHARGE && !self.has_saved;
        self.has_saved |= must;
        must
    }
}

fn cause(mode: PowerPolicyMode, power: &PowerState) -> Option<RestCause> {
    let found = match power.thermal {
        Some(Thermal::Critical) => Some(RestCause::TooHot),
        Some(Thermal::Serious) => Some(RestCause::Hot),
        _ if power.low_power == Some(true) => Some(RestCause::LowPower),
        _ if power.on_battery == Some(true) => Some(RestCause::Battery),
        _ => None,
    };
    match mode {
        PowerPolicyMode::Off => None,
        PowerPolicyMode::Auto => found,
        PowerPolicyMode::Always => found.or(Some(RestCause::Asked)),
    }
}

fn message(cause: Option<RestCause>) -> String {
    match cause {
        None => "training runs at full speed again".to_owned(),
        Some(cause) => format!(
            "{}: training rests {} % of the time and takes about {} times as long, with the same result; set courtesy to off to train at full speed",
            cause.text(),
            (100.0 * cause.rest() / (1.0 + cause.rest())).round(),
            1.0 + cause.rest()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn battery(charge_fraction: f64) -> PowerState {
        PowerState {
            on_battery: Some(true),
            charge_fraction: Some(charge_fraction),
            ..PowerState::default()
        }
    }

    fn plugged_in() -> PowerState {
        PowerState {
            on_battery: Some(false),
            charge_fraction: Some(0.8),
            low_power: Some(false),
            thermal: Some(Thermal::Fair),
        }
    }

    /// Rest after a second of work under each of these states, in milliseconds.
    fn rests(mode: PowerPolicyMode, states: &[PowerState]) -> Vec<f64> {
        let mut courtesy = PowerPolicy::new(mode);
        let rest = |state| {
            courtesy.observe(state);
            courtesy.rest_ms(1000.0)
        };
        states.iter().map(rest).collect()
    }

    #[test]
    fn a_training_rests_on_battery_in_low_power_mode_and_while_hot() {
        let low_power = PowerState {
            low_power: Some(true),
            ..plugged_in()
        };
        let hot = |thermal| PowerState {
            thermal: Some(thermal),
            ..plugged_in()
        };
        let states = [
            plugged_in(),
            battery(0.8),
            low_power,
            hot(Thermal::Serious),
            hot(Thermal::Critical),
            PowerState::default(),
        ];
        assert_eq!(
            rests(PowerPolicyMode::Auto, &states),
            [0.0, 1000.0, 1000.0, 1000.0, 3000.0, 0.0]
        );
        assert_eq!(rests(PowerPolicyMode::Off, &states), [0.0; 6]);
        assert_eq!(
            rests(PowerPolicyMode::Always, &states),
            [1000.0, 1000.0, 1000.0, 1000.0, 3000.0, 1000.0]
        );
    }

    #[test]
    fn a_rest_has_a_limit() {
        let mut courtesy = PowerPolicy::new(PowerPolicyMode::Always);
        courtesy.observe(&PowerState::default());
        assert_eq!(courtesy.rest_ms(60_000.0), LONGEST_REST_MS);
    }

    #[test]
    fn each_change_is_reported_once_with_its_cost() {
        let mut courtesy = PowerPolicy::new(PowerPolicyMode::Auto);
        assert_eq!(
            courtesy.observe(&plugged_in()),
            PowerPolicyChange::default()
        );
        let begins = courtesy.observe(&battery(0.8));
        assert!(begins.rests);
        let begins = begins.message.expect("a change");
        assert!(begins.contains("runs on its battery"), "{begins}");
        assert!(begins.contains("about 2 times as long"), "{begins}");
        assert_eq!(courtesy.observe(&battery(0.7)).message, None);
        let ends = courtesy.observe(&plugged_in());
        assert!(!ends.rests && ends.message.is_some_and(|ends| ends.contains("full speed")));
    }

    #[test]
    fn a_low_battery_asks_for_one_checkpoint() {
        let mut courtesy = PowerPolicy::new(PowerPolicyMode::Off);
        let mut asks = |state: PowerState| courtesy.observe(&state).checkpoint;
        assert!(!asks(battery(0.06)));
        assert!(
            asks(battery(0.05)),
            "a low battery requests a checkpoint even if the power policy is off"
        );
        assert!(!asks(battery(0.03)), "it was asked for");
        assert!(!asks(plugged_in()));
        assert!(asks(battery(0.04)), "the next discharge");
        assert!(!asks(PowerState::default()), "no battery");
    }
}
