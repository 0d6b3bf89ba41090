//! Weights that others trained: a Hugging Face folder (`config.json`, `model.safetensors` whole or in parts, and where there
//! are any `preprocessor_config.json` and `tokenizer.json`) becomes one of Ebb's networks. Each architecture is a table from
//! published names to Ebb's; a folder whose tensors are not those that its config describes is refused with all of their names.
//!
//! Refuses to know the network (nothing is fetched), pickled files (reading one runs a program), and training.
//!
//! ```no_run
//! use candle_core::{DType, Device};
//! use trainer::published::{Classes, Make, PublishedFolder, Tuning};
//!
//! # fn main() -> trainer::Result<()> {
//! let folder = PublishedFolder::open("models/vit-base".as_ref())?;
//! println!("{} with {} numbers", folder.kind(), folder.numbers());
//! let make = Make { classes: Classes::New(12), tuning: Tuning::default(), seed: 0, dtype: DType::F32, device: &Device::Cpu };
//! let vit = folder.image_classifier(Some(96), &make)?;
//! assert!(vit.parameters.iter().any(|p| p.name == "head.weight"), "a new head for 12 classes");
//! # Ok(())
//! # }
//! ```

mod settings;
mod tensors;
mod names;
mod tuning;
mod fill;
mod plausible;
mod making;
mod positions;
mod bert;
mod vit;
mod resnet;
mod gpt2;
mod preprocessor;
mod whole;
mod export;
mod own_texts;
mod again;
mod onnx;

pub use bert::BertFolder;
pub use export::Trained;
pub use gpt2::Gpt2Folder;
pub use making::{Classes, Loaded, Make};
pub use preprocessor::Preprocessor;
pub use resnet::ResNetFolder;
pub use tuning::{Trains, Tuning};
pub use vit::{VitFamily, VitFolder};
pub use whole::Exported;

use crate::error::{Result, TrainError};
use crate::models::{Gelu, Norms};
use settings::{Settings, refusal};
use std::path::{Path, PathBuf};
use tensors::Tensors;
use tuning::{Depth, LastNorm};

const CONFIG: &str = "config.json";
const PREPROCESSOR: &str = "preprocessor_config.json";
const TOKENIZER: &str = "tokenizer.json";
/// How a folder of sentence-transformers says what stands for a text.
const POOLING: &str = "1_Pooling/config.json";

/// What a folder holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Architecture {
    /// A BERT-type encoder of texts.
    Bert(BertFolder),
    /// A vision transformer.
    Vit(VitFolder),
    /// A residual network with frozen BatchNorm.
    ResNet(ResNetFolder),
    /// A GPT-2.
    Gpt2(Gpt2Folder),
}

/// A folder of published weights: described and checked as far as its headers go. No weight has been read.
#[derive(Debug, Clone)]
pub struct PublishedFolder {
    architecture: Architecture,
    kind: String,
    config: Settings,
    preprocessor: Option<Preprocessor>,
    tokenizer: Option<PathBuf>,
    tensors: Tensors,
}

impl PublishedFolder {
    /// Reads what a folder says of itself.
    ///
    /// # Errors
    /// [`TrainError::UnsupportedWeights`] where it is not such a folder, is damaged, or holds what Ebb's networks cannot express;
    /// [`TrainError::Pickled`] where its weights are only there in pickled files.
    pub fn open(folder: &Path) -> Result<Self> {
        if tensors::is_pickled(folder) && folder.is_file() {
            return Err(TrainError::Pickled {
                folder: folder.parent().unwrap_or(Path::new(".")).to_owned(),
                files: folder.file_name().unwrap_or_default().display().to_string(),
            });
        }
        let Some(config) = Settings::read(folder, CONFIG)? else {
            let reason = format!(
                "there is no {CONFIG} in it; give a folder as the Hugging Face hub has them"
            );
            return Err(refusal(folder, reason));
        };
        let tensors = Tensors::open(folder)?;
        let kind = config.word("model_type", "").to_owned();
        let vit = |family| VitFolder::read(family, &config, &tensors).map(Architecture::Vit);
        let architecture = match &*kind {
            "bert" => {
                let pooling = Settings::read(folder, POOLING)?;
                Architecture::Bert(BertFolder::read(&config, pooling.as_ref(), &tensors)?)
            }
            "vit" => vit(VitFamily::Vit)?,
            "deit" => vit(VitFamily::Deit)?,
            "dinov2" => vit(VitFamily::Dinov2)?,
            "resnet" => Architecture::ResNet(ResNetFolder::read(&config)?),
            "gpt2" => Architecture::Gpt2(Gpt2Folder::read(&config)?),
            other => {
                return Err(config.refuse(format!(
                    "model_type is {other:?}, and Ebb knows bert, vit, deit, dinov2, resnet and gpt2"
                )));
            }
        };
        let preprocessor = Settings::read(folder, PREPROCESSOR)?;
        let tokenizer = Some(folder.join(TOKENIZER)).filter(|file| file.is_file());
        let folder = PublishedFolder {
            architecture,
            kind,
            preprocessor: preprocessor.as_ref().map(Preprocessor::read).transpose()?,
            tokenizer,
            tensors,
            config,
        };
        folder.expect_plausible()?;
        Ok(folder)
    }

