//! The part of the footprint that does not depend on the micro-batch, by purpose. It is computed
//! from the shapes of tensors.

use super::Target;
use crate::error::Result;
use crate::optimizer::{self, OptimizerKind};
use serde::Serialize;
use tape::Parameters;

/// Footprint that does not depend on the micro-batch, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Baseline {
    /// Code, stacks, libraries, and what kernels keep for themselves.
    pub base_bytes: u64,
    /// Weights in the optimizer's precision, including frozen ones.
    pub weights_bytes: u64,
    /// Copy of the weights in a half precision.
    pub copy_bytes: u64,
    /// The optimizer's moments.
    pub moments_bytes: u64,
    /// Moving average of the weights.
    pub averages_bytes: u64,
    /// Gradients of all parameters, which exist while micro-batches are accumulated.
    pub gradients_bytes: u64,
    /// Samples decoded ahead, and cached images.
    pub prefetch_bytes: u64,
    /// Texts as tokens, which stay for the whole run.
    pub texts_bytes: u64,
}

impl Baseline {
    /// Weights, gradients and moments of a network that trains on `target`.
    pub(super) fn new(masters: &Parameters, kind: OptimizerKind, target: Target) -> Result<Self> {
        // Zeros that are never written to: they are counted and take no memory.
        let moments_bytes = optimizer::state_bytes(kind, masters);
        Ok(Baseline {
            base_bytes: target.base_bytes,
            weights_bytes: masters.bytes() + masters.frozen_bytes(),
            moments_bytes,
            gradients_bytes: masters.bytes(),
            ..Baseline::default()
        })
    }

    /// Footprint between steps, when no gradients are accumulated.
    pub fn state_bytes(&self) -> u64 {
        self.base_bytes + self.heap_bytes()
    }

    /// The part of the state that is on the heap.
    pub(super) fn heap_bytes(&self) -> u64 {
        self.weights_bytes
            + self.copy_bytes
            + self.moments_bytes
            + self.averages_bytes
            + self.prefetch_bytes
            + self.texts_bytes
    }
}
