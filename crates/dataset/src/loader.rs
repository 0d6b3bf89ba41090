//! Fetches samples ahead of the training, on its own threads, and hands them out in the order asked for. The threads
//! decide when a sample is made, never what it is. Knows nothing of steps or pieces.

use crate::error::SampleError;
use crate::images::{ImageDataset, Sample};
use crate::queue::Queue;
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
    line: Mutex<Line>,
    /// Something may be fetched, or the loader closes.
    work: Condvar,
    /// A sample was made.
    made: Condvar,
}

#[derive(Debug)]
struct Line {
    queue: Queue<Result<Sample, SampleError>>,
    closing: bool,
}

impl Loader {
    /// Starts the threads; they sleep until something is requested.
    pub fn start(dataset: Arc<ImageDataset>, options: LoaderOptions) -> Self {
        let shared = Arc::new(Shared {
            dataset,
            line: Mutex::new(Line {
                queue: Queue::new(options.depth_samples),
                closing: false,
            }),
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
        let mut line = self.shared.lock();
        for index in indices {
            line.queue.want(epoch, *index);
        }
        drop(line);
        self.shared.work.notify_all();
    }

    /// Works ahead so far from now on. What is made beyond that is dropped and will be made again.
    pub fn set_depth(&mut self, depth_samples: usize) {
        self.shared.lock().queue.set_depth(depth_samples);
        self.shared.work.notify_all();
    }

    /// Drops all that was asked for: the next request comes first. The threads stay.
    pub fn forget(&mut self) {
        self.shared.lock().queue.forget();
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
        self.shared.lock().queue.len()
    }

    /// Milliseconds that takers have waited since the start, decoding on their own thread included.
    pub fn waited_ms(&self) -> f64 {
        self.waited_ms
    }

    /// Threads at work.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// "Loader: 2 workers, 64 samples ahead, cache 256 MB".
    pub fn describe(&self) -> String {
        let cache = match self.shared.dataset.cache_limit_bytes() {
            0 => "no cache".to_string(),
            bytes => format!("cache {} MB", bytes >> 20),
        };
        let workers = match self.workers.len() {
            0 => return format!("Loader: in the training thread, {cache}"),
            1 => "1 worker".to_string(),
            n => format!("{n} workers"),
        };
        let depth = self.shared.lock().queue.depth();
        format!("Loader: {workers}, {depth} samples ahead, {cache}")
    }

    /// The next sample; at least one is outstanding.
    fn next(&mut self) -> Result<Sample, SampleError> {
        let mut line = self.shared.lock();
        loop {
            if let Some(sample) = line.queue.take() {
                drop(line);
                self.shared.work.notify_one();
                return sample;
            }
            if !self.workers.is_empty() {
                line = self.shared.wait(&self.shared.made, line);
            } else if let Some(work) = line.queue.begin() {
                let sample = self.shared.dataset.sample(work.index, work.epoch);
                line.queue.finish(work.ticket, sample);
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
        let mut line = self.lock();
        while !line.closing {
            let Some(work) = line.queue.begin() else {
                line = self.wait(&self.work, line);
                continue;
            };
            drop(line);
            let sample = self.dataset.sample(work.index, work.epoch);
            line = self.lock();
            line.queue.finish(work.ticket, sample);
            self.made.notify_one();
        }
    }

    /// No change below leaves the queue half-made, so a thread that died while holding it did no harm.
    fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, on: &Condvar, line: MutexGuard<'a, Line>) -> MutexGuard<'a, Line> {
        on.wait(line).unwrap_or_else(PoisonError::into_inner)
    }
}
