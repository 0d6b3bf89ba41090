//! Softmax cross-entropy with label smoothing, summed over samples, never averaged: the effective batch divides once.
//!
//! For row `z`, label `k`, smoothing `s`, `K` classes and `p = softmax(z)`: target `t = (1 - s) [k] + s / K`,
//! loss `= logsumexp(z) - sum t z`, `dz = p - t`. Forward computes the gradient at once. Saved: `dz` [samples, K], for
//! halves in f32: a loss scale must reach it before it is rounded.

use super::axes;
use crate::cpu::{Float, View, buffer, lanes, tensor_of, wide, with_float};
use crate::error::{Result, TapeError};
use crate::half::widened;
use crate::inplace::to_f64;
use crate::parameters::host_tensor;
use crate::tape::{Tape, Value};
use candle_core::{D, Tensor};

/// A loss of one piece, not yet divided by anything.
pub struct Loss {
    /// Sum over the piece's samples, a scalar.
    pub sum: Value,
    /// Each sample's loss, [samples].
    pub per_sample: Tensor,
}

impl Tape<'_> {
    /// Cross-entropy of `logits` [samples, classes] against `labels`, summed over samples.
    pub fn cross_entropy(&self, logits: &Value, labels: &[u32], smoothing: f64) -> Result<Loss> {
        self.poll()?;
        let [rows, classes] = axes("cross_entropy", "logits", logits)?;
        if rows != labels.len() {
            return Err(TapeError::Shape {
                op: "cross_entropy",
                what: "logits".to_owned(),
                expected: format!("{} rows, one a label", labels.len()),
                found: logits.tensor().shape().clone(),
            });
        }
        if let Some(row) = labels.iter().position(|&label| label as usize >= classes) {
            return Err(TapeError::Label {
                row,
                label: labels[row],
                classes,
            });
        }
        let dtype = logits.tensor().dtype();
        let z = widened(logits.tensor())?.contiguous()?;
        let (per_sample, dz) = if self.fuses(&z) {
            fused(&z, labels, smoothing)?
        } else {
            composed(&z, labels, smoothing)?
        };
        let total = per_sample.sum_all()?;
        let sum = if self.records(&[logits]) {
            let id = logits.id();
            self.push(total, &[&dz.clone()], move |factor, sink| {
                // A scalar read back: one GPU sync a loss term.
                let factor = to_f64(&factor)?[0];
                let dz = if factor == 1.0 { dz } else { (dz * factor)? };
                sink.give(id, dz.to_dtype(dtype)?)
            })
        } else {
            Value::constant(total)
        };
        Ok(Loss { sum, per_sample })
    }
}

fn fused(z: &Tensor, labels: &[u32], smoothing: f64) -> Result<(Tensor, Tensor)> {
    let (rows, classes) = z.dims2()?;
    with_float!("cross_entropy", z, T => {
        let zs = View::<T>::of("cross_entropy", z)?;
        let (mut losses, mut dz) = (Vec::with_capacity(rows), buffer::<T>(rows * classes));
        let (rest, full) = (T::of(smoothing / classes as f64), T::of(1.0 - smoothing));
        for ((z, dz), &label) in zs.chunks_exact(classes).zip(dz.chunks_exact_mut(classes)).zip(labels) {
            let (loss, label) = wide(|| row(z, dz, label as usize, full, rest));
            losses.push(loss);
            dz[label] -= full;
        }
        Ok((tensor_of(losses, &[rows])?, tensor_of(dz, &[rows, classes])?))
    })
}

/// Loss of one row; `dz` becomes `p - rest`.
#[inline(always)]
fn row<T: Float>(z: &[T], dz: &mut [T], label: usize, full: T, rest: T) -> (T, usize) {
    let highest = lanes::max(z);
    dz.iter_mut()
        .zip(z)
        .for_each(|(d, &z)| *d = (z - highest).exponential());
    let total = lanes::sum(dz, |v| v);
    let target = full * z[label] + rest * lanes::sum(z, |v| v);
    lanes::map(dz, |d| d / total - rest);
    (total.ln() + highest - target, label)
}

fn composed(z: &Tensor, labels: &[u32], smoothing: f64) -> Result<(Tensor, Tensor)> {
    let (rows, classes) = z.dims2()?;
    let mut target = vec![smoothing / classes as f64; rows * classes];
    labels
        .iter()
        .enumerate()
        .for_each(|(row, &label)| target[row * classes + label as usize] += 1.0 - smoothing);
    let target = host_tensor(target, &[rows, classes], z.dtype(), z.device())?;
    let highest = z.max_keepdim(D::Minus1)?;
    let exponentials = z.broadcast_sub(&highest)?.exp()?;
    let total = exponentials.sum_keepdim(D::Minus1)?;
    let losses = ((total.log()? + highest)?.squeeze(1)? - (z * &target)?.sum(D::Minus1)?)?;
    Ok((losses, (exponentials.broadcast_div(&total)? - target)?))
}
