//! Memory by Ebb's own count: an allocator wrapper that knows live and peak bytes of this process's heap, and `release`,
//! which gives memory back to the system. Where a GPU holds the tensors its driver's count comes beside it.

use crate::dry_run::{record_alloc, record_free};
use candle_core::Device;
use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicU64, Ordering};

static LIVE_BYTES: AtomicU64 = AtomicU64::new(0);
static PEAK_BYTES: AtomicU64 = AtomicU64::new(0);

/// Wraps an allocator and counts. The binary makes one its global allocator.
pub struct Counting<A>(pub A);

// SAFETY: every call is passed on unchanged to the wrapped allocator; the counters are only numbers.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size() as u64);
        // SAFETY: the caller's promise is passed on.
        let pointer = unsafe { self.0.alloc(layout) };
        record_alloc(pointer, layout.size());
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        record_free(pointer, layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { self.0.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size() as u64);
        // SAFETY: the caller's promise is passed on.
        let pointer = unsafe { self.0.alloc_zeroed(layout) };
        record_alloc(pointer, layout.size());
        pointer
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        grow(size as u64);
        LIVE_BYTES.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        let moved = unsafe { self.0.realloc(pointer, layout, size) };
        if moved == pointer {
            record_free(pointer, layout.size());
        }
        record_alloc(moved, size);
        if moved != pointer && !moved.is_null() {
            record_free(pointer, layout.size());
        }
        moved
    }
}

fn grow(bytes: u64) {
    let live = LIVE_BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes;
    // A plain load first: the peak rarely moves, and a read is cheaper than an atomic maximum on every allocation.
    if live > PEAK_BYTES.load(Ordering::Relaxed) {
        PEAK_BYTES.fetch_max(live, Ordering::Relaxed);
    }
}

/// Heap bytes in use now; 0 where the binary does not count.
pub fn live_bytes() -> u64 {
    LIVE_BYTES.load(Ordering::Relaxed)
}

/// Most heap bytes in use at once since the last call, which starts a new measurement.
pub fn take_peak_bytes() -> u64 {
    let live = live_bytes();
    PEAK_BYTES.swap(live, Ordering::Relaxed).max(live)
}

/// What can give memory back beside the device: the allocator of the binary.
pub type Purge = fn();

/// Gives cached memory back: the device's pool (a synchronise is what empties candle's Metal pool), then the allocator's.
pub fn release(device: &Device, purge: Purge) -> crate::Result<()> {
    device.synchronize()?;
    crate::device::trim(device);
    purge();
    Ok(())
}
