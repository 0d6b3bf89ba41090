//! The machine that a command trains on: this one, or one whose memory a script gives.

use super::args::Script;
use crate::paths::device_check_path;
use trainer::{Machine, MemoryScript};

/// Physical memory of a machine; 0 if it cannot be read.
pub fn total_bytes(machine: &Machine) -> u64 {
    let sample = machine.open().and_then(|mut source| Ok(source.sample()?));
    sample.map_or(0, |sample| sample.total_bytes)
}

/// This machine, with the memory readings of a script if the user names one.
pub fn machine(script: &Script) -> Machine {
    let by = script.memory_script_by.into();
    Machine {
        script: script
            .memory_script
            .clone()
            .map(|path| MemoryScript { path, by }),
        purge: crate::allocator::purge,
        device_check_path: Some(device_check_path()),
        ..Machine::default()
    }
}
