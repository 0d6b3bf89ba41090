//! macOS: the kernel's page counts, its pressure level, swap and this process's `phys_footprint`,
//! all readable without privileges.
//!
//! The level is polled: notifications reach processes one after another, with pauses of up to half
//! a minute.

#[path = "macos/footprint.rs"]
pub mod footprint;

use super::memory_source::{DeviceReadings, MemorySource};
use crate::error::PressureError;
use crate::memory_sample::{Level, MemorySample, Thermal};
use footprint::own_footprint_bytes;
use mach2::host_info::HOST_VM_INFO64_COUNT;
use mach2::kern_return::KERN_SUCCESS;
use mach2::mach_init::mach_host_self;
use mach2::port::mach_port_t;
use mach2::vm_page_size::vm_kernel_page_size;
use mach2::vm_statistics::vm_statistics64;
use objc2::rc::autoreleasepool;
use objc2_foundation::{NSProcessInfo, NSProcessInfoThermalState};
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::time::Instant;

/// The volume that holds swap; all internal volumes of a Mac share its free space.
const DISK: &CStr = c"/System/Volumes/VM";
/// The volume on a system without that one.
const FALLBACK_DISK: &CStr = c"/";

pub(super) struct Machine {
    opened: Instant,
    total_bytes: u64,
    device: DeviceReadings,
    newest: MemorySample,
}

impl Machine {
    /// Opens the readings of this machine.
    pub(super) fn open() -> Result<Self, PressureError> {
        let mut machine = Self {
            opened: Instant::now(),
            total_bytes: sysctl(c"hw.memsize")?,
            device: DeviceReadings::default(),
            newest: MemorySample::default(),
        };
        machine.sample()?;
        Ok(machine)
    }

    /// The same machine with the device's readings.
    pub(super) fn with_device(mut self, device: DeviceReadings) -> Self {
        self.device = device;
        self
    }

    /// A sample with fresh fast readings; the slow ones are those of `slow`.
    fn with_fast_readings(&self, slow: MemorySample) -> Result<MemorySample, PressureError> {
        let mut sample = MemorySample {
            at_ms: self.opened.elapsed().as_millis() as u64,
            own_bytes: own_footprint_bytes(),
            kernel_level: sysctl::<u32>(c"kern.memorystatus_vm_pressure_level")
                .ok()
                .map(level),
            ..slow
        };
        self.device.fill(&mut sample);
        sample.own_bytes = self.device.own_bytes(sample.own_bytes);
        let pages = match PageCounts::read() {
            Some(counts) => counts,
            None => PageCounts::from_statistics(&statistics()?),
        };
        sample.available_bytes = (pages.available() * page_bytes()).min(sample.total_bytes);
        Ok(sample)
    }

    /// A sample with all readings fresh.
    fn sample_all(&mut self) -> Result<MemorySample, PressureError> {
        let mut slow = MemorySample {
            total_bytes: self.total_bytes,
            swap_used_bytes: sysctl::<libc::xsw_usage>(c"vm.swapusage")
                .map_or(0, |swap| swap.xsu_used),
            disk_free_bytes: disk_free_bytes(DISK).or_else(|| disk_free_bytes(FALLBACK_DISK)),
            thermal: Some(thermal_state(NSProcessInfo::processInfo().thermalState())),
            low_power: Some(NSProcessInfo::processInfo().isLowPowerModeEnabled()),
            ..MemorySample::default()
        };
        self.device.fill(&mut slow);
        system(&mut slow, &statistics()?, page_bytes());
        self.newest = self.with_fast_readings(slow)?;
        Ok(self.newest)
    }
}

impl MemorySource for Machine {
    fn sample(&mut self) -> Result<MemorySample, PressureError> {
        // The monitor's thread has no autorelease pool of its own.
        autoreleasepool(|_| self.sample_all())
    }

    fn sample_fast(&mut self) -> Result<MemorySample, PressureError> {
        self.with_fast_readings(self.newest)
    }

    fn own_bytes(&mut self) -> u64 {
        self.device.own_bytes(own_footprint_bytes())
    }

