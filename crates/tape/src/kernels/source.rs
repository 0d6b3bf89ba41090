//! The source of the kernels for one compiler: a prelude with the compiler's own definitions, the
//! common part, and a module.

use super::row_kernels::REGISTER_WORDS;
use super::{Module, suffix};
use candle_core::DType;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

/// Definitions for CUDA C++.
pub(super) const CUDA: &str = include_str!("source/cuda.h");
/// Definitions for Metal.
pub(super) const METAL: &str = include_str!("source/metal.h");
/// Definitions for C++.
#[cfg(test)]
pub(super) const EMULATOR: &str = include_str!("source/emulator.h");

/// The version of candle, whose own kernels run beside these.
pub(super) const CANDLE: &str = "0.11.1";
const TENSOR_CORES: &str = include_str!("source/tensor_cores.cu");
const COMMON: &str = include_str!("source/common.h");
const SINGLE: &str = include_str!("source/single_precision.kernel");
/// Sources that are compiled once per element type.
const TYPED: [&str; 6] = [
    include_str!("source/rows.kernel"),
    include_str!("source/elements.kernel"),
    include_str!("source/feature_maps.kernel"),
    include_str!("source/attention.kernel"),
    include_str!("source/grouped_heads.kernel"),
    include_str!("source/copies.kernel"),
];

/// Convolutions without columns.
const CONVOLUTIONS: &str = include_str!("source/convolutions.kernel");

/// All modules.
#[cfg(feature = "cuda")]
pub(super) const MODULES: [Module; 7] = [
    Module::Single,
    Module::Typed(DType::F32),
    Module::Typed(DType::BF16),
    Module::Typed(DType::F16),
    Module::Convolution(DType::F32),
    Module::Convolution(DType::BF16),
    Module::Convolution(DType::F16),
];

/// Source that is compiled once per number of register words.
const ROW_REGISTERS: &str = include_str!("source/row_registers.kernel");

fn row_registers(words: usize) -> String {
    format!(
        "#define REGISTER_WORDS {words}u\n#define REGISTERS_NAME(n) NAME(n##_{words})\n{ROW_REGISTERS}#undef REGISTER_WORDS\n#undef REGISTERS_NAME\n"
    )
}

/// Removes the definitions of [`element`].
const UNDONE: &str = "#undef ELEMENT\n#undef ELEMENT4\n#undef NAME\n#undef LOAD\n#undef STORE\n#undef ROUNDED\n#undef LOAD4\n#undef STORE4\n#undef TILE_PLANES\n#undef TILE_F16\n";

/// Definitions that load and store an element type.
fn element(dtype: DType) -> String {
    let (held, read, write) = match dtype {
        DType::BF16 => ("ushort", "bf16_to_float", "float_to_bf16"),
        DType::F16 => ("ushort", "half_to_float", "float_to_half"),
        _ => ("float", "", ""),
    };
    let four = |name: &str| match name {
        "" => String::new(),
        name => format!("{name}4"),
    };
    let (read4, write4) = (four(read), four(write));
    // Halves that hold an element on tensor cores.
    let (planes, is_f16) = (
        if write.is_empty() { 3 } else { 1 },
        u8::from(dtype == DType::F16),
    );
    let suffix = suffix(dtype);
    format!(
        "#define ELEMENT {held}\n#define ELEMENT4 {held}4\n#define NAME(n) n##_{suffix}\n#define LOAD(p, i) {read}((p)[i])\n#define STORE(p, i, v) (p)[i] = {write}(v)\n#define ROUNDED(v) {read}({write}(v))\n\
         #define LOAD4(p, i) {read4}(*(GLOBAL const {held}4*)(&(p)[i]))\n#define STORE4(p, i, v) *(GLOBAL {held}4*)(&(p)[i]) = {write4}(v)\n\
         #define TILE_PLANES {planes}\n#define TILE_F16 {is_f16}\n"
    )
}

/// The kernels of one module, without the prelude.
pub(super) fn module(module: Module) -> String {
    match module {
        Module::Single => SINGLE.to_owned(),
        Module::Typed(dtype) => {
            let held: String = REGISTER_WORDS.into_iter().map(row_registers).collect();
            [&element(dtype), &TYPED.concat(), &held, UNDONE].concat()
        }
        Module::Convolution(dtype) => [&element(dtype), CONVOLUTIONS, UNDONE].concat(),
    }
}

/// The complete source of one module for one compiler.
pub(super) fn text(prelude: &str, of: Module) -> String {
    [prelude, COMMON, &module(of)].concat()
}

/// A hash of everything that decides what the operations of this build compute on a GPU: all
/// sources of this crate, which include those of the kernels and the table of cases, and the
/// version of candle, whose kernels run beside them.
pub fn fingerprint() -> &'static str {
    const SOURCES: &str = env!("EBB_TAPE_SOURCES");
    static HASH: LazyLock<String> = LazyLock::new(|| {
        let mut hasher = DefaultHasher::new();
        (CANDLE, METAL, CUDA, TENSOR_CORES, SOURCES).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    });
    &HASH
}

/// The common part of all kernels.
#[cfg(test)]
pub(super) fn common() -> &'static str {
    COMMON
}

#[cfg(test)]
#[allow(dead_code, reason = "only its hash is tested")]
#[path = "../../build.rs"]
mod build_script;

#[cfg(test)]
mod tests {
    use super::super::emulator;
    use super::*;

    #[test]
    fn the_version_of_candle_is_that_of_the_lock_file() {
        let lock = include_str!("../../../../Cargo.lock");
        let mut lines = lock.lines();
        let found = lines.any(|line| line == "name = \"candle-core\"");
        assert!(found, "Ebb depends on candle");
        let version = format!("version = \"{CANDLE}\"");
        assert_eq!(lines.next(), Some(version.as_str()));
    }

    #[test]
    fn every_source_of_the_crate_decides_the_fingerprint() {
        let sources = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
        let hash = build_script::hash_folder(sources).expect("sources can be read");
        assert_eq!(hash, env!("EBB_TAPE_SOURCES"));
        assert_eq!(fingerprint().len(), 16);
        let copy = emulator::scratch(&format!("sources-{}", std::process::id()));
        let write = |name: &str, text: &str| {
            let path = copy.join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, text).expect("a file");
            build_script::hash_folder(&copy).expect("sources can be read")
        };
        let mut hashes = vec![
            write("check/cases.rs", "linear"),
            write("check/cases.rs", "linear, conv2d"),
            write("ops/linear.rs", "x W"),
            write("launch_grid.rs", "x W"),
        ];
        std::fs::remove_dir_all(&copy).expect("it was made here");
        hashes.dedup();
        assert_eq!(hashes.len(), 4, "{hashes:?}");
    }
}
