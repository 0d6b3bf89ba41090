//! Which files a run has seen, so that what it was trained on is not taken for something new. Goes by paths: a copy under another
//! path is another file.

use crate::task::part_name;
use dataset::{Found, Inspection, Part, SplitKind, TextInspection};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The files of a run's own samples, by absolute path.
#[derive(Debug, Default)]
pub(super) struct Known(BTreeSet<PathBuf>);

/// What of a folder tells whether it is new.
pub(super) struct Look<'a> {
    folder: &'a Path,
    files: Vec<&'a Path>,
    split: SplitKind,
}

impl<'a> From<&'a Inspection> for Look<'a> {
    fn from(found: &'a Inspection) -> Self {
        Look {
            folder: &found.folder,
            files: found.files.iter().map(|file| &*file.path).collect(),
            split: found.split,
        }
    }
}

impl<'a> From<&'a TextInspection> for Look<'a> {
    fn from(found: &'a TextInspection) -> Self {
        Look {
            folder: &found.folder,
            files: found.files.iter().map(|file| &*file.path).collect(),
            split: found.split,
        }
    }
}

impl<'a> From<&'a Found> for Look<'a> {
    fn from(found: &'a Found) -> Self {
        match found {
            Found::Photographs(found) => found.into(),
            Found::Texts(found) => found.into(),
        }
    }
}

impl Look<'_> {
    fn paths(&self) -> impl Iterator<Item = PathBuf> {
        self.files.iter().map(|file| self.folder.join(file))
    }
}

impl Known {
    /// Those of the list that a run keeps.
    pub fn of(list: &Found) -> Self {
        Known(Look::from(list).paths().collect())
    }

    /// True where Ebb would have to split what was found only to measure it: it brings no parts of its own, and the run has
    /// seen none of its files.
    pub fn is_new<'a>(&self, found: impl Into<Look<'a>>) -> bool {
        let found = found.into();
        matches!(found.split, SplitKind::Seeded { .. })
            && !found.paths().any(|file| self.0.contains(&file))
    }

    /// The name of what is measured where `part` of what was found is: of something new that Ebb did not split all of it.
    pub fn measured<'a>(&self, part: Part, found: impl Into<Look<'a>>) -> &'static str {
        match part {
            Part::Train if self.is_new(found) => "whole",
            part => part_name(part),
        }
    }
}
