//! Weights that others trained: a Hugging Face folder (`config.json`, `model.safetensors` whole or in parts, and where there
//! are any `preprocessor_config.json` and `tokenizer.json`) becomes one of Ebb's networks. Each architecture is a table from
//! published names to Ebb's; a folder whose tensors are not those that its config describes is refused with all of their names.
//!
//! Refuses to know the network (nothing is fetched), pickled files (reading one runs a program), and training.
//!
//! ```no_run
//! use candle_core::{DType, Device};
//! use trainer::published::{Classes, Make, PublishedFolder};
//!
//! # fn main() -> trainer::Result<()> {
//! let folder = PublishedFolder::open("models/vit-base".as_ref())?;
//! println!("{} with {} numbers", folder.kind(), folder.numbers());
//! let make = Make { classes: Classes::New(12), seed: 0, dtype: DType::F32, device: &Device::Cpu };
//! let vit = folder.image_classifier(Some(96), &make)?;
//! assert!(vit.parameters.iter().any(|p| p.name == "head.weight"), "a new head for 12 classes");
//! # Ok(())
//! # }
//! ```

mod settings;
mod tensors;
mod names;
mod fill;
mod positions;
mod bert;
mod vit;
mod resnet;
mod gpt2;
mod preprocessor;
mod export;

pub use bert::BertFolder;
pub use export::{Exported, Trained};
pub use gpt2::Gpt2Folder;
pub use preprocessor::Preprocessor;
pub use resnet::ResNetFolder;
pub use vit::{VitFamily, VitFolder};

use crate::error::{Result, TrainError};
use crate::models::{
    Builder, Gelu, Gpt, Network, ResNet, SequenceShape, TextEncoder, Vit, VitReads, VitShape,
};
use candle_core::{DType, Device};
use fill::{Head, fill};
use names::Table;
use settings::{Settings, refusal};
use std::path::{Path, PathBuf};
use tape::Parameters;
use tensors::Tensors;

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

/// Whose classes a network tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Classes {
    /// The published ones, with the published head.
    Published,
    /// So many others, with a head that begins as Ebb's heads do.
    New(usize),
}

/// How a network is made.
#[derive(Debug, Clone, Copy)]
pub struct Make<'a> {
    /// Its classes. A language model has none.
    pub classes: Classes,
    /// What a new head's first values follow.
    pub seed: u64,
    /// Element type of the parameters: f32, or f64 for checks.
    pub dtype: DType,
    /// Where they lie.
    pub device: &'a Device,
}

/// A network with its published weights.
#[derive(Debug, Clone)]
pub struct Loaded<N> {
    /// The network.
    pub network: N,
    /// Its parameters.
    pub parameters: Parameters,
}

impl PublishedFolder {
    /// Reads what a folder says of itself.
    ///
    /// # Errors
    /// [`TrainError::Published`] where it is not such a folder, is damaged, or holds what Ebb's networks cannot express;
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

    /// A classifier of images. `side` is that of the images in pixels, where it is not to be the published one; a vision
    /// transformer's position embeddings are resized to it.
    ///
    /// # Errors
    /// [`TrainError::WeightsMisfit`] with every tensor that is missing, misshaped or not known; [`TrainError::Published`]
    /// where the folder holds no such network, or has no head and no other classes are asked for.
    pub fn image_classifier(&self, side: Option<usize>, make: &Make) -> Result<Loaded<Network>> {
        let classes = self.class_count(make)?;
        match &self.architecture {
            Architecture::Vit(vit) => {
                let shape = VitShape {
                    image: side.unwrap_or(vit.shape.image),
                    ..vit.shape
                };
                if shape.image == 0 || !shape.image.is_multiple_of(shape.patch) {
                    return Err(self.refuse(format!(
                        "its patches have {} px and do not divide images of {} px; choose a multiple",
                        shape.patch, shape.image
                    )));
                }
                let mut vit = vit.clone();
                if make.classes != Classes::Published
                    && vit.style.reads == VitReads::ClassAndTeacher
                {
                    vit.style.reads = VitReads::Class;
                }
                self.load(make, &vit.table(), |b| {
                    Ok(Network::Vit(Vit::styled(b, shape, vit.style, classes)?))
                })
            }
            Architecture::ResNet(resnet) => self.load(make, &resnet.table(), |b| {
                let network = ResNet::styled(b, &resnet.shape, resnet.style, classes)?;
                Ok(Network::ResNet(network))
            }),
            _ => Err(self.other_than("images")),
        }
    }

