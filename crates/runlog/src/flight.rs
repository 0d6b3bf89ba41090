//! The flight recorder's file: a ring of the newest readings and decisions in the run folder, for the day when a run ends
//! without a word. Knows slots and bytes; what the records mean is `aftermath.rs`'s.
//!
//! `flight.ring` is text: slots of 400 bytes, each one line of a checksum and a JSON object, padded with spaces. A new
//! record overwrites the oldest in its place. Nothing is renamed, moved or cut, so a kill or a power cut at any instant costs
//! the record that was being written and no other: its checksum is wrong and it is ignored.

use crate::RunlogError;
use crate::folder::{Claim, RunFolder};
use pressure::{Action, Level, MemorySample};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const RING: &str = "flight.ring";
/// Bytes of a slot: the longest reading fits.
const SLOT: usize = 400;
/// Slots of the ring: 10.4 minutes of 20 readings and a standing a second, within 5 MB.
const SLOTS: u64 = (5 << 20) / SLOT as u64;
/// "xxxxxxxx ": the checksum of what follows it in the slot.
const SUM: usize = 9;
/// What is read back: the last ten minutes before the newest record.
const SPAN_MS: u64 = 600_000;

/// One record. `unix_ms` is the wall clock, milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FlightRecord {
    /// A process begins the run or goes on with it: a new life.
    Life {
        /// Wall clock.
        unix_ms: u64,
        /// The process.
        process: u32,
    },
    /// One reading of the machine.
    Sample {
        /// Wall clock.
        unix_ms: u64,
        /// The reading.
        #[serde(with = "slim")]
        sample: MemorySample,
    },
    /// Where the run stood; once a second and with each decision.
    Standing {
        /// Wall clock.
        unix_ms: u64,
        /// Optimizer steps done.
        step: u64,
        /// Run, pause or park.
        action: Action,
        /// Samples of the piece at work; 0 while waiting.
        micro_batch: u32,
        /// Samples a step.
        effective_batch: u32,
        /// Footprint that Ebb allowed itself.
        budget_bytes: u64,
    },
    /// The pilot changed something.
    Decision {
        /// Wall clock.
        unix_ms: u64,
        /// The sentence shown, cut where it is very long.
        sentence: String,
    },
}

impl FlightRecord {
    /// Wall clock of the record, milliseconds since 1970.
    pub fn unix_ms(&self) -> u64 {
        match self {
            Self::Life { unix_ms, .. }
            | Self::Sample { unix_ms, .. }
            | Self::Standing { unix_ms, .. }
            | Self::Decision { unix_ms, .. } => *unix_ms,
        }
    }
}

/// A record with its place in the order of all.
#[derive(Serialize, Deserialize)]
struct Numbered<R> {
    seq: u64,
    #[serde(flatten)]
    record: R,
}

/// Writes the ring of one run.
#[derive(Debug)]
pub struct FlightRing {
    file: File,
    path: PathBuf,
    next: u64,
}

impl FlightRing {
    /// Opens the ring of a run that the caller has claimed, and goes on after its newest record. The claim is what keeps a
    /// second writer out.
    pub fn open(folder: &RunFolder, _claim: &Claim) -> Result<FlightRing, RunlogError> {
        let path = folder.path.join(RING);
        let open = || -> io::Result<(File, u64)> {
            let mut file = crate::log::open_to_go_on(&path)?;
            let newest = records(&mut file)?.last().map(|(seq, _)| *seq);
            file.set_len(file.metadata()?.len().min(SLOTS * SLOT as u64))?;
            Ok((file, newest.map_or(0, |seq| seq + 1)))
        };
        let (file, next) = open().map_err(RunlogError::disk("written", &path))?;
        Ok(FlightRing { file, path, next })
    }

    /// Puts a record in the place of the oldest. It survives a kill at once, a power cut after the next [`sync`](Self::sync).
    pub fn write(&mut self, record: &FlightRecord) -> Result<(), RunlogError> {
        let Some(slot) = slot(self.next, record) else {
            return Ok(());
        };
        let place = self.next % SLOTS * SLOT as u64;
        let written = self.file.write_all_at(&slot, place);
        written.map_err(RunlogError::disk("written", &self.path))?;
        self.next += 1;
        Ok(())
    }

    /// Waits until everything written is on the disk. May take as long as the disk likes: not for a thread that is waited for.
    pub fn sync(&self) -> Result<(), RunlogError> {
        let synced = self.file.sync_data();
        synced.map_err(RunlogError::disk("written", &self.path))
    }
}

/// The records of a run's last ten minutes, oldest first; none where there is no ring. Torn and foreign slots are left out.
pub fn read_flight(folder: &RunFolder) -> Result<Vec<FlightRecord>, RunlogError> {
    let path = folder.path.join(RING);
    let found = match read(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        found => found.map_err(RunlogError::disk("read", &path))?,
    };
    let newest = found.last().map_or(0, |(_, record)| record.unix_ms());
    let records = found.into_iter().map(|(_, record)| record);
    Ok(records
        .filter(|record| record.unix_ms() + SPAN_MS >= newest)
        .collect())
}

