//! Kernels on Metal: compiled from source once per process and encoded into candle's own command
//! buffers. Buffers are bound with `set_input_buffer` and `set_output_buffer`, so that candle
//! tracks hazards; the buffers themselves are untracked. Outputs come from our own pool, with finer
//! size classes than candle's powers of two.

use super::buffer_pool::BufferPool;
use super::{Argument, Grid, Kernel, Module, expect_contiguous, source};
use crate::error::{Result, TapeError};
use candle_core::metal_backend::{DeviceId, MetalDevice};
use candle_core::op::BackpropOp;
use candle_core::{DType, MetalStorage, Storage, Tensor};
use candle_metal_kernels::metal::{Buffer, ComputeCommandEncoder, ComputePipeline, Library};
use objc2_metal::{MTLCompileOptions, MTLMathMode, MTLSize};
use std::cell::RefCell;
use std::collections::HashMap;

thread_local! {
    /// A device is used by one thread.
    static LIBRARIES: RefCell<HashMap<(DeviceId, Module), Library>> = RefCell::default();
    static PIPELINES: RefCell<HashMap<(DeviceId, Kernel), ComputePipeline>> = RefCell::default();
    static POOLS: RefCell<HashMap<DeviceId, BufferPool<Buffer>>> = RefCell::default();
}

/// An uninitialized tensor. If the device has too little memory, the unused buffers of the pool are
/// freed first.
pub(super) fn uninit(shape: &[usize], dtype: DType, device: &MetalDevice) -> Result<Tensor> {
    let count = shape.iter().product::<usize>();
    let bytes = count * dtype.size_in_bytes();
    let take = || {
        POOLS.with_borrow_mut(|pools| {
            let make = |class| device.new_private_buffer(class, DType::U8, "");
            pools.entry(device.id()).or_default().take(bytes, make)
        })
    };
    let buffer = take().or_else(|_| {
        device.wait_until_completed()?;
        trim(device);
        take()
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
        let pool = pools.get_mut(&device.id());
        pool.map(BufferPool::idle).unwrap_or_default()
    });
    device.unregister_buffers(idle.iter().map(|buffer| &**buffer));
}

/// Runs a kernel.
pub(super) fn launch(
    kernel: Kernel,
    grid: Grid,
    arguments: &[Argument],
    device: &MetalDevice,
) -> Result<()> {
    let pipeline = pipeline(kernel, device)?;
    grid.expect_at_most(pipeline.max_total_threads_per_threadgroup(), kernel)?;
    // Holds the lock of the queue until it is dropped.
    let guard = device.command_encoder()?;
    let encoder: &ComputeCommandEncoder = guard.as_ref();
    encoder.set_compute_pipeline_state(&pipeline);
    for (index, argument) in arguments.iter().enumerate() {
        match argument {
            Argument::In(tensor) => bind(kernel, tensor, |buffer, offset| {
                encoder.set_input_buffer(index, Some(buffer), offset);
            })?,
            Argument::Out(tensor) => bind(kernel, tensor, |buffer, offset| {
                encoder.set_output_buffer(index, Some(buffer), offset);
            })?,
            Argument::Count(count) => encoder.set_bytes(index, &(*count as u32)),
            Argument::Number(number) => encoder.set_bytes(index, &(*number as f32)),
            Argument::TensorBatch(batch) => encoder.set_bytes(index, *batch),
        }
    }
    let size = |width| MTLSize {
        width,
        height: 1,
        depth: 1,
    };
    encoder.dispatch_thread_groups(size(grid.groups), size(grid.threads()));
    Ok(())
}

fn bind(kernel: Kernel, tensor: &Tensor, set: impl FnOnce(&Buffer, usize)) -> Result<()> {
    let (guard, layout) = tensor.storage_and_layout();
    let start = expect_contiguous(kernel, layout)?;
    let Storage::Metal(storage) = &*guard else {
        return Err(TapeError::Device(format!(
            "{} needs tensors of one device",
            kernel.symbol()
        )));
    };
    set(storage.buffer(), start * tensor.dtype().size_in_bytes());
    Ok(())
}

fn failed(error: impl std::fmt::Display) -> TapeError {
    TapeError::Device(format!("a kernel cannot be made here: {error}"))
}

fn pipeline(kernel: Kernel, device: &MetalDevice) -> Result<ComputePipeline> {
    let key = (device.id(), kernel);
    if let Some(pipeline) = PIPELINES.with_borrow(|all| all.get(&key).cloned()) {
        return Ok(pipeline);
    }
    let library = library(kernel.module, device)?;
    let function = library
        .get_function(&kernel.symbol(), None)
        .map_err(failed)?;
    let pipeline = device
        .metal_device()
        .new_compute_pipeline_state_with_function(&function)
        .map_err(failed)?;
    PIPELINES.with_borrow_mut(|all| all.insert(key, pipeline.clone()));
    Ok(pipeline)
}

fn library(module: Module, device: &MetalDevice) -> Result<Library> {
    let key = (device.id(), module);
    if let Some(library) = LIBRARIES.with_borrow(|all| all.get(&key).cloned()) {
        return Ok(library);
    }
    let options = MTLCompileOptions::new();
    // Fast math could remove the checks for infinity and NaN.
    options.setMathMode(MTLMathMode::Safe);
    let text = source::text(source::METAL, module);
    let library = device
        .metal_device()
        .new_library_with_source(&text, Some(&options))
        .map_err(failed)?;
    LIBRARIES.with_borrow_mut(|all| all.insert(key, library.clone()));
    Ok(library)
}
