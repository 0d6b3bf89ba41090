//! The images of one split as samples: plain arrays, each depending only on (seed, epoch, index).
//! Every caller gets the same bytes, in any order and on any thread.

use crate::augment::{self, Mix};
use crate::decode_image::decode;
use crate::decode_image::system_decoder::{self, Decoders};
use crate::decoded_image::DecodedImage;
use crate::error::SampleError;
use crate::image_cache::ImageCache;
use crate::image_inspection::{ImageFile, ImageInspection};
use crate::rng::Rng;
use crate::seeded_selection;
use crate::target_statistics::TargetColumn;
use crate::types::Split;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How images become samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageOptions {
    /// Side of the square samples in pixels; at least 1.
    pub size: u32,
    /// How samples are augmented.
    pub augment: Augment,
    /// How samples are mixed with others of the dataset.
    pub mix: Mix,
    /// Seed of all random choices.
    pub seed: u64,
}

/// How samples are augmented in each epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Augment {
    /// The largest square in the center; the same in every epoch.
    None,
    /// A random crop, mirroring, brightness, contrast and saturation.
    Standard,
    /// Like `Standard`, but a crop shows at least 80 % of the image.
    Light,
    /// Like `None`, but rotated, slanted, zoomed and moved a little, with a slight change of light.
    NoMirror,
    /// Like `Standard`, but a crop shows at least 25 % of the image. Two operations of RandAugment
    /// follow.
    RandAugment,
}

/// One image, ready for a model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ImageSample {
    /// Its index in the dataset.
    pub index: u32,
    /// Index of its class.
    pub label: u32,
    /// Three planes, red, green and blue, of `size * size` bytes each; rows from the top.
    pub pixels: Vec<u8>,
    /// If another sample was mixed in: its class, and its fraction of the result.
    pub partner: Option<(u32, f32)>,
    /// Its regression targets in standard deviations from the mean; `None` if a value is missing.
    pub targets: Vec<Option<f32>>,
    /// The factor of the loss of each target, so that the sum over the samples of an effective
    /// batch is the mean over the values that are present. Empty means 1 for each.
    pub factors: Vec<f64>,
    /// Outputs of a simpler model for the image, if a loader adds them; otherwise empty.
    pub baseline: Vec<f32>,
}

/// The images of one split.
#[derive(Debug)]
pub struct ImageDataset {
    folder: PathBuf,
    files: Vec<ImageFile>,
    columns: Vec<TargetColumn>,
    options: ImageOptions,
    cache: ImageCache,
    decoders: Decoders,
}

impl ImageDataset {
    /// Opens one split of an inspected folder. With a `limit`, at most that many images are chosen
    /// by seed, each class in proportion. Up to `cache_bytes` of shrunk images are cached in
    /// memory.
    pub fn open(
        inspection: &ImageInspection,
        split: Split,
        options: ImageOptions,
        limit: Option<usize>,
        cache_bytes: u64,
    ) -> Self {
        let mut files: Vec<ImageFile> = inspection
            .files
            .iter()
            .filter(|f| f.split == split)
            .cloned()
            .collect();
        if let Some(limit) = limit {
            let named: Vec<(u32, String)> = files
                .iter()
                .map(|f| (f.label, f.path.to_string_lossy().into_owned()))
                .collect();
            files = seeded_selection::choose_subset(options.seed, &named, limit)
                .into_iter()
                .map(|i| files[i].clone())
                .collect();
        }
        let options = ImageOptions {
            size: options.size.max(1),
            ..options
        };
        Self {
            folder: inspection.folder.clone(),
            files,
            columns: inspection.targets.clone(),
            options,
            cache: ImageCache::new(cache_bytes),
            decoders: system_decoder::installed,
        }
    }

    /// Uses other decoders than this machine's.
    #[cfg(test)]
    pub(crate) fn with_decoders(mut self, decoders: Decoders) -> Self {
        self.decoders = decoders;
        self
    }

    /// Caches an image in place of what its file holds.
    #[cfg(test)]
    pub(crate) fn with_cached(self, index: u32, image: DecodedImage) -> Self {
        self.cache.insert(index, &Arc::new(image));
        self
    }

