//! Kernels of our own for a GPU: one source for Metal, CUDA and the lanes that tests run on the CPU. This file binds one kernel to
//! tensors on a device; what a kernel computes stands in `source`, what an operation asks for in `rows`, `elements`, `images`,
//! `attention` and `whole`. Refuses to know tape and gradients.
//!
//! Outputs come from the device's allocator, on Metal from a pool with classes of our own; numbers go by value. Reductions have an
//! order that the shapes fix, and nothing is added atomically: the same input gives the same bits.

#![cfg_attr(
    not(any(feature = "cuda", target_os = "macos", test)),
    allow(
        dead_code,
        unused_variables,
        reason = "without a GPU nothing is launched"
    )
)]

#[cfg(feature = "cuda")]
mod blas;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "cuda")]
pub(crate) mod batched_heads;
#[cfg(test)]
pub(crate) mod emulator;
#[cfg(target_os = "macos")]
pub(crate) mod metal;
#[cfg(any(target_os = "macos", test))]
mod buffer_pool;
#[cfg(any(feature = "cuda", target_os = "macos", test))]
mod source;
#[cfg(feature = "cuda")]
mod tensor_cores;
#[cfg(any(feature = "cuda", test))]
mod tiling;
#[cfg(feature = "cuda")]
pub(crate) mod upload;
pub(crate) mod attention;
pub mod bandwidth;
pub(crate) mod elements;
pub(crate) mod images;
pub mod product;
pub(crate) mod rows;
pub(crate) mod multi_tensor;

#[cfg(test)]
mod tests;

use crate::error::{Result, TapeError};
use candle_core::{DType, Device, Tensor};
use std::sync::atomic::{AtomicBool, Ordering};

/// The examination found a kernel wrong here: composed forms run instead.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Whether kernels run on this process's GPU. They do until an examination finds one wrong.
pub fn allow(allowed: bool) {
    REFUSED.store(!allowed, Ordering::Relaxed);
}

/// True where [`allow`] has not taken kernels away.
pub fn allowed() -> bool {
    !REFUSED.load(Ordering::Relaxed)
}

/// True when kernels exist for tensors like this one, here and now. Numbers of elements are 32 bits wide inside.
pub(crate) fn run_on(x: &Tensor) -> bool {
    let typed = matches!(x.dtype(), DType::F32 | DType::BF16 | DType::F16);
    typed && x.elem_count() < 1 << 31 && on_device(x.device())
}

fn on_device(device: &Device) -> bool {
    match device {
        Device::Cuda(_) => cfg!(feature = "cuda") && allowed(),
        Device::Metal(_) => cfg!(target_os = "macos") && allowed(),
        #[cfg(test)]
        Device::Cpu => emulator::on(),
        #[cfg(not(test))]
        Device::Cpu => false,
    }
}

/// What an element type's kernels end on.
fn suffix(dtype: DType) -> &'static str {
    match dtype {
        DType::BF16 => "bf16",
        DType::F16 => "f16",
        _ => "f32",
    }
}

/// Which text a kernel stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Module {
    /// Single precision only.
    Single,
    /// Once for each element type.
    Typed(DType),
}

/// A kernel by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Kernel {
    name: &'static str,
    module: Module,
}

impl Kernel {
    /// A kernel of single precision.
    pub fn single(name: &'static str) -> Self {
        Kernel {
            name,
            module: Module::Single,
        }
    }

    /// A kernel for elements as `x` has them.
    pub fn typed(name: &'static str, x: &Tensor) -> Self {
        Kernel {
            name,
            module: Module::Typed(x.dtype()),
        }
    }

    /// Its name in the compiled text.
    fn symbol(self) -> String {
        match self.module {
            Module::Single => self.name.to_owned(),
            Module::Typed(dtype) => format!("{}_{}", self.name, suffix(dtype)),
        }
    }
}

/// Groups of a pass over many tensors; field by field what the kernels' `TensorBatch` is.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct TensorBatch {
    /// Groups of threads up to and with each tensor.
    pub ends: [u32; 7],
    /// Values of each tensor.
    pub counts: [u32; 7],
    /// A number of each tensor.
    pub keep: [f32; 7],
    /// Numbers of the pass.
    pub values: [f32; 7],
}

/// What a kernel is called with, in order.
#[derive(Clone, Copy)]
pub(crate) enum Argument<'a> {
    /// Read.
    In(&'a Tensor),
    /// Written, in place: nobody else may hold its memory.
    Out(&'a Tensor),
    /// A size or a flag.
    Count(usize),
    /// A number.
    Number(f64),
    /// A pass over many tensors.
    TensorBatch(&'a TensorBatch),
}

/// How many simdgroups of 32 lanes, in groups that meet at barriers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grid {
    groups: usize,
    simds: usize,
}

impl Grid {
    /// So many groups of so many simdgroups.
    pub fn groups(groups: usize, simds: usize) -> Self {
        Grid { groups, simds }
    }

    /// A thread for every four elements.
    pub fn elements(count: usize) -> Self {
        Grid::groups(count.div_ceil(1024), 8)
    }

    /// A simdgroup for every row.
    pub fn rows(rows: usize) -> Self {
        Grid::groups(rows.div_ceil(4), 4)
    }
}

/// Runs a kernel on the device of its arguments, all contiguous.
pub(crate) fn launch(
    kernel: Kernel,
    grid: Grid,
    arguments: &[Argument],
    device: &Device,
) -> Result<()> {
    if grid.groups == 0 {
        return Ok(());
    }
    match device {
        #[cfg(feature = "cuda")]
        Device::Cuda(device) => cuda::launch(kernel, grid, arguments, device),
        #[cfg(target_os = "macos")]
        Device::Metal(device) => metal::launch(kernel, grid, arguments, device),
        #[cfg(test)]
        Device::Cpu => emulator::launch(kernel, grid, arguments),
        _ => Err(TapeError::Device(format!(
            "there is no kernel {} for this device",
            kernel.symbol()
        ))),
    }
}

/// A tensor that a kernel writes completely before anything reads it.
pub(crate) fn uninit(shape: &[usize], dtype: DType, like: &Tensor) -> Result<Tensor> {
    #[cfg(target_os = "macos")]
    if let Device::Metal(device) = like.device() {
        return metal::uninit(shape, dtype, device);
    }
    // SAFETY: every element is a plain number, and the kernel that it is made for writes all of them first.
    Ok(unsafe { Tensor::empty(shape, dtype, like.device())? })
}

/// As [`fresh`], of the shape and type of `x`.
fn uninit_like(x: &Tensor) -> Result<Tensor> {
    uninit(x.dims(), x.dtype(), x)
}

/// A gradient as the kernel of `x` reads it: in the same type.
fn alike(other: &Tensor, x: &Tensor) -> Result<Tensor> {
    Ok(other.to_dtype(x.dtype())?.contiguous()?)
}

/// A weight as kernels take it, in single precision.
fn single(x: &Tensor) -> Result<Tensor> {
    Ok(x.to_dtype(DType::F32)?.contiguous()?)
}

#[cfg(any(feature = "cuda", target_os = "macos"))]
fn expect_contiguous(kernel: Kernel, layout: &candle_core::Layout) -> Result<usize> {
    match layout.contiguous_offsets() {
        Some((start, _)) => Ok(start),
        None => Err(candle_core::Error::RequiresContiguous { op: kernel.name }.into()),
    }
}
