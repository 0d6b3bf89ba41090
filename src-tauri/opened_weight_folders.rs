//! The folders of pretrained weights that were chosen or dropped, by id.

use crate::lock_mutex::lock;
use crate::window_types::{CommandError, PlanSettings, WeightsView};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// All such folders of this process, in the order in which they were opened.
#[derive(Default)]
pub struct OpenedWeightFolders {
    folders: Mutex<Vec<PathBuf>>,
}

impl OpenedWeightFolders {
    /// Remembers a folder, whatever it contains, and returns its id.
    pub fn open(&self, path: &Path) -> WeightsView {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let name = path.file_name().unwrap_or(path.as_os_str());
        let name = name.to_string_lossy().into_owned();
        let mut folders = lock(&self.folders);
        let known = folders.iter().position(|folder| *folder == path);
        let place = known.unwrap_or_else(|| {
            folders.push(path);
            folders.len() - 1
        });
        let id = format!("weights-{}", place + 1);
        WeightsView { id, name }
    }

    pub fn folder(&self, id: &str) -> Result<PathBuf, CommandError> {
        let place = id
            .strip_prefix("weights-")
            .and_then(|place| place.parse::<usize>().ok());
        let place = place.and_then(|place| place.checked_sub(1));
        let folder = place.and_then(|place| lock(&self.folders).get(place).cloned());
        folder.ok_or_else(|| CommandError::unknown("folder of weights"))
    }

    /// The pretrained weights that these settings start from.
    pub fn of(&self, settings: &PlanSettings) -> Result<Option<PathBuf>, CommandError> {
        settings
            .from
            .as_deref()
            .map(|id| self.folder(id))
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_ids_have_a_folder() {
        let weights = OpenedWeightFolders::default();
        let place = tempfile::tempdir().expect("a temporary folder");
        let (a, b) = (place.path().join("a"), place.path().join("b"));
        std::fs::create_dir(&a).expect("it can be made");
        let first = weights.open(&a);
        assert_eq!((&*first.id, &*first.name), ("weights-1", "a"));
        assert_eq!(weights.open(&b).id, "weights-2");
        assert_eq!(weights.open(&a).id, "weights-1", "a folder has one id");
        let real = a.canonicalize().expect("it is there");
        assert_eq!(weights.folder("weights-1").ok(), Some(real));
        for id in [
            "weights-0",
            "weights-3",
            "weights-",
            "1",
            "/etc",
            "../a",
            "",
        ] {
            let code = weights.folder(id).map_err(|error| error.code);
            assert_eq!(code, Err("unknown_id".to_owned()), "{id}");
        }
    }
}
