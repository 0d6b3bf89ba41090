//! What goes wrong on Metal only, without an error, and can therefore be seen in the sources alone:
//! how kernels are compiled, what candle shares or cannot convert there, and which calls may raise
//! an exception.

use crate::sources::rust_sources;
use crate::{none, root};
use std::fs;

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The parts of a text that are missing.
fn missing(path: &str, text: &str, needed: &[&str]) -> Vec<String> {
    let missing = needed.iter().filter(|part| !text.contains(**part));
    missing.map(|part| format!("{path} lacks {part}")).collect()
}

/// Calls that may raise an exception and are not made inside `guarded`.
fn unguarded(text: &str) -> Vec<String> {
    const CALLS: [&str; 4] = [
        "Ok(take()?)",
        "encode(kernel, grid,",
        "call_mlx_gemm(\n",
        "Device::new_metal(",
    ];
    let mut complaints = Vec::new();
    for call in CALLS {
        for (at, _) in text.match_indices(call) {
            let block = text[..at].rfind("guarded(|| ");
            let end = text[..at].rfind("\n}\n");
            if block.is_none() || end > block {
                complaints.push(format!("{} is not guarded", call.trim()));
            }
        }
    }
    complaints
}

/// Tensors that are made of f64 on a device and converted there. Metal cannot convert f64.
fn converted_on_device(path: &str, text: &str) -> Vec<String> {
    let makes = |line: &str| {
        ["Tensor::new(", "Tensor::from_vec(", "Tensor::from_slice("]
            .iter()
            .any(|make| line.contains(make))
    };
    let lines: Vec<&str> = text.lines().collect();
    let mut complaints = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let single = ["f32", "Device::Cpu"];
        let near = &lines[at.saturating_sub(1)..=at];
        let is_right = near
            .iter()
            .any(|line| single.iter().any(|s| line.contains(s)));
        let next = lines.get(at + 1).map_or("", |line| line.trim_start());
        let converts = line.contains(".to_dtype(") || next.starts_with(".to_dtype(");
        if makes(line) && converts && !is_right {
            complaints.push(format!("{path}:{}: converted on the device", at + 1));
        }
    }
    complaints
}

/// Conversions in the training code that a test with a device without f64 does not see.
fn unseen_conversions(path: &str, text: &str) -> Vec<String> {
    // The device check converts on the CPU, which is its reference.
    let is_reference = path.ends_with("device_check/compare_with_cpu.rs");
    if !path.starts_with("crates/trainer/src/") || is_reference {
        return Vec::new();
    }
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or("");
    let lines = code.lines().enumerate();
    let found = lines.filter(|(_, line)| line.contains(".to_dtype("));
    let complaint =
        |(at, _): (usize, &str)| format!("{path}:{}: call tape::device::convert", at + 1);
    found.map(complaint).collect()
}

#[test]
fn kernels_for_metal_are_compiled_with_precise_functions() {
    let path = "crates/tape/src/kernels/metal.rs";
    let needed = [
        "options.setMathMode(MTLMathMode::Safe);",
        "options.setMathFloatingPointFunctions(MTLMathFloatingPointFunctions::Precise);",
        "new_library_with_source(&text, Some(&options))",
    ];
    none(&missing(path, &text(path), &needed));
    let path = "crates/tape/src/command_buffer_budget.rs";
    let needed = [r#"("CANDLE_METAL_ENABLE_FAST_MATH", "false")"#];
    none(&missing(path, &text(path), &needed));
    let path = "src-tauri/main.rs";
    none(&missing(
        path,
        &text(path),
        &["in trainer::CANDLE_ENVIRONMENT"],
    ));
    assert_eq!(missing("planted", "MathMode::Fast", &needed).len(), 1);
}

#[test]
fn an_exception_of_metal_is_caught() {
    let path = "crates/tape/src/objective_c.rs";
    none(&missing(path, &text(path), &["objc2::exception::catch("]));
    for path in [
        "crates/tape/src/kernels/metal.rs",
        "crates/tape/src/device/metal.rs",
    ] {
        none(&unguarded(&text(path)));
    }
    let planted = "guarded(|| 1)\n}\nfn launch() {\n    encode(kernel, grid, arguments)\n}\n";
    assert_eq!(unguarded(planted).len(), 1);
}

#[test]
fn no_tensor_is_converted_from_f64_on_a_device() {
    let sources = rust_sources();
    let product = sources
        .iter()
        .filter(|source| source.path.contains("/src/"));
    let complaints = product.flat_map(|source| converted_on_device(&source.path, &source.text));
    none(&complaints.collect::<Vec<_>>());
    let planted = "let x = Tensor::new(values, context.device)?.to_dtype(like.dtype())?;";
    assert_eq!(converted_on_device("planted", planted).len(), 1);
}

#[test]
fn the_training_converts_where_a_missing_f64_is_seen() {
    let sources = rust_sources();
    let complaints = sources
        .iter()
        .flat_map(|source| unseen_conversions(&source.path, &source.text));
    none(&complaints.collect::<Vec<_>>());
    let planted =
        "let x = values.to_dtype(like.dtype())?;\n#[cfg(test)]\nmod tests {\nx.to_dtype(y)";
    let complaints = unseen_conversions("crates/trainer/src/planted.rs", planted);
    assert_eq!(complaints.len(), 1);
}

#[test]
fn clippy_refuses_what_bypasses_the_waiting_and_copying_functions() {
    let path = "clippy.toml";
    let needed = [
        "Device::synchronize",
        "Tensor::to_vec1",
        "Tensor::to_scalar",
        "Tensor::copy",
    ]
    .map(|name| format!("path = \"candle_core::{name}\""));
    let needed: Vec<&str> = needed.iter().map(String::as_str).collect();
    none(&missing(path, &text(path), &needed));
}
