//! Peak of what Metal has allocated. A synchronization frees unused buffers, so the peak is read
//! just before.

use crate::metal_allocated::allocated_bytes;
use candle_core::Device;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most bytes that were allocated before a synchronization.
static PEAK_BYTES: AtomicU64 = AtomicU64::new(0);

/// Called before a synchronization.
pub(crate) fn note_peak(device: &Device) {
    PEAK_BYTES.fetch_max(allocated_bytes(device), Ordering::Relaxed);
}

/// Starts a new measurement at 0, for another device.
pub(crate) fn reset() {
    PEAK_BYTES.store(0, Ordering::Relaxed);
}

/// Peak of the allocated bytes since the last call, which starts a new measurement.
pub(crate) fn take_peak_bytes(device: &Device) -> u64 {
    let now_bytes = allocated_bytes(device);
    PEAK_BYTES.swap(now_bytes, Ordering::Relaxed).max(now_bytes)
}
