//! Threads that read the metadata and the headers of many files. They mostly wait for the disk.

use crate::open_file::open_file;
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::cmp::Ordering;
use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;

/// More threads than cores, because a disk answers many requests at once. On a disk whose content
/// was not in the cache of the system, reading headers with 32 threads took 40 % of the time of
/// two threads, on two cores.
const THREADS: usize = 32;
/// Fewer items are read on the calling thread: waking others would take longer.
const MIN_ITEMS: usize = 64;
/// Bytes of the stack of a thread.
const STACK_BYTES: usize = 1 << 20;
/// Where Linux lists the limits of this process.
const LIMITS: &str = "/proc/self/limits";
/// The limits that the addresses of threads count toward. The allocator reserves tens of megabytes
/// of addresses for each thread.
const ADDRESS_LIMITS: [&str; 2] = ["Max address space", "Max data size"];
/// Most bytes of that list.
const MAX_LIMITS_BYTES: u64 = 1 << 16;

/// Threads that start when they are needed, and end with this value.
#[derive(Default)]
pub(crate) struct DiskThreads {
    /// `None` if the system refuses to start the threads, or limits the addresses of the process.
    pool: OnceLock<Option<ThreadPool>>,
}

impl DiskThreads {
    /// The results of `read` for each item, in order.
    pub(crate) fn map<T: Sync, R: Send>(
        &self,
        items: &[T],
        read: impl Fn(&T) -> R + Send + Sync,
    ) -> Vec<R> {
        if items.len() < MIN_ITEMS {
            return items.iter().map(read).collect();
        }
        match self.pool.get_or_init(start) {
            Some(pool) => pool.install(|| items.par_iter().map(&read).collect()),
            None => items.iter().map(read).collect(),
        }
    }

    /// Sorts items, in parallel if the threads have started. Equal items may change places.
    pub(crate) fn sort<T: Send>(
        &self,
        items: &mut [T],
        compare: impl Fn(&T, &T) -> Ordering + Send + Sync,
    ) {
        match self.pool.get() {
            Some(Some(pool)) => pool.install(|| items.par_sort_unstable_by(compare)),
            _ => items.sort_unstable_by(compare),
        }
    }
}

fn start() -> Option<ThreadPool> {
    if are_addresses_limited() {
        return None;
    }
    ThreadPoolBuilder::new()
        .num_threads(THREADS)
        .stack_size(STACK_BYTES)
        .thread_name(|number| format!("disk {number}"))
        .build()
        .ok()
}

fn are_addresses_limited() -> bool {
    // A Mac has no such file, and does not count these limits.
    let mut limits = String::new();
    let read = open_file(Path::new(LIMITS))
        .and_then(|file| file.take(MAX_LIMITS_BYTES).read_to_string(&mut limits));
    read.is_ok() && has_address_limit(&limits)
}

fn has_address_limit(limits: &str) -> bool {
    let is_limited = |line: &str| {
        let found = ADDRESS_LIMITS
            .iter()
            .find_map(|name| line.strip_prefix(name));
        found.is_some_and(|limit| !limit.trim_start().starts_with("unlimited"))
    };
    limits.lines().any(is_limited)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    /// Longest time that a read waits for the reads of other threads.
    const WAIT: Duration = Duration::from_secs(20);

    #[test]
    fn many_items_are_read_at_once_and_stay_in_order() {
        let (active, most, began) = (AtomicUsize::new(0), AtomicUsize::new(0), Instant::now());
        // Each read waits until all threads have one.
        let read = |number: &usize| {
            let now = active.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(now, Ordering::SeqCst);
            while most.load(Ordering::SeqCst) < THREADS && began.elapsed() < WAIT {
                std::thread::sleep(Duration::from_millis(1));
            }
            active.fetch_sub(1, Ordering::SeqCst);
            2 * number
        };
        let threads = DiskThreads::default();
        let items: Vec<usize> = (0..4 * MIN_ITEMS).collect();
        let doubled: Vec<usize> = items.iter().map(|number| 2 * number).collect();
        assert_eq!(threads.map(&items, read), doubled);
        assert_eq!(most.load(Ordering::SeqCst), THREADS);
        assert_eq!(threads.map(&items[..3], read), doubled[..3]);
    }

    #[test]
    fn without_threads_items_are_read_and_sorted_one_after_the_other() {
        let threads = DiskThreads {
            pool: OnceLock::from(None),
        };
        let mut items: Vec<usize> = (0..4 * MIN_ITEMS).rev().collect();
        let same = threads.map(&items, |number| *number);
        assert_eq!(same, items);
        threads.sort(&mut items, usize::cmp);
        assert!(items.is_sorted());
    }

    #[test]
    fn a_limit_of_addresses_or_data_is_found() {
        let limits = |addresses: &str, data: &str| {
            format!(
                "Limit                     Soft Limit           Hard Limit           Units\n\
                 Max data size             {data:<20} unlimited            bytes\n\
                 Max open files            1024                 524288               files\n\
                 Max address space         {addresses:<20} unlimited            bytes\n"
            )
        };
        assert!(!has_address_limit(&limits("unlimited", "unlimited")));
        assert!(has_address_limit(&limits("921600000", "unlimited")));
        assert!(has_address_limit(&limits("unlimited", "256000000")));
        assert!(!has_address_limit(""));
    }
}
