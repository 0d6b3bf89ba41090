//! A folder of pretrained weights. Only its headers are read and checked.

use super::architecture::HubArchitecture;
use super::bert::POOLING;
use super::json_config::JsonConfig;
use super::preprocessor::Preprocessor;
use super::safetensors_reader::{TensorIndex, is_pickled};
use crate::error::{ModelError, Result};
use std::path::{Path, PathBuf};

pub(crate) const CONFIG: &str = "config.json";
/// In a folder of adapters for PEFT.
const ADAPTER_CONFIG: &str = "adapter_config.json";
pub(crate) const PREPROCESSOR: &str = "preprocessor_config.json";
pub(crate) const TOKENIZER: &str = "tokenizer.json";
/// The files that say how conversations are written; see `dataset::TEMPLATE_FILES`.
pub(crate) const CHAT_FILES: [&str; 3] = [
    "chat_template.jinja",
    "tokenizer_config.json",
    "special_tokens_map.json",
];

/// A folder of pretrained weights. Its weights have not been read yet.
#[derive(Debug, Clone)]
pub struct HubFolder {
    architecture: HubArchitecture,
    model_type: String,
    config: JsonConfig,
    preprocessor: Option<Preprocessor>,
    tokenizer: Option<PathBuf>,
    tensors: TensorIndex,
}

impl HubFolder {
    /// Reads the JSON files and tensor headers of a folder. `architecture` tells which network its
    /// `config.json` describes.
    ///
    /// # Errors
    /// [`ModelError::HubFolder`] if it is not such a folder, is damaged, or describes a network
    /// that Ebb cannot express; [`ModelError::Pickled`] if its weights are only in pickled files.
    pub(crate) fn read(
        folder: &Path,
        architecture: impl Fn(&JsonConfig, &TensorIndex) -> Result<HubArchitecture>,
    ) -> Result<Self> {
        if is_pickled(folder) && folder.is_file() {
            return Err(ModelError::Pickled {
                folder: folder.parent().unwrap_or(Path::new(".")).to_owned(),
                files: folder.file_name().unwrap_or_default().display().to_string(),
            });
        }
        let Some(config) = JsonConfig::read(folder, CONFIG)? else {
            let next = if folder.join(ADAPTER_CONFIG).is_file() {
                "it holds adapters for another model; merge them into that model first, and choose the merged folder"
            } else {
                "choose a folder in the format of the Hugging Face hub"
            };
            let reason = format!("the folder has no {CONFIG}; {next}");
            return Err(ModelError::hub_folder(folder, reason));
        };
        let tensors = TensorIndex::open(folder)?;
        let architecture = architecture(&config, &tensors)?;
        let preprocessor = JsonConfig::read(folder, PREPROCESSOR)?;
        let tokenizer = Some(folder.join(TOKENIZER)).filter(|file| file.is_file());
        let folder = HubFolder {
            architecture,
            model_type: config.text("model_type", "").to_owned(),
            preprocessor: preprocessor.as_ref().map(Preprocessor::read).transpose()?,
            tokenizer,
            tensors,
            config,
        };
        folder.check_size()?;
        Ok(folder)
    }

    /// Refuses a config that describes a network far larger than the weights in the folder, before
    /// memory for it is allocated.
    fn check_size(&self) -> Result<()> {
        let described = self.architecture.network().estimated_parameters();
        let found = self.count_values();
        if described > 16.0 * found as f64 + 1e8 {
            return Err(self.config.refuse(format!(
                "the config describes a network of about {described:.0} parameters, but the folder has {found} parameters; download the folder again"
            )));
        }
        Ok(())
    }

    /// Names of the files that Ebb reads, relative to the folder.
    pub(crate) fn file_names(&self) -> Vec<String> {
        let small = [CONFIG, PREPROCESSOR, TOKENIZER, POOLING];
        let found = small
            .into_iter()
            .chain(CHAT_FILES)
            .filter(|name| self.path().join(name).is_file());
        let tensors = self.tensors.file_names().into_iter();
        found.map(str::to_owned).chain(tensors).collect()
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.tensors.folder()
    }

    /// Its network.
    pub(crate) fn architecture(&self) -> &HubArchitecture {
        &self.architecture
    }

    /// Its `model_type`.
    pub fn model_type(&self) -> &str {
        &self.model_type
    }

    /// Number of values in all its tensors.
    pub fn count_values(&self) -> u64 {
        self.tensors.count_values()
    }

    /// How its images are resized and normalized, if it has such a file.
    pub fn preprocessor(&self) -> Option<&Preprocessor> {
        self.preprocessor.as_ref()
    }

    /// Its `tokenizer.json`, if it has one.
    pub fn tokenizer(&self) -> Option<&Path> {
        self.tokenizer.as_deref()
    }

    /// Names of its classes in label order, if it was published with a head.
    pub fn classes(&self) -> Option<Vec<String>> {
        let labels = self.head_outputs()?;
        let names = self.config.classes().filter(|names| names.len() == labels);
        Some(names.unwrap_or_else(|| (0..labels).map(|label| format!("LABEL_{label}")).collect()))
    }

    /// Number of blocks of its network.
    pub fn blocks(&self) -> usize {
        self.architecture.network().blocks().count
    }

    /// Number of outputs of the published head; `None` if there is none, or for language models.
    pub(super) fn head_outputs(&self) -> Option<usize> {
        if !self.architecture.network().has_new_head() {
            return None;
        }
        // Any tensor of the head will do: missing ones are reported when the weights are read.
        let shape = self
            .architecture
            .network()
            .table()
            .head
            .iter()
            .find_map(|row| self.tensors.shape(&row.theirs))?;
        shape.first().copied().filter(|rows| *rows > 0)
    }

    pub(crate) fn config(&self) -> &JsonConfig {
        &self.config
    }

    pub(super) fn tensors(&self) -> &TensorIndex {
        &self.tensors
    }

    pub(crate) fn refuse(&self, reason: impl Into<String>) -> ModelError {
        ModelError::hub_folder(self.path(), reason)
    }
}
