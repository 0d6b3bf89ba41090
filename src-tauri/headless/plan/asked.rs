//! The machine that is planned for: this one as it is, this one with other apps at work, or another Mac.

use super::Plan;
use crate::headless::args::Script;
use crate::headless::failure::Failure;
use crate::headless::train::machine;
use pressure::{DeviceLimits, Policy, Processes};
use runlog::{RunConfig, format_bytes, parse_bytes};
use trainer::{Wanted, foresee_kind};

/// What other apps and the system are taken to use on a Mac that is not at hand.
const OTHERS_BYTES: u64 = 4 << 30;
/// Memory that a Mac may have, in bytes.
const MACS: std::ops::RangeInclusive<u64> = (4 << 30)..=(2 << 40);

/// What there is to train in.
pub(super) struct Room {
    pub kind: &'static str,
    pub device: DeviceLimits,
    pub processes: Processes,
    /// Trainings that share it.
    pub trainings: u32,
    /// What was taken for granted because nobody could read it.
    pub assumed: Vec<String>,
}

impl Room {
    /// What one of the trainings may use.
    pub fn budget_bytes(&self) -> u64 {
        self.device.budget_bytes(&self.processes) / u64::from(self.trainings.max(1))
    }
}

/// `--for`: the memory of a Mac.
pub(super) fn mac(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text).map_err(|error| error.to_string())?;
    match MACS.contains(&bytes) {
        true => Ok(bytes),
        false => Err("write a Mac's memory, such as 8GB, 16GB or 48GB".to_owned()),
    }
}

/// `--within`: seconds.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value| *value >= 0.0);
    value.ok_or_else(|| "write seconds from 0 on, such as 60".to_owned())
}

/// `--what-if` of a machine with so much memory.
fn taken(what_if: u64, total_bytes: u64) -> Result<u64, Failure> {
    match what_if <= total_bytes {
        true => Ok(what_if),
        false => Err(Failure::usage(format!(
            "--what-if {} is more than the {} that there are; write what other apps might take of them",
            format_bytes(what_if),
            format_bytes(total_bytes)
        ))),
    }
}

/// The GPU's recommended working set of a Mac with so much memory, as read on Macs of 16 to 64 GB; two thirds below.
fn working_set_bytes(total_bytes: u64) -> u64 {
    let percent = match total_bytes >> 30 {
        ..16 => 67,
        16..36 => 74,
        36..64 => 78,
        64.. => 81,
    };
    total_bytes / 100 * percent
}

/// The room that the question is about.
pub(super) fn room(args: &Plan, config: &RunConfig) -> Result<Room, Failure> {
    let politeness = config.politeness.unwrap_or(Policy::default().max_system_fraction);
    let cap = Policy {
        memory_cap_bytes: args.limits.memory_cap.or(config.memory_cap_bytes),
        memory_cap_fraction: args.limits.memory_target.or(config.memory_cap_fraction),
        ..Policy::default()
    };
    let device = |total_bytes, limit_bytes| DeviceLimits {
        total_bytes,
        limit_bytes,
        memory_cap_bytes: cap.cap_bytes(total_bytes),
        max_system_fraction: politeness,
    };
    if let Some(total_bytes) = args.mac {
        let others_bytes = taken(args.what_if.unwrap_or(OTHERS_BYTES), total_bytes)?;
        let limit_bytes = working_set_bytes(total_bytes);
        let mut assumed = vec![format!(
            "the GPU may use {} there: macOS says so itself when Ebb runs on it",
            format_bytes(limit_bytes)
        )];
        if args.what_if.is_none() {
            let others = format_bytes(others_bytes);
            assumed.push(format!(
                "other apps and the system use {others}: say how much by --what-if"
            ));
        }
        return Ok(Room {
            kind: "metal",
            device: device(total_bytes, limit_bytes),
            processes: Processes { others_bytes },
            trainings: args.processes,
            assumed,
        });
    }
    let sample = machine(&Script::default()).open()?.sample()?;
    let others_bytes = match args.what_if {
        Some(bytes) => taken(bytes, sample.total_bytes)? + sample.system_bytes,
        None => sample.system_bytes + sample.others_bytes(),
    };
    let wanted = match args
        .computing
        .device
        .as_deref()
        .or(config.device.as_deref())
    {
        Some("cpu") => Wanted::Cpu,
        Some("metal") => Wanted::Metal,
        Some("cuda") => Wanted::Cuda,
        _ => Wanted::Auto,
    };
    Ok(Room {
        kind: foresee_kind(wanted),
        device: device(sample.total_bytes, sample.device_limit_bytes),
        processes: Processes { others_bytes },
        trainings: args.processes,
        assumed: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_macs_memory_is_read_and_nonsense_is_refused_with_what_would_do() {
        assert_eq!(mac("16GB"), Ok(16 << 30));
        assert_eq!(mac("48 GB"), Ok(48 << 30));
        for nonsense in ["1MB", "9000TB"] {
            let said = mac(nonsense).expect_err("no Mac has that");
            assert!(said.contains("8GB, 16GB or 48GB"), "{said}");
        }
        assert!(mac("much").is_err());
    }

    #[test]
    fn the_working_set_is_what_was_read_on_macs() {
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
