//! Softmax cross-entropy, summed over rows, never averaged: the effective batch divides once, by
//! [`ClassTargets::weight`].
//!
//! For a row `z` with `K` classes of weights `w`, smoothing `s`, target probabilities `t` (one-hot
//! for a label) and `p = softmax(z)`: the target is `a = w ((1 - s) t + s / K)`, `A = sum a`, loss
//! `= A logsumexp(z) - sum a z`, `dz = A p - a`. Ignored rows give zeros. The forward pass computes
//! the gradient. Saved: `dz` [rows, K], in f32 for half types, because a loss scale must be applied
//! before it is rounded.

use super::class_targets::{ClassRule, ClassTargets};
use super::{Form, IGNORED, Loss, axes, expect_filled, misfit, record_loss};
use crate::convert_dtype::{host_tensor, widened};
use crate::cpu::{Float, View, buffer, row_chunks, to_tensor, vectorized_rows, wide, with_float};
use crate::error::Result;
use crate::kernels::KernelGroup;
use crate::kernels::copies::{contiguous, copy};
use crate::kernels::multi_tensor;
use crate::tape::{Tape, Value};
use candle_core::{D, Tensor};
use rayon::prelude::*;

impl Tape<'_> {
    /// Cross-entropy of `logits` [samples, classes] against `labels`, summed over samples.
    pub fn cross_entropy(&self, logits: &Value, labels: &[u32], smoothing: f64) -> Result<Loss> {
        let rule = ClassRule {
            smoothing,
            class_weights: None,
        };
        self.class_cross_entropy(logits, ClassTargets::Labels(labels), &rule)
    }

    /// Cross-entropy of `logits` [rows, classes] against labels or probabilities, summed over rows,
    /// each class with its weight.
    pub fn class_cross_entropy(
        &self,
        logits: &Value,
        targets: ClassTargets,
        rule: &ClassRule,
    ) -> Result<Loss> {
        self.poll()?;
        let [rows, classes] = axes("cross_entropy", "logits", logits)?;
        expect_filled("cross_entropy", "logits", logits)?;
        let fits = match targets {
            ClassTargets::Labels(labels) => labels.len() == rows,
            ClassTargets::Probabilities(shares) => shares.len() == rows * classes,
        };
        if !fits {
            let expected = match targets {
                ClassTargets::Labels(labels) => format!("{} rows, one per label", labels.len()),
                ClassTargets::Probabilities(shares) => {
                    format!("as many elements as the {} probabilities", shares.len())
                }
            };
            return Err(misfit("cross_entropy", "logits", expected, logits));
        }
        targets.expect_valid(rule, classes)?;
        let z = contiguous(&widened(logits.tensor())?)?;
        let (per_sample, dz) = match (
            self.form(KernelGroup::CrossEntropy, &z),
            targets,
            rule.class_weights,
        ) {
            (Form::Device, ClassTargets::Labels(labels), None) => {
                let dz = copy(&z)?;
                let wanted = (1.0 - rule.smoothing, rule.smoothing / classes as f64);
                (multi_tensor::cross_entropy(&dz, labels, wanted)?, dz)
            }
            (Form::Cpu, ..) => with_float!("cross_entropy", z, T => fused::<T>(&z, targets, rule))?,
            _ => composed(&z, targets, rule)?,
        };
        record_loss::record_loss(self, logits, per_sample, dz)
    }
}