    fn take_peak_bytes(&mut self) -> Option<u64> {
        self.device.take_peak(own_footprint_bytes())
    }

    fn describe(&self) -> String {
        "free, cached and purgeable pages, the compressor and the system's pressure level".into()
    }
}

/// The pages that another app could get without pushing anyone's memory into the compressor.
/// Anonymous memory of other apps is not among them.
///
/// The kernel may still compress idle memory of other apps before it drops recently used files, so
/// that this is the most that can be had at once.
#[derive(Debug, Clone, Copy)]
struct PageCounts {
    /// Free, without the speculative ones, which hold files that were read ahead.
    free: u64,
    /// Pages of files, with the speculative ones.
    external: u64,
    purgeable: u64,
}

impl PageCounts {
    /// The counts of this moment. `host_statistics64` answers all apps together some ten times a
    /// second and otherwise repeats itself (`rate_limit_host_statistics` in xnu's
    /// `osfmk/kern/host.c`), so that its answers do not fit the footprint of the same moment.
    fn read() -> Option<Self> {
        Some(PageCounts {
            free: page_count(c"vm.page_free_count")?,
            external: page_count(c"vm.page_pageable_external_count")?,
            purgeable: page_count(c"vm.page_purgeable_count")?,
        })
    }

    /// The counts of a system without these values. Speculative pages are counted both as free and
    /// as external.
    fn from_statistics(counts: &vm_statistics64) -> Self {
        PageCounts {
            free: counts
                .free_count
                .saturating_sub(counts.speculative_count)
                .into(),
            external: counts.external_page_count.into(),
            purgeable: counts.purgeable_count.into(),
        }
    }

    fn available(self) -> u64 {
        self.free + self.external + self.purgeable
    }
}

/// Sets the system's own memory and the share of the compressor, which change slowly.
fn system(sample: &mut MemorySample, counts: &vm_statistics64, page_bytes: u64) {
    let bytes = |count: u32| u64::from(count) * page_bytes;
    // GPU buffers of this process are wired too, but already part of its footprint.
    sample.system_bytes = bytes(counts.wire_count).saturating_sub(sample.device_allocated_bytes);
    let outside =
        bytes(counts.active_count) + bytes(counts.inactive_count) + bytes(counts.free_count);
    let compressed = bytes(counts.compressor_page_count);
    sample.compressor_fraction = Some(compressed as f64 / (outside + compressed).max(1) as f64);
}

/// The kernel's codes: 1 normal, 2 warning, 4 critical.
fn level(code: u32) -> Level {
    match code {
        4.. => Level::Critical,
        2 | 3 => Level::Warning,
        _ => Level::Normal,
    }
}

/// The system's four thermal states; unknown ones are taken as critical.
pub(crate) fn thermal_state(state: NSProcessInfoThermalState) -> Thermal {
    match state.0 {
        ..=0 => Thermal::Nominal,
        1 => Thermal::Fair,
        2 => Thermal::Serious,
        _ => Thermal::Critical,
    }
}

fn statistics() -> Result<vm_statistics64, PressureError> {
    // `mach_host_self` creates another port right at each call, so it is called once.
    static HOST: OnceLock<mach_port_t> = OnceLock::new();
    // SAFETY: takes no argument and only returns a port name.
    let host = *HOST.get_or_init(|| unsafe { mach_host_self() });
    let mut counts = vm_statistics64::default();
    let mut words = HOST_VM_INFO64_COUNT;
    // SAFETY: `counts` is writable and `words` says its length in 32-bit words, as the call expects
    // for this flavour.
    let code = unsafe {
        libc::host_statistics64(
            host,
            libc::HOST_VM_INFO64,
            (&raw mut counts).cast(),
            &raw mut words,
        )
    };
    if code == KERN_SUCCESS {
        return Ok(counts);
    }
    Err(PressureError::Unexpected {
        what: "host_statistics64".into(),
        found: format!("the error code {code}"),
    })
}

/// Bytes of a kernel page: 16,384 on Apple silicon.
fn page_bytes() -> u64 {
    // SAFETY: set once by the system before `main` and never written again.
    unsafe { vm_kernel_page_size as u64 }
}

