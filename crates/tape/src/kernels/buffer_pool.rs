//! A pool of buffers for kernel outputs, in size classes finer than a device's own powers of two. A
//! buffer that nothing uses any longer serves the next output of its class.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Classes per octave: a buffer is at most an eighth larger than needed.
const CLASSES: usize = 8;
/// Below this size, classes are powers of two, because a device allocates whole pages.
const PAGE_BYTES: usize = 1 << 14;

/// Size in bytes of the smallest class that holds `bytes`.
pub(crate) fn class_bytes(bytes: usize) -> usize {
    let octave = bytes.next_power_of_two();
    if octave <= PAGE_BYTES {
        return octave.max(1);
    }
    bytes.next_multiple_of(octave / 2 / CLASSES)
}

/// The buffers of a device, by class.
#[derive(Debug)]
pub(crate) struct BufferPool<B>(BTreeMap<usize, Vec<Arc<B>>>);

impl<B> Default for BufferPool<B> {
    fn default() -> Self {
        BufferPool(BTreeMap::new())
    }
}

impl<B> BufferPool<B> {
    /// A buffer of at least `bytes` that nothing else holds, or a new one from `make`, which gets
    /// the size of the class. The caller must use a single queue, so that earlier commands finish
    /// with the buffer before later ones begin.
    ///
    /// # Errors
    /// Those of `make`; the pool is unchanged.
    pub fn take<E>(
        &mut self,
        bytes: usize,
        make: impl FnOnce(usize) -> Result<Arc<B>, E>,
    ) -> Result<Arc<B>, E> {
        let class = class_bytes(bytes);
        let buffers = self.0.entry(class).or_default();
        let free = buffers.iter().find(|buffer| Arc::strong_count(buffer) == 1);
        if let Some(buffer) = free {
            return Ok(buffer.clone());
        }
        let buffer = make(class)?;
        buffers.push(buffer.clone());
        Ok(buffer)
    }

    /// Removes and returns the buffers that nothing else holds. The caller drops them once no
    /// command uses them.
    pub fn idle(&mut self) -> Vec<Arc<B>> {
        let mut idle = Vec::new();
        for buffers in self.0.values_mut() {
            idle.extend(buffers.extract_if(.., |buffer| Arc::strong_count(buffer) == 1));
        }
        self.0.retain(|_, buffers| !buffers.is_empty());
        idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A buffer that is its own size.
    fn make(bytes: usize) -> Result<Arc<usize>, &'static str> {
        Ok(Arc::new(bytes))
    }

    #[test]
    fn a_size_class_wastes_at_most_an_eighth() {
        for bytes in (1..40_000).chain([3 << 20, (3 << 20) + 1, 9 << 20, 100_663_297]) {
            let class = class_bytes(bytes);
            assert!(class >= bytes, "{class} for {bytes}");
            assert_eq!(class_bytes(class), class, "a class is of its own class");
            if bytes > PAGE_BYTES {
                assert!(class - bytes <= bytes / 8, "{class} for {bytes}");
            }
        }
        assert_eq!(
            class_bytes(9 << 20),
            9 << 20,
            "where a power of two takes 16 MiB"
        );
        assert_eq!(class_bytes(0), 1);
    }

    #[test]
    fn an_unused_buffer_is_reused() {
        let mut pool = BufferPool::default();
        let first = pool.take(3 << 20, make).expect("made");
        let second = pool.take(3 << 20, make).expect("made");
        assert!(!Arc::ptr_eq(&first, &second), "the first is held");
        let place = Arc::as_ptr(&first);
        drop(first);
        let third = pool.take((3 << 20) - 5, make).expect("of the class");
        assert_eq!(Arc::as_ptr(&third), place);
        let other = pool.take(5 << 20, make).expect("made");
        assert_eq!(*other, 5 << 20, "another class is made for itself");
    }

    #[test]
    fn buffers_in_use_survive_trimming() {
        let mut pool = BufferPool::default();
        let held = pool.take(1 << 20, make).expect("made");
        drop(pool.take(1 << 20, make).expect("made"));
        drop(pool.take(2 << 20, make).expect("made"));
        let idle = pool.idle();
        let bytes: Vec<usize> = idle.iter().map(|buffer| **buffer).collect();
        assert_eq!(bytes, [1 << 20, 2 << 20]);
        assert!(pool.idle().is_empty(), "nothing is given back twice");
        drop(held);
        assert_eq!(pool.idle().len(), 1);
    }

    #[test]
    fn a_failed_allocation_leaves_the_pool_unchanged() {
        let mut pool: BufferPool<usize> = BufferPool::default();
        assert!(pool.take(1 << 20, |_| Err("no memory")).is_err());
        assert!(pool.idle().is_empty());
    }
}
