//! The photographs of one part of an inspected folder as samples: plain arrays, each a function of (seed, epoch, index)
//! alone. Whoever asks, in whatever order, on whatever thread, gets the same bytes.

use crate::augment::{self, Mix};
use crate::cache::Cache;
use crate::decode::system::{self, Decoders};
use crate::decode::{Picture, decode};
use crate::error::SampleError;
use crate::inspection::{ImageFile, Inspection, Part};
use crate::split;
use crate::stream::Stream;
use crate::table::TargetColumn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How photographs become samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageOptions {
    /// Side of the square sample, in pixels; at least 1.
    pub size: u32,
    /// How samples are varied.
    pub augment: Augment,
    /// How samples are mixed with others of the dataset.
    pub mix: Mix,
    /// Seed of everything random.
    pub seed: u64,
}

/// How samples are varied from epoch to epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Augment {
    /// The largest square from the middle, always the same.
    None,
    /// Random crop, mirror, brightness, contrast and saturation.
    Standard,
    /// The same with smaller crops, and two operations of RandAugment.
    RandAugment,
}

/// One photograph ready for a model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sample {
    /// Its place in the dataset.
    pub index: u32,
    /// Its class.
    pub label: u32,
    /// Three planes red, green, blue of `size * size` bytes each, rows from the top.
    pub pixels: Vec<u8>,
    /// The class and the share of the sample that was mixed in, where one was.
    pub partner: Option<(u32, f32)>,
    /// Its numbers, each in deviations from the mean of its column; nothing where one is missing.
    pub targets: Vec<Option<f32>>,
    /// What the loss of each number is multiplied by, so that the batch's sum over its samples comes to the mean over the
    /// numbers that are there; 1 for each where this is empty.
    pub factors: Vec<f64>,
}

/// The photographs of one part of a folder.
#[derive(Debug)]
pub struct ImageDataset {
    folder: PathBuf,
    files: Vec<ImageFile>,
    columns: Vec<TargetColumn>,
    options: ImageOptions,
    cache: Cache,
    decoders: Decoders,
}

impl ImageDataset {
    /// Opens one part of an inspected folder, or at most `limit` photographs of it chosen by seed, each class in
    /// proportion. Up to `cache_bytes` of shrunk pictures are kept in memory.
    pub fn open(
        inspection: &Inspection,
        part: Part,
        options: ImageOptions,
        limit: Option<usize>,
        cache_bytes: u64,
    ) -> Self {
        let mut files: Vec<ImageFile> = inspection
            .files
            .iter()
            .filter(|f| f.part == part)
            .cloned()
            .collect();
        if let Some(limit) = limit {
            let named: Vec<(u32, String)> = files
                .iter()
                .map(|f| (f.label, f.path.to_string_lossy().into_owned()))
                .collect();
            files = split::limited(options.seed, &named, limit)
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
            cache: Cache::new(cache_bytes),
            decoders: system::here,
        }
    }

    /// With other decoders than this machine's.
    #[cfg(test)]
    pub(crate) fn decoded_by(mut self, decoders: Decoders) -> Self {
        self.decoders = decoders;
        self
    }

    /// Number of photographs.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Class of a photograph; `index` must be below `len`.
    pub fn label(&self, index: usize) -> u32 {
        self.files[index].label
    }

    /// Its numbers, in deviations from the mean of their columns; `index` must be below `len`.
    pub fn targets(&self, index: u32) -> Vec<Option<f32>> {
        let numbers = self.files[index as usize].numbers.iter();
        let columns = numbers.zip(&self.columns);
        columns
            .map(|(number, column)| number.map(|n| column.standardised(n) as f32))
            .collect()
    }

    /// Its path relative to the folder; `index` must be below `len`.
    pub fn file(&self, index: usize) -> &Path {
        &self.files[index].path
    }

    /// Side of the square samples, in pixels.
    pub fn size(&self) -> u32 {
        self.options.size
    }

    /// Decodes and varies one photograph; `index` must be below `len`.
    pub fn sample(&self, index: u32, epoch: u64) -> Result<Sample, SampleError> {
        let mut pixels = self.varied(index, epoch)?;
        let (seed, len) = (self.options.seed, self.files.len() as u32);
        let mixture = augment::draw(self.options.mix, seed, epoch, index, len);
        // A partner that cannot be read is skipped in its own place; here the sample stays unmixed.
        let mixed = mixture.and_then(|m| Some((m, self.varied(m.partner, epoch).ok()?)));
        let partner = mixed.map(|(mixture, other)| {
            let share = mixture.blend(&mut pixels, &other, self.options.size);
            (self.files[mixture.partner as usize].label, share)
        });
        Ok(Sample {
            index,
            label: self.files[index as usize].label,
            pixels,
            partner,
            targets: self.targets(index),
            factors: Vec::new(),
        })
    }

    /// One photograph as it stands in an epoch, before it is mixed with any other.
    fn varied(&self, index: u32, epoch: u64) -> Result<Vec<u8>, SampleError> {
        let picture = self.picture(index, &self.files[index as usize])?;
        let size = self.options.size;
        let place = [self.options.seed, epoch, u64::from(index)];
        let stream = &mut Stream::keyed(&place);
        Ok(match self.options.augment {
            Augment::None => augment::plain(&picture, size),
            Augment::Standard => augment::standard(&picture, size, stream),
            Augment::RandAugment => augment::rand_augment(&picture, size, stream),
        })
    }

    /// Gives the kept pictures back; the bytes that were held.
    pub fn release(&self) -> u64 {
        self.cache.release()
    }

    /// Keeps at most this many bytes of pictures from now on; gives all back when more are held.
    pub fn limit_cache(&self, limit_bytes: u64) {
        self.cache.limit(limit_bytes);
    }

    /// Bytes of pictures kept now.
    pub fn cached_bytes(&self) -> u64 {
        self.cache.used_bytes()
    }

    /// Bytes of pictures that may be kept.
    pub fn cache_limit_bytes(&self) -> u64 {
        self.cache.limit_bytes()
    }

    fn picture(&self, index: u32, file: &ImageFile) -> Result<Arc<Picture>, SampleError> {
        if let Some(picture) = self.cache.get(index) {
            return Ok(picture);
        }
        // Half as large again as the sample, so that the smallest crop is not blown up much.
        let short_side = self.options.size.saturating_mul(3).div_ceil(2);
        let path = self.folder.join(&file.path);
        // The decoders are other people's and the files are hostile: a panic costs one file, not the training.
        let decoded = catch_unwind(AssertUnwindSafe(|| {
            decode(&path, short_side, self.decoders)
        }))
        .unwrap_or_else(|_| {
            Err("It makes its decoder fail. Save it again, or remove it.".to_string())
        });
        let picture = Arc::new(decoded.map_err(|reason| SampleError {
            file: file.path.clone(),
            reason,
        })?);
        self.cache.keep(index, &picture);
        Ok(picture)
    }
}