    /// A classifier of texts, which also tells what stands for a text ([`TextEncoder::embed`]).
    ///
    /// # Errors
    /// As [`PublishedFolder::image_classifier`].
    pub fn text_classifier(&self, make: &Make) -> Result<Loaded<TextEncoder>> {
        let classes = self.class_count(make)?;
        match &self.architecture {
            Architecture::Bert(bert) => self.load(make, &bert.table(), |b| {
                TextEncoder::styled(b, bert.shape, bert.style, classes)
            }),
            _ => Err(self.other_than("texts' classes")),
        }
    }

    /// A language model.
    ///
    /// # Errors
    /// As [`PublishedFolder::image_classifier`].
    pub fn language_model(&self, make: &Make) -> Result<Loaded<Gpt>> {
        match &self.architecture {
            Architecture::Gpt2(gpt) => {
                self.load(make, &gpt.table(), |b| Gpt::styled(b, gpt.shape, gpt.block))
            }
            _ => Err(self.other_than("the next token")),
        }
    }

    fn load<N>(
        &self,
        make: &Make,
        table: &Table,
        build: impl FnOnce(&mut Builder) -> tape::Result<N>,
    ) -> Result<Loaded<N>> {
        let mut parameters = Parameters::default();
        let builder = Builder::new(&mut parameters, make.seed, make.dtype, make.device);
        let (mut builder, head) = match make.classes {
            Classes::Published => (builder.of_zeros(), Head::Published),
            Classes::New(_) => (builder.drawn_under(&["head"]), Head::New),
        };
        let network = build(&mut builder)?;
        fill(&mut parameters, &self.tensors, table, head, resnet::EPSILON)?;
        Ok(Loaded {
            network,
            parameters,
        })
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

    fn class_count(&self, make: &Make) -> Result<usize> {
        match make.classes {
            Classes::New(classes) if classes > 0 => Ok(classes),
            Classes::New(_) => Err(self.refuse("a network needs at least one class".to_owned())),
            Classes::Published => self.labels().ok_or_else(|| {
                self.refuse(
                    "it was published without a head; say how many classes a new one has"
                        .to_owned(),
                )
            }),
        }
    }

    /// Refuses a config that describes a network out of all proportion to the weights, before room is made for it.
    fn expect_plausible(&self) -> Result<()> {
        let blocks = |depth: usize, width: usize, hidden: usize| {
            depth as f64 * width as f64 * (4.0 * width as f64 + 2.0 * hidden as f64)
        };
        let texts = |shape: &SequenceShape, hidden: usize| {
            (shape.vocabulary as f64 + shape.tokens as f64) * shape.width as f64
                + blocks(shape.depth, shape.width, hidden)
        };
        let described = match &self.architecture {
            Architecture::Bert(bert) => {
                texts(&bert.shape, bert.style.block.hidden)
                    + bert.style.kinds as f64 * bert.shape.width as f64
            }
            Architecture::Gpt2(gpt) => texts(&gpt.shape, gpt.block.hidden),
            Architecture::Vit(vit) => {
                let (image, patch, width) = (vit.shape.image, vit.shape.patch, vit.shape.width);
                let places = (image / patch) as f64 * (image / patch) as f64;
                (places + 3.0 * patch as f64 * patch as f64) * width as f64
                    + blocks(vit.shape.depth, width, vit.style.block.hidden)
            }
            Architecture::ResNet(resnet) => {
                let blocks = resnet.shape.blocks.iter();
                blocks.map(|(width, _)| *width as f64 * *width as f64).sum()
            }
        };
        let held = self.numbers();
        if described > 16.0 * held as f64 + 1e8 {
            return Err(self.config.refuse(format!(
                "it describes a network of about {described:.0} numbers, and the weights beside it are {held}; download the folder again"
            )));
        }
        Ok(())
    }

    fn other_than(&self, wanted: &str) -> TrainError {
        self.refuse(format!(
            "a {} does not tell {wanted}; choose another folder",
            self.kind
        ))
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
