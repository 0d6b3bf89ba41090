//! The photographs of one part of an inspected folder as samples: plain arrays, each a function of (seed, epoch, index)
//! alone. Whoever asks, in whatever order, on whatever thread, gets the same bytes.

use crate::augment;
use crate::cache::Cache;
use crate::decode::{Picture, decode};
use crate::error::SampleError;
use crate::inspection::{ImageFile, Inspection, Part};
use crate::split;
use crate::stream::Stream;
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
}

/// One photograph ready for a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Its place in the dataset.
    pub index: u32,
    /// Its class.
    pub label: u32,
    /// Three planes red, green, blue of `size * size` bytes each, rows from the top.
    pub pixels: Vec<u8>,
}

/// The photographs of one part of a folder.
#[derive(Debug)]
pub struct ImageDataset {
    folder: PathBuf,
    files: Vec<ImageFile>,
    options: ImageOptions,
    cache: Cache,
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
            options,
            cache: Cache::new(cache_bytes),
        }
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
        let file = &self.files[index as usize];
        let picture = self.picture(index, file)?;
        let size = self.options.size;
        let pixels = match self.options.augment {
            Augment::None => augment::plain(&picture, size),
            Augment::Standard => {
                let place = [self.options.seed, epoch, u64::from(index)];
                augment::standard(&picture, size, &mut Stream::keyed(&place))
            }
        };
        Ok(Sample {
            index,
            label: file.label,
            pixels,
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
        let decoded =
            catch_unwind(AssertUnwindSafe(|| decode(&path, short_side))).unwrap_or_else(|_| {
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
