//! Kernels on Metal: compiled from source once per process and encoded into candle's own command
//! buffers. Buffers are bound with `set_input_buffer` and `set_output_buffer`, so that candle
//! tracks hazards; the buffers themselves are untracked. Outputs, also of matrix products, come
//! from our own pool, with finer size classes than candle's powers of two.

use super::buffer_pool::BufferPool;
use super::{Argument, CompiledKernel, Grid, Kernel, Module, begin, expect_contiguous, source};
use crate::command_buffer_budget;
use crate::device_sync::synchronize;
use crate::error::{Result, TapeError};
use crate::objective_c::guarded;
use candle_core::metal_backend::{DeviceId, MetalDevice};
use candle_core::op::BackpropOp;
use candle_core::{DType, Device, Layout, MetalError, MetalStorage, Storage, Tensor};
use candle_metal_kernels::metal::{
    Buffer, CommandsGuard, ComputeCommandEncoder, ComputePipeline, Library,
};
use candle_metal_kernels::{GemmDType, call_mlx_gemm};
use objc2_metal::{MTLCompileOptions, MTLMathFloatingPointFunctions, MTLMathMode, MTLSize};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// What a process compiles once for a GPU, known by its registry number: each run, and each device
/// that replaces a lost one, uses it.
type Compiled<K, V> = LazyLock<Mutex<HashMap<(u64, K), V>>>;
static LIBRARIES: Compiled<Module, Library> = LazyLock::new(Mutex::default);
static PIPELINES: Compiled<Kernel, ComputePipeline> = LazyLock::new(Mutex::default);

thread_local! {
    /// A device is used by one thread.
    static POOLS: RefCell<HashMap<DeviceId, DevicePool>> = RefCell::default();
}

/// The pool of a device, which it keeps alive.
struct DevicePool {
    device: MetalDevice,
    pool: BufferPool<Buffer>,
}

impl DevicePool {
    fn new(device: &MetalDevice) -> Self {
        DevicePool {
            device: device.clone(),
            pool: BufferPool::default(),
        }
    }

    /// Frees buffers that were removed from the pool. The residency set holds a buffer until it is
    /// unregistered.
    fn free(device: &MetalDevice, buffers: &[Arc<Buffer>]) {
        device.unregister_buffers(buffers.iter().map(|buffer| &**buffer));
    }
}

impl Drop for DevicePool {
    /// Frees the buffers that no tensor uses, also if the thread ends. Nothing waits for the device
    /// here: commands that still run hold the buffers that they use. A buffer of a tensor stays in
    /// the residency set until the device is dropped.
    fn drop(&mut self) {
        let idle = self.pool.idle();
        // An exception must not leave a destructor.
        let _ = guarded(|| {
            DevicePool::free(&self.device, &idle);
            Ok(())
        });
    }
}

/// An uninitialized tensor. If the device has too little memory, the unused buffers of the pool are
/// freed first. Any other failure is returned at once: nothing more runs on a device after an
/// exception.
pub(super) fn uninit(shape: &[usize], dtype: DType, device: &MetalDevice) -> Result<Tensor> {
    let count = shape.iter().product::<usize>();
    let bytes = count * dtype.size_in_bytes();
    let take = || {
        POOLS.with_borrow_mut(|pools| {
            let make = |class| device.new_private_buffer(class, DType::U8, "");
            let of_device = pools.entry(device.id());
            let of_device = of_device.or_insert_with(|| DevicePool::new(device));
            of_device.pool.take(bytes, make)
        })
    };
    let buffer = guarded(|| Ok(take()?)).or_else(|error: TapeError| {
        if !error.is_memory() {
            return Err(error);
        }
        synchronize(&Device::Metal(device.clone()))?;
        trim(device);
        guarded(|| Ok(take()?))
    })?;
    let storage = MetalStorage::new(buffer, device.clone(), count, dtype);
    let storage = Storage::Metal(storage);
    Ok(Tensor::from_storage(
        storage,
        shape,
        BackpropOp::none(),
        false,
    ))
}

/// Frees the buffers of the pool that no tensor uses. Synchronize first: no command may still use
/// them.
pub(crate) fn trim(device: &MetalDevice) {
    let idle = POOLS.with_borrow_mut(|pools| {
        let of_device = pools.get_mut(&device.id());
        of_device.map_or_else(Vec::new, |of_device| of_device.pool.idle())
    });
    DevicePool::free(device, &idle);
}

