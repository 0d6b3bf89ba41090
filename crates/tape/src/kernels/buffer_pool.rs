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

/// A buffer may serve an output that is smaller by this factor.
const LOOSEST: f64 = 1.25;
/// A buffer that nothing used for this many micro-batches is freed: texts of all lengths would
/// otherwise leave a set of buffers for each length.
const KEPT_ROUNDS: u64 = 4;

/// A buffer, and the micro-batch that last took it.
#[derive(Debug)]
struct Pooled<B> {
    buffer: Arc<B>,
    round: u64,
}

impl<B> Pooled<B> {
    /// Whether nothing else holds it.
    fn is_free(&self) -> bool {
        Arc::strong_count(&self.buffer) == 1
    }
}

/// The buffers of a device, by class.
#[derive(Debug)]
pub(crate) struct BufferPool<B> {
    by_class: BTreeMap<usize, Vec<Pooled<B>>>,
    /// Micro-batches so far.
    round: u64,
}

impl<B> Default for BufferPool<B> {
    fn default() -> Self {
        BufferPool {
            by_class: BTreeMap::new(),
            round: 0,
        }
    }
}

impl<B> BufferPool<B> {
    /// A buffer of at least `bytes` that nothing else holds, a little larger if there is none of
    /// its class, or a new one from `make`, which gets the size of the class. The caller must use
    /// a single queue, so that earlier commands finish with the buffer before later ones begin.
    ///
    /// # Errors
    /// Those of `make`; the pool is unchanged.
    pub fn take<E>(
        &mut self,
        bytes: usize,
        make: impl FnOnce(usize) -> Result<Arc<B>, E>,
    ) -> Result<Arc<B>, E> {
        let class = class_bytes(bytes);
        let largest = (class as f64 * LOOSEST) as usize;
        let fitting = self.by_class.range_mut(class..=largest);
        let free = fitting
            .flat_map(|(_, all)| all)
            .find(|pooled| pooled.is_free());
        if let Some(pooled) = free {
            pooled.round = self.round;
            return Ok(pooled.buffer.clone());
        }
        let buffer = make(class)?;
        self.by_class.entry(class).or_default().push(Pooled {
            buffer: buffer.clone(),
            round: self.round,
        });
        Ok(buffer)
    }

    /// Begins the next micro-batch. Removes and returns the buffers that no recent one used. The
    /// caller drops them once no command uses them.
    pub fn next_round(&mut self) -> Vec<Arc<B>> {
        self.round += 1;
        let oldest = self.round.saturating_sub(KEPT_ROUNDS);
        self.extract(|pooled| pooled.round < oldest)
    }

    /// Removes and returns the buffers that nothing else holds. The caller drops them once no
    /// command uses them.
    pub fn idle(&mut self) -> Vec<Arc<B>> {
        self.extract(|_| true)
    }

    /// All buffers, also those that something else holds.
    pub fn into_buffers(self) -> Vec<Arc<B>> {
        let all = self.by_class.into_values().flatten();
        all.map(|pooled| pooled.buffer).collect()
    }

    /// Removes and returns the free buffers for which `matches` holds.
    fn extract(&mut self, matches: impl Fn(&Pooled<B>) -> bool) -> Vec<Arc<B>> {
        let mut extracted = Vec::new();
        for all in self.by_class.values_mut() {
            let some = all.extract_if(.., |pooled| pooled.is_free() && matches(pooled));
            extracted.extend(some.map(|pooled| pooled.buffer));
        }
        self.by_class.retain(|_, all| !all.is_empty());
        extracted
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
            assert_eq!(
                class_bytes(class),
                class,
                "a buffer whose size equals a size class belongs to that class"
            );
            if bytes > PAGE_BYTES {
                assert!(class - bytes <= bytes / 8, "{class} for {bytes}");
            }
        }
        assert_eq!(
            class_bytes(9 << 20),
            9 << 20,
            "9 MiB is a size class, so nothing is rounded up to 16 MiB"
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
    fn a_slightly_larger_buffer_is_reused_and_a_much_larger_one_is_not() {
        let mut pool = BufferPool::default();
        drop(pool.take(10 << 20, make).expect("made"));
        assert_eq!(*pool.take(8 << 20, make).expect("free"), 10 << 20);
        assert_eq!(*pool.take(7 << 20, make).expect("made"), 7 << 20);
        assert_eq!(*pool.take(6 << 20, make).expect("free"), 7 << 20);
    }

    #[test]
    fn what_recent_micro_batches_did_not_use_is_freed() {
        let mut pool = BufferPool::default();
        let held = pool.take(4 << 20, make).expect("made");
        for round in 0..10 {
            // One buffer is used in each micro-batch, the other one was used in the first only.
            drop(pool.take(1 << 20, make).expect("there"));
            if round == 0 {
                drop(pool.take(2 << 20, make).expect("made"));
            }
            let freed: Vec<usize> = pool.next_round().iter().map(|buffer| **buffer).collect();
            let expected: &[usize] = if round == KEPT_ROUNDS {
                &[2 << 20]
            } else {
                &[]
            };
            assert_eq!(freed, expected, "after micro-batch {round}");
        }
        drop(held);
        assert_eq!(pool.next_round().len(), 1, "held for long, then given up");
    }

    #[test]
    fn the_pool_of_a_lost_device_gives_up_held_buffers_too() {
        let mut pool = BufferPool::default();
        let held = pool.take(1 << 20, make).expect("made");
        drop(pool.take(2 << 20, make).expect("made"));
        assert_eq!(pool.into_buffers().len(), 2);
        assert_eq!(Arc::strong_count(&held), 1, "nothing else holds it");
    }

    #[test]
    fn a_failed_allocation_leaves_the_pool_unchanged() {
        let mut pool: BufferPool<usize> = BufferPool::default();
        assert!(pool.take(1 << 20, |_| Err("no memory")).is_err());
        assert!(pool.idle().is_empty());
    }
}
