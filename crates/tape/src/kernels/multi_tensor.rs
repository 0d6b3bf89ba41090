//! Kernels for f32 only: cross-entropy, sums into the rows of an embedding, and passes over many
//! tensors, seven per launch.

use super::Argument::{self, Count, In, Number, Out};
use super::elementwise::fours;
use super::{Grid, Kernel, TensorBatch, uninit};
use crate::device_sync::read;
use crate::error::Result;
use candle_core::{DType, Tensor};

/// Turns scores [rows, classes] into their gradient in place and returns each row's loss. A row
/// with a target of `classes` or more has no loss. `wanted` is the probability of the target and
/// that of every class.
pub(crate) fn cross_entropy(
    scores: &Tensor,
    targets: &[u32],
    wanted: (f64, f64),
) -> Result<Tensor> {
    let targets = Tensor::new(targets, scores.device())?;
    cross_entropy_of(scores, &targets, wanted.0, wanted.1)
}

/// [`cross_entropy`] with the targets on the device; `full` is the probability of the target, and
/// `rest` that of every class.
pub(super) fn cross_entropy_of(
    scores: &Tensor,
    targets: &Tensor,
    full: f64,
    rest: f64,
) -> Result<Tensor> {
    let (rows, classes) = scores.dims2()?;
    let losses = uninit(&[rows], DType::F32, scores)?;
    let arguments = [
        Out(scores),
        In(targets),
        Out(&losses),
        Count(classes),
        Number(full),
        Number(rest),
        fours(&[scores], classes),
    ];
    // Enough simdgroups to hold a row in registers.
    let grid = Grid::groups(rows, classes.div_ceil(1024).clamp(1, 32));
    Kernel::single("cross_entropy").launch(grid, &arguments, scores.device())?;
    Ok(losses)
}

/// Adds runs of `sums` [runs, width] to rows of `dw`, in place: row `ids[u]` gets the runs
/// `firsts[u]..firsts[u + 1]`.
pub(crate) fn add_runs(sums: &Tensor, firsts: &Tensor, ids: &Tensor, dw: &Tensor) -> Result<()> {
    let (width, used) = (dw.dim(1)?, ids.dim(0)?);
    let arguments = [
        In(sums),
        In(firsts),
        In(ids),
        Out(dw),
        Count(width),
        Count(used),
    ];
    let grid = Grid::each(used * width);
    Kernel::single("add_runs").launch(grid, &arguments, dw.device())
}

/// Elements per thread group, and the same for sums.
const EACH: usize = 1024;
const EACH_SUMMED: usize = 16384;

/// The groups of a launch over up to seven tensors, with one number per tensor.
fn batch(
    sizes: impl Iterator<Item = (usize, f64)>,
    values: &[f64],
    each: usize,
) -> (TensorBatch, usize) {
    let (mut batch, mut end) = (TensorBatch::default(), 0);
    for (k, (count, keep)) in sizes.enumerate() {
        end += count.div_ceil(each);
        batch.ends[k..].fill(end as u32);
        batch.counts[k] = count as u32;
        batch.keep[k] = keep as f32;
    }
    for (to, &value) in batch.values.iter_mut().zip(values) {
        *to = value as f32;
    }
    (batch, end)
}

/// Seven arguments. If there are fewer tensors, the last one is repeated; no thread group works on
/// the repetitions.
fn bind<'a>(
    tensors: impl Iterator<Item = &'a Tensor>,
    how: fn(&'a Tensor) -> Argument<'a>,
) -> Vec<Argument<'a>> {
    let mut bound: Vec<_> = tensors.map(how).collect();
    if let Some(&last) = bound.last() {
        bound.resize(7, last);
    }
    bound
}

/// A parameter of AdamW with its moments and gradient, all f32.
pub(crate) struct Moved<'a> {
    /// The parameter and its first and second moments; written in place.
    pub written: [&'a Tensor; 3],
    pub gradient: &'a Tensor,
    /// `1 - rate decay` of AdamW, or the decay that SGD adds to the gradient.
    pub keep: f64,
}

/// The numbers that all parameters of an AdamW step share.
pub(crate) struct AdamNumbers {
    /// Learning rate over the bias correction of the first moment.
    pub rate: f64,
    /// Decays of the moments.
    pub betas: (f64, f64),
    /// Factor on the gradient.
    pub factor: f64,
    /// One over the bias correction of the second moment.
    pub root: f64,
    /// Added to the root.
    pub epsilon: f64,
}

