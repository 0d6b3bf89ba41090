//! Linux: `MemAvailable`, stalls (PSI) and the limits set on this process. The smallest headroom counts: the machine's,
//! the control group's, the process's own. What cannot be read is left out, and said once. Refuses to know what the numbers are used for.
//!
//! Free disk is not read: swap space is laid out in advance here, so a full disk takes none of it.

#[path = "linux/files.rs"]
mod files;
#[path = "linux/free.rs"]
mod free;
#[path = "linux/group.rs"]
mod group;
#[path = "linux/limits.rs"]
mod limits;
#[path = "linux/seen.rs"]
mod seen;
#[path = "linux/stalls.rs"]
mod stalls;

use super::{DeviceReadings, MemorySource};
use crate::error::PressureError;
use crate::sample::MemorySample;
use files::Kept;
use free::Free;
use group::Groups;
use limits::{Limits, Pages};
use seen::Seen;
use stalls::Stalls;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;

/// Bytes of a page of `/proc/self/statm` where the system does not say.
const SMALLEST_PAGE_BYTES: u64 = 4096;

/// What is read of `/proc/meminfo`; from the sixth on, what the kernel itself holds and cannot give back.
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

/// This machine.
pub(super) struct Machine {
    opened: Instant,
    meminfo: Kept,
    statm: Kept,
    free: Free,
    /// What the newest sample found of the machine, and that sample before any limit narrowed it.
    seen: Option<(Seen, MemorySample)>,
    /// Nothing has been concluded from it yet.
    fresh: bool,
    stalls: Vec<Stalls>,
    groups: Groups,
    limits: Limits,
    page_bytes: u64,
    device: DeviceReadings,
    /// What was lost since somebody asked.
    notice: Option<String>,
}

impl Machine {
    /// Opens what can be read here.
    pub(super) fn open() -> Result<Self, PressureError> {
        Self::open_at(Path::new("/"))
    }

    /// The same below another root, for tests.
    fn open_at(root: &Path) -> Result<Self, PressureError> {
        let groups = Groups::find(root);
        let limits = Limits::open(root);
        let machine_stalls = Kept::open(&root.join("proc/pressure/memory")).ok();
        let mut machine = Self {
            opened: Instant::now(),
            meminfo: Kept::open(&root.join("proc/meminfo"))?,
            statm: Kept::open(&root.join("proc/self/statm"))?,
            free: Free::open(root),
            seen: None,
            fresh: false,
            stalls: Stalls::of(machine_stalls.into_iter().chain(groups.stalls())),
            groups,
            limits,
            page_bytes: page_bytes(root),
            device: DeviceReadings::default(),
            notice: None,
        };
        machine.sample()?;
        Ok(machine)
    }

    /// Adds the device's readings.
    pub(super) fn with_device(mut self, device: DeviceReadings) -> Self {
        self.device = device;
        self
    }

    /// The machine before any limit narrows it, read in full.
    fn machine(&mut self, own_bytes: u64) -> Result<MemorySample, PressureError> {
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
        let seen = Seen {
            total_bytes: sample.total_bytes,
            available_bytes: sample.available_bytes,
            free_bytes: bytes(free),
            own_bytes,
        };
        (self.seen, self.fresh) = (Some((seen, sample)), true);
        Ok(sample)
    }

    /// The machine before any limit narrows it, and its group's `(limit, headroom)`, from what is free; nothing where it takes a full reading.
    fn glanced(&mut self, own_bytes: u64) -> Option<(MemorySample, Option<(u64, u64)>)> {
        let fresh = std::mem::take(&mut self.fresh);
        let (seen, newest) = self.seen.as_ref()?;
        let available_bytes = seen.available_bytes(self.free.bytes()?, own_bytes, fresh)?;
        let group = self.groups.glance(own_bytes, fresh)?;
        let sample = MemorySample {
            at_ms: self.opened.elapsed().as_millis() as u64,
            available_bytes,
            own_bytes,
            ..*newest
        };
        Some((sample, group))
    }

    /// The same under the limits of its group and its own, with stalls and what the device says.
    fn narrowed(
        &mut self,
        mut sample: MemorySample,
        group: Option<(u64, u64)>,
        pages: &Pages,
    ) -> MemorySample {
        let idle = (self.device.idle_bytes)();
        let own = self.limits.headrooms(pages, self.page_bytes, idle);
        for (limit, headroom) in group.into_iter().chain(own) {
            narrow(&mut sample, limit, headroom);
        }
        sample.stall_fraction = self.stall_fraction();
        self.device.fill(&mut sample);
        sample
    }

