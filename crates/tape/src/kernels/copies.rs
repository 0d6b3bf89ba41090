//! Copies between layouts: a strided tensor made contiguous, tensors joined along an axis, zeros
//! around an axis. Each is one launch per tensor. candle's kernels for this are slow on Metal: they
//! read and write with a stride between neighboring threads.
//!
//! `try_contiguous`, `try_joined` and `padded` return `None` if no kernel fits: the device has
//! none, or the copy needs more than 6 axes or 32-bit indices. Then candle copies. The bits are the
//! same.

use super::Argument::{self, Count, Out, Strided};
use super::{COPY_AXES, CopyShape, Grid, Kernel, KernelGroup, is_metal, run_on, uninit};
use crate::error::Result;
use crate::launch_grid::FEWER_ELEMENTS;
use crate::unshared_copy;
use candle_core::Tensor;

/// If both axes of a tile have at least this size, copying through shared memory is faster.
const TILED: usize = 16;
/// Rows and columns of a tile.
const TILE: usize = 32;

/// One axis: its size, and the elements between neighbors in both tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Axis {
    size: usize,
    read: usize,
    write: usize,
}

/// Zeros at both ends of an axis: how many come first, and how many values follow them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Padding {
    axis: usize,
    before: usize,
    inside: usize,
}

/// A copy whose axes are in the order of the tensor that is written.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Plan {
    axes: Vec<Axis>,
    padding: Option<Padding>,
}

/// `x` itself if it is contiguous, otherwise a contiguous copy. On Metal it is made by Ebb's
/// kernels: candle's are slow there, and read the wrong values of a half tensor that begins inside
/// a word.
///
/// # Errors
/// The device has too little memory.
pub fn contiguous(x: &Tensor) -> Result<Tensor> {
    if x.is_contiguous() {
        Ok(x.clone())
    } else {
        owned(x)
    }
}

/// As [`contiguous`], always in memory of its own.
pub(crate) fn owned(x: &Tensor) -> Result<Tensor> {
    if is_metal(x.device()) {
        copy(x)
    } else {
        Ok(x.force_contiguous()?)
    }
}

/// A contiguous copy of a tensor in memory of its own. On Metal it is in Ebb's pool, which does not
/// round its size up to a power of two. `Tensor::copy` of candle is no substitute: on Metal both
/// tensors share their memory.
///
/// # Errors
/// The device has too little memory, or the copy shares the memory of `x`.
pub fn copy(x: &Tensor) -> Result<Tensor> {
    if is_metal(x.device())
        && let Some(y) = try_contiguous(x)?
    {
        return unshared_copy::unshared(x, y);
    }
    unshared_copy::copy(x)
}

/// Tensors joined along an axis, in which alone they differ. A single one is not copied.
///
/// # Errors
/// The shapes do not fit, or the device has too little memory.
pub fn joined(parts: &[&Tensor], axis: usize) -> Result<Tensor> {
    if parts.len() > 1
        && is_metal(parts[0].device())
        && let Some(y) = try_joined(parts, axis)?
    {
        return Ok(y);
    }
    joined_by_candle(parts, axis)
}

/// As [`joined`], without a kernel that joins.
#[expect(clippy::disallowed_methods, reason = "all others call this function")]
pub(crate) fn joined_by_candle(parts: &[&Tensor], axis: usize) -> Result<Tensor> {
    let parts = parts.iter().map(|part| contiguous_on_metal(part));
    let parts = parts.collect::<Result<Vec<_>>>()?;
    Ok(Tensor::cat(&parts, axis)?)
}

/// `x` for an operation of candle that takes any layout. On Metal it is made contiguous by Ebb's
/// kernels first, because candle would copy a strided tensor through constant memory.
pub(crate) fn contiguous_on_metal(x: &Tensor) -> Result<Tensor> {
    if is_metal(x.device()) {
        contiguous(x)
    } else {
        Ok(x.clone())
    }
}

