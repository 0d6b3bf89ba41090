//! Kernels on CUDA: compiled by NVRTC once per process, loaded once per device, launched on
//! candle's own stream. The driver translates a module for the GPU when it is loaded, which takes
//! longer than NVRTC.

use super::{
    Argument, CompiledKernel, CopyShape, Grid, Kernel, Module, TensorBatch, begin,
    expect_contiguous, source,
};
use crate::error::{Result, TapeError};
use candle_core::cuda_backend::cudarc::driver::{
    CudaContext, CudaFunction, CudaModule, CudaSlice, DevicePtr, DeviceRepr, LaunchConfig,
    PushKernelArg,
};
use candle_core::cuda_backend::cudarc::nvrtc::{CompileOptions, Ptx, compile_ptx_with_opts};
use candle_core::cuda_backend::{CudaDevice, CudaStorageSlice, DeviceId};
use candle_core::{Layout, Storage, Tensor};
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};

type Function = Rc<CudaFunction>;
/// Made once, by the first thread that needs it, while others wait. A failure is not kept.
type Slot<T> = Arc<Mutex<Option<T>>>;
/// By what they are made for.
type Slots<K, T> = Mutex<Option<HashMap<K, Slot<T>>>>;

thread_local! {
    /// A device is used by one thread.
    static FUNCTIONS: RefCell<HashMap<(DeviceId, Kernel), Function>> = RefCell::default();
}

/// Compiled sources.
static COMPILED: Slots<Module, Ptx> = Mutex::new(None);
/// Modules that are loaded on a device. Their functions keep them there.
static LOADED: Slots<(DeviceId, Module), Weak<CudaModule>> = Mutex::new(None);

// SAFETY: plain numbers in the layout of the kernels' struct.
unsafe impl DeviceRepr for TensorBatch {}
// SAFETY: as above.
unsafe impl DeviceRepr for CopyShape {}

/// Most threads of a block on any GPU.
const MOST_THREADS: usize = 1024;

/// An argument as the driver reads it.
enum Word {
    Address(u64),
    Count(u32),
    Number(f32),
    TensorBatch(TensorBatch),
    CopyShape(CopyShape),
}

/// Runs a kernel.
pub(super) fn launch(
    kernel: Kernel,
    grid: Grid,
    arguments: &[Argument],
    device: &CudaDevice,
) -> Result<()> {
    let function = function(kernel, device)?;
    let words = arguments
        .iter()
        .map(|argument| word(kernel, argument))
        .collect::<Result<Vec<_>>>()?;
    let stream = device.cuda_stream();
    let mut builder = stream.launch_builder(&function);
    for word in &words {
        match word {
            Word::Address(address) => builder.arg(address),
            Word::Count(count) => builder.arg(count),
            Word::Number(number) => builder.arg(number),
            Word::TensorBatch(batch) => builder.arg(batch),
            Word::CopyShape(shape) => builder.arg(shape),
        };
    }
    // The driver itself refuses a launch that the registers of the kernel do not allow.
    let size = grid.within(MOST_THREADS, || kernel.symbol())?;
    let config = LaunchConfig {
        grid_dim: (size.groups as u32, 1, 1),
        block_dim: (size.threads as u32, 1, 1),
        shared_mem_bytes: 0,
    };
    // SAFETY: arguments are in the order and type of the kernel and stay inside their tensors: only
    // `rows`, `elements`, `images`, `attention`, `grouped_heads`, `rotated_heads`, `copies`,
    // `convolutions` and `multi_tensor` call this, and their tests run every kernel. There is only
    // one stream, and memory is freed in its order.
    unsafe { builder.launch(config) }.map_err(driver)?;
    Ok(())
}

fn driver(error: impl std::fmt::Display) -> TapeError {
    TapeError::from(candle_core::Error::Msg(error.to_string()))
}

fn word(kernel: Kernel, argument: &Argument) -> Result<Word> {
    Ok(match argument {
        Argument::In(tensor) | Argument::Out(tensor) => {
            Word::Address(address(kernel, tensor, expect_contiguous)?)
        }
        Argument::Strided(tensor) => Word::Address(address(kernel, tensor, begin)?),
        Argument::Count(count) => Word::Count(*count as u32),
        Argument::Number(number) => Word::Number(*number as f32),
        Argument::TensorBatch(batch) => Word::TensorBatch(**batch),
        Argument::CopyShape(shape) => Word::CopyShape(**shape),
    })
}