fn read(path: &Path) -> io::Result<Vec<(u64, FlightRecord)>> {
    records(&mut File::open(path)?)
}

/// Every whole record of a file, by its number. More than a ring is not read.
fn records(file: &mut File) -> io::Result<Vec<(u64, FlightRecord)>> {
    let mut bytes = Vec::new();
    file.take(SLOTS * SLOT as u64).read_to_end(&mut bytes)?;
    let mut found: Vec<_> = bytes.chunks_exact(SLOT).filter_map(whole).collect();
    found.sort_by_key(|(seq, _)| *seq);
    Ok(found)
}

/// The record of a slot, unless it is torn, empty or of a later version.
fn whole(slot: &[u8]) -> Option<(u64, FlightRecord)> {
    let (sum, text) = slot.split_at(SUM);
    let sum = u32::from_str_radix(std::str::from_utf8(&sum[..8]).ok()?, 16).ok()?;
    if crc32fast::hash(text) != sum {
        return None;
    }
    let Numbered { seq, record } = serde_json::from_slice(text).ok()?;
    Some((seq, record))
}

/// A slot's bytes. A sentence that is too long loses its end; nothing where even that is too long.
fn slot(seq: u64, record: &FlightRecord) -> Option<[u8; SLOT]> {
    let json = |record: &FlightRecord| serde_json::to_string(&Numbered { seq, record }).ok();
    let most = SLOT - SUM - 1;
    let mut text = json(record)?;
    if let FlightRecord::Decision { unix_ms, sentence } = record
        && text.len() > most
    {
        // So few letters fit whatever has to be escaped.
        text = json(&FlightRecord::Decision {
            unix_ms: *unix_ms,
            sentence: sentence.chars().take(most / 4).chain(['…']).collect(),
        })?;
    }
    if text.len() > most {
        return None;
    }
    let mut slot = [b' '; SLOT];
    slot[SUM..SUM + text.len()].copy_from_slice(text.as_bytes());
    slot[SLOT - 1] = b'\n';
    let sum = format!("{:08x}", crc32fast::hash(&slot[SUM..]));
    slot[..SUM - 1].copy_from_slice(sum.as_bytes());
    Some(slot)
}

/// A reading in few bytes: what is nothing or unknown is left out, shares have four digits.
mod slim {
    use super::*;
    use serde::{Deserializer, Serializer};

    /// The names are short because there is a slot for each reading; `live`, `device` and `limit` are the device's.
    #[derive(Default, Serialize, Deserialize)]
    #[serde(default)]
    struct Slim {
        at_ms: u64,
        total: u64,
        free: u64,
        own: u64,
        #[serde(skip_serializing_if = "is_nothing")]
        system: u64,
        #[serde(skip_serializing_if = "is_nothing")]
        live: u64,
        #[serde(skip_serializing_if = "is_nothing")]
        device: u64,
        #[serde(skip_serializing_if = "is_nothing")]
        limit: u64,
        #[serde(skip_serializing_if = "is_nothing")]
        swap: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        level: Option<Level>,
        #[serde(skip_serializing_if = "Option::is_none")]
        stall: Option<f64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        compressor: Option<f64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        disk: Option<u64>,
    }

    fn is_nothing(bytes: &u64) -> bool {
        *bytes == 0
    }

    fn four_digits(share: f64) -> f64 {
        (share * 1e4).round() / 1e4
    }

    pub fn serialize<S: Serializer>(sample: &MemorySample, to: S) -> Result<S::Ok, S::Error> {
        let slim = Slim {
            at_ms: sample.at_ms,
            total: sample.total_bytes,
            free: sample.available_bytes,
            own: sample.own_bytes,
            system: sample.system_bytes,
            live: sample.device_live_bytes,
            device: sample.device_allocated_bytes,
            limit: sample.device_limit_bytes,
            swap: sample.swap_used_bytes,
            level: sample.kernel_level,
            stall: sample.stall_fraction.map(four_digits),
            compressor: sample.compressor_fraction.map(four_digits),
            disk: sample.disk_free_bytes,
        };
        slim.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<MemorySample, D::Error> {
        let slim = Slim::deserialize(from)?;
        Ok(MemorySample {
            at_ms: slim.at_ms,
            total_bytes: slim.total,
            available_bytes: slim.free,
            own_bytes: slim.own,
            system_bytes: slim.system,
            device_live_bytes: slim.live,
            device_allocated_bytes: slim.device,
            device_limit_bytes: slim.limit,
            swap_used_bytes: slim.swap,
            kernel_level: slim.level,
            stall_fraction: slim.stall,
            compressor_fraction: slim.compressor,
            disk_free_bytes: slim.disk,
            // Heat and power are no part of what the ring keeps.
            ..MemorySample::default()
        })
    }
}

#[cfg(test)]
#[path = "flight/tests.rs"]
mod tests;
