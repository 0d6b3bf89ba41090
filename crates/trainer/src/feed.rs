//! Samples in the order of the run: which step needs which, how far ahead they are fetched, how much of them is kept. Lost
//! files are named. Neither threads nor depth change a sample or its place; this file refuses to know what a pixel is.

use crate::plan::{Augmentation, Plan};
use dataset::{
    Augment, CachedOrder, ImageDataset, ImageInspection, ImageOptions, ImageSample, Loader,
    LoaderOptions, Mix, Order, SampleError, Split,
};
use pressure::Prefetch;
use std::path::Path;
use std::sync::Arc;

/// Most bytes of shrunk photographs that a feed keeps.
const CACHE_BYTES: u64 = 256 << 20;
/// A feed keeps no larger part of what Ebb may use than one in so many.
const CACHE_PART: u64 = 32;
/// Samples decoded ahead of the training, in effective batches.
const BATCHES_AHEAD: usize = 2;
/// Most bytes of samples decoded ahead.
const AHEAD_BYTES: u64 = 64 << 20;

/// How feeds work ahead, decided once for a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ahead {
    /// Threads of each feed; with 0 samples are decoded when taken.
    pub workers: usize,
    /// Samples decoded and not taken.
    pub depth_samples: usize,
    /// Bytes of one sample.
    pub sample_bytes: u64,
    /// Shrunk photographs that each feed keeps, in bytes.
    pub cache_bytes: u64,
}

impl Ahead {
    /// Two effective batches ahead, in bounded bytes. `ceiling_bytes` is what Ebb may use at most; 0 where nobody knows.
    pub fn of(plan: &Plan, workers: usize, ceiling_bytes: u64) -> Self {
        Ahead::at(plan, plan.image_size, workers, ceiling_bytes)
    }

    /// The same for images of another side.
    pub fn at(plan: &Plan, image_size: u32, workers: usize, ceiling_bytes: u64) -> Self {
        let sample_bytes = 3 * u64::from(image_size).pow(2);
        let most = (AHEAD_BYTES / sample_bytes).max(1) as usize;
        Ahead {
            workers,
            depth_samples: most.min(BATCHES_AHEAD * plan.effective_batch as usize),
            sample_bytes,
            cache_bytes: match ceiling_bytes {
                0 => CACHE_BYTES,
                bytes => CACHE_BYTES.min(bytes / CACHE_PART),
            },
        }
    }

    /// The depth of a feed that works ahead so far.
    fn depth(&self, prefetch: Prefetch) -> usize {
        match prefetch {
            Prefetch::Long => self.depth_samples,
            Prefetch::Short => self.workers.clamp(1, self.depth_samples.max(1)),
        }
    }

    fn cache_bytes(&self, prefetch: Prefetch) -> u64 {
        match prefetch {
            Prefetch::Long => self.cache_bytes,
            Prefetch::Short => 0,
        }
    }

    /// Bytes that waiting samples and kept photographs come to at most, of both feeds, in a run of this plan. A kept photograph is
    /// half as large again as its sample, or a third more where it is oblong.
    pub fn waiting_most_bytes(&self, plan: &Plan) -> u64 {
        let kept = |photographs: u64| self.cache_bytes.min(photographs * 3 * self.sample_bytes);
        let depth = self.depth_samples as u64 * self.sample_bytes;
        depth + kept(plan.train_samples) + kept(plan.held_out_samples)
    }

    /// Bytes of samples that wait at most, beyond those that a short prefetch holds too.
    fn waiting_bytes(&self, prefetch: Prefetch) -> u64 {
        let beyond = self.depth(prefetch) - self.depth(Prefetch::Short);
        match self.workers {
            0 => 0,
            _ => beyond as u64 * self.sample_bytes,
        }
    }
}

/// A dataset with the loader that works ahead on it.
struct Supply {
    dataset: Arc<ImageDataset>,
    loader: Loader,
    ahead: Ahead,
    prefetch: Prefetch,
}

impl Supply {
    fn open(dataset: ImageDataset, ahead: Ahead) -> Self {
        let dataset = Arc::new(dataset);
        let options = LoaderOptions {
            workers: ahead.workers,
            depth_samples: ahead.depth_samples,
        };
        Supply {
            loader: Loader::start(dataset.clone(), options),
            dataset,
            ahead,
            prefetch: Prefetch::Long,
        }
    }

    fn set_prefetch(&mut self, prefetch: Prefetch) {
        if prefetch != self.prefetch {
            self.prefetch = prefetch;
            self.loader.set_depth(self.ahead.depth(prefetch));
            self.dataset.limit_cache(self.ahead.cache_bytes(prefetch));
        }
    }

    fn spare_bytes(&self) -> u64 {
        let waiting = match self.loader.outstanding() {
            0 => 0,
            _ => self.ahead.waiting_bytes(self.prefetch),
        };
        waiting + self.dataset.cached_bytes()
    }
}

/// Training samples by step.
pub struct TrainFeed {
    order: CachedOrder,
    supply: Supply,
    requested: u64,
    last: u64,
    /// What the loss of each number is multiplied by in the step at work.
    factors: Vec<f64>,
}

