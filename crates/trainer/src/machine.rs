//! The machine a run flies on: where memory readings come from, and how caches are given back. Real or scripted.

use crate::error::Result;
use pressure::source::scripted::{Advance, Scripted};
use pressure::{DeviceReadings, MemorySource, own_footprint_bytes, source, take_own_peak_bytes};
use std::path::PathBuf;
use std::time::Instant;
use tape::device::Chosen;
use tape::memory::{Purge, live_bytes};

/// How a memory script advances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ScriptBy {
    /// By the clock.
    #[default]
    Time,
    /// One line a decision.
    Piece,
}

/// A script of what other apps use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryScript {
    /// JSON lines.
    pub path: PathBuf,
    /// How it advances.
    pub by: ScriptBy,
}

/// What the pilot needs of the outside.
#[derive(Debug, Clone)]
pub struct Machine {
    /// A scripted machine instead of this one.
    pub script: Option<MemoryScript>,
    /// Gives the allocator's cached memory back.
    pub purge: Purge,
    /// Most bytes that one piece may keep for its backward pass: a device smaller than it is. A larger piece is refused as the
    /// device itself would refuse it, and the pilot makes it smaller.
    pub piece_limit_bytes: Option<u64>,
    /// Where it is remembered that a GPU was found right.
    pub certificate: Option<PathBuf>,
}

impl Default for Machine {
    fn default() -> Self {
        Machine {
            script: None,
            piece_limit_bytes: None,
            certificate: None,
            purge: || {},
        }
    }
}

impl Machine {
    /// Opens the source of readings for a machine without a GPU at work.
    pub fn open(&self) -> Result<Box<dyn MemorySource>> {
        let chosen = tape::device::choose(tape::device::Wanted::Cpu)?;
        self.source(&chosen, 0)
    }

    /// Opens the source of readings. `idle_bytes` are mapped for this process and never filled.
    pub(crate) fn source(&self, chosen: &Chosen, idle_bytes: u64) -> Result<Box<dyn MemorySource>> {
        let readings = readings(chosen, idle_bytes);
        let Some(script) = &self.script else {
            return Ok(source::open(readings));
        };
        let advance = match script.by {
            ScriptBy::Piece => Advance::Sample,
            ScriptBy::Time => {
                let begin = Instant::now();
                Advance::Time(Box::new(move || begin.elapsed().as_millis() as u64))
            }
        };
        Ok(Box::new(
            Scripted::open(&script.path, advance, own_footprint_bytes)?
                .with_peak(take_own_peak_bytes)
                .with_device(readings),
        ))
    }
}

/// The device's own numbers. The handle that answers is made for this: it is read from the monitor's thread.
fn readings(chosen: &Chosen, idle_bytes: u64) -> DeviceReadings {
    let (allocated, limit) = (chosen.device.clone(), chosen.device.clone());
    DeviceReadings {
        live_bytes: Box::new(live_bytes),
        allocated_bytes: Box::new(move || tape::device::allocated_bytes(&allocated)),
        limit_bytes: Box::new(move || tape::device::limit_bytes(&limit)),
        idle_bytes: Box::new(move || idle_bytes),
    }
}
