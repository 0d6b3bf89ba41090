//! Runs the GPU kernels on the CPU, for tests: the same source, compiled by the system's C++
//! compiler, with every lane as a coroutine.

use super::row_kernels::REGISTER_WORDS;
use super::{Argument, CopyShape, Grid, Kernel, Module, TensorBatch, source, suffix};
use crate::command_buffer_budget;
use crate::error::{Result, TapeError};
use candle_core::{CpuStorage, DType, InplaceOp1, Layout, Storage, Tensor};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ffi::{CString, c_char, c_void};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

thread_local! {
    static ON: Cell<bool> = const { Cell::new(false) };
    static ALLOWED_THREADS: Cell<usize> = const { Cell::new(1024) };
    static LAUNCHED: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
}

/// Held while a kernel runs: the lanes and their shared memory are variables of the library.
static LANES: Mutex<()> = Mutex::new(());

/// True inside [`with`].
pub(super) fn on() -> bool {
    ON.get()
}

/// Runs `work` with these kernels instead of the CPU's own.
pub(crate) fn with<R>(work: impl FnOnce() -> R) -> R {
    ON.set(true);
    let result = work();
    ON.set(false);
    result
}

/// [`with`] kernels whose groups may have at most `allowed` threads. As Metal does, the emulator
/// drops a wider launch without an error.
pub(super) fn with_allowed_threads<R>(allowed: usize, work: impl FnOnce() -> R) -> R {
    let before = ALLOWED_THREADS.replace(allowed);
    let result = with(work);
    ALLOWED_THREADS.set(before);
    result
}

/// The names of all kernels that ran on this thread.
pub(super) fn launched() -> BTreeSet<String> {
    LAUNCHED.with_borrow(Clone::clone)
}

pub(super) const MODULES: [Module; 7] = [
    Module::Single,
    Module::Typed(DType::F32),
    Module::Typed(DType::BF16),
    Module::Typed(DType::F16),
    Module::Convolution(DType::F32),
    Module::Convolution(DType::BF16),
    Module::Convolution(DType::F16),
];

/// The names of the kernels that a module defines.
pub(super) fn names(of: Module) -> Vec<String> {
    let text = source::module(of);
    let mut names = Vec::new();
    let after = |text: &str, word: &str| -> Vec<String> {
        let parts = text.split(word).skip(1);
        parts
            .filter_map(|part| part.split([',', ')']).next())
            .map(str::to_owned)
            .collect()
    };
    match of {
        Module::Single => names = after(&text, "KERNEL("),
        Module::Convolution(dtype) => {
            let all = after(&text, "\nTILE_KERNEL(NAME(").into_iter();
            names.extend(all.map(|name| format!("{name}_{}", suffix(dtype))));
        }
        Module::Typed(dtype) => {
            let of_macro = after(&text, "\nPOINTWISE(");
            names.extend(of_macro.iter().map(|name| format!("{name}_backward")));
            names.extend(of_macro);
            let plain = after(&text, "\nKERNEL(NAME(");
            names.extend(plain);
            // These are defined once per number of register words.
            let mut held = after(&text, "\nKERNEL(REGISTERS_NAME(");
            held.truncate(held.len() / REGISTER_WORDS.len());
            names.extend(REGISTER_WORDS.into_iter().flat_map(|words| {
                held.iter()
                    .map(move |name| format!("{name}_{words}"))
                    .collect::<Vec<_>>()
            }));
            let suffix = suffix(dtype);
            names
                .iter_mut()
                .for_each(|name| *name = format!("{name}_{suffix}"));
        }
    }
    names
}

/// The source of all modules with a single entry point.
fn text() -> String {
    let mut text = [source::EMULATOR, source::common()].concat();
    let mut cases = String::new();
    for module in MODULES {
        text += &source::module(module);
        for name in names(module) {
            cases += &format!(
                "    if (!std::strcmp(name, \"{name}\")) return lanes::run([](void** a) {{ lanes::call({name}, a); }}, args, groups, simds) ? 0 : 1;\n"
            );
        }
    }
    text + "extern \"C\" int run_kernel(const char* name, void** args, uint groups, uint simds) {\n"
        + &cases
        + "    return 2;\n}\n"
}

/// A path next to the test binary.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test runs from a file");
    test.with_file_name(name)
}

/// The compiled kernels. Each source is compiled once; concurrent processes compile their own copy
/// and rename it.
fn library() -> &'static libloading::Library {
    static LIBRARY: OnceLock<libloading::Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let text = text();
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let stem = format!("ebb-emulator-{:016x}", hasher.finish());
        let made = scratch(&format!("{stem}.so"));
        if !made.exists() {
            let own = format!("{stem}-{}", std::process::id());
            let (from, to) = (
                scratch(&format!("{own}.cpp")),
                scratch(&format!("{own}.so")),
            );
            std::fs::write(&from, text).expect("the target folder can be written to");
            let outcome = Command::new("c++")
                .args([
                    "-std=c++20",
                    "-O1",
                    "-ffp-contract=off",
                    "-shared",
                    "-fPIC",
                    "-o",
                ])
                .args([&to, &from])
                .output()
                .expect("the system has a C++ compiler");
            let output = String::from_utf8_lossy(&outcome.stderr);
            assert!(outcome.status.success(), "{output}");
            std::fs::rename(&to, &made).expect("the target folder can be written to");
        }
        // SAFETY: the library is our own source and has no initializers with effects.
        unsafe { libloading::Library::new(&made) }.expect("the compiled kernels can be loaded")
    })
}

