//! Rotary position embedding (Su et al. 2021). The first `2 n` values of each head of queries and
//! keys are `n` pairs, `(x[i], x[i + n])`, each of which is rotated by an angle that grows with the
//! position of the token: `y[i] = x[i] c - x[i + n] s`, `y[i + n] = x[i + n] c + x[i] s`. The
//! rotated queries and keys are joined with the values to the input of attention, so that they
//! exist once. Backward: the transposed map. Nothing is saved.

use super::{Form, axes, expect_shape, misfit};
use crate::convert_dtype::{host_tensor, widened};
use crate::cpu::{Float, View, buffer, row_chunks, to_tensor, wide, with_float};
use crate::error::Result;
use crate::kernels::KernelGroup;
use crate::kernels::copies::{self, contiguous, owned};
use crate::kernels::rotated_heads::{self, RotatedHeads};
use crate::tape::{Tape, Value};
use candle_core::{D, DType, Device, Tensor};
use rayon::prelude::*;
use std::ops::Range;

const OP: &str = "rotary_embedding";

/// The cosines and sines of all positions of a sequence.
#[derive(Debug, Clone)]
pub struct Rotation {
    /// [tokens, pairs].
    cosines: Tensor,
    sines: Tensor,
}

/// The heads of queries, keys and values in joined rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JoinedHeads {
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys, and of values.
    pub key_heads: usize,
    /// Width of a head.
    pub head_width: usize,
}

impl Rotation {
    /// The rotation of tokens at `positions`. Pair `i` turns by `frequencies[i]` radians per
    /// position, and its length is multiplied by `factor`. The tables are f64 if `dtype` is,
    /// otherwise f32.
    ///
    /// # Errors
    /// The device has too little memory.
    pub fn new(
        frequencies: &[f64],
        factor: f64,
        positions: Range<usize>,
        dtype: DType,
        device: &Device,
    ) -> Result<Self> {
        let shape = [positions.len(), frequencies.len()];
        let dtype = match dtype {
            DType::F64 => DType::F64,
            _ => DType::F32,
        };
        let angles: Vec<f64> = positions
            .flat_map(|at| {
                frequencies
                    .iter()
                    .map(move |frequency| at as f64 * frequency)
            })
            .collect();
        let table = |number: fn(f64) -> f64| {
            let values = angles.par_iter().map(|&angle| factor * number(angle));
            host_tensor(values.collect(), &shape, dtype, device)
        };
        Ok(Rotation {
            cosines: table(f64::cos)?,
            sines: table(f64::sin)?,
        })
    }

    /// Pairs per head.
    fn pairs(&self) -> usize {
        self.cosines.dims()[1]
    }
}

impl JoinedHeads {
    /// Width of the joined rows.
    fn row(self) -> usize {
        (self.heads + 2 * self.key_heads) * self.head_width
    }

    /// Fails if queries, keys and values do not have these heads, or the rotation does not fit.
    fn expect_fit(self, parts: [&Value; 3], rotation: Option<&Rotation>) -> Result<()> {
        let [query, key, value] = parts;
        let [samples, tokens, _] = axes(OP, "query", query)?;
        let (queries, keys) = (
            self.heads * self.head_width,
            self.key_heads * self.head_width,
        );
        expect_shape(OP, "query", query, &[samples, tokens, queries])?;
        expect_shape(OP, "key", key, &[samples, tokens, keys])?;
        expect_shape(OP, "value", value, &[samples, tokens, keys])?;
        let Some(rotation) = rotation else {
            return Ok(());
        };
        let (positions, values) = (rotation.cosines.dims()[0], 2 * rotation.pairs());
        if positions == tokens && values <= self.head_width {
            return Ok(());
        }
        let expected = format!("{positions} tokens with heads of at least {values} values");
        Err(misfit(OP, "query", expected, query))
    }

    /// Heads of queries and keys: those that are rotated.
    fn rotated(self) -> usize {
        self.heads + self.key_heads
    }

    /// The heads as the kernels of a GPU take them.
    fn on_device(self, tokens: usize, rotation: Option<&Rotation>) -> RotatedHeads<'_> {
        RotatedHeads {
            tokens,
            heads: self.heads,
            key_heads: self.key_heads,
            head_width: self.head_width,
            tables: rotation.map(|rotation| [&rotation.cosines, &rotation.sines]),
        }
    }
}

