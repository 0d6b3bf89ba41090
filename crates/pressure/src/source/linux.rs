//! Linux: `MemAvailable`, memory stalls (PSI) and the limits on this process. The smallest headroom
//! counts: that of the machine, the control group or the process. Readings that fail are left out
//! and reported once.
//!
//! Free disk is not read: swap space is allocated in advance on Linux, so a full disk does not
//! reduce it.

#[path = "linux/cgroup.rs"]
mod cgroup;
#[path = "linux/fast_estimate.rs"]
mod fast_estimate;
#[path = "linux/footprint.rs"]
pub mod footprint;
#[path = "linux/free_memory.rs"]
mod free_memory;
#[path = "linux/kernel_file.rs"]
mod kernel_file;
#[path = "linux/rlimits.rs"]
mod rlimits;
#[path = "linux/memory_stalls.rs"]
mod memory_stalls;

use super::memory_source::{DeviceReadings, MemorySource};
use crate::error::PressureError;
use crate::memory_sample::MemorySample;
use cgroup::Cgroups;
use fast_estimate::FullReading;
use footprint::{page_bytes, take_own_peak_bytes};
use free_memory::FreeMemory;
use kernel_file::KernelFile;
use memory_stalls::{StallOwner, Stalls};
use rlimits::{Limits, Pages};
use std::path::Path;
use std::time::Instant;

/// Lines of `/proc/meminfo` that are read. From the sixth on, memory that the kernel itself uses
/// and cannot free.
const MEMINFO: [&str; 9] = [
    "MemTotal",
    "MemFree",
    "MemAvailable",
    "SwapTotal",
    "SwapFree",
    "SUnreclaim",
    "KernelStack",
    "PageTables",
    "Percpu",
];

pub(super) struct Machine {
    opened: Instant,
    meminfo: KernelFile,
    statm: KernelFile,
    free: FreeMemory,
    /// The newest full reading of the machine, and its sample before limits were applied.
    full: Option<(FullReading, MemorySample)>,
    /// Whether no fast sample has used `full` yet.
    fresh: bool,
    /// The pages of this process at their last reading, and free memory then, in bytes.
    held: (Pages, u64),
    stalls: Vec<Stalls>,
    /// The newest fraction of stalls.
    stall_fraction: Option<f64>,
    /// Whether a fast sample has reused `stall_fraction`.
    stalls_reused: bool,
    groups: Cgroups,
    limits: Limits,
    page_bytes: u64,
    device: DeviceReadings,
    /// A reading that was lost since the last `take_notice`.
    notice: Option<String>,
}

impl Machine {
    /// Opens the readings of this machine.
    pub(super) fn open() -> Result<Self, PressureError> {
        Self::open_at(Path::new("/"))
    }

    /// Opens the kernel files below another root, for tests.
    fn open_at(root: &Path) -> Result<Self, PressureError> {
        let groups = Cgroups::find(root);
        let limits = Limits::open(root);
        let machine_stalls = KernelFile::open(&root.join("proc/pressure/memory")).ok();
        let stalls = Stalls::open(StallOwner::Machine, machine_stalls);
        let stalls = stalls.chain(Stalls::open(StallOwner::Cgroup, groups.stalls()));
        let mut machine = Self {
            opened: Instant::now(),
            meminfo: KernelFile::open(&root.join("proc/meminfo"))?,
            statm: KernelFile::open(&root.join("proc/self/statm"))?,
            free: FreeMemory::open(root),
            full: None,
            fresh: false,
            held: Default::default(),
            stall_fraction: None,
            stalls_reused: false,
            stalls: stalls.collect(),
            groups,
            limits,
            page_bytes: page_bytes(root),
            device: DeviceReadings::default(),
            notice: None,
        };
        machine.sample()?;
        Ok(machine)
    }

    /// The same machine with the device's readings.
    pub(super) fn with_device(mut self, device: DeviceReadings) -> Self {
        self.device = device;
        self
    }

    /// A full reading of the machine, before limits are applied.
    fn read_machine(&mut self, pages: &Pages) -> Result<MemorySample, PressureError> {
        let own_bytes = pages[1] * self.page_bytes;
        let info = self.meminfo.named(MEMINFO)?;
        let [total, free, Some(available), swap, swap_free, kernel @ ..] = info else {
            return Err(self.meminfo.unexpected("no MemAvailable"));
        };
        let bytes = |kilobytes: Option<u64>| kilobytes.unwrap_or(0) * 1024;
        let sample = MemorySample {
            at_ms: self.opened.elapsed().as_millis() as u64,
            total_bytes: bytes(total),
            available_bytes: available * 1024,
            own_bytes,
            system_bytes: kernel.into_iter().map(bytes).sum(),
            swap_used_bytes: bytes(swap).saturating_sub(bytes(swap_free)),
            ..MemorySample::default()
        };
        let full = FullReading {
            total_bytes: sample.total_bytes,
            available_bytes: sample.available_bytes,
            free_bytes: bytes(free),
            own_bytes,
        };
        (self.full, self.fresh) = (Some((full, sample)), true);
        self.held = (*pages, full.free_bytes);
        Ok(sample)
    }

