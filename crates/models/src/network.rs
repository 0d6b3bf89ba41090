//! A network of any kind.

use crate::gpt::Gpt;
use crate::image_network::ImageNetwork;
use crate::text_encoder::TextEncoder;
use crate::token_compressor::Compressor;
use std::sync::Arc;
use tape::{Result, Tape, TapeError, Value};

/// A network for images, texts or documents. It holds the ids of its parameters, not their values.
#[derive(Debug, Clone)]
#[expect(
    clippy::large_enum_variant,
    reason = "a process holds only one or two networks, so their size hardly matters"
)]
pub enum Network {
    /// A network for images.
    Image(Arc<dyn ImageNetwork>),
    /// Text encoder with a head for classes.
    TextEncoder(TextEncoder),
    /// Language model.
    Gpt(Gpt),
    /// Language model that fills gaps, with the policy that makes them.
    Compressor(Compressor),
}

impl Network {
    /// Number of blocks of this network.
    pub fn depth(&self) -> u32 {
        let depth = match self {
            Network::Image(network) => network.depth(),
            Network::TextEncoder(network) => network.depth(),
            Network::Gpt(network) => network.depth(),
            Network::Compressor(network) => network.depth(),
        };
        depth as u32
    }

    /// Maps `images` [samples, 3, side, side] to outputs [samples, outputs]. The first
    /// `checkpointed` blocks save only their input.
    ///
    /// # Errors
    /// The network is for texts, or the images do not fit.
    pub fn forward(&self, tape: &Tape, images: &Value, checkpointed: usize) -> Result<Value> {
        match self {
            Network::Image(network) => network.forward(tape, images, checkpointed),
            Network::TextEncoder(_) | Network::Gpt(_) | Network::Compressor(_) => {
                Err(TapeError::Shape {
                    op: "forward",
                    what: "images".to_owned(),
                    expected: "tokens, for a text network".to_owned(),
                    found: images.tensor().shape().clone(),
                })
            }
        }
    }
}