/// One AdamW step, in place.
pub(crate) fn adamw(all: &[Moved], numbers: &AdamNumbers) -> Result<()> {
    let (beta1, beta2) = numbers.betas;
    let values = [
        numbers.rate,
        1.0 - beta1,
        1.0 - beta2,
        beta1,
        beta2,
        numbers.factor,
        numbers.root,
    ];
    for some in all.chunks(7) {
        let sizes = some.iter().map(|m| (m.gradient.elem_count(), m.keep));
        let (batch, groups) = batch(sizes, &values, EACH);
        let mut arguments = Vec::with_capacity(30);
        for part in 0..3 {
            arguments.extend(bind(some.iter().map(|m| m.written[part]), Out));
        }
        arguments.extend(bind(some.iter().map(|m| m.gradient), In));
        arguments.extend([Argument::TensorBatch(&batch), Number(numbers.epsilon)]);
        let device = some[0].gradient.device();
        Kernel::single("adamw").launch(Grid::groups(groups, 8), &arguments, device)?;
    }
    Ok(())
}

/// One step of SGD with momentum, in place; second moments are ignored.
pub(crate) fn sgd(all: &[Moved], rate: f64, momentum: f64, factor: f64) -> Result<()> {
    for some in all.chunks(7) {
        let sizes = some.iter().map(|m| (m.gradient.elem_count(), m.keep));
        let (batch, groups) = batch(sizes, &[rate, momentum, factor], EACH);
        let mut arguments = Vec::with_capacity(22);
        for part in 0..2 {
            arguments.extend(bind(some.iter().map(|m| m.written[part]), Out));
        }
        arguments.extend(bind(some.iter().map(|m| m.gradient), In));
        arguments.push(Argument::TensorBatch(&batch));
        let device = some[0].gradient.device();
        Kernel::single("sgd").launch(Grid::groups(groups, 8), &arguments, device)?;
    }
    Ok(())
}

/// `sum += gradient` of each pair, in place.
pub(crate) fn accumulate(pairs: &[(&Tensor, &Tensor)]) -> Result<()> {
    write_first("accumulate", pairs, &[])
}

/// `average = decay average + (1 - decay) parameter` of each pair, in place.
pub(crate) fn average(pairs: &[(&Tensor, &Tensor)], decay: f64) -> Result<()> {
    write_first("average", pairs, &[decay, 1.0 - decay])
}

/// A pass that writes the first tensor of each pair, all f32.
fn write_first(name: &'static str, pairs: &[(&Tensor, &Tensor)], values: &[f64]) -> Result<()> {
    for some in pairs.chunks(7) {
        let sizes = some.iter().map(|(first, _)| (first.elem_count(), 0.0));
        let (batch, groups) = batch(sizes, values, EACH);
        let mut arguments = bind(some.iter().map(|(first, _)| *first), Out);
        arguments.extend(bind(some.iter().map(|(_, second)| *second), In));
        let all: Vec<_> = some.iter().flat_map(|&(a, b)| [a, b]).collect();
        arguments.extend([Argument::TensorBatch(&batch), fours(&all, 4)]);
        let device = some[0].0.device();
        Kernel::single(name).launch(Grid::groups(groups, 8), &arguments, device)?;
    }
    Ok(())
}

/// The sum of squares of each tensor, with partial sums added in f64 on the host: one read-back for
/// all of them.
pub(crate) fn square_sums(tensors: &[Tensor]) -> Result<Vec<f64>> {
    let parts: Vec<usize> = tensors
        .iter()
        .map(|t| t.elem_count().div_ceil(EACH_SUMMED))
        .collect();
    let Some(first) = tensors.first() else {
        return Ok(Vec::new());
    };
    let sums = uninit(&[parts.iter().sum()], DType::F32, first)?;
    let mut at = 0;
    for some in tensors.chunks(7) {
        let (batch, groups) = batch(some.iter().map(|t| (t.elem_count(), 0.0)), &[], EACH_SUMMED);
        let mut arguments = bind(some.iter(), In);
        let all: Vec<_> = some.iter().collect();
        arguments.extend([
            Out(&sums),
            Argument::TensorBatch(&batch),
            Count(at),
            fours(&all, 4),
        ]);
        Kernel::single("square_sums").launch(
            Grid::groups(groups, 8),
            &arguments,
            first.device(),
        )?;
        at += groups;
    }
    let mut sums = read::<f32>(&sums)?.into_iter().map(f64::from);
    let sum = |&parts: &usize| sums.by_ref().take(parts).sum();
    Ok(parts.iter().map(sum).collect())
}
