//! The first samples of a run, as it would train on them. Nothing is trained.

use crate::data::{ImageLoader, PrefetchOptions, TrainLoader, expect_images};
use crate::error::Result;
use crate::plan::Plan;
use dataset::{DetectedDataset, ImageSample, SampleError};

impl Plan {
    /// Draws the first `count` images of a run: those of its first steps, augmented and mixed. An
    /// unreadable file is an error in its sample's place.
    ///
    /// # Errors
    /// The dataset contains texts.
    pub fn draw_images(
        &self,
        found: &DetectedDataset,
        count: usize,
    ) -> Result<Vec<std::result::Result<ImageSample, SampleError>>> {
        let found = expect_images(found)?;
        // Decoded on this thread, and only as many as are wanted.
        let options = PrefetchOptions::new(self, 0, 0);
        let mut loader = ImageLoader::start(self, found, options, 0);
        let mut drawn = Vec::with_capacity(count);
        for step in 0..self.steps {
            let samples = loader.begin(step).min(count - drawn.len());
            drawn.extend(loader.fetch(samples));
            if drawn.len() >= count {
                break;
            }
        }
        Ok(drawn)
    }
}
