//! What every image network has in common: its description, from which it is built and exported,
//! and the network itself.

use crate::onnx_graph::{Features, Graph};
use crate::parameter_builder::ParameterBuilder;
use crate::tensor_map::TensorTable;
use serde_json::Value as Json;
use std::fmt::Debug;
use std::sync::Arc;
use tape::{Result, Tape, Value};

/// A network that maps images to outputs. It holds the ids of its parameters, not their values.
pub trait ImageNetwork: Debug + Send + Sync {
    /// Number of blocks that can be checkpointed.
    fn depth(&self) -> usize;

    /// Maps normalized `images` [samples, 3, side, side] to outputs [samples, outputs]. The first
    /// `checkpointed` blocks save only their input.
    ///
    /// # Errors
    /// The images do not fit.
    fn forward(&self, tape: &Tape, images: &Value, checkpointed: usize) -> Result<Value>;
}

/// The description of an image network: all sizes and variants, no parameters.
pub(crate) trait ImageArchitecture: Debug {
    /// Number of blocks that can be checkpointed.
    fn blocks(&self) -> usize;

    /// Sizes of its attention, if it has any.
    fn attention(&self) -> Option<AttentionHeads> {
        None
    }

    /// Builds the network.
    ///
    /// # Errors
    /// The device cannot allocate the parameters.
    fn build(&self, b: &mut ParameterBuilder, outputs: usize) -> Result<Arc<dyn ImageNetwork>>;

    /// How the network is written as a folder of the Hugging Face hub after training from scratch.
    fn hub_export(&self) -> HubExport;

    /// Adds the network up to its head to a graph. `images` are normalized, [batch, 3, side, side].
    ///
    /// # Errors
    /// A parameter is missing.
    fn onnx_features(&self, g: &mut Graph, images: &str) -> crate::error::Result<Features>;
}

/// Width of the tokens and number of heads of an attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionHeads {
    /// Width of a token.
    pub width: usize,
    /// Number of heads; divides the width.
    pub heads: usize,
}

/// A network as a folder of the Hugging Face hub.
pub(crate) struct HubExport {
    /// `config.json` without the classes.
    pub config: Json,
    /// Its tensors.
    pub tensors: HubTensors,
}

/// The tensors of an exported folder.
pub(crate) enum HubTensors {
    /// The transformers library has this network: its names.
    Published(TensorTable),
    /// It does not: Ebb's names, and a PyTorch file that reads them.
    WithCode {
        /// Name of the file.
        file: &'static str,
        /// Its contents.
        code: &'static str,
    },
}