type Run = unsafe extern "C" fn(*const c_char, *mut *mut c_void, u32, u32) -> i32;

enum Word {
    Address(*mut c_void),
    Count(u32),
    Number(f32),
    TensorBatch(TensorBatch),
    CopyShape(CopyShape),
}

/// Runs a kernel.
pub(super) fn launch(kernel: Kernel, grid: Grid, arguments: &[Argument]) -> Result<()> {
    let size = grid.within(ALLOWED_THREADS.get(), || kernel.symbol())?;
    if size.threads > ALLOWED_THREADS.get() {
        return Ok(());
    }
    let mut words = arguments.iter().map(word).collect::<Result<Vec<_>>>()?;
    let mut pointers: Vec<*mut c_void> = words
        .iter_mut()
        .map(|word| match word {
            Word::Address(address) => std::ptr::from_mut(address).cast(),
            Word::Count(count) => std::ptr::from_mut(count).cast(),
            Word::Number(number) => std::ptr::from_mut(number).cast(),
            Word::TensorBatch(batch) => std::ptr::from_mut(batch).cast(),
            Word::CopyShape(shape) => std::ptr::from_mut(shape).cast(),
        })
        .collect();
    command_buffer_budget::launch();
    LAUNCHED.with_borrow_mut(|all| all.insert(kernel.symbol()));
    let name = CString::new(kernel.symbol()).expect("a kernel name contains no NUL byte");
    // SAFETY: the entry point has this type in the source above.
    let run = unsafe { library().get::<Run>(b"run_kernel") }.expect("the text defines it");
    let lanes = LANES.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: arguments are in the order and type of the kernel and stay inside their tensors,
    // which is what the tests check. No other thread runs a kernel.
    let code = unsafe {
        run(
            name.as_ptr(),
            pointers.as_mut_ptr(),
            size.groups as u32,
            size.threads as u32 / 32,
        )
    };
    drop(lanes);
    assert_eq!(
        code, 0,
        "the kernel {name:?} does not exist, or its lanes wait for each other forever"
    );
    Ok(())
}

fn word(argument: &Argument) -> Result<Word> {
    Ok(match argument {
        Argument::In(tensor) if !tensor.is_contiguous() => {
            return Err(candle_core::Error::RequiresContiguous { op: "lanes" }.into());
        }
        Argument::In(tensor) | Argument::Strided(tensor) => Word::Address(first(tensor)?),
        Argument::Out(tensor) => {
            let place = Cell::new(std::ptr::null_mut());
            tensor.inplace_op1(&Place(&place))?;
            Word::Address(place.get())
        }
        Argument::Count(count) => Word::Count(*count as u32),
        Argument::Number(number) => Word::Number(*number as f32),
        Argument::TensorBatch(batch) => Word::TensorBatch(**batch),
        Argument::CopyShape(shape) => Word::CopyShape(**shape),
    })
}

/// The address of the first element.
fn first(tensor: &Tensor) -> Result<*mut c_void> {
    let (guard, layout) = tensor.storage_and_layout();
    let start = layout.start_offset();
    let Storage::Cpu(storage) = &*guard else {
        return Err(TapeError::Device("lanes work on the CPU".to_owned()));
    };
    Ok(match storage {
        CpuStorage::F32(values) => values[start..].as_ptr().cast_mut().cast(),
        CpuStorage::BF16(values) => values[start..].as_ptr().cast_mut().cast(),
        CpuStorage::F16(values) => values[start..].as_ptr().cast_mut().cast(),
        CpuStorage::U32(values) => values[start..].as_ptr().cast_mut().cast(),
        CpuStorage::U8(values) => values[start..].as_ptr().cast_mut().cast(),
        _ => {
            return Err(TapeError::Type {
                op: "lanes",
                dtype: tensor.dtype(),
            });
        }
    })
}

/// Finds the memory of a tensor that a kernel writes.
struct Place<'a>(&'a Cell<*mut c_void>);

impl InplaceOp1 for Place<'_> {
    fn name(&self) -> &'static str {
        "place"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        let start = match layout.contiguous_offsets() {
            Some((start, _)) => start,
            None => candle_core::bail!("a written tensor is contiguous"),
        };
        self.0.set(match storage {
            CpuStorage::F32(values) => values[start..].as_mut_ptr().cast(),
            CpuStorage::BF16(values) => values[start..].as_mut_ptr().cast(),
            CpuStorage::F16(values) => values[start..].as_mut_ptr().cast(),
            CpuStorage::U8(values) => values[start..].as_mut_ptr().cast(),
            _ => candle_core::bail!("lanes do not write this type"),
        });
        Ok(())
    }
}
