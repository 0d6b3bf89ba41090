//! f32 products on the tensor cores of an NVIDIA GPU, with the precision of its own f32;
//! `source/tensor_cores.cu` explains how. Only Hopper (compute capability 9.0) has the required
//! instructions. On other GPUs, and for small or odd shapes, cuBLAS computes the product. The
//! shapes alone decide (`tiling`).

use super::cuda_error::failed;
use super::tiling::{ROWS, SHARED_TILES, WIDTHS, Work, each};
use crate::error::{Result, TapeError};
use candle_core::cuda_backend::cudarc::driver::sys::{CUdevice_attribute, CUfunction_attribute};
use candle_core::cuda_backend::cudarc::driver::{
    CudaFunction, CudaSlice, DevicePtr, LaunchConfig, PushKernelArg,
};
use candle_core::cuda_backend::cudarc::nvrtc::{CompileOptions, compile_ptx_with_opts};
use candle_core::cuda_backend::{CudaDevice, DeviceId};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};

const TEXT: &str = include_str!("source/tensor_cores.cu");

/// Threads per group.
const THREADS: u32 = 512;

thread_local! {
    /// A device is used by one thread.
    static READY: RefCell<HashMap<DeviceId, Option<Rc<Ready>>>> = RefCell::default();
}

/// The compiled source.
static COMPILED: Mutex<Option<String>> = Mutex::new(None);

/// The per-device state.
struct Ready {
    multiprocessors: usize,
    functions: HashMap<(bool, bool, usize), CudaFunction>,
    /// The turn of each shared tile: zero between two launches.
    turns: CudaSlice<u32>,
}

/// Computes the product if that is faster than cuBLAS; otherwise returns false.
pub(super) fn multiply(work: &Work, device: &CudaDevice) -> Result<bool> {
    let [m, n, k] = work.sizes;
    let allowed = super::AllowedKernels::current();
    if !(allowed.own && allowed.tensor_cores) || m * n * k == 0 || !work.fits() {
        return Ok(false);
    }
    let Some(ready) = ready(device)? else {
        return Ok(false);
    };
    let Some((width, parts)) = work.plan(ready.multiprocessors) else {
        return Ok(false);
    };
    let Some(function) = ready.functions.get(&(work.a.turned, work.b.turned, width)) else {
        return Ok(false);
    };
    let tiles = m.div_ceil(ROWS) * n.div_ceil(width);
    let stream = device.cuda_stream();
    let turns = ready.turns.device_ptr(&stream).0;
    let number = |n: usize| n as u32;
    let sizes = [m, n, k, work.a.step, work.b.step, work.c.step].map(number);
    // How the kernel finds its matrices: a single one, lists of addresses, or equal distances.
    let many = match (work.many, work.strides) {
        (None, _) => 0,
        (Some(_), None) => 1,
        (Some(_), Some(_)) => 2,
    };
    let [parts_, each, many] = [parts, each(k, parts), many].map(number);
    let strides = work.strides.unwrap_or_default().map(|n| n as u64);
    let mut builder = stream.launch_builder(function);
    for address in [&work.a.address, &work.b.address, &work.c.address] {
        builder.arg(address);
    }
    for size in &sizes {
        builder.arg(size);
    }
    builder.arg(&work.keep).arg(&parts_).arg(&each);
    builder.arg(&turns).arg(&many);
    for stride in &strides {
        builder.arg(stride);
    }
    let config = LaunchConfig {
        grid_dim: ((tiles * parts) as u32, work.many.unwrap_or(1) as u32, 1),
        block_dim: (THREADS, 1, 1),
        shared_mem_bytes: shared_bytes(width) as u32,
    };
    // SAFETY: arguments are in the order and type of the kernel; the addresses are those of live
    // tensors on the device's only stream, in whose order memory is freed; sizes and strides are
    // those of the tensors, and `fits` has checked the assumptions of the kernel.
    unsafe { builder.launch(config) }.map_err(failed)?;
    Ok(true)
}

/// Shared memory in bytes: three stages with three planes of both operands.
fn shared_bytes(width: usize) -> usize {
    3 * 3 * (ROWS + width) / 8 * 640
}

fn ready(device: &CudaDevice) -> Result<Option<Rc<Ready>>> {
    if let Some(ready) = READY.with_borrow(|all| all.get(&device.id()).cloned()) {
        return Ok(ready);
    }
    let ready = prepared(device)?.map(Rc::new);
    READY.with_borrow_mut(|all| all.insert(device.id(), ready.clone()));
    Ok(ready)
}

fn prepared(device: &CudaDevice) -> Result<Option<Ready>> {
    use CUdevice_attribute as Attribute;
    let stream = device.cuda_stream();
    let number = |attribute| stream.context().attribute(attribute).map_err(failed);
    let major = number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    if (major, minor) != (9, 0) {
        return Ok(None);
    }
    let multiprocessors = number(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    let text = compiled()?;
    let mut functions = HashMap::new();
    for (width, ..) in WIDTHS {
        for (a, b) in [(false, false), (false, true), (true, false), (true, true)] {
            let letter = |turned: bool| if turned { 't' } else { 'n' };
            let name = format!("product_{}{}_{width}", letter(a), letter(b));
            let function = device.get_or_load_custom_func(&name, "ebb tensor cores", &text)?;
            let function = function.into_cuda_function();
            function
                .set_attribute(
                    CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                    shared_bytes(width) as i32,
                )
                .map_err(failed)?;
            functions.insert((a, b, width), function);
        }
    }
    Ok(Some(Ready {
        multiprocessors: multiprocessors as usize,
        functions,
        turns: device.alloc_zeros::<u32>(SHARED_TILES)?,
    }))
}

/// The PTX for Hopper with its own instructions.
fn compiled() -> Result<String> {
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(text) = &*compiled {
        return Ok(text.clone());
    }
    let options = CompileOptions {
        options: vec!["--gpu-architecture=compute_90a".to_owned()],
        ..Default::default()
    };
    let ptx = compile_ptx_with_opts(TEXT, options).map_err(|error| {
        TapeError::Device(format!(
            "the matrix products for tensor cores do not compile on this machine: {error:?}"
        ))
    })?;
    Ok(compiled.insert(ptx.to_src()).clone())
}
