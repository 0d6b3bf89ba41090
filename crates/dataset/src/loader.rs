//! Loads samples ahead of their use on worker threads, and returns them in the requested order. The
//! threads decide when a sample is loaded, never its contents.

use crate::error::SampleError;
use crate::image_dataset::{ImageDataset, ImageSample};
use crate::load_queue::Queue;
use format::format_bytes;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// How many threads load samples, and how far ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoaderOptions {
    /// Number of worker threads. With 0, samples are loaded by `take` on its own thread.
    pub workers: usize,
    /// Most samples that are loaded or being loaded but not taken; at least 1.
    pub depth_samples: usize,
}

/// Loads samples of one dataset ahead of their use.
#[derive(Debug)]
pub struct Loader {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    waited_ms: f64,
}

#[derive(Debug)]
struct Shared {
    dataset: Arc<ImageDataset>,
    pending: Mutex<Pending>,
    /// Signals that there may be work, or that the loader closes.
    work: Condvar,
    /// Signals that a sample is ready.
    ready: Condvar,
}

#[derive(Debug)]
struct Pending {
    queue: Queue<Result<ImageSample, SampleError>>,
    closing: bool,
}

impl Loader {
    /// Starts the threads. They sleep until samples are requested.
    pub fn start(dataset: Arc<ImageDataset>, options: LoaderOptions) -> Self {
        let shared = Arc::new(Shared {
            dataset,
            pending: Mutex::new(Pending {
                queue: Queue::new(options.depth_samples),
                closing: false,
            }),
            work: Condvar::new(),
            ready: Condvar::new(),
        });
        let spawn = |n: usize| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name(format!("loader-{n}"))
                .spawn(move || shared.work())
        };
        // If the system provides fewer threads, those that started do the work, or `take` does.
        let workers = (0..options.workers).map_while(|n| spawn(n).ok()).collect();
        Self {
            shared,
            workers,
            waited_ms: 0.0,
        }
    }

    /// Requests samples of an epoch, after all earlier requests. Every index must be below the
    /// dataset's length.
    pub fn request(&mut self, epoch: u64, indices: &[u32]) {
        let mut pending = self.shared.lock();
        for index in indices {
            pending.queue.push(epoch, *index);
        }
        drop(pending);
        self.shared.work.notify_all();
    }

    /// Changes how far ahead samples are loaded. Samples beyond the new depth are dropped and
    /// loaded again.
    pub fn set_depth(&mut self, depth_samples: usize) {
        self.shared.lock().queue.set_depth(depth_samples);
        self.shared.work.notify_all();
    }

    /// Drops all requests, so that the next request comes first. The threads stay.
    pub fn clear(&mut self) {
        self.shared.lock().queue.clear();
    }

    /// Takes the next `n` samples in the requested order, and waits until they are loaded. Returns
    /// fewer if fewer were requested. A sample that cannot be loaded is an error at its position.
    pub fn take(&mut self, n: usize) -> Vec<Result<ImageSample, SampleError>> {
        let started = Instant::now();
        let n = n.min(self.outstanding());
        let samples = (0..n).map(|_| self.next()).collect();
        self.waited_ms += started.elapsed().as_secs_f64() * 1000.0;
        samples
    }

    /// Number of samples that were requested and not taken.
    pub fn outstanding(&self) -> usize {
        self.shared.lock().queue.len()
    }

    /// Milliseconds that `take` has taken in total, including loading on its own thread.
    pub fn waited_ms(&self) -> f64 {
        self.waited_ms
    }

    /// Number of worker threads.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// "Loader: 2 workers, 64 samples loaded in advance, cache 256 MB".
    pub fn describe(&self) -> String {
        let cache = match self.shared.dataset.cache_limit_bytes() {
            0 => "no cache".to_string(),
            bytes => format!("cache {}", format_bytes(bytes)),
        };
        let workers = match self.workers.len() {
            0 => {
                return format!(
                    "Loader: no workers (the training thread loads the samples), {cache}"
                );
            }
            1 => "1 worker".to_string(),
            n => format!("{n} workers"),
        };
        let depth = self.shared.lock().queue.depth();
        format!("Loader: {workers}, {depth} samples loaded in advance, {cache}")
    }

    /// The next sample. At least one must be outstanding.
    fn next(&mut self) -> Result<ImageSample, SampleError> {
        let mut pending = self.shared.lock();
        loop {
            if let Some(sample) = pending.queue.take() {
                drop(pending);
                self.shared.work.notify_one();
                return sample;
            }
            if !self.workers.is_empty() {
                pending = self.shared.wait(&self.shared.ready, pending);
            } else if let Some(work) = pending.queue.next_work() {
                let sample = self.shared.sample(work.index, work.epoch);
                pending.queue.finish(work.ticket, sample);
            }
        }
    }
}

