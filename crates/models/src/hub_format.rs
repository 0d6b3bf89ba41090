//! Pretrained weights in the format of the Hugging Face hub: a folder with `config.json`,
//! `model.safetensors` (in one or several files), and perhaps `preprocessor_config.json` and
//! `tokenizer.json`. Each architecture is a table from published tensor names to Ebb's. A folder
//! whose tensors are not those that its config describes is refused, and the error names all of
//! them.
//!
//! Nothing is downloaded here, and pickled files are never read, because reading one runs a
//! program.
//!
//! An image architecture describes its format beside its network
//! (`image_networks/NAME/hub_format.rs`) and is found by its row in the catalog.
//!
//! ```no_run
//! use candle_core::{DType, Device};
//! use models::hub_format::{FineTuning, Head, HubFolder, LoadOptions};
//!
//! # fn main() -> models::Result<()> {
//! let folder = HubFolder::open("models/vit-base".as_ref())?;
//! println!("{} with {} parameters", folder.model_type(), folder.count_values());
//! let options = LoadOptions {
//!     head: Head::New(12),
//!     tuning: FineTuning::default(),
//!     seed: 0,
//!     dtype: DType::F32,
//!     device: &Device::Cpu,
//! };
//! let vit = folder.image_classifier(Some(96), &options)?;
//! assert!(vit.parameters.iter().any(|p| p.name == "head.weight"), "a new head for 12 classes");
//! # Ok(())
//! # }
//! ```

// Files.
pub(crate) mod json_config;
mod gguf;
pub(crate) mod safetensors_reader;
mod preprocessor;

// How published tensors become parameters.
mod fine_tuning;

// Architectures: what they all have in common, and those for texts.
mod hub_network;
mod bert;
mod gpt2;
mod decoder;
mod architecture;

// A folder, and the network in it.
mod pretrained_folder;
mod fill_parameters;
mod load_pretrained;

pub(crate) use architecture::{HubArchitecture, ReadArchitecture};
pub(crate) use bert::HubBert;
pub(crate) use decoder::HubDecoder;
pub(crate) use fine_tuning::{BlockLayout, LastNorm};
pub use fine_tuning::{FineTuning, TrainedLayers};
pub use gguf::{find_gguf, unpack_gguf};
pub(crate) use gguf::{licence as gguf_licence, token_types};
pub(crate) use gpt2::HubGpt2;
pub use hub_network::TextLimits;
pub(crate) use hub_network::{HubImageNetwork, HubNetwork, ImageInput, block_parameters};
pub(crate) use json_config::JsonConfig;
pub use load_pretrained::{Head, LoadOptions, Loaded};
pub use preprocessor::Preprocessor;
pub use pretrained_folder::HubFolder;
pub(crate) use pretrained_folder::{CHAT_FILES, CONFIG, PREPROCESSOR, TOKENIZER};
pub use safetensors_reader::expect_short_header;
