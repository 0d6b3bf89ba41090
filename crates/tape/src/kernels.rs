//! GPU kernels, written once for Metal, CUDA and the CPU emulator of the tests. This file launches
//! one kernel with tensors on a device. The kernels themselves are in `source`; the operations call
//! them through `rows`, `elements`, `images`, `attention`, `grouped_heads` and `multi_tensor`.
//!
//! Outputs come from the device's allocator, on Metal from our own pool with finer size classes;
//! numbers are passed by value. Reductions run in an order that the shapes determine, and nothing
//! is added atomically, so the same input gives the same bits.

#![cfg_attr(
    not(any(feature = "cuda", target_os = "macos", test)),
    allow(
        dead_code,
        unused_variables,
        reason = "without a GPU nothing is launched"
    )
)]

#[cfg(feature = "cuda")]
mod cublas;
#[cfg(feature = "cuda")]
mod cuda_error;
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
mod allowed_kernels;
mod launch_times;
mod source;
#[cfg(feature = "cuda")]
mod tensor_cores;
#[cfg(any(feature = "cuda", test))]
mod tiling;
#[cfg(feature = "cuda")]
pub(crate) mod cuda_upload;
pub(crate) mod attention;
pub mod bandwidth;
pub(crate) mod copies;
pub(crate) mod elementwise;
pub(crate) mod convolution_choice;
pub(crate) mod convolutions;
pub(crate) mod feature_maps;
pub(crate) mod grouped_heads;
pub(crate) mod matmul;
pub(crate) mod row_kernels;
pub(crate) mod rotated_heads;
pub(crate) mod multi_tensor;

#[cfg(test)]
mod tests;

use self::copies::contiguous;
use crate::convert_dtype::convert;
use crate::error::{Result, TapeError};
use crate::launch_grid::{FEWER_ELEMENTS, Grid};
use candle_core::{DType, Device, Tensor};

pub use allowed_kernels::{
    AllowedKernels, KernelGroup, allow, allow_all_except, allow_group, take_used,
};
pub use convolution_choice::{TYPICAL_CONVOLUTIONS, use_direct_convolutions};
pub use launch_times::LaunchTimer;
pub use source::fingerprint;

/// True if kernels of this group exist for tensors like this one on this device, and are right
/// there. Kernels index elements with 32 bits.
pub(crate) fn run_on(group: KernelGroup, x: &Tensor) -> bool {
    run_in(x.dtype(), group, x)
}

/// As [`run_on`], of kernels that are compiled for another element type than that of `x`.
fn run_in(dtype: DType, group: KernelGroup, x: &Tensor) -> bool {
    let typed = matches!(dtype, DType::F32 | DType::BF16 | DType::F16);
    let runs = typed
        && x.elem_count() < FEWER_ELEMENTS
        && on_device(x.device())
        && allowed_kernels::is_allowed(group, dtype);
    if runs {
        allowed_kernels::record(group, dtype);
    }
    runs
}

/// True if [`elementwise::rounded`] rounds this tensor.
pub(crate) fn rounds(x: &Tensor, dtype: DType) -> bool {
    x.dtype() == DType::F32 && x.is_contiguous() && run_in(dtype, KernelGroup::Conversion, x)
}

/// True if some kernel exists for tensors like this one on this device.
pub(crate) fn exist_for(x: &Tensor) -> bool {
    matches!(x.dtype(), DType::F32 | DType::BF16 | DType::F16) && on_device(x.device())
}

fn on_device(device: &Device) -> bool {
    match device {
        Device::Cuda(_) => cfg!(feature = "cuda"),
        Device::Metal(_) => cfg!(target_os = "macos"),
        #[cfg(test)]
        Device::Cpu => emulator::on(),
        #[cfg(not(test))]
        Device::Cpu => false,
    }
}

/// True for Metal, and in tests for the emulator in its place.
pub(crate) fn is_metal(device: &Device) -> bool {
    #[cfg(test)]
    if device.is_cpu() {
        return emulator::on();
    }
    device.is_metal()
}

/// The suffix of a kernel's name for an element type.
fn suffix(dtype: DType) -> &'static str {
    match dtype {
        DType::BF16 => "bf16",
        DType::F16 => "f16",
        _ => "f32",
    }
}