impl Tape<'_> {
    /// Rotates the heads of queries [samples, tokens, heads head width] and keys [samples, tokens,
    /// key heads head width], and joins them with the values, shaped like the keys: [samples,
    /// tokens, (heads + 2 key heads) head width]. Without a rotation they are only joined.
    pub fn rotary_embedding(
        &self,
        parts: [&Value; 3],
        heads: JoinedHeads,
        rotation: Option<&Rotation>,
    ) -> Result<Value> {
        self.poll()?;
        let [query, key, value] = parts;
        heads.expect_fit(parts, rotation)?;
        let form = self.form(KernelGroup::RotaryEmbedding, query.tensor());
        let parts = [query, key, value].map(|part| part.tensor().clone());
        let y = match form {
            Form::Device => {
                let [q, k, v] = &parts;
                let parts = [contiguous(q)?, contiguous(k)?, contiguous(v)?];
                rotated_heads::join(&parts, &heads.on_device(query.dims()[1], rotation))?
            }
            Form::Cpu => {
                with_float!("rotary_embedding", parts[0], T => joined::<T>(&parts, heads, rotation))?
            }
            Form::Composed => {
                let joined = self.join(&[&parts[0], &parts[1], &parts[2]], 2)?;
                match rotation {
                    Some(rotation) => turned(&joined, heads, rotation, Way::Forward)?,
                    None => joined,
                }
            }
        };
        if !self.records(&[query, key, value]) {
            return Ok(Value::constant(y));
        }
        let ids = [query.id(), key.id(), value.id()];
        let rotation = rotation.cloned();
        Ok(self.push(y, &[], move |dy, sink| {
            let (dy, rotation) = (contiguous(&dy)?, rotation.as_ref());
            let parts = match form {
                Form::Device => {
                    rotated_heads::split(&dy, &heads.on_device(dy.dims()[1], rotation))?
                }
                Form::Cpu => {
                    with_float!("rotary_embedding", dy, T => split::<T>(&dy, heads, rotation))?
                }
                Form::Composed => composed_split(&dy, heads, rotation)?,
            };
            for (id, part) in ids.into_iter().zip(parts) {
                sink.add_owned(id, part)?;
            }
            Ok(())
        }))
    }
}

/// The map or its transpose.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Forward,
    Backward,
}

/// The rotation of queries and keys in joined rows, composed of tensor primitives.
fn turned(joined: &Tensor, heads: JoinedHeads, rotation: &Rotation, way: Way) -> Result<Tensor> {
    let (samples, tokens, row) = joined.dims3()?;
    let (width, pairs) = (heads.head_width, rotation.pairs());
    let all = joined.reshape((samples, tokens, row / width, width))?;
    let rotated = all.narrow(2, 0, heads.rotated())?;
    let half = |from: usize| widened(&rotated.narrow(D::Minus1, from, pairs)?);
    let (first, second) = (half(0)?, half(pairs)?);
    let table = |table: &Tensor| table.reshape((1, tokens, 1, pairs));
    let (c, mut s) = (table(&rotation.cosines)?, table(&rotation.sines)?);
    if way == Way::Backward {
        s = s.neg()?;
    }
    let upper = (first.broadcast_mul(&c)? - second.broadcast_mul(&s)?)?;
    let lower = (second.broadcast_mul(&c)? + first.broadcast_mul(&s)?)?;
    let dtype = joined.dtype();
    let mut halves = vec![upper.to_dtype(dtype)?, lower.to_dtype(dtype)?];
    if width > 2 * pairs {
        halves.push(rotated.narrow(D::Minus1, 2 * pairs, width - 2 * pairs)?);
    }
    let turned = copies::joined(&halves.iter().collect::<Vec<_>>(), 3)?;
    let values = all.narrow(2, heads.rotated(), heads.key_heads)?;
    Ok(copies::joined(&[&turned, &values], 2)?.reshape((samples, tokens, row))?)
}

/// The gradients of queries, keys and values, composed of tensor primitives.
fn composed_split(
    dy: &Tensor,
    heads: JoinedHeads,
    rotation: Option<&Rotation>,
) -> Result<[Tensor; 3]> {
    let dy = match rotation {
        Some(rotation) => turned(dy, heads, rotation, Way::Backward)?,
        None => dy.clone(),
    };
    let (queries, keys) = (
        heads.heads * heads.head_width,
        heads.key_heads * heads.head_width,
    );
    let part = |from: usize, count: usize| -> Result<Tensor> { owned(&dy.narrow(2, from, count)?) };
    Ok([
        part(0, queries)?,
        part(queries, keys)?,
        part(queries + keys, keys)?,
    ])
}