/// A fixed-size kernel value. `T` is a plain number or a C struct of numbers.
fn sysctl<T: Copy>(name: &CStr) -> Result<T, PressureError> {
    let what = || name.to_string_lossy().into_owned();
    let mut value = MaybeUninit::<T>::zeroed();
    let mut length = size_of::<T>();
    // SAFETY: the pointer and the length describe `value`; nothing is written by the caller's side.
    let code = unsafe {
        libc::sysctlbyname(
            name.as_ptr(),
            value.as_mut_ptr().cast(),
            &raw mut length,
            std::ptr::null_mut(),
            0,
        )
    };
    if code != 0 {
        return Err(PressureError::Unreadable {
            what: what(),
            source: io::Error::last_os_error(),
        });
    }
    if length != size_of::<T>() {
        return Err(PressureError::Unexpected {
            what: what(),
            found: format!("{length} bytes"),
        });
    }
    // SAFETY: zeroed before and filled to its whole length; every bit pattern is a valid `T` by the
    // contract above.
    Ok(unsafe { value.assume_init() })
}

/// A count of pages, which the kernel keeps in four or eight bytes. `None` if it has none.
fn page_count(name: &CStr) -> Option<u64> {
    let (mut value, mut length) = (0u64, size_of::<u64>());
    // SAFETY: the pointer and the length describe `value`; nothing is written by the caller's side.
    let code = unsafe {
        libc::sysctlbyname(
            name.as_ptr(),
            (&raw mut value).cast(),
            &raw mut length,
            std::ptr::null_mut(),
            0,
        )
    };
    // A value of four bytes leaves the upper ones, which come last, at 0.
    (code == 0 && (length == 4 || length == 8)).then_some(value)
}

/// Free bytes of the volume at `path`.
fn disk_free_bytes(path: &CStr) -> Option<u64> {
    let mut volume = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: `path` ends in NUL and `volume` is writable and as long as the call expects.
    let code = unsafe { libc::statfs(path.as_ptr(), volume.as_mut_ptr()) };
    if code != 0 {
        return None;
    }
    // SAFETY: the call succeeded and filled the struct of plain numbers, which was zeroed before.
    let volume = unsafe { volume.assume_init() };
    Some(volume.f_bavail.saturating_mul(volume.f_bsize.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_codes_are_levels() {
        for (code, expected) in [
            (0, Level::Normal),
            (1, Level::Normal),
            (2, Level::Warning),
            (4, Level::Critical),
        ] {
            assert_eq!(level(code), expected);
        }
    }

    #[test]
    fn thermal_states_are_those_of_the_system() {
        for (state, expected) in [
            (NSProcessInfoThermalState::Nominal, Thermal::Nominal),
            (NSProcessInfoThermalState::Fair, Thermal::Fair),
            (NSProcessInfoThermalState::Serious, Thermal::Serious),
            (NSProcessInfoThermalState::Critical, Thermal::Critical),
        ] {
            assert_eq!(thermal_state(state), expected);
        }
    }

    #[test]
    fn the_kernel_keeps_fresh_page_counts() {
        let counts = PageCounts::read().expect("macOS has these values");
        let total: u64 = sysctl(c"hw.memsize").expect("it has memory");
        assert!(counts.available() > 0 && counts.available() * page_bytes() < total);
    }

    #[test]
    fn anonymous_memory_of_others_is_not_available() {
        let counts = vm_statistics64 {
            free_count: 10,
            speculative_count: 4,
            external_page_count: 20,
            purgeable_count: 3,
            active_count: 30,
            inactive_count: 30,
            compressor_page_count: 30,
            wire_count: 25,
            ..vm_statistics64::default()
        };
        let mut sample = MemorySample {
            total_bytes: 160 * 100,
            device_allocated_bytes: 500,
            ..MemorySample::default()
        };
        assert_eq!(PageCounts::from_statistics(&counts).available(), 29);
        system(&mut sample, &counts, 100);
        assert_eq!(sample.system_bytes, 2_000);
        assert_eq!(sample.compressor_fraction, Some(0.3));
    }
}