    /// Number of images.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there are no images.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The class of an image. Panics if `index` is not below `len`.
    pub fn label(&self, index: usize) -> u32 {
        self.files[index].label
    }

    /// The regression targets of an image, in standard deviations from the mean. Panics if `index`
    /// is not below `len`.
    pub fn targets(&self, index: u32) -> Vec<Option<f32>> {
        let values = self.files[index as usize].targets.iter();
        values
            .zip(&self.columns)
            .map(|(value, column)| value.map(|value| column.standardize(value) as f32))
            .collect()
    }

    /// The path of an image, relative to the folder. Panics if `index` is not below `len`.
    pub fn file(&self, index: usize) -> &Path {
        &self.files[index].path
    }

    /// The path of an image, relative to the folder; `None` if `index` is not below `len`.
    pub(crate) fn find_file(&self, index: u32) -> Option<PathBuf> {
        let file = self.files.get(index as usize);
        file.map(|file| file.path.clone())
    }

    /// Side of the square samples in pixels.
    pub fn size(&self) -> u32 {
        self.options.size
    }

    /// Loads one image as a sample: decodes, augments and mixes it. Panics if `index` is not below
    /// `len`.
    ///
    /// # Errors
    /// The file cannot be read or decoded.
    pub fn sample(&self, index: u32, epoch: u64) -> Result<ImageSample, SampleError> {
        let mut pixels = self.augmented(index, epoch)?;
        let (seed, len) = (self.options.seed, self.files.len() as u32);
        let mixture = augment::draw(self.options.mix, seed, epoch, index, len);
        // If the partner cannot be read, the sample stays unmixed. The partner itself is reported
        // when it is loaded.
        let mixed = mixture.and_then(|m| Some((m, self.augmented(m.partner, epoch).ok()?)));
        let partner = mixed.map(|(mixture, other)| {
            let share = mixture.blend(&mut pixels, &other, self.options.size);
            (self.files[mixture.partner as usize].label, share)
        });
        Ok(ImageSample {
            index,
            label: self.files[index as usize].label,
            pixels,
            partner,
            targets: self.targets(index),
            factors: Vec::new(),
            baseline: Vec::new(),
        })
    }

    /// The pixels of an image in an epoch, before mixing.
    fn augmented(&self, index: u32, epoch: u64) -> Result<Vec<u8>, SampleError> {
        let image = self.decoded(index, &self.files[index as usize])?;
        let size = self.options.size;
        let rng = &mut Rng::from_key(&[self.options.seed, epoch, u64::from(index)]);
        Ok(match self.options.augment {
            Augment::None => augment::center(&image, size),
            Augment::Standard => augment::standard(&image, size, rng),
            Augment::Light => augment::light(&image, size, rng),
            Augment::NoMirror => augment::no_mirror(&image, size, rng),
            Augment::RandAugment => augment::rand_augment(&image, size, rng),
        })
    }

    /// Empties the cache. Returns the bytes that were cached.
    pub fn release_cache(&self) -> u64 {
        self.cache.release()
    }

    /// Changes the limit of the cache. Empties it if it holds more.
    pub fn limit_cache(&self, limit_bytes: u64) {
        self.cache.set_limit(limit_bytes);
    }

    /// Bytes of cached images.
    pub fn cached_bytes(&self) -> u64 {
        self.cache.used_bytes()
    }

    pub(crate) fn cache_limit_bytes(&self) -> u64 {
        self.cache.limit_bytes()
    }

    fn decoded(&self, index: u32, file: &ImageFile) -> Result<Arc<DecodedImage>, SampleError> {
        if let Some(image) = self.cache.get(index) {
            return Ok(image);
        }
        // One and a half times the sample, so that small crops are not enlarged much.
        let short_side = self.options.size.saturating_mul(3).div_ceil(2);
        let path = self.folder.join(&file.path);
        let decoded = decode(&path, short_side, self.decoders);
        let image = Arc::new(decoded.map_err(|reason| SampleError {
            file: file.path.clone(),
            reason,
        })?);
        self.cache.insert(index, &image);
        Ok(image)
    }
}
