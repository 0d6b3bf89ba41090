//! Peak of what Metal has allocated, with the same surface as `without_metal_peak_memory.rs`. A
//! synchronization frees unused buffers, so the peak is read just before.

use candle_core::Device;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most bytes that were allocated before a synchronization.
static PEAK_BYTES: AtomicU64 = AtomicU64::new(0);

fn allocated_bytes(device: &Device) -> u64 {
    device.as_metal_device().map_or(0, |metal| {
        metal.metal_device().current_allocated_size() as u64
    })
}

/// Called before a synchronization.
pub(crate) fn note_peak(device: &Device) {
    PEAK_BYTES.fetch_max(allocated_bytes(device), Ordering::Relaxed);
}

/// Peak of the allocated bytes since the last call, which starts a new measurement.
pub(crate) fn take_peak_bytes(device: &Device) -> u64 {
    let now_bytes = allocated_bytes(device);
    PEAK_BYTES.swap(now_bytes, Ordering::Relaxed).max(now_bytes)
}
