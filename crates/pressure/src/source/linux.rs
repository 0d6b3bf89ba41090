//! Linux: `MemAvailable`, stalls (PSI) and the limits set on this process. The smallest headroom counts: the machine's,
//! the control group's, the process's own. Refuses to know what the numbers are used for.
//!
//! Free disk is not read: swap space is laid out in advance here, so a full disk takes none of it.

#[path = "linux/files.rs"]
mod files;
#[path = "linux/group.rs"]
mod group;

use super::{DeviceReadings, MemorySource};
use crate::error::PressureError;
use crate::sample::MemorySample;
use files::Kept;
use group::Group;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;

/// Bytes of a page of `/proc/self/statm` where the system does not say.
const SMALLEST_PAGE_BYTES: u64 = 4096;
/// A stall is measured over this time, microseconds.
const STALL_WINDOW_US: u64 = 1_000_000;

/// What is read of `/proc/meminfo`; from the fifth on, what the kernel itself holds and cannot give back.
const MEMINFO: [&str; 8] = [
    "MemTotal",
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
    stalls: Option<Kept>,
    /// `(microseconds since opened, stalled microseconds)`, of the last second.
    stalled: VecDeque<(u64, u64)>,
    group: Option<Group>,
    address_limit_bytes: Option<u64>,
    data_limit_bytes: Option<u64>,
    page_bytes: u64,
    device: DeviceReadings,
}

impl Machine {
    /// Opens what can be read here.
    pub(super) fn open() -> Result<Self, PressureError> {
        Self::open_at(Path::new("/"))
    }

    /// The same below another root, for tests.
    fn open_at(root: &Path) -> Result<Self, PressureError> {
        let group = Group::find(root);
        let group_stalls = group.as_ref().and_then(Group::stalls);
        let limits = files::text(&root.join("proc/self/limits")).unwrap_or_default();
        let mut machine = Self {
            opened: Instant::now(),
            meminfo: Kept::open(&root.join("proc/meminfo"))?,
            statm: Kept::open(&root.join("proc/self/statm"))?,
            stalls: group_stalls.or_else(|| Kept::open(&root.join("proc/pressure/memory")).ok()),
            stalled: VecDeque::new(),
            group,
            address_limit_bytes: soft_limit(&limits, "Max address space"),
            data_limit_bytes: soft_limit(&limits, "Max data size"),
            page_bytes: page_bytes(root),
            device: DeviceReadings::default(),
        };
        // Some kernels offer the file and refuse its content.
        if let Some(stalls) = &mut machine.stalls
            && stalls.field("some", "total=").is_err()
        {
            machine.stalls = None;
        }
        machine.sample()?;
        Ok(machine)
    }

    /// Adds the device's readings.
    pub(super) fn with_device(mut self, device: DeviceReadings) -> Self {
        self.device = device;
        self
    }

    /// `(limit, headroom)` of each limit set on this process, in bytes; `pages` is what statm says.
    fn own_limits(&self, pages: &[u64]) -> Vec<(u64, u64)> {
        let used = |index: usize| pages.get(index).copied().unwrap_or(0) * self.page_bytes;
        let limits = [
            (self.address_limit_bytes, used(0)),
            (self.data_limit_bytes, used(5)),
        ];
        let set = limits
            .into_iter()
            .filter_map(|(limit, used)| limit.map(|l| (l, used)));
        set.map(|(limit, used)| (limit, limit.saturating_sub(used)))
            .collect()
    }

    /// Share of the last second in which somebody waited for memory. Differences of the running total: the averages
    /// that the kernel offers move every 2 s only.
    fn stall_fraction(&mut self) -> Option<f64> {
        let total = self.stalls.as_mut()?.field("some", "total=").ok()?;
        let now = self.opened.elapsed().as_micros() as u64;
        self.stalled.push_back((now, total));
        while self.stalled.len() > 2 && now - self.stalled[1].0 >= STALL_WINDOW_US {
            self.stalled.pop_front();
        }
        let (then, before) = *self.stalled.front()?;
        // Over less than a tenth of a second a single stall would look like a flood.
        let span = (now - then).max(STALL_WINDOW_US / 10);
        Some((total.saturating_sub(before) as f64 / span as f64).min(1.0))
    }
}

impl MemorySource for Machine {
    fn sample(&mut self) -> Result<MemorySample, PressureError> {
        let pages = self.statm.numbers()?;
        let page = |index: usize| pages.get(index).copied().unwrap_or(0) * self.page_bytes;
        let own = page(1);
        let info = self.meminfo.named(MEMINFO)?;
        let [total, Some(available), swap, swap_free, kernel @ ..] = info else {
            return Err(self.meminfo.unexpected("no MemAvailable"));
        };
        let bytes = |kilobytes: Option<u64>| kilobytes.unwrap_or(0) * 1024;
        let mut sample = MemorySample {
            at_ms: self.opened.elapsed().as_millis() as u64,
            total_bytes: bytes(total),
            available_bytes: available * 1024,
            own_bytes: own,
            system_bytes: kernel.into_iter().map(bytes).sum(),
            swap_used_bytes: bytes(swap).saturating_sub(bytes(swap_free)),
            ..MemorySample::default()
        };
        if let Some((limit, headroom)) = self.group.as_mut().and_then(Group::headroom) {
            narrow(&mut sample, limit, headroom);
        }
        for (limit, headroom) in self.own_limits(&pages) {
            narrow(&mut sample, limit, headroom);
        }
        sample.stall_fraction = self.stall_fraction();
        self.device.fill(&mut sample);
        Ok(sample)
    }

    fn describe(&self) -> String {
        let mut read = vec![match &self.group {
            Some(group) => format!("{} and MemAvailable", group.describe()),
            None => "MemAvailable".to_string(),
        }];
        if self.address_limit_bytes.is_some() || self.data_limit_bytes.is_some() {
            read.push("the limit set on this process".into());
        }
        read.push(match self.stalls {
            Some(_) => "memory stalls".into(),
            None => "no memory stalls (this kernel counts none)".into(),
        });
        read.join(", ")
    }

    fn take_peak_bytes(&mut self) -> Option<u64> {
        take_own_peak_bytes()
    }

    fn own_headroom_bytes(&mut self) -> Option<u64> {
        let pages = self.statm.numbers().ok()?;
        let limits = self.own_limits(&pages);
        limits.into_iter().map(|(_, headroom)| headroom).min()
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

/// The soft limit in a line of `/proc/self/limits`, in bytes.
fn soft_limit(limits: &str, name: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
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
    statm
        .numbers()
        .ok()
        .and_then(|pages| pages.get(1).copied())
        .unwrap_or(0)
        * page
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
