//! The contents of a folder or file, by the kind of its samples.

use crate::image_inspection::{ImageFile, ImageInspection};
use crate::task::Task;
use crate::text::{TextInspection, TextSample};

/// A detected dataset, by the kind of its samples.
#[derive(Debug, Clone, PartialEq)]
pub enum DetectedDataset {
    /// Images, or a folder without anything that can be trained on.
    Images(ImageInspection),
    /// Texts with labels, or documents.
    Texts(TextInspection),
}

impl From<ImageInspection> for DetectedDataset {
    fn from(inspection: ImageInspection) -> Self {
        DetectedDataset::Images(inspection)
    }
}

impl From<TextInspection> for DetectedDataset {
    fn from(inspection: TextInspection) -> Self {
        DetectedDataset::Texts(inspection)
    }
}

impl DetectedDataset {
    /// The task that the dataset is for.
    pub fn task(&self) -> Task {
        match self {
            DetectedDataset::Images(_) => Task::ImageClassification,
            DetectedDataset::Texts(found) => found.task,
        }
    }

    /// Number of images or texts that can be used, of all splits.
    pub fn sample_count(&self) -> u64 {
        match self {
            DetectedDataset::Images(found) => found.files.len() as u64,
            DetectedDataset::Texts(found) => found.samples.len() as u64,
        }
    }

    /// Whether another inspection of the folder, perhaps with another seed, has the same samples in
    /// the same order.
    pub fn has_same_samples(&self, other: &DetectedDataset) -> bool {
        match (self, other) {
            (DetectedDataset::Images(a), DetectedDataset::Images(b)) => {
                let files = |found: &ImageInspection| found.files.len();
                let mut pairs = a.files.iter().zip(&b.files);
                let same = |(a, b): (&ImageFile, &ImageFile)| a.path == b.path;
                a.folder == b.folder && files(a) == files(b) && pairs.all(same)
            }
            (DetectedDataset::Texts(a), DetectedDataset::Texts(b)) => {
                let key = |s: &TextSample| (s.file, s.row, s.start, s.hash);
                let samples =
                    |found: &TextInspection| -> Vec<_> { found.samples.iter().map(key).collect() };
                a.folder == b.folder && a.files == b.files && samples(a) == samples(b)
            }
            _ => false,
        }
    }
}