fn fused<T: Float>(
    z: &Tensor,
    targets: ClassTargets,
    rule: &ClassRule,
) -> Result<(Tensor, Tensor)> {
    let (rows, classes) = z.dims2()?;
    let zs = View::<T>::new("cross_entropy", z)?;
    let (mut losses, mut dz) = (buffer::<T>(rows), buffer::<T>(rows * classes));
    let (rest, full) = (
        T::from_constant(rule.smoothing / classes as f64),
        T::from_constant(1.0 - rule.smoothing),
    );
    let chunk = row_chunks(classes);
    losses
        .par_chunks_mut(chunk)
        .zip(dz.par_chunks_mut(chunk * classes))
        .zip(zs.par_chunks(chunk * classes))
        .enumerate()
        .for_each(|(number, ((losses, dz), z))| {
            let mut wanted = Vec::new();
            let rows = dz.chunks_exact_mut(classes).zip(z.chunks_exact(classes));
            for (i, (loss, (dz, z))) in losses.iter_mut().zip(rows).enumerate() {
                let row = number * chunk + i;
                *loss = match (targets, rule.class_weights) {
                    // The common case needs no row of targets.
                    (ClassTargets::Labels(labels), None) if labels[row] != IGNORED => {
                        let label = labels[row] as usize;
                        let loss = wide(
                            #[inline(always)]
                            || label_row(z, dz, label, full, rest),
                        );
                        dz[label] -= full;
                        loss
                    }
                    _ => {
                        wanted.resize(classes, 0.0);
                        let sum = targets.fill(rule, row, &mut wanted);
                        wanted_row(z, dz, &wanted, sum)
                    }
                };
            }
        });
    Ok((
        to_tensor(losses, &[rows])?,
        to_tensor(dz, &[rows, classes])?,
    ))
}

/// Sets `dz` to `e^(z - highest)` and returns the highest value and the sum.
#[inline(always)]
fn exponentials<T: Float>(z: &[T], dz: &mut [T]) -> (T, T) {
    let highest = vectorized_rows::max(z);
    dz.iter_mut()
        .zip(z)
        .for_each(|(d, &z)| *d = (z - highest).exponential());
    (highest, vectorized_rows::sum(dz, |v| v))
}

/// The loss of one row with a label; `dz` becomes `p - rest`.
#[inline(always)]
fn label_row<T: Float>(z: &[T], dz: &mut [T], label: usize, full: T, rest: T) -> T {
    let (highest, total) = exponentials(z, dz);
    let target = full * (z[label] - highest) + rest * vectorized_rows::sum(z, |z| z - highest);
    vectorized_rows::map(dz, |d| d / total - rest);
    total.ln() - target
}

/// The loss of one row with the targets `wanted`, which add up to `sum`.
fn wanted_row<T: Float>(z: &[T], dz: &mut [T], wanted: &[f64], sum: f64) -> T {
    if sum == 0.0 {
        dz.fill(T::zero());
        return T::zero();
    }
    let (highest, total) = exponentials(z, dz);
    let (mut target, share) = (T::zero(), T::from_constant(sum) / total);
    for ((d, &z), &wanted) in dz.iter_mut().zip(z).zip(wanted) {
        let wanted = T::from_constant(wanted);
        target += wanted * (z - highest);
        *d = *d * share - wanted;
    }
    T::from_constant(sum) * total.ln() - target
}

fn composed(z: &Tensor, targets: ClassTargets, rule: &ClassRule) -> Result<(Tensor, Tensor)> {
    let (rows, classes) = z.dims2()?;
    let mut wanted = vec![0.0; rows * classes];
    let sums = wanted.chunks_exact_mut(classes).enumerate();
    let sums = sums.map(|(row, wanted)| targets.fill(rule, row, wanted));
    let sums = host_tensor(sums.collect(), &[rows, 1], z.dtype(), z.device())?;
    let wanted = host_tensor(wanted, &[rows, classes], z.dtype(), z.device())?;
    let shifted = z.broadcast_sub(&z.max_keepdim(D::Minus1)?)?;
    let exponentials = shifted.exp()?;
    let total = exponentials.sum_keepdim(D::Minus1)?;
    let losses = (total.log()? * &sums)?.squeeze(1)?;
    let losses = (losses - (shifted * &wanted)?.sum(D::Minus1)?)?;
    let shares = exponentials.broadcast_mul(&(sums / total)?)?;
    Ok((losses, (shares - wanted)?))
}
