//! Ebb's own memory count: an allocator wrapper that counts the live and peak bytes of this
//! process's heap, and [`release`], which returns cached memory to the system. Memory on a GPU is
//! counted by its driver.

use crate::dry_run::{record_alloc, record_free};
use candle_core::Device;
use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicU64, Ordering};

static LIVE_BYTES: AtomicU64 = AtomicU64::new(0);
static PEAK_BYTES: AtomicU64 = AtomicU64::new(0);

/// Wraps an allocator and counts. The binary uses it as its global allocator.
pub struct CountingAllocator<A>(pub A);

// SAFETY: every call goes unchanged to the wrapped allocator; the counters are plain numbers.
unsafe impl<A: GlobalAlloc> GlobalAlloc for CountingAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size() as u64);
        // SAFETY: the caller keeps the contract of `alloc`.
        let pointer = unsafe { self.0.alloc(layout) };
        record_alloc(pointer, layout.size());
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        record_free(pointer, layout.size());
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { self.0.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size() as u64);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        let pointer = unsafe { self.0.alloc_zeroed(layout) };
        record_alloc(pointer, layout.size());
        pointer
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        grow(size as u64);
        LIVE_BYTES.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `realloc`.
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
    // A plain load first: the peak rarely moves, and a load is cheaper than an atomic maximum on
    // every allocation.
    if live > PEAK_BYTES.load(Ordering::Relaxed) {
        PEAK_BYTES.fetch_max(live, Ordering::Relaxed);
    }
}

/// Heap bytes in use now; 0 if the binary does not use [`CountingAllocator`].
pub fn live_bytes() -> u64 {
    LIVE_BYTES.load(Ordering::Relaxed)
}

/// Peak heap bytes since the last call, which starts a new measurement.
pub fn take_peak_bytes() -> u64 {
    let live = live_bytes();
    PEAK_BYTES.swap(live, Ordering::Relaxed).max(live)
}

/// Returns the allocator's cached memory to the system.
pub type Purge = fn();

/// Returns cached memory to the system: first the device's pool (candle empties its Metal pool when
/// it synchronizes), then the allocator's. All of it is returned even if the device has failed,
/// because it has then ended its work as well.
///
/// # Errors
/// Those of [`crate::device::synchronize`].
pub fn release(device: &Device, purge: Purge) -> crate::Result<()> {
    let outcome = crate::device_sync::synchronize(device);
    crate::device::trim(device);
    purge();
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dry_run::{HeapEvent, dry_run};
    use std::alloc::System;

    /// Run by miri, together with the pointer of a dry run to its recording.
    #[test]
    fn blocks_are_passed_on_counted_and_recorded() {
        let allocator = CountingAllocator(System);
        let before = live_bytes();
        let layout = |bytes| Layout::from_size_align(bytes, 8).expect("8 is a power of two");
        let work = || {
            // SAFETY: each block is used with its own layout and freed once, and only bytes that
            // were written are read.
            unsafe {
                let small = allocator.alloc(layout(2_000));
                assert!(!small.is_null());
                small.write_bytes(7, 2_000);
                let large = allocator.realloc(small, layout(2_000), 3_000);
                assert!(!large.is_null());
                assert_eq!(*large.add(1_999), 7);
                let zeros = allocator.alloc_zeroed(layout(1_500));
                assert!(!zeros.is_null());
                assert_eq!(*zeros.add(1_499), 0);
                assert_eq!(live_bytes(), before + 4_500);
                allocator.dealloc(large, layout(3_000));
                allocator.dealloc(zeros, layout(1_500));
            }
        };
        let ((), events) = dry_run(2, work);
        assert_eq!(live_bytes(), before);
        assert!(take_peak_bytes() >= before + 4_500);
        let bytes = |is_counted: fn(&HeapEvent) -> Option<u64>| -> u64 {
            events.iter().filter_map(is_counted).sum()
        };
        let allocated = bytes(|event| match event {
            HeapEvent::Allocated(block) => Some(block.bytes),
            _ => None,
        });
        let freed = bytes(|event| match event {
            HeapEvent::Freed(block) => Some(block.bytes),
            _ => None,
        });
        assert_eq!((allocated, freed), (6_500, 6_500));
    }
}
