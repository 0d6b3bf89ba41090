//! Every file with unsafe code is listed with what checks it at night, and the nightly workflow
//! runs these checks. A lint requires a `// SAFETY:` comment in every crate.

use crate::sources::{Source, rust_sources};
use crate::{none, root};
use std::fs;

/// What checks unsafe code.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Check {
    /// `scripts/sanitize miri` runs the tests of this module.
    Miri(&'static str),
    /// `scripts/sanitize address` runs the tests of this crate.
    Address(&'static str),
    /// Calls of the operating system, of a library in C or of a driver, which no checker follows.
    /// The tests run them where the system or the device exists.
    Foreign,
}

/// Files with unsafe code, or the beginning of their paths.
const CHECKED: &[(&str, Check)] = &[
    (
        "crates/dataset/src/decode_image/system_decoder/imageio.rs",
        Check::Foreign,
    ),
    ("crates/distributed/", Check::Foreign),
    ("crates/pressure/src/source/linux/", Check::Foreign),
    ("crates/pressure/src/thread_cpu_time/", Check::Foreign),
    (
        "crates/tape/src/counting_allocator.rs",
        Check::Miri("counting_allocator"),
    ),
    ("crates/tape/src/cpu/", Check::Miri("cpu")),
    // The tests of the allocator make a dry run.
    (
        "crates/tape/src/dry_run.rs",
        Check::Miri("counting_allocator"),
    ),
    ("crates/tape/src/kernels.rs", Check::Address("tape")),
    (
        "crates/tape/src/kernels/emulator.rs",
        Check::Address("tape"),
    ),
    ("crates/tape/src/kernels/batched_heads.rs", Check::Foreign),
    ("crates/tape/src/kernels/cublas.rs", Check::Foreign),
    ("crates/tape/src/kernels/cuda.rs", Check::Foreign),
    ("crates/tape/src/kernels/cuda_upload.rs", Check::Foreign),
    ("crates/tape/src/kernels/tensor_cores.rs", Check::Foreign),
    ("crates/tape/src/device/cuda.rs", Check::Foreign),
    ("crates/tape/src/device/nccl/", Check::Foreign),
    ("crates/trainer/src/data/token_file.rs", Check::Foreign),
    (
        "crates/trainer/src/device_check/low_priority_threads/",
        Check::Foreign,
    ),
    (
        "crates/trainer/src/optimizer/mapped_state.rs",
        Check::Foreign,
    ),
    ("src-tauri/allocator/mimalloc.rs", Check::Foreign),
    ("src-tauri/cli/plan/candle_threads.rs", Check::Foreign),
    ("src-tauri/main.rs", Check::Foreign),
    ("src-tauri/os_integration/linux.rs", Check::Foreign),
    ("src-tauri/web_view/linux.rs", Check::Foreign),
];

/// Files that only a Mac compiles; their unsafe code calls the system.
fn is_for_macs(path: &str) -> bool {
    path.ends_with("/macos.rs") || path.contains("/macos/")
}

fn has_unsafe_code(text: &str) -> bool {
    let code = |line: &str| {
        let code = line.split("//").next().unwrap_or_default();
        let begins = ["unsafe {", "unsafe impl", "unsafe fn", "unsafe extern"];
        begins.iter().any(|begin| code.contains(begin))
    };
    text.lines().any(code)
}

/// Files with unsafe code that the list does not name, and entries without such a file.
fn differences(sources: &[Source], list: &[(&str, Check)]) -> Vec<String> {
    // The rules about source code contain the word in texts.
    let sources = sources
        .iter()
        .filter(|s| !s.path.starts_with("tests/tidy/"));
    let found: Vec<&str> = sources
        .filter(|source| has_unsafe_code(&source.text) && !is_for_macs(&source.path))
        .map(|source| source.path.as_str())
        .collect();
    let is_listed = |path: &&&str| list.iter().any(|(begin, _)| path.starts_with(begin));
    let missing = found.iter().filter(|path| !is_listed(path));
    let missing = missing.map(|path| format!("{path} has unsafe code; say what checks it"));
    let unused = list
        .iter()
        .filter(|(begin, _)| !found.iter().any(|path| path.starts_with(begin)));
    let unused = unused.map(|(begin, _)| format!("{begin} has no unsafe code any more"));
    missing.chain(unused).collect()
}

/// Checks of the list that a script does not make.
fn not_checked(script: &str, list: &[(&str, Check)]) -> Vec<String> {
    let command = |start: &str, rest: &str| {
        let mut lines = script.lines().map(str::trim);
        lines.any(|line| line.starts_with(start) && line.contains(rest))
    };
    let is_checked = |check: Check| match check {
        Check::Miri(module) => {
            let filter = format!(" {module}::");
            command("cargo +nightly miri test -p tape --lib -- ", &filter)
        }
        Check::Address(name) => command("\"${build[@]}\"", &format!("-p {name} --lib")),
        Check::Foreign => true,
    };
    let missing = list.iter().filter(|(_, check)| !is_checked(*check));
    missing
        .map(|(begin, _)| format!("scripts/sanitize does not check {begin}"))
        .collect()
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn all_unsafe_code_is_listed_with_its_check() {
    none(&differences(&rust_sources(), CHECKED));
    let planted = Source {
        path: "crates/dataset/src/planted.rs".to_owned(),
        text: "//! Text.\nfn f(p: *const u8) -> u8 {\n    unsafe { *p }\n}\n".to_owned(),
    };
    assert_eq!(differences(&[planted], &[]).len(), 1);
    assert_eq!(differences(&[], &CHECKED[..1]).len(), 1);
    assert!(!has_unsafe_code("// An unsafe { block } in a comment.\n"));
}

#[test]
fn the_nightly_workflow_runs_the_checks() {
    let script = text("scripts/sanitize");
    none(&not_checked(&script, CHECKED));
    let planted = [("crates/tape/src/planted.rs", Check::Miri("planted"))];
    assert_eq!(not_checked(&script, &planted).len(), 1);
    let planted = [("crates/planted/src/lib.rs", Check::Address("planted"))];
    assert_eq!(not_checked(&script, &planted).len(), 1);
    let nightly = text(".github/workflows/nightly.yml");
    for line in [
        "check: [address, thread, miri]",
        "- run: scripts/sanitize ${{ matrix.check }}",
    ] {
        assert!(nightly.contains(line), "nightly.yml: {line}");
    }
}

/// Manifests of the workspace that do not take over its lints.
fn without_lints(manifests: &[(String, String)]) -> Vec<String> {
    let bare = manifests
        .iter()
        .filter(|(_, text)| !text.contains("[lints]\nworkspace = true\n"));
    bare.map(|(path, _)| format!("{path} does not take over the lints of the workspace"))
        .collect()
}

#[test]
fn a_lint_requires_a_safety_comment_in_every_crate() {
    let workspace = text("Cargo.toml");
    for lint in [
        "undocumented_unsafe_blocks = \"deny\"",
        "unsafe_op_in_unsafe_fn = \"deny\"",
    ] {
        assert!(workspace.contains(lint), "Cargo.toml: {lint}");
    }
    let mut manifests = vec![("Cargo.toml".to_owned(), workspace)];
    for entry in fs::read_dir(root().join("crates")).expect("it can be read") {
        let path = entry.expect("it can be read").path().join("Cargo.toml");
        let manifest = fs::read_to_string(&path).expect("a crate has a manifest");
        manifests.push((path.display().to_string(), manifest));
    }
    assert!(manifests.len() > 8, "the crates are found");
    none(&without_lints(&manifests));
    let planted = ("planted/Cargo.toml".to_owned(), "[package]\n".to_owned());
    assert_eq!(without_lints(&[planted]).len(), 1);
}
