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
use stalls::{Stalls, Whose};
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
    /// What this process held when that was last read, and what was free then, bytes.
    held: (Pages, u64),
    stalls: Vec<Stalls>,
    /// The newest share of stalls, and whether a glance has gone by it.
    stalled: (Option<f64>, bool),
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
        let stalls = Stalls::of(Whose::Machine, machine_stalls);
        let stalls = stalls.chain(Stalls::of(Whose::Group, groups.stalls()));
        let mut machine = Self {
            opened: Instant::now(),
            meminfo: Kept::open(&root.join("proc/meminfo"))?,
            statm: Kept::open(&root.join("proc/self/statm"))?,
            free: Free::open(root),
            seen: None,
            fresh: false,
            held: Default::default(),
            stalled: (None, false),
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

    /// Adds the device's readings.
    pub(super) fn with_device(mut self, device: DeviceReadings) -> Self {
        self.device = device;
        self
    }

    /// The machine before any limit narrows it, read in full.
    fn machine(&mut self, pages: &Pages) -> Result<MemorySample, PressureError> {
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
        let seen = Seen {
            total_bytes: sample.total_bytes,
            available_bytes: sample.available_bytes,
            free_bytes: bytes(free),
            own_bytes,
        };
        (self.seen, self.fresh) = (Some((seen, sample)), true);
        self.held = (*pages, seen.free_bytes);
        Ok(sample)
    }

    /// The machine between two full readings, from what is free; nothing where it takes one.
    fn glanced(&mut self) -> Option<MemorySample> {
        let fresh = std::mem::take(&mut self.fresh);
        let (seen, newest) = self.seen?;
        let free_bytes = self.free.bytes()?;
        // What this process takes or gives back shows in what is free. A limit on it counts mappings, which do not.
        if self.limits.were_set() || !seen.is_still(self.held.1, free_bytes) {
            self.held = (self.statm.numbers().ok()?, free_bytes);
        }
        let pages = self.held.0;
        let own_bytes = pages[1] * self.page_bytes;
        let available_bytes = seen.available_bytes(free_bytes, own_bytes, fresh)?;
        let group = self.groups.glance(own_bytes, fresh)?;
        let sample = MemorySample {
            at_ms: self.opened.elapsed().as_millis() as u64,
            available_bytes,
            own_bytes,
            ..newest
        };
        // While nobody stalls, that is looked at in every second beat.
        if self.stalled.1 || self.stalled.0.is_some_and(|share| share > 0.0) {
            self.read_stalls();
        } else {
            self.stalled.1 = true;
        }
        Some(self.narrowed(sample, group, &pages))
    }

    /// A sample under the limits of its group and its own, with stalls and what the device says.
    fn narrowed(
        &self,
        mut sample: MemorySample,
        group: Option<(u64, u64)>,
        pages: &Pages,
    ) -> MemorySample {
        if let Some((limit, headroom)) = group {
            narrow(&mut sample, limit, headroom);
        }
        if self.limits.were_set() {
            let idle = (self.device.idle_bytes)();
            for (limit, headroom) in self.limits.headrooms(pages, self.page_bytes, idle) {
                narrow(&mut sample, limit, headroom);
            }
        }
        sample.stall_fraction = self.stalled.0;
        self.device.fill(&mut sample);
        sample
    }

    /// Reads the largest share of the last second in which somebody waited for memory, of machine and group.
    fn read_stalls(&mut self) {
        let now_us = self.opened.elapsed().as_micros() as u64;
        let (share, lost) = stalls::largest(&mut self.stalls, now_us);
        self.stalled = (share, false);
        let said = match lost {
            None => return,
            Some(_) if self.stalls.is_empty() => {
                "Memory stalls can no longer be read. Ebb goes on with what is available."
            }
            Some(Whose::Group) => {
                "The stalls of the control group can no longer be read. Ebb goes on with the machine's."
            }
            Some(Whose::Machine) => {
                "The machine's memory stalls can no longer be read. Ebb goes on with those of its control group."
            }
        };
        self.notice = Some(said.to_owned());
    }
}

impl MemorySource for Machine {
    fn sample(&mut self) -> Result<MemorySample, PressureError> {
        let pages: Pages = self.statm.numbers()?;
        let sample = self.machine(&pages)?;
        self.limits.look();
        if let Some(new_stalls) = self.groups.follow(sample.at_ms) {
            self.stalls.retain(|stalls| stalls.whose == Whose::Machine);
            self.stalls.extend(Stalls::of(Whose::Group, new_stalls));
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
        self.read_stalls();
        Ok(self.narrowed(sample, group, &pages))
    }

    fn glance(&mut self) -> Result<MemorySample, PressureError> {
        match self.glanced() {
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