/// The source file of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Module {
    /// Compiled for f32 only.
    Single,
    /// Compiled once per element type.
    Typed(DType),
    /// Convolutions without columns, compiled once per element type, and apart from the others
    /// because they need more of a GPU.
    Convolution(DType),
}

/// A kernel, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Kernel {
    name: &'static str,
    module: Module,
}

impl Kernel {
    /// A kernel for f32 only.
    pub fn single(name: &'static str) -> Self {
        Kernel {
            name,
            module: Module::Single,
        }
    }

    /// A kernel for the element type of `x`.
    pub fn typed(name: &'static str, x: &Tensor) -> Self {
        Kernel {
            name,
            module: Module::Typed(x.dtype()),
        }
    }

    /// A kernel for convolutions of the element type of `x`.
    pub fn convolution(name: &'static str, x: &Tensor) -> Self {
        Kernel {
            name,
            module: Module::Convolution(x.dtype()),
        }
    }

    /// Its name in the compiled source.
    fn symbol(self) -> String {
        match self.module {
            Module::Single => self.name.to_owned(),
            Module::Typed(dtype) | Module::Convolution(dtype) => {
                format!("{}_{}", self.name, suffix(dtype))
            }
        }
    }

    /// Runs the kernel on the device.
    ///
    /// # Errors
    /// [`TapeError::Memory`] if 32 bits cannot index a tensor, or the device fails.
    pub fn launch(self, grid: Grid, arguments: &[Argument], device: &Device) -> Result<()> {
        if grid.is_empty() {
            return Ok(());
        }
        self.expect_indexable(grid, arguments)?;
        launch_times::launched(self, grid, device, || {
            self.launch_on(grid, arguments, device)
        })
    }

    fn launch_on(self, grid: Grid, arguments: &[Argument], device: &Device) -> Result<()> {
        match device {
            #[cfg(feature = "cuda")]
            Device::Cuda(device) => cuda::launch(self, grid, arguments, device),
            #[cfg(target_os = "macos")]
            Device::Metal(device) => metal::launch(self, grid, arguments, device),
            #[cfg(test)]
            Device::Cpu => emulator::launch(self, grid, arguments),
            _ => Err(TapeError::Device(format!(
                "there is no kernel {} for this device",
                self.symbol()
            ))),
        }
    }

    /// Kernels count elements and threads with 32 bits.
    fn expect_indexable(self, grid: Grid, arguments: &[Argument]) -> Result<()> {
        let counts = arguments.iter().filter_map(|argument| match argument {
            Argument::Count(count) => Some(*count),
            _ => None,
        });
        let elements = arguments.iter().filter_map(Argument::elements);
        grid.expect_indexable(counts, elements, || self.symbol())
    }
}

/// The groups of a pass over up to seven tensors; the kernels declare the same struct.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct TensorBatch {
    /// Thread groups up to and including each tensor.
    pub ends: [u32; 7],
    pub counts: [u32; 7],
    pub keep: [f32; 7],
    /// Numbers of the pass.
    pub values: [f32; 7],
}

/// The most axes of a copy, after neighbors that a single step covers are merged.
const COPY_AXES: usize = 6;

/// The shape of a copy between layouts; the kernels declare the same struct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct CopyShape {
    sizes: [u32; COPY_AXES],
    /// Elements between neighbors of each axis in the tensor that is read.
    read: [u32; COPY_AXES],
    /// The same in the tensor that is written.
    write: [u32; COPY_AXES],
    axes: u32,
    /// The axis whose ends are zeros, or [`COPY_AXES`].
    padded: u32,
    /// Zeros at the beginning of that axis.
    before: u32,
    /// Its values after them that are read.
    inside: u32,
}

