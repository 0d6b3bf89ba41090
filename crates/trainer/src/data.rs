//! Data loading: which samples belong to which optimizer step, and how they reach the training
//! thread. The samples of a step are a function of the seed and the step alone; threads and
//! prefetching never change them.

mod baseline_scores;
mod tokenized_texts;
mod conversations;
mod windows;
mod documents;
mod prompts;
mod split_documents;
mod token_file;
mod image_loader;
mod labeled_text_loader;
mod token_frequencies;
mod tokenizer;
mod window_loader;

pub use baseline_scores::BaselineScores;
pub use documents::DocumentData;
pub(crate) use documents::open_split;
pub use image_loader::{ImageEvalLoader, ImageLoader, PrefetchOptions};
pub use labeled_text_loader::{TextData, TextEvalLoader, TextLoader};
pub use prompts::{EncodedPrompt, PromptSet};
pub(crate) use token_frequencies::{FREQUENCIES, load_token_frequencies, token_frequencies};
pub use tokenized_texts::{Corpus, Text};
pub(crate) use tokenizer::{MAX_TOKENIZER_BYTES, TOKENIZER, learn_vocabulary, saved_tokenizer};
pub(crate) use window_loader::padded_length;
pub use window_loader::{MakeSample, WindowEvalLoader, WindowLoader};
pub use windows::WindowSource;

use crate::error::{Result, TrainError};
use crate::plan::Plan;
use dataset::{DetectedDataset, ImageInspection, SampleError, TextInspection};
use pressure::Prefetch;
use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;

/// A sample, or why its file could not be read.
pub type LoadedSample<S> = std::result::Result<S, SampleError>;

/// Training samples, step by step.
pub trait TrainLoader {
    /// What one sample is.
    type Sample;

    /// Starts a step and returns its number of samples.
    fn begin(&mut self, step: u64) -> usize;

    /// The next `count` samples of the step. An unreadable file is an error in its sample's place.
    fn fetch(&mut self, count: usize) -> Vec<LoadedSample<Self::Sample>>;

    /// Continues with other samples of the step, given as positions in it: [`fetch`] returns those
    /// of `samples` next. `ahead` will probably be selected later, and may be loaded in advance.
    /// From the first call on, only selected samples are loaded: the others are those of other
    /// ranks.
    ///
    /// [`fetch`]: TrainLoader::fetch
    fn select(&mut self, samples: Range<usize>, ahead: Range<usize>);

    /// The loader's configuration in one line.
    fn describe(&self) -> String;

    /// Continues at `step` and drops everything prefetched for later steps.
    fn restart(&mut self, _step: u64) {}

    /// The size of the largest sample of this step: pixels of an image, tokens of a text. `default`
    /// is the plan's.
    fn sample_cost(&self, default: u64) -> u64 {
        default
    }

    /// The sizes of the last `remaining` samples of this step, in their order, as padded alone: a
    /// micro-batch is padded to its largest sample. `None` if all count as much as the largest.
    fn sample_costs(&self, _remaining: usize) -> Option<Vec<u64>> {
        None
    }

    /// Changes how far ahead samples are loaded.
    fn set_prefetch(&mut self, _prefetch: Prefetch) {}

    /// Bytes that a shorter prefetch would free.
    fn spare_bytes(&self) -> u64 {
        0
    }

    /// The file of a sample, relative to the dataset folder, if it comes from one.
    fn file(&self, _index: u32) -> Option<&Path> {
        None
    }

    /// Milliseconds the training thread has waited for data.
    fn waited_ms(&self) -> f64 {
        0.0
    }

    /// Frees cached samples.
    fn release(&self) {}
}

/// Held-out samples in a fixed order.
pub trait EvalLoader {
    type Sample;

    /// Number of samples.
    fn len(&self) -> usize;

    /// Starts over at the first sample.
    fn begin(&mut self);

    /// The next `count` samples, fewer at the end. An unreadable file is an error in its sample's
    /// place.
    fn fetch(&mut self, count: usize) -> Vec<LoadedSample<Self::Sample>>;

    /// Starts over at the first sample, to read the whole split unless it may take very long: first
    /// the samples that [`EvalLoader::begin`] selects, then the others. Returns their number.
    fn begin_whole(&mut self) -> usize {
        self.begin();
        self.len()
    }

    /// Adds the outputs of the run's baseline to the samples of a task that has one.
    fn set_baseline(&mut self, _scores: BaselineScores) {}

    /// Number of samples of the split, of which `len` are a fixed selection.
    fn split_len(&self) -> usize {
        self.len()
    }

    /// The file of a sample, relative to the dataset folder, if it comes from one.
    fn file(&self, _index: u32) -> Option<&Path> {
        None
    }

    /// The size of the largest of the remaining samples: pixels of an image, tokens of a text.
    /// `default` is the plan's.
    fn sample_cost(&self, default: u64) -> u64 {
        default
    }

    /// Changes how far ahead samples are loaded.
    fn set_prefetch(&mut self, _prefetch: Prefetch) {}

    /// Bytes that a shorter prefetch would free.
    fn spare_bytes(&self) -> u64 {
        0
    }

    /// Frees cached samples.
    fn release(&self) {}
}

/// The images of a dataset.
///
/// # Errors
/// The dataset contains texts.
pub(crate) fn expect_images(found: &DetectedDataset) -> Result<&ImageInspection> {
    match found {
        DetectedDataset::Images(found) => Ok(found),
        DetectedDataset::Texts(_) => Err(wrong_dataset("images", "texts")),
    }
}

/// The texts of a dataset, limited to the plan's number of samples.
///
/// # Errors
/// The dataset contains images.
pub(crate) fn expect_texts<'a>(
    plan: &Plan,
    found: &'a DetectedDataset,
) -> Result<Cow<'a, TextInspection>> {
    match found {
        DetectedDataset::Images(_) => Err(wrong_dataset("texts", "images")),
        DetectedDataset::Texts(found) => Ok(match plan.dev_samples {
            Some(limit) => Cow::Owned(found.clone().limited(plan.seed, limit as usize)),
            None => Cow::Borrowed(found),
        }),
    }
}

fn wrong_dataset(needed: &str, found: &str) -> TrainError {
    TrainError::NotTrainable {
        message: format!("this task needs a folder of {needed}, but this folder contains {found}"),
    }
}
