//! Images in the order of the run, decoded ahead of the training by worker threads. Neither the
//! threads nor the depth of the prefetch change a sample or its place in the order.

use super::{BaselineScores, EvalLoader, LoadedSample, TrainLoader};
use crate::plan::{Augmentation, Plan};
use dataset::{
    Augment, CachedOrder, ImageDataset, ImageInspection, ImageOptions, ImageSample, Loader,
    LoaderOptions, Mix, Order, Split, chosen_first,
};
use pressure::Prefetch;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Largest cache of downscaled images per loader, in bytes.
const MAX_CACHE_BYTES: u64 = 256 << 20;
/// A cache takes at most 1/32 of what Ebb may use.
const CACHE_DIVISOR: u64 = 32;
/// Depth of the prefetch, in effective batches, unless the user chose another one.
const BATCHES_AHEAD: u32 = 2;
/// Largest depth of the prefetch, in bytes.
const MAX_AHEAD_BYTES: u64 = 64 << 20;

/// How far ahead image loaders work. Decided once per run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefetchOptions {
    /// Worker threads per loader; with 0, samples are decoded when they are fetched.
    pub workers: usize,
    /// Most samples that are decoded but not yet fetched.
    pub depth_samples: usize,
    /// Bytes per sample.
    pub sample_bytes: u64,
    /// Bytes of downscaled images that each loader caches.
    pub cache_bytes: u64,
}

impl PrefetchOptions {
    /// The options for a plan. `ceiling_bytes` is the most that Ebb may use; 0 if unknown.
    pub fn new(plan: &Plan, workers: usize, ceiling_bytes: u64) -> Self {
        PrefetchOptions::for_image_size(plan, plan.input_size, workers, ceiling_bytes)
    }

    /// The options for images of another size.
    pub(crate) fn for_image_size(
        plan: &Plan,
        image_size: u32,
        workers: usize,
        ceiling_bytes: u64,
    ) -> Self {
        let sample_bytes = 3 * u64::from(image_size).pow(2);
        let max_samples = (MAX_AHEAD_BYTES / sample_bytes).max(1) as usize;
        let batches_ahead = plan.config.prefetch_batches.unwrap_or(BATCHES_AHEAD) as usize;
        PrefetchOptions {
            workers,
            depth_samples: max_samples.min(batches_ahead * plan.effective_batch as usize),
            sample_bytes,
            cache_bytes: match ceiling_bytes {
                0 => MAX_CACHE_BYTES,
                bytes => MAX_CACHE_BYTES.min(bytes / CACHE_DIVISOR),
            },
        }
    }

    /// The depth in samples.
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

    /// The most bytes that decoded samples and caches take in a run of this plan, training and
    /// held-out loader together. A cached image is up to three times as large as its sample.
    pub(crate) fn max_bytes(&self, plan: &Plan) -> u64 {
        let cached = |images: u64| self.cache_bytes.min(images * 3 * self.sample_bytes);
        let depth = self.depth_samples as u64 * self.sample_bytes;
        depth + cached(plan.train_samples) + cached(plan.held_out_samples)
    }

    /// Bytes of decoded samples that a short prefetch would not hold.
    fn excess_bytes(&self, prefetch: Prefetch) -> u64 {
        let excess = self.depth(prefetch) - self.depth(Prefetch::Short);
        match self.workers {
            0 => 0,
            _ => excess as u64 * self.sample_bytes,
        }
    }
}

/// A dataset with the loader that decodes its images.
struct Source {
    dataset: Arc<ImageDataset>,
    loader: Loader,
    options: PrefetchOptions,
    prefetch: Prefetch,
}

impl Source {
    fn start(dataset: ImageDataset, options: PrefetchOptions) -> Self {
        let dataset = Arc::new(dataset);
        let loader_options = LoaderOptions {
            workers: options.workers,
            depth_samples: options.depth_samples,
        };
        Source {
            loader: Loader::start(dataset.clone(), loader_options),
            dataset,
            options,
            prefetch: Prefetch::Long,
        }
    }

