//! The machine that is planned for: this machine as it is, this machine with an assumed memory
//! use of other apps, or another Mac.

use super::Plan;
use crate::cli::args::Script;
use crate::cli::failure::Failure;
use crate::cli::train::machine;
use crate::estimate_history::{Correction, EstimateHistory, RunsOn};
use pressure::{DeviceLimits, Policy, Processes};
use runlog::{DeviceChoice, RunConfig, format_bytes, parse_bytes};
use trainer::predict_device_kind;

/// Memory that other apps and the system are assumed to use on another Mac; at most half of that
/// Mac's memory.
const OTHERS_BYTES: u64 = 4 << 30;
/// The smallest and the largest memory that a Mac may have, in bytes.
const PLAUSIBLE_MAC_BYTES: std::ops::RangeInclusive<u64> = (4 << 30)..=(2 << 40);

/// The machine that will train.
pub(super) struct PlannedMachine {
    /// `metal`, `cuda` or `cpu`.
    pub kind: trainer::DeviceKind,
    pub device: DeviceLimits,
    pub processes: Processes,
    /// Number of runs that share the memory of the machine.
    pub trainings: u32,
    /// Assumptions about values that cannot be read here, as sentences without a full stop.
    pub assumed: Vec<String>,
    /// What earlier runs on this machine needed in comparison with their estimates.
    pub correction: Correction,
}

/// Parses the value of `--for`, the memory of a Mac.
pub(super) fn parse_mac(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text).map_err(|error| error.to_string())?;
    if PLAUSIBLE_MAC_BYTES.contains(&bytes) {
        Ok(bytes)
    } else {
        Err("write a Mac's memory, such as 8GB, 16GB or 48GB".to_owned())
    }
}

/// Parses the value of `--within`.
pub(super) fn parse_seconds(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value| *value >= 0.0);
    value.ok_or_else(|| "write a number of seconds, such as 60".to_owned())
}

/// Refuses a `--what-if` of more memory than the machine has.
fn check_what_if(what_if: u64, total_bytes: u64) -> Result<u64, Failure> {
    if what_if <= total_bytes {
        return Ok(what_if);
    }
    Err(Failure::usage(format!(
        "--what-if {} is more than the {} of memory that the machine has; write how much of this memory other apps might use",
        format_bytes(what_if),
        format_bytes(total_bytes)
    )))
}

/// The GPU's recommended working set on a Mac with this much memory. The fractions of all memory
/// were measured on Macs with 16 to 64 GB; for smaller Macs, two thirds are assumed.
fn working_set_bytes(total_bytes: u64) -> u64 {
    let percent = match total_bytes >> 30 {
        ..16 => 67,
        16..36 => 74,
        36..64 => 78,
        64.. => 81,
    };
    total_bytes / 100 * percent
}

impl PlannedMachine {
    /// The machine to plan for: this one, or the one of `--for` and `--what-if`.
    ///
    /// # Errors
    /// The memory of this machine cannot be read, or `--what-if` is larger than the machine's
    /// total memory.
    pub fn new(args: &Plan, config: &RunConfig) -> Result<Self, Failure> {
        let max_system_fraction = config
            .max_system_fraction
            .unwrap_or(Policy::default().max_system_fraction);
        let cap = Policy {
            memory_cap_bytes: args
                .settings
                .config
                .memory_cap_bytes
                .or(config.memory_cap_bytes),
            memory_cap_fraction: args
                .settings
                .config
                .memory_cap_fraction
                .or(config.memory_cap_fraction),
            ..Policy::default()
        };
        let device = |total_bytes, limit_bytes| DeviceLimits {
            total_bytes,
            limit_bytes,
            memory_cap_bytes: cap.cap_bytes(total_bytes),
            max_system_fraction,
        };
        if let Some(total_bytes) = args.mac {
            let limit_bytes = working_set_bytes(total_bytes);
            return PlannedMachine::other_mac(args, device(total_bytes, limit_bytes));
        }
        let sample = machine(&Script::default()).open()?.sample()?;
        let others_bytes = match args.what_if {
            Some(bytes) => check_what_if(bytes, sample.total_bytes)? + sample.system_bytes,
            None => sample.system_bytes + sample.others_bytes(),
        };
        let named = args.settings.config.device.or(config.device);
        let wanted = trainer::Plan::device_preference(named.unwrap_or(DeviceChoice::Auto));
        let kind = predict_device_kind(wanted);
        Ok(PlannedMachine {
            kind,
            device: device(sample.total_bytes, sample.device_limit_bytes),
            processes: Processes { others_bytes },
            trainings: args.processes,
            assumed: Vec::new(),
            correction: EstimateHistory::saved_correction(RunsOn::terminal(kind)),
        })
    }

    /// A Mac that is not this machine.
    fn other_mac(args: &Plan, device: DeviceLimits) -> Result<Self, Failure> {
        let assumed_bytes = OTHERS_BYTES.min(device.total_bytes / 2);
        let others_bytes =
            check_what_if(args.what_if.unwrap_or(assumed_bytes), device.total_bytes)?;
        let mut assumed = vec![format!(
            "the GPU may use {}; macOS reports the exact amount when Ebb runs on the planned Mac",
            format_bytes(device.limit_bytes)
        )];
        if args.what_if.is_none() {
            let others = format_bytes(others_bytes);
            assumed.push(format!(
                "other apps and the system use {others}; --what-if sets another amount"
            ));
        }
        Ok(PlannedMachine {
            kind: trainer::DeviceKind::Metal,
            device,
            processes: Processes { others_bytes },
            trainings: args.processes,
            assumed,
            // What runs on this machine needed says nothing about another one.
            correction: EstimateHistory::default()
                .correction(RunsOn::terminal(trainer::DeviceKind::Metal)),
        })
    }

    /// The most memory that one of the runs may ever use, by which a group of such machines decides
    /// whether it divides the optimizer state.
    pub fn most_bytes(&self) -> u64 {
        self.device.most_bytes() / u64::from(self.trainings.max(1))
    }

    /// Memory that one of the runs may use.
    pub fn budget_bytes(&self) -> u64 {
        self.device.budget_bytes(&self.processes) / u64::from(self.trainings.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_mac_is_parsed_and_nonsense_is_refused() {
        assert_eq!(parse_mac("16GB"), Ok(16 << 30));
        assert_eq!(parse_mac("48 GB"), Ok(48 << 30));
        for nonsense in ["1MB", "9000TB"] {
            let error = parse_mac(nonsense).expect_err("no Mac has that");
            assert!(error.contains("8GB, 16GB or 48GB"), "{error}");
        }
        assert!(parse_mac("much").is_err());
    }

    #[test]
    fn the_working_set_agrees_with_readings_on_macs() {
        for (gb, read_mb) in [
            (16u64, 12_713.12),
            (36, 30_150.67),
            (48, 40_200.90),
            (64, 55_662.79),
        ] {
            let off = working_set_bytes(gb << 30) as f64 / (read_mb * 1e6) - 1.0;
            assert!(off.abs() < 0.01, "{gb} GB: {off:.3}");
        }
    }
}