/// Cosines and sines as slices; none without a rotation.
struct Tables<'a, T> {
    views: Option<[View<'a, T>; 2]>,
    pairs: usize,
}

impl<'a, T: Float> Tables<'a, T> {
    fn new(rotation: Option<&'a Rotation>) -> Result<Self> {
        Ok(Tables {
            views: rotation
                .map(|r| {
                    Ok::<_, crate::error::TapeError>([
                        View::new(OP, &r.cosines)?,
                        View::new(OP, &r.sines)?,
                    ])
                })
                .transpose()?,
            pairs: rotation.map_or(0, Rotation::pairs),
        })
    }

    /// Rotates all heads of `row` by the angles of a token.
    #[inline(always)]
    fn turn(&self, row: &mut [T], token: usize, head_width: usize, way: Way) {
        let Some([cosines, sines]) = &self.views else {
            return;
        };
        let at = token * self.pairs..(token + 1) * self.pairs;
        let (c, s) = (&cosines[at.clone()], &sines[at]);
        for head in row.chunks_exact_mut(head_width) {
            let (first, rest) = head.split_at_mut(self.pairs);
            let angles = c.iter().zip(s);
            for ((a, b), (&c, &s)) in first.iter_mut().zip(rest).zip(angles) {
                let s = if way == Way::Forward { s } else { -s };
                (*a, *b) = (*a * c - *b * s, *b * c + *a * s);
            }
        }
    }
}

/// The joined rows in one pass.
fn joined<T: Float>(
    parts: &[Tensor; 3],
    heads: JoinedHeads,
    rotation: Option<&Rotation>,
) -> Result<Tensor> {
    let (samples, tokens, _) = parts[0].dims3()?;
    let parts = [
        contiguous(&parts[0])?,
        contiguous(&parts[1])?,
        contiguous(&parts[2])?,
    ];
    let [q, k, v] = [
        View::<T>::new(OP, &parts[0])?,
        View::<T>::new(OP, &parts[1])?,
        View::<T>::new(OP, &parts[2])?,
    ];
    let tables = Tables::<T>::new(rotation)?;
    let (queries, keys) = (
        heads.heads * heads.head_width,
        heads.key_heads * heads.head_width,
    );
    let row = heads.row();
    let mut y = buffer::<T>(samples * tokens * row);
    let rows = row_chunks(row);
    y.par_chunks_mut((rows * row).max(1))
        .enumerate()
        .for_each(|(chunk, out)| {
            wide(
                #[inline(always)]
                || {
                    for (i, out) in out.chunks_exact_mut(row).enumerate() {
                        let at = chunk * rows + i;
                        out[..queries].copy_from_slice(&q[at * queries..][..queries]);
                        out[queries..queries + keys].copy_from_slice(&k[at * keys..][..keys]);
                        out[queries + keys..].copy_from_slice(&v[at * keys..][..keys]);
                        let turned = &mut out[..queries + keys];
                        tables.turn(turned, at % tokens, heads.head_width, Way::Forward);
                    }
                },
            );
        });
    to_tensor(y, &[samples, tokens, row])
}

/// The gradients of queries, keys and values in one pass.
fn split<T: Float>(
    dy: &Tensor,
    heads: JoinedHeads,
    rotation: Option<&Rotation>,
) -> Result<[Tensor; 3]> {
    let (samples, tokens, row) = dy.dims3()?;
    let dys = View::<T>::new(OP, dy)?;
    let tables = Tables::<T>::new(rotation)?;
    let (queries, keys) = (
        heads.heads * heads.head_width,
        heads.key_heads * heads.head_width,
    );
    let part = |from: usize, width: usize, is_turned: bool| -> Result<Tensor> {
        let mut out = buffer::<T>(samples * tokens * width);
        let rows = row_chunks(width);
        let chunks = out.par_chunks_mut((rows * width).max(1)).enumerate();
        chunks.for_each(|(chunk, out)| {
            wide(
                #[inline(always)]
                || {
                    for (i, out) in out.chunks_exact_mut(width).enumerate() {
                        let at = chunk * rows + i;
                        out.copy_from_slice(&dys[at * row + from..][..width]);
                        if is_turned {
                            tables.turn(out, at % tokens, heads.head_width, Way::Backward);
                        }
                    }
                },
            );
        });
        to_tensor(out, &[samples, tokens, width])
    };
    Ok([
        part(0, queries, true)?,
        part(queries, keys, true)?,
        part(queries + keys, keys, false)?,
    ])
}