    fn set_prefetch(&mut self, prefetch: Prefetch) {
        if prefetch != self.prefetch {
            self.prefetch = prefetch;
            self.loader.set_depth(self.options.depth(prefetch));
            self.dataset.limit_cache(self.options.cache_bytes(prefetch));
        }
    }

    fn spare_bytes(&self) -> u64 {
        let decoded = match self.loader.outstanding() {
            0 => 0,
            _ => self.options.excess_bytes(self.prefetch),
        };
        decoded + self.dataset.cached_bytes()
    }
}

/// Training images, step by step.
pub struct ImageLoader {
    order: CachedOrder,
    source: Source,
    /// The first step whose samples have not been requested from the workers.
    next_request: u64,
    steps: u64,
    step: u64,
    /// Positions in the step that were requested and not fetched, if samples are selected.
    selected: Option<Range<usize>>,
    /// For each regression target, the factor of its loss in the current step.
    target_factors: Vec<f64>,
}

impl ImageLoader {
    /// Starts the workers; samples are loaded from `step` on. The threads live as long as the
    /// loader.
    pub fn start(
        plan: &Plan,
        inspection: &ImageInspection,
        options: PrefetchOptions,
        step: u64,
    ) -> Self {
        let image_options = ImageOptions {
            size: plan.input_size,
            augment: match plan.augment {
                Augmentation::None => Augment::None,
                Augmentation::Standard => Augment::Standard,
                Augmentation::Light => Augment::Light,
                Augmentation::NoMirror => Augment::NoMirror,
                Augmentation::RandAugment => Augment::RandAugment,
            },
            mix: plan.mix,
            seed: plan.seed,
        };
        let limit = plan.dev_samples.map(|samples| samples as usize);
        let dataset = ImageDataset::open(
            inspection,
            Split::Train,
            image_options,
            limit,
            options.cache_bytes,
        );
        let order = Order {
            seed: plan.seed,
            len: dataset.len() as u32,
            effective_batch: plan.effective_batch,
        };
        ImageLoader {
            order: CachedOrder::new(order),
            source: Source::start(dataset, options),
            next_request: step,
            steps: plan.steps,
            step,
            selected: None,
            target_factors: Vec::new(),
        }
    }
}

impl TrainLoader for ImageLoader {
    type Sample = ImageSample;

    /// Starts a step and requests the next one from the workers, unless samples are selected.
    fn begin(&mut self, step: u64) -> usize {
        self.step = step;
        if let Some(selected) = &mut self.selected {
            self.source.loader.clear();
            *selected = 0..0;
            self.next_request = self.steps;
        }
        while self.next_request <= step + 1 && self.next_request < self.steps {
            let (epoch, indices) = self.order.step(self.next_request);
            self.source.loader.request(epoch, indices);
            self.next_request += 1;
        }
        let samples = self.order.step(step).1;
        self.target_factors = target_factors(&self.source.dataset, samples);
        samples.len()
    }

    fn fetch(&mut self, count: usize) -> Vec<LoadedSample<ImageSample>> {
        let mut samples = self.source.loader.take(count);
        if let Some(selected) = &mut self.selected {
            selected.start += samples.len();
        }
        if !self.target_factors.is_empty() {
            for sample in samples.iter_mut().flatten() {
                sample.factors.clone_from(&self.target_factors);
            }
        }
        samples
    }

    fn select(&mut self, samples: Range<usize>, ahead: Range<usize>) {
        let requested = self.selected.get_or_insert_default();
        if samples.start == requested.start && samples.end <= requested.end {
            return;
        }
        let last = if ahead.start == samples.end {
            ahead.end
        } else {
            samples.end
        };
        *requested = samples.start..last;
        let (epoch, indices) = self.order.step(self.step);
        self.source.loader.clear();
        self.source
            .loader
            .request(epoch, &indices[samples.start..last]);
    }