/// `x` in a new contiguous tensor.
pub(crate) fn try_contiguous(x: &Tensor) -> Result<Option<Tensor>> {
    let Some(plan) = Plan::new(x.dims(), x.stride(), x.dims(), None) else {
        return Ok(None);
    };
    if !run_on(KernelGroup::Copy, x) {
        return Ok(None);
    }
    let y = uninit(x.dims(), x.dtype(), x)?;
    plan.launch(x, &y, 0)?;
    Ok(Some(y))
}

/// Tensors that differ in one axis only, joined along it by kernels.
pub(crate) fn try_joined(parts: &[&Tensor], axis: usize) -> Result<Option<Tensor>> {
    let Some(&first) = parts.first() else {
        return Ok(None);
    };
    let fits = |part: &Tensor| {
        let others = |dims: &[usize]| [&dims[..axis], &dims[axis + 1..]].concat();
        part.dtype() == first.dtype()
            && part.device().same_device(first.device())
            && part.rank() == first.rank()
            && others(part.dims()) == others(first.dims())
    };
    if axis >= first.rank() || !parts.iter().all(|part| fits(part)) {
        return Ok(None);
    }
    let mut shape = first.dims().to_vec();
    shape[axis] = parts.iter().map(|part| part.dims()[axis]).sum();
    let plans = parts
        .iter()
        .map(|part| Plan::new(part.dims(), part.stride(), &shape, None));
    let Some(plans) = plans.collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    if !parts.iter().all(|part| run_on(KernelGroup::Copy, part)) {
        return Ok(None);
    }
    let (y, below) = (
        uninit(&shape, first.dtype(), first)?,
        shape[axis + 1..].iter().product::<usize>(),
    );
    let mut at = 0;
    for (part, plan) in parts.iter().zip(plans) {
        plan.launch(part, &y, at * below)?;
        at += part.dims()[axis];
    }
    Ok(Some(y))
}

/// `x` with zeros before and after it along an axis.
pub(crate) fn padded(
    x: &Tensor,
    axis: usize,
    before: usize,
    after: usize,
) -> Result<Option<Tensor>> {
    let mut shape = x.dims().to_vec();
    let Some(size) = shape.get_mut(axis) else {
        return Ok(None);
    };
    let padding = Padding {
        axis,
        before,
        inside: *size,
    };
    *size += before + after;
    let Some(plan) = Plan::new(&shape, x.stride(), &shape, Some(padding)) else {
        return Ok(None);
    };
    if x.elem_count() == 0 || !run_on(KernelGroup::Copy, x) {
        return Ok(None);
    }
    let y = uninit(&shape, x.dtype(), x)?;
    plan.launch(x, &y, 0)?;
    Ok(Some(y))
}

impl Plan {
    /// A copy of `sizes` elements with these steps into a contiguous tensor of the shape `whole`.
    /// `None` if it needs more axes or larger indices than a kernel has.
    fn new(
        sizes: &[usize],
        steps: &[usize],
        whole: &[usize],
        padding: Option<Padding>,
    ) -> Option<Self> {
        let mut below = 1;
        let mut axes: Vec<Axis> = Vec::with_capacity(sizes.len());
        for ((&size, &read), &whole) in sizes.iter().zip(steps).zip(whole).rev() {
            axes.push(Axis {
                size,
                read,
                write: below,
            });
            below = whole.checked_mul(below)?;
        }
        axes.reverse();
        let plan = Plan { axes, padding }.merged();
        let farthest = |step: fn(&Axis) -> usize| {
            let last = plan.axes.iter().map(|axis| {
                let last = axis.size.saturating_sub(1);
                last.checked_mul(step(axis))
            });
            last.sum::<Option<usize>>()
        };
        let indexable = below.max(farthest(|axis| axis.read)?) < FEWER_ELEMENTS;
        (indexable && plan.axes.len() <= COPY_AXES).then_some(plan)
    }

