//! Metal on macOS, with the same surface as `without_metal.rs`.

use super::mac_support::{CpuKind, Gpu, MacFacts, OLDEST_MACOS, usable_gpu};
use super::{DeviceKind, SelectedDevice};
use crate::error::{Result, TapeError};
use crate::objective_c::guarded;
use candle_core::Device;
use objc2::runtime::ProtocolObject;
use objc2_foundation::NSProcessInfo;
use objc2_metal::{MTLDevice, MTLGPUFamily};

/// Makes the Metal device. Call it once, on the thread that will use the device.
pub(super) fn select() -> Result<SelectedDevice> {
    let gpu = supported()?;
    crate::kernels::metal::forget_pools();
    // Candle panics on an empty list of devices instead of returning an error.
    let made = std::panic::catch_unwind(|| guarded(|| Ok(Device::new_metal(0)?)));
    match made {
        Ok(Ok(device)) => Ok(SelectedDevice {
            device,
            kind: DeviceKind::Metal,
            reason: format!("the Mac's own GPU, {gpu}"),
        }),
        Ok(Err(error)) => Err(TapeError::Device(error.to_string())),
        Err(_) => Err(TapeError::Device("no GPU was found".to_owned())),
    }
}

/// The name of the GPU, or why it cannot be used. Candle panics on an older system instead of
/// returning an error.
fn supported() -> Result<String> {
    let facts = facts().map_err(|error| TapeError::Device(error.to_string()))?;
    usable_gpu(&facts).map_err(TapeError::Device)
}

fn facts() -> Result<MacFacts> {
    let version = NSProcessInfo::processInfo().operatingSystemVersion();
    let number = |part: isize| u32::try_from(part).unwrap_or(0);
    let macos = (number(version.majorVersion), number(version.minorVersion));
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let gpu = if macos.0 >= OLDEST_MACOS {
        gpu()?
    } else {
        None
    };
    Ok(MacFacts {
        macos,
        processor: processor(),
        is_remote: is_set("SSH_CONNECTION") || is_set("SSH_TTY"),
        gpu,
    })
}

fn processor() -> CpuKind {
    if cfg!(target_arch = "aarch64") {
        CpuKind::AppleSilicon
    } else if is_translated() {
        CpuKind::Rosetta
    } else {
        CpuKind::Intel
    }
}

/// True if Rosetta translates this process.
fn is_translated() -> bool {
    let output = std::process::Command::new("/usr/sbin/sysctl")
        .args(["-n", "sysctl.proc_translated"])
        .output();
    output.is_ok_and(|output| output.stdout.starts_with(b"1"))
}

/// The default GPU; `None` if there is none.
fn gpu() -> Result<Option<Gpu>> {
    guarded(|| {
        let device = candle_metal_kernels::metal::Device::system_default();
        Ok(device.map(|device| {
            let device = device.as_ref();
            Gpu {
                name: device.name().to_string(),
                is_apple7: device.supportsFamily(MTLGPUFamily::Apple7),
            }
        }))
    })
}

/// Describes the device that a run would use.
pub(super) fn predict() -> Result<String> {
    Ok(format!("Metal on {}", supported()?))
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

/// The newest family of Apple GPUs whose features the GPU has; empty on the CPU.
pub(super) fn family(device: &Device) -> String {
    const FAMILIES: [(MTLGPUFamily, &str); 4] = [
        (MTLGPUFamily::Apple10, "Apple 10"),
        (MTLGPUFamily::Apple9, "Apple 9"),
        (MTLGPUFamily::Apple8, "Apple 8"),
        (MTLGPUFamily::Apple7, "Apple 7"),
    ];
    let Ok(metal) = device.as_metal_device() else {
        return String::new();
    };
    let gpu: &ProtocolObject<dyn MTLDevice> = metal.metal_device().as_ref();
    let newest = FAMILIES
        .iter()
        .find(|(family, _)| gpu.supportsFamily(*family));
    newest.map_or_else(String::new, |(_, name)| (*name).to_owned())
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

/// Frees the pool of kernel outputs of a device that was lost.
pub(super) fn discard(device: &Device) {
    if let Device::Metal(metal) = device {
        // An exception would only repeat that the device is lost; the pool is forgotten before.
        let _ = guarded(|| {
            crate::kernels::metal::discard(metal);
            Ok(())
        });
    }
}

/// Frees the kernel outputs in the pool that no recent micro-batch used.
pub(super) fn trim_old(device: &Device) {
    if let Device::Metal(metal) = device {
        crate::kernels::metal::trim_old(metal);
    }
}

/// Frees the pool of kernel outputs on this thread.
pub(super) fn forget_pool(device: &Device) {
    if let Device::Metal(metal) = device {
        crate::kernels::metal::forget_pool(metal);
    }
}

/// The version of the system, which decides the compiler of the GPU's kernels.
pub fn system_version() -> String {
    NSProcessInfo::processInfo()
        .operatingSystemVersionString()
        .to_string()
}