    fn describe(&self) -> String {
        self.source.loader.describe()
    }

    fn restart(&mut self, step: u64) {
        self.source.loader.clear();
        self.next_request = step;
    }

    fn set_prefetch(&mut self, prefetch: Prefetch) {
        self.source.set_prefetch(prefetch);
    }

    fn spare_bytes(&self) -> u64 {
        self.source.spare_bytes()
    }

    fn file(&self, index: u32) -> Option<&Path> {
        Some(self.source.dataset.file(index as usize))
    }

    fn waited_ms(&self) -> f64 {
        self.source.loader.waited_ms()
    }

    fn release(&self) {
        self.source.dataset.release_cache();
    }
}

/// For each regression target, the number of samples in the effective batch over the number of
/// samples that have the target. The batch divides every loss by all of its samples; the factor
/// turns that into the mean over those that have the target.
fn target_factors(dataset: &ImageDataset, samples: &[u32]) -> Vec<f64> {
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

/// Held-out images in order; all, or a selection.
pub struct ImageEvalLoader {
    source: Source,
    /// The selected images, then the others.
    order: Vec<u32>,
    /// Number of selected images.
    len: usize,
    /// The outputs of the baseline, if it has a part in the predictions.
    baseline: Option<BaselineScores>,
}

impl ImageEvalLoader {
    /// Starts the workers for one split. The threads live as long as the loader.
    pub fn start(
        plan: &Plan,
        inspection: &ImageInspection,
        part: Split,
        options: PrefetchOptions,
    ) -> Self {
        let image_options = ImageOptions {
            size: plan.input_size,
            augment: Augment::None,
            mix: Mix::None,
            seed: plan.seed,
        };
        let cache_bytes = options.cache_bytes;
        let dataset = ImageDataset::open(inspection, part, image_options, None, cache_bytes);
        let order: Vec<u32> = (0..dataset.len() as u32).collect();
        ImageEvalLoader {
            source: Source::start(dataset, options),
            len: order.len(),
            order,
            baseline: None,
        }
    }

    /// Loads only `limit` images chosen by seed, each class in proportion, until the whole split is
    /// asked for.
    #[must_use]
    pub fn with_sample_limit(mut self, seed: u64, limit: usize) -> Self {
        let dataset = &self.source.dataset;
        let labels: Vec<u32> = (0..dataset.len())
            .map(|index| dataset.label(index))
            .collect();
        self.len = chosen_first(&mut self.order, seed, &labels, limit);
        self
    }

    fn request(&mut self, count: usize) {
        self.source.loader.clear();
        self.source.loader.request(0, &self.order[..count]);
    }
}

impl EvalLoader for ImageEvalLoader {
    type Sample = ImageSample;

    fn len(&self) -> usize {
        self.len
    }

    fn split_len(&self) -> usize {
        self.order.len()
    }

    fn begin(&mut self) {
        self.request(self.len);
    }

    fn begin_whole(&mut self) -> usize {
        self.request(self.order.len());
        self.order.len()
    }

    fn fetch(&mut self, count: usize) -> Vec<LoadedSample<ImageSample>> {
        let mut samples = self.source.loader.take(count);
        if let Some(scores) = &self.baseline {
            for sample in samples.iter_mut().flatten() {
                sample.baseline = scores.for_sample(sample.index).to_vec();
            }
        }
        samples
    }

    fn set_baseline(&mut self, scores: BaselineScores) {
        self.baseline = Some(scores);
    }

    fn file(&self, index: u32) -> Option<&Path> {
        Some(self.source.dataset.file(index as usize))
    }

    fn set_prefetch(&mut self, prefetch: Prefetch) {
        self.source.set_prefetch(prefetch);
    }

    fn spare_bytes(&self) -> u64 {
        self.source.spare_bytes()
    }

    fn release(&self) {
        self.source.dataset.release_cache();
    }
}