fn open(
    plan: &Plan,
    inspection: &ImageInspection,
    part: Split,
    (augment, mix): (Augment, Mix),
    limit: Option<u64>,
    cache_bytes: u64,
) -> ImageDataset {
    let options = ImageOptions {
        size: plan.image_size,
        augment,
        mix,
        seed: plan.seed,
    };
    ImageDataset::open(
        inspection,
        part,
        options,
        limit.map(|n| n as usize),
        cache_bytes,
    )
}

/// For each number, samples of an effective batch over those that have it, counted before the first piece: the batch divides by
/// its samples, and the loss of a number is to be the mean over those that have it.
fn factors(dataset: &ImageDataset, samples: &[u32]) -> Vec<f64> {
    let mut present: Vec<u64> = Vec::new();
    for &index in samples {
        let targets = dataset.targets(index);
        present.resize(targets.len(), 0);
        for (present, target) in present.iter_mut().zip(&targets) {
            *present += u64::from(target.is_some());
        }
    }
    let factor = |&present: &u64| samples.len() as f64 / present.max(1) as f64;
    present.iter().map(factor).collect()
}

impl TrainFeed {
    /// Samples from `step` on. The threads live as long as the feed.
    pub fn start(plan: &Plan, inspection: &ImageInspection, ahead: Ahead, step: u64) -> Self {
        let augment = match plan.augment {
            Augmentation::None => Augment::None,
            Augmentation::Standard => Augment::Standard,
            Augmentation::RandAugment => Augment::RandAugment,
        };
        let (part, limit) = (Split::Train, plan.dev_samples);
        let varied = (augment, plan.mix);
        let dataset = open(plan, inspection, part, varied, limit, ahead.cache_bytes);
        let order = Order {
            seed: plan.seed,
            len: dataset.len() as u32,
            effective_batch: plan.effective_batch,
        };
        TrainFeed {
            order: CachedOrder::new(order),
            supply: Supply::open(dataset, ahead),
            requested: step,
            last: plan.steps,
            factors: Vec::new(),
        }
    }

    /// Begins again at `step`: what was decoded for later is dropped, threads and kept photographs stay.
    pub fn restart(&mut self, step: u64) {
        self.supply.loader.clear();
        self.requested = step;
    }

    /// Works ahead so far from now on. Shorter, the samples beyond and the kept photographs are given back.
    pub fn set_prefetch(&mut self, prefetch: Prefetch) {
        self.supply.set_prefetch(prefetch);
    }

    /// Bytes that a shorter prefetch gives back: samples that may wait by now, photographs that are kept.
    pub fn spare_bytes(&self) -> u64 {
        self.supply.spare_bytes()
    }

    /// Begins step `step`: its number of samples. Later steps are asked for ahead.
    pub fn begin(&mut self, step: u64) -> usize {
        while self.requested <= step + 1 && self.requested < self.last {
            let (epoch, indices) = self.order.step(self.requested);
            self.supply.loader.request(epoch, indices);
            self.requested += 1;
        }
        let samples = self.order.step(step).1;
        self.factors = factors(&self.supply.dataset, samples);
        samples.len()
    }

    /// The next `count` samples of the step; a file that could not be read is an error in its place.
    pub fn fetch(&mut self, count: usize) -> Vec<Result<ImageSample, SampleError>> {
        let mut samples = self.supply.loader.take(count);
        if !self.factors.is_empty() {
            for sample in samples.iter_mut().flatten() {
                sample.factors.clone_from(&self.factors);
            }
        }
        samples
    }

    /// The file of a sample, relative to the folder; `index` is the sample's place in the dataset.
    pub fn file(&self, index: u32) -> &Path {
        self.supply.dataset.file(index as usize)
    }

    /// Milliseconds waited for data since the start.
    pub fn waited_ms(&self) -> f64 {
        self.supply.loader.waited_ms()
    }

    /// The loader's configuration in one line.
    pub fn describe(&self) -> String {
        self.supply.loader.describe()
    }

    /// Gives cached photographs back.
    pub fn release(&self) {
        self.supply.dataset.release_cache();
    }
}

/// Held-out samples in order.
pub struct HeldOutFeed {
    supply: Supply,
}

impl HeldOutFeed {
    /// The held-out part of a folder, or another part. The threads live as long as the feed.
    pub fn open(plan: &Plan, inspection: &ImageInspection, part: Split, ahead: Ahead) -> Self {
        let dataset = open(
            plan,
            inspection,
            part,
            (Augment::None, Mix::None),
            None,
            ahead.cache_bytes,
        );
        HeldOutFeed {
            supply: Supply::open(dataset, ahead),
        }
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.supply.dataset.len()
    }

    /// Gives cached photographs back.
    pub fn release(&self) {
        self.supply.dataset.release_cache();
    }

    /// Works ahead so far from now on.
    pub fn set_prefetch(&mut self, prefetch: Prefetch) {
        self.supply.set_prefetch(prefetch);
    }

    /// Bytes that a shorter prefetch gives back.
    pub fn spare_bytes(&self) -> u64 {
        self.supply.spare_bytes()
    }

    /// Asks for all samples, from the first on.
    pub fn begin(&mut self) {
        self.supply.loader.clear();
        let all: Vec<u32> = (0..self.supply.dataset.len() as u32).collect();
        self.supply.loader.request(0, &all);
    }

    /// The next `count` samples, fewer at the end; a file that could not be read is an error in its place.
    pub fn fetch(&mut self, count: usize) -> Vec<Result<ImageSample, SampleError>> {
        self.supply.loader.take(count)
    }
}