    /// Names of the files that are read of it, relative to it.
    pub fn file_names(&self) -> Vec<String> {
        let small = [CONFIG, PREPROCESSOR, TOKENIZER, POOLING];
        let folder = self.tensors.folder();
        let there = small.into_iter().filter(|name| folder.join(name).is_file());
        let tensors = self.tensors.files().into_iter();
        there.map(str::to_owned).chain(tensors).collect()
    }

    /// What it holds.
    pub fn architecture(&self) -> &Architecture {
        &self.architecture
    }

    /// Its `model_type`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Numbers of all its tensors.
    pub fn numbers(&self) -> u64 {
        self.tensors.count()
    }

    /// What is done to a photograph first, where the folder says so.
    pub fn preprocessor(&self) -> Option<&Preprocessor> {
        self.preprocessor.as_ref()
    }

    /// Its vocabulary, where there is one.
    pub fn tokenizer(&self) -> Option<&Path> {
        self.tokenizer.as_deref()
    }

    /// The names of its classes in label order, where it was published with a head.
    pub fn classes(&self) -> Option<Vec<String>> {
        let labels = self.labels()?;
        let names = self.config.classes().filter(|names| names.len() == labels);
        Some(names.unwrap_or_else(|| (0..labels).map(|label| format!("LABEL_{label}")).collect()))
    }

    /// Blocks of its network.
    pub fn blocks(&self) -> usize {
        self.depth().blocks
    }

    fn depth(&self) -> Depth {
        let (blocks, last_norm, looks_up) = match &self.architecture {
            Architecture::Bert(bert) => match bert.style.block.norms {
                Norms::After => (bert.shape.depth, LastNorm::InBlock, true),
                Norms::Before => (bert.shape.depth, LastNorm::Norm, true),
            },
            Architecture::Vit(vit) => (vit.shape.depth, LastNorm::Norm, false),
            Architecture::ResNet(resnet) => (resnet.shape.blocks.len(), LastNorm::Norm, false),
            Architecture::Gpt2(gpt) => (gpt.shape.depth, LastNorm::Norm, false),
        };
        Depth {
            blocks,
            last_norm,
            looks_up,
        }
    }

    /// Rows of the published head.
    fn labels(&self) -> Option<usize> {
        let heads = match &self.architecture {
            Architecture::Bert(bert) => bert.table().head,
            Architecture::Vit(vit) => vit.table().head,
            Architecture::ResNet(resnet) => resnet.table().head,
            Architecture::Gpt2(_) => Vec::new(),
        };
        // Any of its tensors: of a head in parts the missing ones are named later.
        let shape = heads
            .iter()
            .find_map(|row| self.tensors.shape(&row.published))?;
        shape.first().copied().filter(|rows| *rows > 0)
    }

    fn refuse(&self, reason: String) -> TrainError {
        refusal(self.tensors.folder(), reason)
    }
}

/// The heads of a width, which they have to divide.
fn heads(config: &Settings, key: &str, width: usize) -> Result<usize> {
    let heads = config.count_or(key, 12)?;
    match width.is_multiple_of(heads) {
        true => Ok(heads),
        false => Err(config.refuse(format!("{heads} heads do not divide a width of {width}"))),
    }
}

/// The published names of an activation.
fn gelu(config: &Settings, key: &str, default: &str) -> Result<Gelu> {
    match config.word(key, default) {
        "gelu" | "gelu_python" => Ok(Gelu::Erf),
        "gelu_new" | "gelu_fast" | "gelu_pytorch_tanh" => Ok(Gelu::Tanh),
        other => Err(config.refuse(format!(
            "{key} is {other:?}, and Ebb's transformers know gelu, gelu_new, gelu_fast and gelu_pytorch_tanh"
        ))),
    }
}
