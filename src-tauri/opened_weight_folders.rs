//! The folders and GGUF files of pretrained weights that were chosen or dropped, by id.

use crate::lock_mutex::lock;
use crate::paths::gguf_path;
use crate::window_types::{CommandError, PlanSettings, WeightsView};
use dataset::is_model_file;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use trainer::ChatModel;

/// All such folders and files of this process, in the order in which they were opened.
#[derive(Default)]
pub struct OpenedWeightFolders {
    folders: Mutex<Vec<PathBuf>>,
}

impl OpenedWeightFolders {
    /// Remembers a folder or a GGUF file, whatever it contains, and returns its id and its name.
    pub fn open(&self, path: &Path) -> WeightsView {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let name = real.file_name().unwrap_or(real.as_os_str());
        self.open_named(path, &name.to_string_lossy())
    }

    /// Remembers a folder that has another name than the model in it, and returns its id.
    pub fn open_named(&self, path: &Path, name: &str) -> WeightsView {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let mut folders = lock(&self.folders);
        let known = folders.iter().position(|folder| *folder == path);
        let place = known.unwrap_or_else(|| {
            folders.push(path);
            folders.len() - 1
        });
        let id = format!("weights-{}", place + 1);
        WeightsView {
            id,
            name: name.to_owned(),
        }
    }

    /// The folder of weights; of a GGUF file, the folder that it is unpacked to.
    pub fn folder(&self, id: &str) -> Result<PathBuf, CommandError> {
        let place = id
            .strip_prefix("weights-")
            .and_then(|place| place.parse::<usize>().ok());
        let place = place.and_then(|place| place.checked_sub(1));
        let folder = place.and_then(|place| lock(&self.folders).get(place).cloned());
        let folder = folder.ok_or_else(|| CommandError::unknown("folder of weights"))?;
        if is_model_file(&folder)
            && let Some(unpacked) = ChatModel::unpack_gguf(&folder, &gguf_path())?
        {
            return Ok(unpacked);
        }
        Ok(folder)
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
        let named = weights.open_named(&a, "org/a");
        assert_eq!((&*named.id, &*named.name), ("weights-1", "org/a"));
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