    /// A sample derived from free memory and the last full reading; `None` if a full reading is
    /// necessary.
    fn read_fast(&mut self) -> Option<MemorySample> {
        let fresh = std::mem::take(&mut self.fresh);
        let (full, newest) = self.full?;
        let free_bytes = self.free.bytes()?;
        // Memory that this process takes or frees shows in free memory. A limit counts mappings,
        // which do not.
        if self.limits.were_set() || !full.is_unchanged(self.held.1, free_bytes) {
            self.held = (self.statm.numbers().ok()?, free_bytes);
        }
        let pages = self.held.0;
        let own_bytes = pages[1] * self.page_bytes;
        let available_bytes = full.available_bytes(free_bytes, own_bytes, fresh)?;
        let group = self.groups.headroom_fast(own_bytes, fresh)?;
        let sample = MemorySample {
            at_ms: self.opened.elapsed().as_millis() as u64,
            available_bytes,
            own_bytes,
            ..newest
        };
        // If there were no stalls, every second fast sample reads them.
        if self.stalls_reused || self.stall_fraction.is_some_and(|fraction| fraction > 0.0) {
            self.read_stalls();
        } else {
            self.stalls_reused = true;
        }
        Some(self.with_limits(sample, group, &pages))
    }

    /// The sample with the limits of the group and the process, stalls and the device's readings.
    fn with_limits(
        &self,
        mut sample: MemorySample,
        group: Option<(u64, u64)>,
        pages: &Pages,
    ) -> MemorySample {
        if let Some((limit, headroom)) = group {
            apply_limit(&mut sample, limit, headroom);
        }
        if self.limits.were_set() {
            let idle = (self.device.idle_bytes)();
            for (limit, headroom) in self.limits.headrooms(pages, self.page_bytes, idle) {
                apply_limit(&mut sample, limit, headroom);
            }
        }
        sample.stall_fraction = self.stall_fraction;
        self.device.fill(&mut sample);
        sample
    }

    /// Reads the fraction of the last second in which a process waited for memory, the larger of
    /// machine and group.
    fn read_stalls(&mut self) {
        let now_us = self.opened.elapsed().as_micros() as u64;
        let (fraction, lost) = memory_stalls::largest(&mut self.stalls, now_us);
        (self.stall_fraction, self.stalls_reused) = (fraction, false);
        let notice = match lost {
            None => return,
            Some(_) if self.stalls.is_empty() => {
                "Ebb can no longer read how long apps wait for memory (PSI). Ebb now watches only the available memory."
            }
            Some(StallOwner::Cgroup) => {
                "Ebb can no longer read how long its cgroup waits for memory (PSI). Ebb uses the figures of the whole machine instead."
            }
            Some(StallOwner::Machine) => {
                "Ebb can no longer read how long the whole machine waits for memory (PSI). Ebb uses the figures of its cgroup instead."
            }
        };
        self.notice = Some(notice.to_owned());
    }
}

impl MemorySource for Machine {
    fn sample(&mut self) -> Result<MemorySample, PressureError> {
        let pages: Pages = self.statm.numbers()?;
        let sample = self.read_machine(&pages)?;
        self.limits.refresh();
        if let Some(new_stalls) = self.groups.follow(sample.at_ms) {
            self.stalls
                .retain(|stalls| stalls.owner == StallOwner::Machine);
            self.stalls
                .extend(Stalls::open(StallOwner::Cgroup, new_stalls));
        }
        let group = self
            .groups
            .headroom(sample.at_ms, sample.own_bytes)
            .unwrap_or_else(|lost| {
                self.notice = Some(format!(
                    "Ebb can no longer read the limit of its cgroup ({lost}). Ebb now reads only MemAvailable."
                ));
                None
            });
        self.read_stalls();
        Ok(self.with_limits(sample, group, &pages))
    }

    fn sample_fast(&mut self) -> Result<MemorySample, PressureError> {
        match self.read_fast() {
            Some(sample) => Ok(sample),
            None => self.sample(),
        }
    }

    fn describe(&self) -> String {
        let mut read = vec![match self.groups.describe() {
            Some(group) => format!("{group} and MemAvailable"),
            None => "MemAvailable".to_string(),
        }];
        if self.limits.are_set() {
            read.push("the limit set on this process".into());
        }
        read.push(if self.stalls.is_empty() {
            "no PSI (this kernel does not report how long apps wait for memory)".into()
        } else {
            "PSI (how long apps wait for memory)".into()
        });
        read.join(", ")
    }

    fn take_peak_bytes(&mut self) -> Option<u64> {
        take_own_peak_bytes()
    }

    fn own_headroom_bytes(&mut self) -> Option<u64> {
        let pages = self.statm.numbers().ok()?;
        self.limits.lasting_headroom(&pages, self.page_bytes)
    }

    fn take_notice(&mut self) -> Option<String> {
        self.notice.take()
    }
}

/// Applies a limit that may be smaller than the machine.
fn apply_limit(sample: &mut MemorySample, limit_bytes: u64, headroom_bytes: u64) {
    if limit_bytes < sample.total_bytes {
        sample.total_bytes = limit_bytes;
        sample.system_bytes = 0; // that of the machine, not of the limit
    }
    sample.available_bytes = sample
        .available_bytes
        .min(headroom_bytes)
        .min(sample.total_bytes);
}

#[cfg(test)]
#[path = "linux/tests.rs"]
mod tests;
