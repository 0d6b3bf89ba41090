//! The files of a run's dataset, so that training samples are not taken for new ones. Files are
//! compared by path: a copy is another file.

use crate::plan::DatasetRef;
use crate::task::split_name;
use dataset::{Split, SplitKind};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The files of a run's own samples, by absolute path.
#[derive(Debug, Default)]
pub(super) struct SeenFiles(BTreeSet<PathBuf>);

impl SeenFiles {
    pub fn from_dataset<'a>(found: impl Into<DatasetRef<'a>>) -> Self {
        SeenFiles(paths(found.into()).collect())
    }

    /// True if the dataset has no splits of its own and none of its files are the run's.
    pub fn is_new<'a>(&self, found: impl Into<DatasetRef<'a>>) -> bool {
        let found = found.into();
        let split = match found {
            DatasetRef::Images(found) => found.split,
            DatasetRef::Texts(found) => found.split,
        };
        matches!(split, SplitKind::Seeded { .. })
            && !paths(found).any(|file| self.0.contains(&file))
    }

    /// The name of the evaluated split in a report: `whole` for a new dataset, which Ebb does not
    /// split.
    pub fn part_label<'a>(&self, part: Split, found: impl Into<DatasetRef<'a>>) -> &'static str {
        match part {
            Split::Train if self.is_new(found) => "whole",
            part => split_name(part),
        }
    }
}

/// The files of a dataset, by absolute path.
fn paths(found: DatasetRef) -> impl Iterator<Item = PathBuf> {
    let (folder, files): (_, Vec<&Path>) = match found {
        DatasetRef::Images(f) => (&f.folder, f.files.iter().map(|file| &*file.path).collect()),
        DatasetRef::Texts(f) => (&f.folder, f.files.iter().map(|file| &*file.path).collect()),
    };
    files.into_iter().map(|file| folder.join(file))
}
