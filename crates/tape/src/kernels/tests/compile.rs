//! Compiles the source of the kernels as CUDA's and Metal's compilers will see it. Without nvcc,
//! the CUDA half reports that it is skipped.

use crate::kernels::emulator::{MODULES, scratch};
use crate::kernels::source;
use std::path::PathBuf;
use std::process::Command;

fn compile(what: &str, command: &mut Command) {
    let outcome = command.output().expect("the compiler was found");
    let errors = String::from_utf8_lossy(&outcome.stderr);
    assert!(outcome.status.success(), "{what}: {errors}");
}

/// NVIDIA's compiler, if its toolkit is installed.
fn nvcc() -> Option<PathBuf> {
    let home = std::env::var_os("CUDA_HOME").map(|home| PathBuf::from(home).join("bin/nvcc"));
    let known = [home, Some(PathBuf::from("nvcc"))].into_iter().flatten();
    known.into_iter().find(|nvcc| {
        let asked = Command::new(nvcc).arg("--version").output();
        asked.is_ok_and(|outcome| outcome.status.success())
    })
}

#[test]
fn every_module_compiles_for_cuda_if_nvcc_is_installed() {
    let Some(nvcc) = nvcc() else {
        println!("nvcc is not installed, so the kernels were not compiled for CUDA");
        return;
    };
    for module in MODULES {
        let name = format!("ebb-{}-{module:?}.cu", std::process::id()).replace(['(', ')'], "-");
        let file = scratch(&name);
        std::fs::write(&file, source::text(source::CUDA, module)).expect("the target folder");
        let out = file.with_extension("ptx");
        let mut command = Command::new(&nvcc);
        command
            .args(["-arch=sm_80", "-ptx", "-o"])
            .arg(&out)
            .arg(&file);
        compile(&name, &mut command);
        for made in [file, out] {
            std::fs::remove_file(made).expect("it was just made");
        }
    }
}

#[test]
fn wide_kernels_can_have_1024_threads_on_cuda_if_nvcc_is_installed() {
    let Some(nvcc) = nvcc() else {
        println!("nvcc is not installed, so the registers of wide kernels were not counted");
        return;
    };
    let mut counted = 0;
    for module in MODULES {
        let text = source::text(source::CUDA, module);
        let wide: Vec<&str> = text
            .split("\nWIDE_KERNEL(")
            .skip(1)
            .filter_map(|kernel| kernel.split(')').next())
            .collect();
        if wide.is_empty() {
            continue;
        }
        let name = format!("ebb-{}-wide-{module:?}.cu", std::process::id());
        let file = scratch(&name.replace(['(', ')'], "-"));
        std::fs::write(&file, &text).expect("the target folder");
        let out = file.with_extension("cubin");
        let outcome = Command::new(&nvcc)
            .args(["-arch=sm_90", "-cubin", "-Xptxas", "-v", "-o"])
            .args([&out, &file])
            .output()
            .expect("the compiler was found");
        let printed = String::from_utf8_lossy(&outcome.stderr);
        for kernel in wide {
            // A multiprocessor has 65,536 registers.
            let after = printed.split(&format!("'{kernel}' for")).nth(1);
            let used = after.and_then(|printed| printed.split("Used ").nth(1));
            let used = used.and_then(|used| used.split(' ').next()?.parse::<u32>().ok());
            assert!(
                used.is_some_and(|used| used <= 64),
                "{kernel}: {used:?} registers\n{printed}"
            );
            counted += 1;
        }
        for made in [file, out] {
            std::fs::remove_file(made).expect("it was just made");
        }
    }
    assert!(counted > 0, "no kernel is wide");
}

#[test]
fn tensor_core_products_compile_if_nvcc_is_installed() {
    let Some(nvcc) = nvcc() else {
        println!("nvcc is not installed, so the tensor-core products were not compiled for CUDA");
        return;
    };
    let text = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/src/kernels/source/tensor_cores.cu"
    );
    let out = scratch(&format!("ebb-{}-tensor-cores.ptx", std::process::id()));
    let mut command = Command::new(&nvcc);
    command.args(["-arch=sm_90a", "-ptx", "-o"]).arg(&out);
    compile("tensor_cores.cu", command.arg(text));
    std::fs::remove_file(out).expect("it was just made");
}

/// A syntax check only: Metal's own compiler runs on the user's Mac, where `ebb doctor` compares
/// the results of every kernel.
#[test]
fn every_module_is_valid_cpp_with_metals_prelude() {
    let shim = concat!(env!("CARGO_MANIFEST_DIR"), "/src/kernels/source/shim");
    for module in MODULES {
        let name = format!("ebb-{}-{module:?}.cpp", std::process::id()).replace(['(', ')'], "-");
        let file = scratch(&name);
        std::fs::write(&file, source::text(source::METAL, module)).expect("the target folder");
        let mut command = Command::new("c++");
        command.args(["-std=c++14", "-fsyntax-only", "-w", "-I", shim]);
        command.args([
            "-Ddevice=",
            "-Dconstant=const",
            "-Dkernel=",
            "-Dthreadgroup=",
        ]);
        compile(&name, command.arg(&file));
        std::fs::remove_file(file).expect("it was just made");
    }
}
