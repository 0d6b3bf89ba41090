//! A run that has learnt photographs: evaluated on a folder of them, or asked what one shows.

use super::{Evaluated, PIECE, SavedRun, part};
use crate::error::Result;
use crate::feed::{Ahead, HeldOutFeed};
use crate::task::{HeldOut, Prediction};
use dataset::{Augment, ImageDataset, ImageFile, ImageInspection, ImageOptions, Split, Task};
use std::path::{Path, PathBuf};
use tape::Cancel;

impl SavedRun {
    /// Evaluates on photographs.
    pub(super) fn of_photographs(&self, found: &ImageInspection) -> Result<Evaluated> {
        let part = part(
            |part| found.count(part),
            found.refusal.as_ref(),
            "photograph",
        )?;
        let measured = self.known.measured(part, found);
        let labels = self.labels(&found.name, &found.classes)?;
        let mut found = found.clone();
        found
            .files
            .iter_mut()
            .for_each(|file| file.label = labels.get(file.label as usize).copied().unwrap_or(0));
        self.measured_as_learnt(&mut found);
        let ahead = Ahead {
            depth_samples: 4 * PIECE,
            cache_bytes: 0,
            ..Ahead::of(&self.plan, self.plan.threads as usize, 0)
        };
        let feed = HeldOutFeed::open(&self.plan, &found, part, ahead);
        let mut feed = HeldOut::Photographs(feed);
        feed.begin();
        let sums = self.sums(|| feed.fetch(PIECE))?;
        Ok(self.evaluated(sums, 0, measured))
    }

    /// Numbers go by the names of their columns, and are standardised as they were in training; one that the folder does not tell
    /// is missing.
    fn measured_as_learnt(&self, found: &mut ImageInspection) {
        let place = |name: &String| found.targets.iter().position(|column| column.name == *name);
        let columns = self.columns().iter();
        let places: Vec<Option<usize>> = columns.map(|column| place(&column.name)).collect();
        for file in &mut found.files {
            let number = |place: &Option<usize>| file.targets.get((*place)?).copied().flatten();
            file.targets = places.iter().map(number).collect();
        }
        found.targets = self.columns().to_vec();
    }

    /// What each photograph shows, or why it cannot be read.
    ///
    /// # Errors
    /// The run has learnt something else than photographs.
    pub fn predict(
        &self,
        files: &[PathBuf],
    ) -> Result<Vec<std::result::Result<Prediction, String>>> {
        if self.task() != Task::ImageClassification {
            return Err(self.wrong_task("photographs"));
        }
        files.iter().map(|file| self.predict_one(file)).collect()
    }

    fn predict_one(&self, file: &Path) -> Result<std::result::Result<Prediction, String>> {
        let dataset = ImageDataset::open(&alone(file), Split::Test, self.options(), None, 0);
        let sample = match dataset.sample(0, 0) {
            Ok(sample) => sample,
            Err(error) => return Ok(Err(error.reason)),
        };
        let mut predictions = self
            .learner
            .evaluation_task(Cancel::default())
            .predict(&[sample])?;
        Ok(predictions
            .pop()
            .ok_or_else(|| "nothing was predicted".to_owned()))
    }

    fn options(&self) -> ImageOptions {
        ImageOptions {
            size: self.plan.image_size,
            augment: Augment::None,
            mix: dataset::Mix::None,
            seed: self.plan.seed,
        }
    }
}

/// One file as a folder of its own.
fn alone(file: &Path) -> ImageInspection {
    let image = |path: PathBuf| ImageFile {
        path,
        label: 0,
        split: Split::Test,
        width: 0,
        height: 0,
        bytes: 0,
        targets: Vec::new(),
    };
    let name = file.file_name().map(PathBuf::from).unwrap_or_default();
    let folder = file
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    ImageInspection {
        folder: folder.to_owned(),
        name: name.display().to_string(),
        classes: Vec::new(),
        targets: Vec::new(),
        table: None,
        groups: None,
        files: vec![image(name)],
        skipped: Vec::new(),
        ignored: Default::default(),
        typical_size: None,
        bytes: 0,
        refusal: None,
        notes: Vec::new(),
        split: dataset::SplitKind::Given,
        split_folders: Vec::new(),
    }
}