/// The device address of a tensor's first element.
fn address(
    kernel: Kernel,
    tensor: &Tensor,
    start: fn(Kernel, &Layout) -> Result<usize>,
) -> Result<u64> {
    let (guard, layout) = tensor.storage_and_layout();
    let start = start(kernel, layout)?;
    let Storage::Cuda(storage) = &*guard else {
        return Err(TapeError::Device(format!(
            "{} needs all its tensors on one device",
            kernel.symbol()
        )));
    };
    let stream = storage.device.cuda_stream();
    fn first<T>(
        slice: &CudaSlice<T>,
        stream: &candle_core::cuda_backend::cudarc::driver::CudaStream,
    ) -> u64 {
        slice.device_ptr(stream).0
    }
    let base = match &storage.slice {
        CudaStorageSlice::F32(slice) => first(slice, &stream),
        CudaStorageSlice::BF16(slice) => first(slice, &stream),
        CudaStorageSlice::F16(slice) => first(slice, &stream),
        CudaStorageSlice::U32(slice) => first(slice, &stream),
        CudaStorageSlice::U8(slice) => first(slice, &stream),
        _ => {
            return Err(TapeError::Type {
                op: kernel.name,
                dtype: tensor.dtype(),
            });
        }
    };
    Ok(base + (start * tensor.dtype().size_in_bytes()) as u64)
}

fn function(kernel: Kernel, device: &CudaDevice) -> Result<Function> {
    let key = (device.id(), kernel);
    if let Some(function) = FUNCTIONS.with_borrow(|all| all.get(&key).cloned()) {
        return Ok(function);
    }
    let module = loaded(kernel.module, device.id(), device.cuda_stream().context())?;
    let function = Rc::new(module.load_function(&kernel.symbol()).map_err(driver)?);
    FUNCTIONS.with_borrow_mut(|all| all.insert(key, Rc::clone(&function)));
    Ok(function)
}

/// The kernels that this thread has loaded for the device.
pub(super) fn compiled(device: &CudaDevice) -> Vec<CompiledKernel> {
    let of_device = |functions: &HashMap<(DeviceId, Kernel), Function>| {
        let here = functions.iter().filter(|((of, _), _)| *of == device.id());
        here.map(|((_, kernel), function)| {
            let most_threads = function.max_threads_per_block().unwrap_or(0) as usize;
            CompiledKernel::new(*kernel, most_threads)
        })
        .collect()
    };
    FUNCTIONS.with_borrow(of_device)
}

/// Modules that threads of their own load, and keep until this is dropped.
pub(super) struct Loading(Vec<JoinHandle<Result<Arc<CudaModule>>>>);

impl Drop for Loading {
    fn drop(&mut self) {
        for thread in self.0.drain(..) {
            // A failure is reported when a kernel of the module is launched.
            let _ = thread.join();
        }
    }
}

/// Compiles and loads all modules in threads of their own, so that the kernels that a thread needs
/// first do not wait for the others.
pub(super) fn load_all(device: &CudaDevice) -> Loading {
    let threads = source::MODULES.into_iter().filter_map(|module| {
        let (id, context) = (device.id(), Arc::clone(device.cuda_stream().context()));
        let thread = thread::Builder::new().name("load-kernels".to_owned());
        thread.spawn(move || loaded(module, id, &context)).ok()
    });
    Loading(threads.collect())
}

fn loaded(module: Module, id: DeviceId, context: &Arc<CudaContext>) -> Result<Arc<CudaModule>> {
    let slot = slot(&LOADED, (id, module));
    let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(loaded) = slot.as_ref().and_then(Weak::upgrade) {
        return Ok(loaded);
    }
    let loaded = context.load_module(compiled_text(module, context)?);
    let loaded = loaded.map_err(driver)?;
    *slot = Some(Arc::downgrade(&loaded));
    Ok(loaded)
}

fn compiled_text(module: Module, context: &CudaContext) -> Result<Ptx> {
    let slot = slot(&COMPILED, module);
    let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(ptx) = &*slot {
        return Ok(ptx.clone());
    }
    let ptx = compile(module, context)?;
    *slot = Some(ptx.clone());
    Ok(ptx)
}

/// The place of a value that is made once.
fn slot<K: Eq + Hash, T>(all: &Slots<K, T>, key: K) -> Slot<T> {
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(all.get_or_insert_default().entry(key).or_default())
}

/// The PTX of a module for the architecture of the device.
fn compile(module: Module, context: &CudaContext) -> Result<Ptx> {
    use candle_core::cuda_backend::cudarc::driver::sys::CUdevice_attribute as Attribute;
    let number = |attribute| context.attribute(attribute).map_err(driver);
    let major = number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let options = CompileOptions {
        options: vec![
            format!("--gpu-architecture=compute_{major}{minor}"),
            // Three groups of four simdgroups on a multiprocessor with 64 Ki registers; attention
            // would use more.
            "--maxrregcount=168".to_owned(),
        ],
        ..Default::default()
    };
    compile_ptx_with_opts(source::text(source::CUDA, module), options).map_err(|error| {
        TapeError::Device(format!(
            "the kernels of {module:?} do not compile on this machine: {error:?}"
        ))
    })
}