/// An argument of a kernel, in order.
#[derive(Clone, Copy)]
pub(crate) enum Argument<'a> {
    /// Read only, contiguous.
    In(&'a Tensor),
    /// Read only, in any layout: the kernel gets the first element.
    Strided(&'a Tensor),
    /// Contiguous, and written in place: nothing else may hold its memory.
    Out(&'a Tensor),
    /// A size or a flag.
    Count(usize),
    Number(f64),
    /// The groups of a pass over many tensors.
    TensorBatch(&'a TensorBatch),
    CopyShape(&'a CopyShape),
}

impl Argument<'_> {
    /// Elements from the first to the last one of its tensor, which the kernel indexes; `None` if
    /// it is no tensor. Batches of tensors hold the counts themselves.
    fn elements(&self) -> Option<usize> {
        match self {
            Argument::In(tensor) | Argument::Out(tensor) => Some(tensor.elem_count()),
            Argument::Strided(tensor) => {
                let axes = tensor.dims().iter().zip(tensor.stride());
                let steps = axes.map(|(&size, &step)| size.saturating_sub(1).saturating_mul(step));
                Some(steps.fold(1, usize::saturating_add))
            }
            _ => None,
        }
    }
}

/// A kernel as the device's compiler made it.
#[derive(Debug, Clone, PartialEq)]
pub struct CompiledKernel {
    /// Its name with its element type, as in `layer_norm_f32`.
    pub name: String,
    /// Most threads of a group: fewer the more registers it uses.
    pub most_threads: usize,
    /// Time of its widest launch in milliseconds, with the launch and the wait for the device;
    /// `None` unless a [`LaunchTimer`] measured one.
    pub ms: Option<f64>,
}

impl CompiledKernel {
    fn new(kernel: Kernel, most_threads: usize) -> Self {
        let name = kernel.symbol();
        let ms = launch_times::launch_ms(&name);
        CompiledKernel {
            name,
            most_threads,
            ms,
        }
    }
}

/// Kernels that are compiled and loaded in background threads. They stay loaded until this is
/// dropped, which waits for the threads.
#[must_use = "the kernels are unloaded when this is dropped"]
pub struct LoadingKernels {
    #[cfg(feature = "cuda")]
    _loading: Option<cuda::Loading>,
}

/// Begins to compile all kernels for the device, for a caller that will need all of them. On CUDA
/// only, where the driver needs seconds for each module.
pub fn load_all(device: &Device) -> LoadingKernels {
    let _ = device;
    LoadingKernels {
        #[cfg(feature = "cuda")]
        _loading: match device {
            Device::Cuda(device) => Some(cuda::load_all(device)),
            _ => None,
        },
    }
}

/// The kernels that were compiled for the device so far, by name; on CUDA those of this thread.
pub fn compiled(device: &Device) -> Vec<CompiledKernel> {
    #[allow(unused_mut, reason = "without a GPU nothing is compiled")]
    let mut all: Vec<CompiledKernel> = match device {
        #[cfg(feature = "cuda")]
        Device::Cuda(device) => cuda::compiled(device),
        #[cfg(target_os = "macos")]
        Device::Metal(device) => metal::compiled(device),
        _ => Vec::new(),
    };
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// An uninitialized tensor, which a kernel writes completely before anything reads it.
pub(crate) fn uninit(shape: &[usize], dtype: DType, like: &Tensor) -> Result<Tensor> {
    #[cfg(target_os = "macos")]
    if let Device::Metal(device) = like.device() {
        return metal::uninit(shape, dtype, device);
    }
    // SAFETY: every bit pattern is a valid number, and the kernel writes all elements before
    // anything reads them.
    Ok(unsafe { Tensor::empty(shape, dtype, like.device())? })
}

/// [`uninit`] with the shape and type of `x`.
fn uninit_like(x: &Tensor) -> Result<Tensor> {
    uninit(x.dims(), x.dtype(), x)
}

/// `other` in the element type of `x`, contiguous.
fn alike(other: &Tensor, x: &Tensor) -> Result<Tensor> {
    contiguous(&convert(other, x.dtype())?)
}

/// `x` in f32, contiguous: the type in which kernels take weights.
fn single(x: &Tensor) -> Result<Tensor> {
    contiguous(&convert(x, DType::F32)?)
}

#[cfg(any(feature = "cuda", target_os = "macos"))]
fn expect_contiguous(kernel: Kernel, layout: &candle_core::Layout) -> Result<usize> {
    match layout.contiguous_offsets() {
        Some((start, _)) => Ok(start),
        None => Err(candle_core::Error::RequiresContiguous { op: kernel.name }.into()),
    }
}

/// The first element of a tensor in any layout.
#[cfg(any(feature = "cuda", target_os = "macos"))]
fn begin(_: Kernel, layout: &candle_core::Layout) -> Result<usize> {
    Ok(layout.start_offset())
}
