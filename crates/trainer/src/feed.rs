//! Samples in the order of the run: which step needs which, fetched ahead by the loader, lost files named.

use crate::plan::{Augmentation, Plan};
use dataset::{
    Augment, ImageDataset, ImageOptions, Inspection, Loader, LoaderOptions, Order, Part, Sample,
    SampleError,
};
use std::sync::Arc;

/// Shrunk photographs kept in memory, in bytes: a ladder rung gives them back.
const CACHE_BYTES: u64 = 256 << 20;
/// Samples decoded ahead of the training, in effective batches.
const BATCHES_AHEAD: usize = 2;

/// Training samples by step.
pub struct TrainFeed {
    order: Order,
    dataset: Arc<ImageDataset>,
    loader: Loader,
    requested: u64,
    last: u64,
}

fn open(
    plan: &Plan,
    inspection: &Inspection,
    part: Part,
    augment: Augment,
    limit: Option<u64>,
) -> Arc<ImageDataset> {
    let options = ImageOptions {
        size: plan.image_size,
        augment,
        seed: plan.seed,
    };
    Arc::new(ImageDataset::open(
        inspection,
        part,
        options,
        limit.map(|n| n as usize),
        CACHE_BYTES,
    ))
}

impl TrainFeed {
    /// Samples from `step` on; `workers` threads decode ahead.
    pub fn start(plan: &Plan, inspection: &Inspection, workers: usize, step: u64) -> Self {
        let augment = match plan.augment {
            Augmentation::None => Augment::None,
            Augmentation::Standard => Augment::Standard,
        };
        let dataset = open(plan, inspection, Part::Train, augment, plan.dev_samples);
        let order = Order {
            seed: plan.seed,
            len: dataset.len() as u32,
            effective_batch: plan.effective_batch,
        };
        let depth_samples = BATCHES_AHEAD * plan.effective_batch as usize;
        let loader = Loader::start(
            dataset.clone(),
            LoaderOptions {
                workers,
                depth_samples,
            },
        );
        TrainFeed {
            order,
            dataset,
            loader,
            requested: step,
            last: plan.steps,
        }
    }

    /// Begins step `step`: its number of samples. Later steps are asked for ahead.
    pub fn begin(&mut self, step: u64) -> usize {
        while self.requested <= step + 1 && self.requested < self.last {
            let (epoch, indices) = self.order.step(self.requested);
            self.loader.request(epoch, &indices);
            self.requested += 1;
        }
        self.order.step(step).1.len()
    }

    /// The next `count` samples of the step; a file that could not be read is an error in its place.
    pub fn fetch(&mut self, count: usize) -> Vec<Result<Sample, SampleError>> {
        self.loader.take(count)
    }

    /// Milliseconds waited for data since the start.
    pub fn waited_ms(&self) -> f64 {
        self.loader.waited_ms()
    }

    /// The loader's configuration in one line.
    pub fn describe(&self) -> String {
        self.loader.describe()
    }

    /// Gives cached photographs back.
    pub fn release(&self) {
        self.dataset.release();
    }
}

/// Held-out samples in order.
pub struct HeldOutFeed {
    dataset: Arc<ImageDataset>,
    workers: usize,
}

impl HeldOutFeed {
    /// The held-out part of a folder, or another part.
    pub fn open(plan: &Plan, inspection: &Inspection, part: Part, workers: usize) -> Self {
        HeldOutFeed {
            dataset: open(plan, inspection, part, Augment::None, None),
            workers,
        }
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.dataset.len()
    }

    /// Gives cached photographs back.
    pub fn release(&self) {
        self.dataset.release();
    }

    /// A loader that delivers all of them once.
    pub fn once(&self, depth_samples: usize) -> Loader {
        let mut loader = Loader::start(
            self.dataset.clone(),
            LoaderOptions {
                workers: self.workers,
                depth_samples,
            },
        );
        loader.request(0, &(0..self.dataset.len() as u32).collect::<Vec<_>>());
        loader
    }
}