impl Drop for Loader {
    /// Waits until each thread has finished the file that it is decoding.
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.work.notify_all();
        for worker in self.workers.drain(..) {
            // A thread that panicked has no more samples.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// Loads samples until the loader closes.
    fn work(&self) {
        let mut pending = self.lock();
        while !pending.closing {
            let Some(work) = pending.queue.next_work() else {
                pending = self.wait(&self.work, pending);
                continue;
            };
            drop(pending);
            let sample = self.sample(work.index, work.epoch);
            pending = self.lock();
            pending.queue.finish(work.ticket, sample);
            self.ready.notify_one();
        }
    }

    /// A sample of the dataset. A panic is an error of the sample: without an answer in its place,
    /// the training would wait for it for ever.
    fn sample(&self, index: u32, epoch: u64) -> Result<ImageSample, SampleError> {
        let load = AssertUnwindSafe(|| self.dataset.sample(index, epoch));
        catch_unwind(load).unwrap_or_else(|_| {
            Err(SampleError {
                file: self.dataset.find_file(index).unwrap_or_default(),
                reason: "This image could not be prepared for training because of a fault in Ebb. Please report this fault."
                    .to_owned(),
            })
        })
    }

    /// Ignores poisoning: a panic never leaves the queue in an inconsistent state.
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, on: &Condvar, pending: MutexGuard<'a, Pending>) -> MutexGuard<'a, Pending> {
        on.wait(pending).unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoded_image::DecodedImage;
    use crate::image_dataset::{Augment, ImageOptions};
    use crate::{InspectOptions, Mix, Split, inspect_images};
    use image::RgbImage;

    #[test]
    fn the_error_of_a_panic_names_the_file() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for name in ["ant/0.png", "ant/1.png", "bee/2.png"] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("it has one")).expect("it can be made");
            RgbImage::new(40, 30)
                .save(&path)
                .expect("it can be written");
        }
        let options = InspectOptions {
            held_out_fraction: 0.0,
            ..InspectOptions::default()
        };
        let found = inspect_images(folder.path(), &options, &|_| {}).expect("it can be read");
        let options = ImageOptions {
            size: 16,
            augment: Augment::Standard,
            mix: Mix::None,
            seed: 9,
        };
        // An image without its pixels: cropping it panics.
        let broken = DecodedImage {
            width: 40,
            height: 30,
            rgb: Vec::new(),
        };
        let dataset = ImageDataset::open(&found, Split::Train, options, None, 1 << 20);
        let dataset = Arc::new(dataset.with_cached(1, broken));
        for workers in [0, 1, 2] {
            let options = LoaderOptions {
                workers,
                depth_samples: 4,
            };
            let mut loader = Loader::start(Arc::clone(&dataset), options);
            loader.request(0, &[0, 1, 2]);
            let samples = loader.take(3);
            assert!(samples[0].is_ok() && samples[2].is_ok(), "{samples:?}");
            let error = samples[1].as_ref().expect_err("it panics");
            assert_eq!(error.file, dataset.file(1), "{workers} workers");
            assert!(error.reason.contains("a fault in Ebb"), "{}", error.reason);
        }
    }
}
