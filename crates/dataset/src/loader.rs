//! Fetches samples ahead of the training, on its own threads, and hands them out in the order asked for. The threads
//! decide when a sample is made, never what it is. Knows nothing of steps or pieces.

use crate::error::SampleError;
use crate::images::{ImageDataset, Sample};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// How far and how broadly a loader works ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoaderOptions {
    /// Threads; with 0 samples are decoded when taken, on the taker's thread.
    pub workers: usize,
    /// Samples decoded or being decoded but not taken, at most; at least 1.
    pub depth_samples: usize,
}

/// Fetches samples of one dataset ahead of their use.
#[derive(Debug)]
pub struct Loader {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    waited_ms: f64,
}

#[derive(Debug)]
struct Shared {
    dataset: Arc<ImageDataset>,
    options: LoaderOptions,
    queue: Mutex<Queue>,
    /// Something may be fetched, or the loader closes.
    work: Condvar,
    /// A sample was made.
    made: Condvar,
}

/// Samples on their way, by ticket: the number of the request since the start.
#[derive(Debug, Default)]
struct Queue {
    /// Asked for, not begun: epoch and index.
    wanted: VecDeque<(u64, u32)>,
    /// Ticket of the first of `wanted`.
    next_ticket: u64,
    /// Ticket of the next sample to hand out.
    next_out: u64,
    done: BTreeMap<u64, Result<Sample, SampleError>>,
    closing: bool,
}

impl Queue {
    /// The next sample to fetch, unless enough are waiting.
    fn begin(&mut self, depth: usize) -> Option<(u64, u64, u32)> {
        if self.next_ticket - self.next_out >= depth as u64 {
            return None;
        }
        let (epoch, index) = self.wanted.pop_front()?;
        self.next_ticket += 1;
        Some((self.next_ticket - 1, epoch, index))
    }

    /// Asked for and not handed out.
    fn outstanding(&self) -> usize {
        (self.next_ticket - self.next_out) as usize + self.wanted.len()
    }
}

impl Loader {
    /// Starts the threads; they sleep until something is requested.
    pub fn start(dataset: Arc<ImageDataset>, options: LoaderOptions) -> Self {
        let options = LoaderOptions {
            depth_samples: options.depth_samples.max(1),
            ..options
        };
        let shared = Arc::new(Shared {
            dataset,
            options,
            queue: Mutex::new(Queue::default()),
            work: Condvar::new(),
            made: Condvar::new(),
        });
        let spawn = |n: usize| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name(format!("loader-{n}"))
                .spawn(move || shared.fetch())
        };
        // Where the system gives no more threads, those that started do the work, or the taker does.
        let workers = (0..options.workers).map_while(|n| spawn(n).ok()).collect();
        Self {
            shared,
            workers,
            waited_ms: 0.0,
        }
    }

    /// Asks for samples of an epoch, to be handed out after all asked for before. Every index must be below the
    /// dataset's length.
    pub fn request(&mut self, epoch: u64, indices: &[u32]) {
        self.shared
            .lock()
            .wanted
            .extend(indices.iter().map(|index| (epoch, *index)));
        self.shared.work.notify_all();
    }

    /// Hands out the next `n` samples in the order asked for, waiting where they are not made yet; fewer when fewer were
    /// asked for. A file that cannot be had is an error in its place.
    pub fn take(&mut self, n: usize) -> Vec<Result<Sample, SampleError>> {
        let begun = Instant::now();
        let n = n.min(self.outstanding());
        let samples = (0..n).map(|_| self.next()).collect();
        self.waited_ms += begun.elapsed().as_secs_f64() * 1000.0;
        samples
    }

    /// Samples asked for and not handed out.
    pub fn outstanding(&self) -> usize {
        self.shared.lock().outstanding()
    }

    /// Milliseconds that takers have waited since the start, decoding on their own thread included.
    pub fn waited_ms(&self) -> f64 {
        self.waited_ms
    }

    /// "Loader: 2 workers, 64 samples ahead, cache 256 MB".
    pub fn describe(&self) -> String {
        let cache = match self.shared.dataset.cache_limit_bytes() {
            0 => "no cache".to_string(),
            bytes => format!("cache {} MB", bytes >> 20),
        };
        match self.workers.len() {
            0 => format!("Loader: in the training thread, {cache}"),
            1 => format!(
                "Loader: 1 worker, {} samples ahead, {cache}",
                self.shared.options.depth_samples
            ),
            n => format!(
                "Loader: {n} workers, {} samples ahead, {cache}",
                self.shared.options.depth_samples
            ),
        }
    }

    /// The next sample; at least one is outstanding.
    fn next(&mut self) -> Result<Sample, SampleError> {
        let mut queue = self.shared.lock();
        loop {
            let ticket = queue.next_out;
            if let Some(sample) = queue.done.remove(&ticket) {
                queue.next_out += 1;
                drop(queue);
                self.shared.work.notify_one();
                return sample;
            }
            if !self.workers.is_empty() {
                queue = self.shared.wait(&self.shared.made, queue);
            } else if let Some((ticket, epoch, index)) = queue.begin(1) {
                let sample = self.shared.dataset.sample(index, epoch);
                queue.done.insert(ticket, sample);
            }
        }
    }
}

impl Drop for Loader {
    /// Waits for at most the one file that each thread is decoding.
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.work.notify_all();
        for worker in self.workers.drain(..) {
            // A thread that died has nothing more to give.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// The life of a thread.
    fn fetch(&self) {
        let mut queue = self.lock();
        while !queue.closing {
            let Some((ticket, epoch, index)) = queue.begin(self.options.depth_samples) else {
                queue = self.wait(&self.work, queue);
                continue;
            };
            drop(queue);
            let sample = self.dataset.sample(index, epoch);
            queue = self.lock();
            queue.done.insert(ticket, sample);
            self.made.notify_one();
        }
    }

    /// No change below leaves the queue half-made, so a thread that died while holding it did no harm.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, on: &Condvar, queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        on.wait(queue).unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_begun_beyond_the_depth() {
        let mut queue = Queue::default();
        queue.wanted.extend((0..5).map(|i| (0, i)));
        assert_eq!(queue.begin(2), Some((0, 0, 0)));
        assert_eq!(queue.begin(2), Some((1, 0, 1)));
        assert_eq!(queue.begin(2), None);
        assert_eq!(queue.outstanding(), 5);
        queue.next_out += 1;
        assert_eq!(queue.begin(2), Some((2, 0, 2)));
        assert_eq!((queue.begin(2), queue.outstanding()), (None, 4));
    }
}
