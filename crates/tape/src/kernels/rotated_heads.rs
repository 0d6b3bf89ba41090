//! Kernels that join the heads of queries, keys and values, rotate those of queries and keys, and
//! split the gradient again.

use super::Argument::{Count, In, Out};
use super::elementwise::by_four;
use super::{Argument, Grid, Kernel, alike, uninit};
use crate::error::Result;
use candle_core::Tensor;

/// Heads in joined rows, and the angles by which they are rotated.
pub(crate) struct RotatedHeads<'a> {
    /// Tokens per sample.
    pub tokens: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys, and of values.
    pub key_heads: usize,
    /// Width of a head.
    pub head_width: usize,
    /// The cosines and sines of all tokens, [tokens, pairs] in f32; `None` if nothing is rotated.
    pub tables: Option<[&'a Tensor; 2]>,
}

impl RotatedHeads<'_> {
    fn pairs(&self) -> usize {
        self.tables.map_or(0, |[cosines, _]| cosines.dims()[1])
    }

    /// The cosines and sines. Without a rotation the kernels read none, but need some tensor in
    /// their place.
    fn angles<'a>(&'a self, other: &'a Tensor) -> [Argument<'a>; 2] {
        self.tables.unwrap_or([other, other]).map(In)
    }

    /// The sizes for `n` elements of joined rows. The last one is 1 if `tensors` can be read by
    /// words of four elements, which are in the same half of the same head.
    fn sizes<'a>(&self, n: usize, tensors: &[&Tensor]) -> [Argument<'a>; 7] {
        let tables = self.tables.unwrap_or([tensors[0], tensors[0]]);
        let is_whole = self.pairs().is_multiple_of(4) && by_four(&tables, self.head_width);
        let fours = is_whole && by_four(tensors, self.head_width);
        [
            Count(n),
            Count(self.tokens),
            Count(self.heads),
            Count(self.key_heads),
            Count(self.head_width),
            Count(self.pairs()),
            Count(usize::from(fours)),
        ]
    }
}

/// Rows [samples, tokens, (heads + 2 key heads) head width] of queries, keys and values, the first
/// two rotated.
pub(crate) fn join(parts: &[Tensor; 3], heads: &RotatedHeads) -> Result<Tensor> {
    let [q, k, v] = parts;
    let (k, v) = (alike(k, q)?, alike(v, q)?);
    let mut shape = q.dims().to_vec();
    let row = (heads.heads + 2 * heads.key_heads) * heads.head_width;
    *shape.last_mut().expect("queries have three axes") = row;
    let y = uninit(&shape, q.dtype(), q)?;
    let n = y.elem_count();
    let [cosines, sines] = heads.angles(q);
    let mut arguments = vec![In(q), In(&k), In(&v), cosines, sines, Out(&y)];
    arguments.extend(heads.sizes(n, &[q, &k, &v]));
    Kernel::typed("join_rotated", q).launch(Grid::elements(n), &arguments, q.device())?;
    Ok(y)
}

/// The gradients of queries, keys and values from that of the joined rows.
pub(crate) fn split(dy: &Tensor, heads: &RotatedHeads) -> Result<[Tensor; 3]> {
    let part = |heads_of_part: usize| {
        let mut shape = dy.dims().to_vec();
        *shape.last_mut().expect("joined rows have three axes") = heads_of_part * heads.head_width;
        uninit(&shape, dy.dtype(), dy)
    };
    let parts = [
        part(heads.heads)?,
        part(heads.key_heads)?,
        part(heads.key_heads)?,
    ];
    let n = dy.elem_count();
    let [cosines, sines] = heads.angles(dy);
    let [dq, dk, dv] = &parts;
    let mut arguments = vec![In(dy), cosines, sines, Out(dq), Out(dk), Out(dv)];
    arguments.extend(heads.sizes(n, &[dy]));
    Kernel::typed("split_rotated", dy).launch(Grid::elements(n), &arguments, dy.device())?;
    Ok(parts)
}