/// Begins the next micro-batch, and frees the buffers that no recent one used. Synchronize first.
pub(crate) fn trim_old(device: &MetalDevice) {
    let old = POOLS.with_borrow_mut(|pools| {
        let of_device = pools.get_mut(&device.id());
        of_device.map_or_else(Vec::new, |of_device| of_device.pool.next_round())
    });
    DevicePool::free(device, &old);
}

/// Forgets the pool of a device on this thread. Tensors keep their memory.
pub(crate) fn forget_pool(device: &MetalDevice) {
    // Dropped after the borrow.
    let forgotten = POOLS.with_borrow_mut(|pools| pools.remove(&device.id()));
    drop(forgotten);
}

/// Frees the pool of a device that was lost. Tensors keep their memory until they are dropped.
pub(crate) fn discard(device: &MetalDevice) {
    let removed = POOLS.with_borrow_mut(|pools| pools.remove(&device.id()));
    let buffers = removed.map_or_else(Vec::new, |mut of_device| {
        std::mem::take(&mut of_device.pool).into_buffers()
    });
    // The system keeps registered buffers in memory for as long as anything holds the device.
    DevicePool::free(device, &buffers);
}

/// Forgets the pools of all devices, which belong to runs that have ended or to a device that was
/// lost. Tensors keep their memory.
pub(crate) fn forget_pools() {
    // Dropped after the borrow.
    let forgotten = POOLS.with_borrow_mut(std::mem::take);
    drop(forgotten);
}

/// Where the next kernel is written. Holds the lock of the queue until it is dropped. candle counts
/// these requests, and after some of them begins another command buffer.
fn encoder(device: &MetalDevice) -> Result<CommandsGuard<'_>> {
    for _ in 1..command_buffer_budget::launch() {
        drop(device.command_encoder()?);
    }
    Ok(device.command_encoder()?)
}

/// Runs a kernel.
pub(super) fn launch(
    kernel: Kernel,
    grid: Grid,
    arguments: &[Argument],
    device: &MetalDevice,
) -> Result<()> {
    guarded(|| encode(kernel, grid, arguments, device))
}

fn encode(kernel: Kernel, grid: Grid, arguments: &[Argument], device: &MetalDevice) -> Result<()> {
    let pipeline = pipeline(kernel, device)?;
    let allowed = pipeline.max_total_threads_per_threadgroup();
    let launch = grid.within(allowed, || kernel.symbol())?;
    let guard = encoder(device)?;
    let encoder: &ComputeCommandEncoder = guard.as_ref();
    encoder.set_compute_pipeline_state(&pipeline);
    for (index, argument) in arguments.iter().enumerate() {
        match argument {
            Argument::In(tensor) => bind(kernel, tensor, expect_contiguous, |buffer, offset| {
                encoder.set_input_buffer(index, Some(buffer), offset);
            })?,
            Argument::Strided(tensor) => bind(kernel, tensor, begin, |buffer, offset| {
                encoder.set_input_buffer(index, Some(buffer), offset);
            })?,
            Argument::Out(tensor) => bind(kernel, tensor, expect_contiguous, |buffer, offset| {
                encoder.set_output_buffer(index, Some(buffer), offset);
            })?,
            Argument::Count(count) => encoder.set_bytes(index, &(*count as u32)),
            Argument::Number(number) => encoder.set_bytes(index, &(*number as f32)),
            Argument::TensorBatch(batch) => encoder.set_bytes(index, *batch),
            Argument::CopyShape(shape) => encoder.set_bytes(index, *shape),
        }
    }
    let size = |width| MTLSize {
        width,
        height: 1,
        depth: 1,
    };
    encoder.dispatch_thread_groups(size(launch.groups), size(launch.threads));
    Ok(())
}

fn bind(
    kernel: Kernel,
    tensor: &Tensor,
    start: fn(Kernel, &Layout) -> Result<usize>,
    set: impl FnOnce(&Buffer, usize),
) -> Result<()> {
    let (guard, layout) = tensor.storage_and_layout();
    let start = start(kernel, layout)?;
    let Storage::Metal(storage) = &*guard else {
        return Err(TapeError::Device(format!(
            "{} needs all its tensors on one device",
            kernel.symbol()
        )));
    };
    set(storage.buffer(), start * tensor.dtype().size_in_bytes());
    Ok(())
}

