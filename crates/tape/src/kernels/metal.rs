//! Kernels on Metal: compiled from their text once a process, encoded into candle's own command buffers. Buffers go by
//! `set_input_buffer` and `set_output_buffer`, which feed candle's tracking of hazards: the buffers themselves are untracked.
//! Outputs lie in a pool of our own, whose classes are finer than the powers of two of candle's.

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
    /// One thread uses a device.
    static LIBRARIES: RefCell<HashMap<(DeviceId, Module), Library>> = RefCell::default();
    static PIPELINES: RefCell<HashMap<(DeviceId, Kernel), ComputePipeline>> = RefCell::default();
    static POOLS: RefCell<HashMap<DeviceId, BufferPool<Buffer>>> = RefCell::default();
}

/// A tensor whose numbers are whatever its memory held. Where the device refuses the memory, what the pool holds and nobody uses goes
/// first.
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

/// Gives back what the pool holds and no tensor uses. After a synchronise: no command may still use it.
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
    // Holds the queue's lock until it is dropped.
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
    encoder.dispatch_thread_groups(size(grid.groups), size(32 * grid.simds));
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
    // Fast mathematics may leave out what looks for infinities and NaN.
    options.setMathMode(MTLMathMode::Safe);
    let text = source::text(source::METAL, module);
    let library = device
        .metal_device()
        .new_library_with_source(&text, Some(&options))
        .map_err(failed)?;
    LIBRARIES.with_borrow_mut(|all| all.insert(key, library.clone()));
    Ok(library)
}
