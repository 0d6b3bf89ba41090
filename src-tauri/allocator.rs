//! The allocator of the program: which one, how long it holds freed memory, and how to return that
//! memory to the system. The platform files have the same functions.

#[cfg_attr(target_os = "linux", path = "allocator/mimalloc.rs")]
#[cfg_attr(not(target_os = "linux"), path = "allocator/system.rs")]
mod platform;

pub use platform::{CHOSEN, Chosen, keep_freed, purge};

#[cfg(all(test, target_os = "linux"))]
mod tests {
    /// The controller relies on this when it releases caches.
    #[test]
    fn a_purge_gives_freed_memory_back_at_once() {
        super::keep_freed();
        const BYTES: usize = 256 << 20;
        let before = pressure::own_footprint_bytes();
        let block = vec![1u8; BYTES];
        assert!(pressure::own_footprint_bytes() >= before + BYTES as u64 / 10 * 9);
        drop(std::hint::black_box(block));
        super::purge();
        let after = pressure::own_footprint_bytes();
        assert!(
            after < before + BYTES as u64 / 10,
            "{before} became {after}"
        );
    }
}
