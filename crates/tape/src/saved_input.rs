//! How an operation gets back a tensor that its backward pass needs: kept, or computed again from what others keep anyway.
//! What is cheap to compute again is not saved.

use crate::error::Result;
use candle_core::Tensor;
use std::fmt;
use std::rc::Rc;

/// Computes a tensor again from tensors that the operation which made it keeps for itself.
#[derive(Clone)]
pub(crate) struct Recompute {
    /// What it reads, parameters included.
    reads: Rc<[Tensor]>,
    compute: Rc<dyn Fn() -> Result<Tensor>>,
}

impl Recompute {
    /// `compute`, on a kept tensor and on `parameters`, must repeat the first result to the last bit.
    pub fn new(
        kept: SavedInput,
        parameters: &[&Tensor],
        compute: impl Fn(&Tensor) -> Result<Tensor> + 'static,
    ) -> Self {
        let reads = kept.tensors().iter().chain(parameters.iter().copied());
        Recompute {
            reads: reads.cloned().collect(),
            compute: Rc::new(move || compute(&kept.get()?)),
        }
    }
}

impl fmt::Debug for Recompute {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Recompute({} tensors)", self.reads.len())
    }
}

/// A tensor for backward.
#[derive(Debug, Clone)]
pub(crate) enum SavedInput {
    /// The tensor itself.
    Tensor(Tensor),
    /// The way to it.
    Recomputed(Recompute),
}

impl SavedInput {
    /// The tensor, contiguous.
    pub fn get(&self) -> Result<Tensor> {
        match self {
            SavedInput::Tensor(tensor) => Ok(tensor.contiguous()?),
            SavedInput::Recomputed(recompute) => (recompute.compute)(),
        }
    }

    /// Every tensor that must stay alive for [`SavedInput::get`].
    pub fn tensors(&self) -> &[Tensor] {
        match self {
            SavedInput::Tensor(tensor) => std::slice::from_ref(tensor),
            SavedInput::Recomputed(recompute) => &recompute.reads,
        }
    }

    /// [`SavedInput::tensors`], as the tape counts them.
    pub fn counted(&self) -> Vec<&Tensor> {
        self.tensors().iter().collect()
    }
}

/// Every tensor that must stay alive for these, as the tape counts them.
pub(crate) fn held(kept: [&Option<SavedInput>; 2]) -> Vec<Tensor> {
    let kept = kept.into_iter().flatten();
    kept.flat_map(SavedInput::tensors).cloned().collect()
}
