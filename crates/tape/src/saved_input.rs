//! An input that an operation needs in its backward pass: either saved, or recomputed from tensors
//! that are saved anyway. An input that is cheap to recompute is not saved.

use crate::error::Result;
use crate::kernels::copies::contiguous;
use candle_core::Tensor;
use std::fmt;
use std::rc::Rc;

/// Recomputes a tensor from the tensors that the operation which made it has saved.
#[derive(Clone)]
pub(crate) struct Recompute {
    /// The tensors it reads, parameters included.
    reads: Rc<[Tensor]>,
    compute: Rc<dyn Fn() -> Result<Tensor>>,
}

impl Recompute {
    /// `compute`, applied to the saved input, must repeat the first result to the last bit. It may
    /// also read `parameters`.
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

/// An input for the backward pass.
#[derive(Debug, Clone)]
pub(crate) enum SavedInput {
    Tensor(Tensor),
    /// Recomputed when needed.
    Recomputed(Recompute),
}

impl SavedInput {
    /// The tensor, contiguous.
    pub fn get(&self) -> Result<Tensor> {
        match self {
            SavedInput::Tensor(tensor) => Ok(contiguous(tensor)?),
            SavedInput::Recomputed(recompute) => (recompute.compute)(),
        }
    }

    /// All tensors that must stay alive for [`SavedInput::get`].
    pub fn tensors(&self) -> &[Tensor] {
        match self {
            SavedInput::Tensor(tensor) => std::slice::from_ref(tensor),
            SavedInput::Recomputed(recompute) => &recompute.reads,
        }
    }

    /// [`SavedInput::tensors`] in the form that [`Tape::push`](crate::Tape) takes.
    pub fn counted(&self) -> Vec<&Tensor> {
        self.tensors().iter().collect()
    }
}

/// All tensors that must stay alive for these inputs.
pub(crate) fn held(kept: [&Option<SavedInput>; 2]) -> Vec<Tensor> {
    let kept = kept.into_iter().flatten();
    kept.flat_map(SavedInput::tensors).cloned().collect()
}
