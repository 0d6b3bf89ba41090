//! The files of a repository at a hub, and which of them Ebb needs.

use super::fetch::Hub;
use super::verify_checksum::RemoteFile;
use super::{HubError, disk, hub_responses};
use std::path::Path;

pub const CONFIG: &str = "config.json";
pub const TOKENIZER: &str = "tokenizer.json";
pub const MODEL: &str = "model.safetensors";
pub const INDEX: &str = "model.safetensors.index.json";
/// Most bytes of the index. Those of the largest models have a few million.
pub const MAX_INDEX_BYTES: u64 = 64 << 20;
/// Downloaded if they exist.
const SMALL: [&str; 7] = [
    "preprocessor_config.json",
    TOKENIZER,
    // How conversations are written.
    "chat_template.jinja",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "1_Pooling/config.json",
    INDEX,
];
/// Extensions of pickled weights. Reading such a file runs the program in it.
const PICKLED: [&str; 5] = [".bin", ".pt", ".pth", ".pkl", ".ckpt"];

/// A repository at one commit.
pub struct Listing {
    pub commit: String,
    /// The licence that the repository names.
    pub licence: Option<String>,
    files: Vec<RemoteFile>,
}

impl Listing {
    /// Asks a hub for the commit of a revision of a repository, and its files.
    ///
    /// # Errors
    /// The hub does not answer, has no such model, or its response is invalid.
    pub fn ask(hub: &Hub, revision: &str) -> Result<Self, HubError> {
        let read = |about: &str| hub.read(about);
        let wrong = |reason: String| hub.no_hub(reason);
        let about = read(&format!("revision/{revision}"))?;
        let commit = hub_responses::commit(&about).map_err(wrong)?;
        let tree = read(&format!("tree/{commit}?recursive=true"))?;
        let files = hub_responses::files(&tree).map_err(wrong)?;
        Ok(Listing {
            commit,
            licence: hub_responses::licence(&about),
            files,
        })
    }

    /// The files that are needed, except parts of the weights that an index names.
    ///
    /// # Errors
    /// The repository has no config.json, or only pickled weights.
    pub fn wanted(&self, name: &str) -> Result<Vec<RemoteFile>, HubError> {
        let unfit = |reason: String| HubError::Unfit {
            name: name.to_owned(),
            reason,
        };
        let none = "the repository has no config.json; choose a model that transformers can open";
        let config = self.file(CONFIG).ok_or_else(|| unfit(none.to_owned()))?;
        let model = self.file(MODEL);
        if model.is_none() && self.file(INDEX).is_none() {
            let pickled = self.files.iter().map(|file| file.path.as_str());
            let pickled = pickled.filter(|path| PICKLED.iter().any(|end| path.ends_with(end)));
            return Err(unfit(match pickled.collect::<Vec<_>>().as_slice() {
                [] => format!("the repository has no file {MODEL}; choose a model with this file"),
                some => format!(
                    "the repository has only pickled weights ({}), and reading such weights could run any program; choose a model with {MODEL}",
                    some.join(", ")
                ),
            }));
        }
        let whole = model.is_some();
        let small = SMALL.into_iter().filter(|path| *path != INDEX || !whole);
        let small = small.filter_map(|path| self.file(path));
        Ok([config].into_iter().chain(small).chain(model).collect())
    }

    /// The parts of the weights that the index in `folder` names; empty if the weights are in one
    /// file.
    ///
    /// # Errors
    /// The index names a file that the repository does not have.
    pub fn parts(&self, name: &str, folder: &Path) -> Result<Vec<RemoteFile>, HubError> {
        if self.file(MODEL).is_some() {
            return Ok(Vec::new());
        }
        let path = folder.join(INDEX);
        let text = ::disk::read_limited(&path, MAX_INDEX_BYTES).map_err(disk(&path))?;
        self.parts_of_index(name, &text)
    }

    /// The parts of the weights that this index names.
    fn parts_of_index(&self, name: &str, text: &[u8]) -> Result<Vec<RemoteFile>, HubError> {
        let unfit = |reason: String| HubError::Unfit {
            name: name.to_owned(),
            reason,
        };
        let names = hub_responses::part_names(text)
            .map_err(|error| unfit(format!("the file {INDEX} is damaged ({error})")))?;
        let part = |part: &str| {
            if part.contains(['/', '\\']) {
                None
            } else {
                self.file(part)
            }
        };
        let each = names.into_iter().map(|file| {
            part(&file).ok_or_else(|| {
                unfit(format!(
                    "the file {INDEX} names {file}, but the repository has no such file; choose another model"
                ))
            })
        });
        each.collect()
    }

    fn file(&self, path: &str) -> Option<RemoteFile> {
        self.files.iter().find(|file| file.path == path).cloned()
    }
}
