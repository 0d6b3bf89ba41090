//! Networks: a catalog of architectures, the layers they are made of, adapters, pretrained weights
//! in, and exported folders out.
//!
//! To add an image network, follow `docs/add-a-network.md`.
//!
//! This crate does not depend on datasets, runs or optimizers. No layer uses a statistic of the
//! micro-batch, so the split of a batch cannot change the result.
//!
//! ```
//! use candle_core::{DType, Device, Tensor};
//! use models::{ModelId, Network};
//! use tape::{Cancel, Kernels, Tape, Value};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = ModelId::image_model("vit_micro").expect("the catalog has it");
//! assert_eq!(model.label(), "ViT-Micro/8");
//!
//! // Ten classes, images of 64 px, parameters drawn from seed 0.
//! let size = model.default_input_size() as usize;
//! let (network, parameters) = Network::build(model, size, 10, 0, DType::F32, &Device::Cpu)?;
//!
//! let images = Tensor::zeros((2, 3, size, size), DType::F32, &Device::Cpu)?;
//! let tape = Tape::forward_only(&parameters, Cancel::default(), Kernels::Fused);
//! let scores = network.forward(&tape, &Value::constant(images), 0)?;
//! assert_eq!(scores.dims(), &[2, 10]);
//! # Ok(())
//! # }
//! ```

mod error;

// What networks are made of.
mod parameter_builder;
mod lora;
mod layers;
mod transformer;
mod kv_cache;
mod text_backbone;
mod rope;

// How networks are described to other programs.
mod tensor_map;
mod onnx_graph;

// Text networks, one per file; what image networks have in common; a network of any kind.
mod text_encoder;
mod decoder;
mod gpt;
mod token_compressor;
mod image_network;
mod network;

// What goes into a network and what its outputs mean.
mod pixel_normalization;
mod output_heads;

// Graphs as programs of Core ML.
mod core_ml;

// Weights in.
pub mod hub_format;

// Image networks, one per file, and what there is to choose from.
mod image_networks;
mod catalog;

// Weights of a run in, trained networks out.
pub mod pretrained;
pub mod export;

pub use catalog::{
    DropPolicy, ImageModel, ModelId, ModelTask, PretrainedFamily, SmallSizes, TextModel, TextSize,
};
pub use error::{ModelError, Result};
pub use gpt::{Gpt, TokenBatch};
pub use image_network::{AttentionHeads, ImageNetwork};
pub use image_networks::{
    ResNet, ResNetBranch, ResNetNorm, ResNetShape, ResNetStem, ResNetStyle, Vit, VitShape,
    saves_last_convolution,
};
pub use kv_cache::KvCache;
pub use lora::{
    AdaptedLinear, FrozenLinear, is_adapter, load_adapters, measure_row_norms, merged_parameters,
    save_adapters,
};
pub use network::Network;
pub use output_heads::{BALANCE, Balance, HUBER_DELTA, Heads};
pub use parameter_builder::{AdapterShape, AdapterTargets, ParameterBuilder};
pub use pixel_normalization::PixelNormalization;
pub use pretrained::Pretrained;
pub use text_backbone::SequenceShape;
pub use text_encoder::TextEncoder;
pub use token_compressor::{Compressor, KeepScores};