    /// The same copy with as few axes as possible: those of size 1 are dropped, and neighbors that
    /// a single step covers in both tensors become one.
    fn merged(self) -> Self {
        let mut merged: Vec<Axis> = Vec::new();
        let mut padding = None;
        for (i, axis) in self.axes.iter().enumerate() {
            let padded = self.padding.filter(|padding| padding.axis == i);
            if axis.size == 1 && padded.is_none() {
                continue;
            }
            let one_step = |outer: &&mut Axis| {
                outer.read == axis.read * axis.size && outer.write == axis.write * axis.size
            };
            match merged.last_mut().filter(one_step) {
                Some(outer) if padded.is_none() => {
                    *outer = Axis {
                        size: outer.size * axis.size,
                        ..*axis
                    };
                    // Only the axis that was added last can be merged with this one.
                    if let Some(Padding {
                        axis: place,
                        before,
                        inside,
                    }) = &mut padding
                        && *place + 1 == merged.len()
                    {
                        *before *= axis.size;
                        *inside *= axis.size;
                    }
                }
                _ => {
                    merged.push(*axis);
                    if let Some(padded) = padded {
                        padding = Some(Padding {
                            axis: merged.len() - 1,
                            ..padded
                        });
                    }
                }
            }
        }
        if merged.is_empty() {
            merged.push(Axis {
                size: 1,
                read: 1,
                write: 1,
            });
        }
        Plan {
            axes: merged,
            padding,
        }
    }

    fn count(&self) -> usize {
        self.axes.iter().map(|axis| axis.size).product()
    }

    /// The axis that is the innermost one of the tensor that is read, if tiles pay: it is another
    /// one than the innermost of the tensor that is written.
    fn turned(&self) -> Option<usize> {
        let (last, others) = self.axes.split_last()?;
        let turned = others.iter().position(|axis| axis.read == 1)?;
        let large = others[turned].size >= TILED && last.size >= TILED;
        (self.padding.is_none() && last.write == 1 && last.read > 1 && large).then_some(turned)
    }

    /// True if four neighbors are read and written as one word everywhere.
    fn by_four(&self, x: &Tensor, at: usize) -> bool {
        let Some((last, others)) = self.axes.split_last() else {
            return false;
        };
        let is_padded = |p: &Padding| p.axis + 1 == self.axes.len();
        let cut = self.padding.filter(is_padded);
        let cut = cut.map_or([0, 0], |p| [p.before, p.inside]);
        let steps = others.iter().flat_map(|axis| [axis.read, axis.write]);
        let start = x.layout().start_offset();
        let mut numbers = steps.chain(cut).chain([last.size, start, at]);
        (last.read, last.write) == (1, 1) && numbers.all(|number| number.is_multiple_of(4))
    }

    fn shape(&self) -> CopyShape {
        let list = |value: fn(&Axis) -> usize| {
            let mut list = [0; COPY_AXES];
            for (to, axis) in list.iter_mut().zip(&self.axes) {
                *to = value(axis) as u32;
            }
            list
        };
        let padding = self.padding.unwrap_or(Padding {
            axis: COPY_AXES,
            before: 0,
            inside: 0,
        });
        CopyShape {
            sizes: list(|axis| axis.size),
            read: list(|axis| axis.read),
            write: list(|axis| axis.write),
            axes: self.axes.len() as u32,
            padded: padding.axis as u32,
            before: padding.before as u32,
            inside: padding.inside as u32,
        }
    }

    /// Copies from `x` to `y`, beginning at element `at` of `y`.
    fn launch(mut self, x: &Tensor, y: &Tensor, at: usize) -> Result<()> {
        let count = self.count();
        if count == 0 {
            return Ok(());
        }
        if let Some(turned) = self.turned() {
            let last = self.axes.len() - 1;
            self.axes[turned..last].rotate_left(1);
            let [rows, columns] = [last - 1, last].map(|i| self.axes[i].size);
            let tiles = rows.div_ceil(TILE) * columns.div_ceil(TILE);
            let grid = Grid::groups(count / (rows * columns) * tiles, 8);
            let shape = self.shape();
            let arguments = [Strided(x), Out(y), Argument::CopyShape(&shape), Count(at)];
            return Kernel::typed("transposed_copy", x).launch(grid, &arguments, x.device());
        }
        let (shape, fours) = (self.shape(), usize::from(self.by_four(x, at)));
        let arguments = [
            Strided(x),
            Out(y),
            Argument::CopyShape(&shape),
            Count(count),
            Count(at),
            Count(fours),
        ];
        Kernel::typed("strided_copy", x).launch(Grid::elements(count), &arguments, x.device())
    }
}
