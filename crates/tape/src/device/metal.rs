//! Metal on macOS, with the same surface as `without_metal.rs`.

use super::{DeviceKind, SelectedDevice};
use crate::error::{Result, TapeError};
use crate::objective_c::guarded;
use candle_core::Device;
use objc2_foundation::{NSOperatingSystemVersion, NSProcessInfo};

/// Candle puts every buffer into a residency set, a class that exists since macOS 15. On older
/// systems it panics.
const OLDEST: NSOperatingSystemVersion = NSOperatingSystemVersion {
    majorVersion: 15,
    minorVersion: 0,
    patchVersion: 0,
};

/// Makes the Metal device. Call it once, on the thread that will use the device.
pub(super) fn select() -> Result<SelectedDevice> {
    supported()?;
    // Candle panics on an empty list of devices instead of returning an error.
    let made = std::panic::catch_unwind(|| guarded(|| Ok(Device::new_metal(0)?)));
    match made {
        Ok(Ok(device)) => Ok(SelectedDevice {
            device,
            kind: DeviceKind::Metal,
            reason: "the Mac's own GPU".to_owned(),
        }),
        Ok(Err(error)) => Err(TapeError::Device(error.to_string())),
        Err(_) => Err(TapeError::Device("no GPU was found".to_owned())),
    }
}

/// Candle panics on an older system instead of returning an error.
fn supported() -> Result<()> {
    if !NSProcessInfo::processInfo().isOperatingSystemAtLeastVersion(OLDEST) {
        return Err(TapeError::Device(
            "Metal needs macOS 15 or later here".to_owned(),
        ));
    }
    Ok(())
}

/// Describes the device that a run would use.
pub(super) fn predict() -> Result<String> {
    supported()?;
    Ok("Metal, each operation checked on this Mac before its first run".to_owned())
}

/// Bytes that the GPU driver has allocated; 0 on the CPU.
pub(super) fn allocated_bytes(device: &Device) -> u64 {
    device.as_metal_device().map_or(0, |metal| {
        metal.metal_device().current_allocated_size() as u64
    })
}

/// The GPU's architecture, such as `applegpu_g16s`; empty on the CPU.
pub(super) fn name(device: &Device) -> String {
    device.as_metal_device().map_or_else(
        |_| String::new(),
        |metal| metal.metal_device().architecture_name(),
    )
}

/// The GPU's recommended working set in bytes; 0 on the CPU.
pub(super) fn limit_bytes(device: &Device) -> u64 {
    device.as_metal_device().map_or(0, |metal| {
        metal.metal_device().recommended_max_working_set_size() as u64
    })
}

/// Frees the kernel outputs in the pool that no tensor uses any longer.
pub(super) fn trim(device: &Device) {
    if let Device::Metal(metal) = device {
        crate::kernels::metal::trim(metal);
    }
}

/// The version of the system, which decides the compiler of the GPU's kernels.
pub fn system_version() -> String {
    NSProcessInfo::processInfo()
        .operatingSystemVersionString()
        .to_string()
}
