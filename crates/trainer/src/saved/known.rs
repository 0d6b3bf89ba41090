//! Which files a run has seen, so that what it was trained on is not taken for something new. Goes by paths: a copy under another
//! path is another file.

use crate::plan::Dropped;
use crate::task::part_name;
use dataset::{Split, SplitKind};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The files of a run's own samples, by absolute path.
#[derive(Debug, Default)]
pub(super) struct Known(BTreeSet<PathBuf>);

impl Known {
    /// Those of the list that a run keeps.
    pub fn of<'a>(list: impl Into<Dropped<'a>>) -> Self {
        Known(paths(list.into()).collect())
    }

    /// True where Ebb would have to split what was found only to measure it: it brings no parts of its own, and the run has
    /// seen none of its files.
    pub fn is_new<'a>(&self, found: impl Into<Dropped<'a>>) -> bool {
        let found = found.into();
        let split = match found {
            Dropped::Photographs(found) => found.split,
            Dropped::Texts(found) => found.split,
        };
        matches!(split, SplitKind::Seeded { .. })
            && !paths(found).any(|file| self.0.contains(&file))
    }

    /// The name of what is measured where `part` of what was found is: of something new that Ebb did not split all of it.
    pub fn measured<'a>(&self, part: Split, found: impl Into<Dropped<'a>>) -> &'static str {
        match part {
            Split::Train if self.is_new(found) => "whole",
            part => part_name(part),
        }
    }
}

/// The files of what was found, by absolute path.
fn paths(found: Dropped) -> impl Iterator<Item = PathBuf> {
    let (folder, files): (_, Vec<&Path>) = match found {
        Dropped::Photographs(f) => (&f.folder, f.files.iter().map(|file| &*file.path).collect()),
        Dropped::Texts(f) => (&f.folder, f.files.iter().map(|file| &*file.path).collect()),
    };
    files.into_iter().map(|file| folder.join(file))
}