    /// The largest share of the last second in which somebody waited for memory, of machine and group.
    fn stall_fraction(&mut self) -> Option<f64> {
        let now_us = self.opened.elapsed().as_micros() as u64;
        let counted = self.stalls.len();
        let mut largest: Option<f64> = None;
        self.stalls.retain_mut(|stalls| {
            let fraction = stalls.fraction(now_us);
            largest = [largest, fraction].into_iter().flatten().reduce(f64::max);
            fraction.is_some()
        });
        if self.stalls.len() < counted {
            self.notice = Some(match self.stalls.is_empty() {
                true => "Memory stalls can no longer be read. Ebb goes on with what is available.",
                false => "The stalls of the control group can no longer be read. Ebb goes on with the machine's.",
            }.to_owned());
        }
        largest
    }
}

impl MemorySource for Machine {
    fn sample(&mut self) -> Result<MemorySample, PressureError> {
        let pages: Pages = self.statm.numbers()?;
        let sample = self.machine(pages[1] * self.page_bytes)?;
        self.limits.look();
        if let Some(new_stalls) = self.groups.follow(sample.at_ms) {
            self.stalls.truncate(1);
            self.stalls.extend(Stalls::of(new_stalls));
        }
        let group = self
            .groups
            .headroom(sample.at_ms, sample.own_bytes)
            .unwrap_or_else(|lost| {
                self.notice = Some(format!(
                    "The control group's limit can no longer be read ({lost}). Ebb goes on with MemAvailable."
                ));
                None
            });
        Ok(self.narrowed(sample, group, &pages))
    }

    fn glance(&mut self) -> Result<MemorySample, PressureError> {
        let pages: Pages = self.statm.numbers()?;
        match self.glanced(pages[1] * self.page_bytes) {
            Some((sample, group)) => Ok(self.narrowed(sample, group, &pages)),
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
        read.push(match self.stalls.is_empty() {
            false => "memory stalls".into(),
            true => "no memory stalls (this kernel counts none)".into(),
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

/// Makes a sample respect a limit that is smaller than the machine.
fn narrow(sample: &mut MemorySample, limit_bytes: u64, headroom_bytes: u64) {
    if limit_bytes < sample.total_bytes {
        sample.total_bytes = limit_bytes;
        sample.system_bytes = 0; // the machine's, not the limit's
    }
    sample.available_bytes = sample
        .available_bytes
        .min(headroom_bytes)
        .min(sample.total_bytes);
}

/// Bytes of a page: the auxiliary vector's entry 6, else the smallest there is.
fn page_bytes(root: &Path) -> u64 {
    let Ok(vector) = std::fs::read(root.join("proc/self/auxv")) else {
        return SMALLEST_PAGE_BYTES;
    };
    let words: Vec<u64> = vector
        .chunks_exact(8)
        .filter_map(|word| word.try_into().ok().map(u64::from_ne_bytes))
        .collect();
    words
        .chunks_exact(2)
        .find(|entry| entry[0] == 6)
        .map_or(SMALLEST_PAGE_BYTES, |entry| entry[1])
}

/// Resident set of this process. The file is opened once for the whole process: `/proc/self` is fixed when opened.
pub(super) fn own_footprint_bytes() -> u64 {
    static STATM: OnceLock<Option<(Kept, u64)>> = OnceLock::new();
    let open = || {
        Some((
            Kept::open(Path::new("/proc/self/statm")).ok()?,
            page_bytes(Path::new("/")),
        ))
    };
    let Some((statm, page)) = STATM.get_or_init(open) else {
        return 0;
    };
    statm.numbers::<2>().map_or(0, |[_, resident]| resident) * page
}

/// The kernel's own high-water mark of the resident set, which is set back to the present by the same call.
pub(super) fn take_own_peak_bytes() -> Option<u64> {
    static STATUS: OnceLock<Option<Kept>> = OnceLock::new();
    let status = STATUS
        .get_or_init(|| Kept::open(Path::new("/proc/self/status")).ok())
        .as_ref()?;
    let peak = status.named(["VmHWM"]).ok()?[0]? * 1024;
    std::fs::write("/proc/self/clear_refs", "5").ok()?;
    Some(peak)
}

#[cfg(test)]
#[path = "linux/tests.rs"]
mod tests;
