//! What stands in memory before any piece, block by block: an allocator puts pieces between these. Knows no network.

use crate::error::Result;
use crate::optimizer::OptimizerKind;
use candle_core::DType;
use tape::Parameters;

/// Blocks of weights, moments, and beside them a copy of the weights in each of `copies`, in the order in which a training makes them;
/// in bytes.
pub(super) fn blocks_bytes(
    masters: &Parameters,
    optimizer: OptimizerKind,
    copies: &[DType],
) -> Result<Vec<u64>> {
    let in_type = |dtype: DType| {
        let tensors = masters.iter().map(|parameter| &parameter.tensor);
        tensors.map(move |tensor| (tensor.elem_count() * dtype.size_in_bytes()) as u64)
    };
    let weights = masters.iter().map(|parameter| &parameter.tensor);
    let weights = weights.map(|t| (t.elem_count() * t.dtype().size_in_bytes()) as u64);
    let frozen = masters.frozen().map(|(_, frozen)| frozen.bytes());
    let moments = optimizer.state_sizes(masters);
    let copies = copies.iter().flat_map(|&dtype| in_type(dtype));
    Ok(weights.chain(frozen).chain(moments).chain(copies).collect())
}
