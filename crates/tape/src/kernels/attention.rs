//! Attention in blocks on a GPU, which reads and writes the joint projection directly: the weights
//! of a head never exist as a whole. Heads are at most 64 wide.

use super::Argument::{self, Count, In, Number, Out};
use super::elementwise::Heads;
use super::{Grid, Kernel, alike, uninit};
use crate::error::Result;
use candle_core::{DType, Tensor};

/// Width of the widest head.
pub(crate) const WIDEST: usize = 64;
/// Rows per simdgroup.
const ROWS: usize = 16;

/// Sizes and mask of an attention.
pub(crate) struct Attended<'a> {
    /// Sizes.
    pub heads: Heads,
    /// Factor of the scores.
    pub scale: f64,
    /// A query sees only itself and the tokens before it.
    pub causal: bool,
    /// Length of each sample without padding, u32; `None` if no sample is padded.
    pub lengths: Option<&'a Tensor>,
}

impl Attended<'_> {
    fn numbers<'a>(&self) -> [Argument<'a>; 6] {
        [
            Number(self.scale),
            Count(self.heads.tokens),
            Count(self.heads.heads),
            Count(self.heads.head),
            Count(usize::from(self.causal)),
            Count(usize::from(self.lengths.is_some())),
        ]
    }

    /// One group per head for every `simds * ROWS` rows.
    fn grid(&self, simds: usize) -> Grid {
        let s = self.heads;
        let blocks = s.tokens.div_ceil(simds * ROWS);
        Grid::groups(s.samples * s.heads * blocks, simds)
    }
}

/// Simdgroups per block of queries and per block of keys, as many as a device's shared memory
/// allows.
fn simds(x: &Tensor) -> (usize, usize) {
    if x.device().is_cuda() { (4, 3) } else { (2, 1) }
}

/// The output [samples, tokens, width], and the logarithm of each row's sum [samples, heads,
/// tokens].
pub(crate) fn attend(qkv: &Tensor, of: &Attended) -> Result<(Tensor, Tensor)> {
    let s = of.heads;
    let y = uninit(&[s.samples, s.tokens, s.heads * s.head], qkv.dtype(), qkv)?;
    let sums = uninit(&[s.samples, s.heads, s.tokens], DType::F32, qkv)?;
    let lengths = In(of.lengths.unwrap_or(qkv));
    let mut arguments = vec![In(qkv), lengths, Out(&y), Out(&sums)];
    arguments.extend(of.numbers());
    let grid = of.grid(simds(qkv).0);
    Kernel::typed("attend", qkv).launch(grid, &arguments, qkv.device())?;
    Ok((y, sums))
}

/// The gradient of `qkv`.
pub(crate) fn attend_backward(
    qkv: &Tensor,
    y: &Tensor,
    sums: &Tensor,
    dy: &Tensor,
    of: &Attended,
) -> Result<Tensor> {
    let (dqkv, dy) = (uninit(qkv.dims(), qkv.dtype(), qkv)?, alike(dy, qkv)?);
    let meets = uninit(sums.dims(), DType::F32, qkv)?;
    let (queries, keys) = simds(qkv);
    let lengths = || In(of.lengths.unwrap_or(qkv));
    let mut arguments = vec![In(qkv), lengths(), In(&dy), In(y), In(sums)];
    arguments.extend([Out(&meets), Out(&dqkv)]);
    arguments.extend(of.numbers());
    Kernel::typed("attend_queries", qkv).launch(of.grid(queries), &arguments, qkv.device())?;
    let mut arguments = vec![
        In(qkv),
        lengths(),
        In(&dy),
        In(sums),
        In(&meets),
        Out(&dqkv),
    ];
    arguments.extend(of.numbers());
    Kernel::typed("attend_keys", qkv).launch(of.grid(keys), &arguments, qkv.device())?;
    Ok(dqkv)
}