/// The matrix product of candle, written to our own pool: `batch` products of [m, k] and [k, n].
/// `None` if the operands are not of a type that candle multiplies on Metal, or there is nothing to
/// multiply.
pub(super) fn product(
    a: &Tensor,
    b: &Tensor,
    batch: usize,
    m: usize,
    n: usize,
    k: usize,
) -> Result<Option<Tensor>> {
    let dtype = match (a.dtype(), b.dtype()) {
        (DType::F32, DType::F32) => GemmDType::F32,
        (DType::F16, DType::F16) => GemmDType::F16,
        (DType::BF16, DType::BF16) => GemmDType::BF16,
        _ => return Ok(None),
    };
    let Device::Metal(device) = a.device() else {
        return Ok(None);
    };
    let bytes = a.dtype().size_in_bytes();
    let shape = [&a.dims()[..a.rank() - 2], &[m, n]].concat();
    let y = uninit(&shape, a.dtype(), device)?;
    let [(a_guard, a_layout), (b_guard, b_layout)] = [a, b].map(Tensor::storage_and_layout);
    let (y_guard, _) = y.storage_and_layout();
    let (Storage::Metal(a), Storage::Metal(b), Storage::Metal(out)) =
        (&*a_guard, &*b_guard, &*y_guard)
    else {
        return Ok(None);
    };
    guarded(|| {
        let guard = encoder(device)?;
        call_mlx_gemm(
            device.metal_device(),
            &guard,
            device.kernels(),
            dtype,
            (batch, m, n, k),
            a_layout.stride(),
            a_layout.start_offset() * bytes,
            a.buffer(),
            b_layout.stride(),
            b_layout.start_offset() * bytes,
            b.buffer(),
            out.buffer(),
        )
        .map_err(|error| candle_core::Error::from(MetalError::from(error)))?;
        Ok(())
    })?;
    drop(y_guard);
    Ok(Some(y))
}

fn failed(error: impl std::fmt::Display) -> TapeError {
    TapeError::Device(format!("a kernel could not be created: {error}"))
}

fn pipeline(kernel: Kernel, device: &MetalDevice) -> Result<ComputePipeline> {
    let key = (device.metal_device().registry_id(), kernel);
    let mut pipelines = PIPELINES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pipeline) = pipelines.get(&key) {
        return Ok(pipeline.clone());
    }
    command_buffer_budget::compiled();
    let library = library(kernel.module, device)?;
    let function = library
        .get_function(&kernel.symbol(), None)
        .map_err(failed)?;
    let pipeline = device
        .metal_device()
        .new_compute_pipeline_state_with_function(&function)
        .map_err(failed)?;
    pipelines.insert(key, pipeline.clone());
    Ok(pipeline)
}

/// The kernels that were compiled for this GPU so far.
pub(super) fn compiled(device: &MetalDevice) -> Vec<CompiledKernel> {
    let gpu = device.metal_device().registry_id();
    let pipelines = PIPELINES.lock().unwrap_or_else(PoisonError::into_inner);
    let here = pipelines.iter().filter(|((of, _), _)| *of == gpu);
    here.map(|((_, kernel), pipeline)| {
        CompiledKernel::new(*kernel, pipeline.max_total_threads_per_threadgroup())
    })
    .collect()
}

fn library(module: Module, device: &MetalDevice) -> Result<Library> {
    let key = (device.metal_device().registry_id(), module);
    let mut libraries = LIBRARIES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(library) = libraries.get(&key) {
        return Ok(library.clone());
    }
    let options = MTLCompileOptions::new();
    // Fast math could remove the checks for infinity and NaN, and its functions differ between
    // compilers.
    options.setMathMode(MTLMathMode::Safe);
    options.setMathFloatingPointFunctions(MTLMathFloatingPointFunctions::Precise);
    let text = source::text(source::METAL, module);
    let library = device
        .metal_device()
        .new_library_with_source(&text, Some(&options))
        .map_err(failed)?;
    libraries.insert(key, library.clone());
    Ok(library)
}
