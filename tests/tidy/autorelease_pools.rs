//! Everything that uses Metal runs inside an autorelease pool, and an exception of the system
//! becomes an error there. No other system notices a missing pool.

use crate::sources::rust_sources;
use crate::{none, root};
use std::fs;

/// Functions that use the GPU, by file, and what each of them calls around that work.
const WRAPPED: &[(&str, &[&str])] = &[
    (
        "crates/bench/src/split_equivalence/run_check.rs",
        &["for_workload"],
    ),
    (
        "crates/bench/src/compare_gradients_with_f64.rs",
        &["compare"],
    ),
    ("crates/bench/src/step_benchmark.rs", &["step"]),
    ("crates/tape/src/check/compare.rs", &["run"]),
    (
        "crates/tape/src/device/metal.rs",
        &["select", "gpu", "discard"],
    ),
    (
        "crates/tape/src/device_sync.rs",
        &["synchronize", "to_host"],
    ),
    ("crates/tape/src/kernels/bandwidth.rs", &["median"]),
    (
        "crates/tape/src/kernels/metal.rs",
        &["drop", "uninit", "launch", "product"],
    ),
    (
        "crates/tape/src/objective_c.rs",
        &["catch_exception", "guarded"],
    ),
    ("crates/tape/src/parameters.rs", &["in_dtype"]),
    (
        "crates/trainer/src/batch_gradients.rs",
        &["with_run", "gradients"],
    ),
    (
        "crates/trainer/src/device_check/compare_with_cpu.rs",
        &["attempt"],
    ),
    ("crates/trainer/src/optimizer.rs", &["update"]),
    (
        "crates/trainer/src/session.rs",
        &["start", "confirm_gradients", "update", "gather_moments"],
    ),
    (
        "crates/trainer/src/session/saving.rs",
        &["save_current", "postpone_best"],
    ),
    (
        "crates/trainer/src/session/synchronize.rs",
        &["synchronize"],
    ),
    ("crates/trainer/src/session/training_device.rs", &["load"]),
    (
        "crates/trainer/src/train/answer_prompts.rs",
        &["answer_each"],
    ),
    (
        "crates/trainer/src/train.rs",
        &["train_loop", "train_steps", "accumulate"],
    ),
    (
        "crates/trainer/src/train/evaluate.rs",
        &["evaluate_micro_batch"],
    ),
    ("crates/trainer/src/train/group_step.rs", &["process"]),
    (
        "crates/trainer/src/train/probe_memory.rs",
        &["probe_memory"],
    ),
    (
        "crates/trainer/src/train_state.rs",
        &["without_moments", "begin_moments"],
    ),
    (
        "crates/trainer/src/trained_model.rs",
        &["load", "free_unused_memory", "sum_with"],
    ),
    (
        "crates/trainer/src/trained_model/compress.rs",
        &["compress"],
    ),
    (
        "crates/trainer/src/trained_model/generate.rs",
        &["next_scores"],
    ),
    (
        "crates/trainer/src/trained_model/images.rs",
        &["saliency", "predict_one"],
    ),
    (
        "crates/trainer/src/trained_model/language_weights.rs",
        &["free_unused_memory"],
    ),
    ("crates/trainer/src/trained_model/questions.rs", &["judge"]),
    (
        "crates/trainer/src/trained_model/texts.rs",
        &["predict_texts"],
    ),
    ("crates/trainer/src/weight_ema.rs", &["follow"]),
];

const CALLS: [&str; 3] = ["with_autorelease_pool(", "guarded(", "catch_exception("];

/// The bodies of all functions of this name, without comments.
fn bodies(source: &str, name: &str) -> Vec<String> {
    let is_head = |line: &str| {
        let (generic, plain) = (format!("fn {name}<"), format!("fn {name}("));
        line.contains(&generic) || line.contains(&plain)
    };
    let lines: Vec<&str> = source.lines().collect();
    let heads = (0..lines.len()).filter(|&at| is_head(lines[at]));
    heads
        .map(|at| {
            let indent = lines[at].len() - lines[at].trim_start().len();
            let end = format!("{}}}", " ".repeat(indent));
            let body = lines[at + 1..].iter().take_while(|line| **line != end);
            let code = body.filter(|line| !line.trim_start().starts_with("//"));
            code.copied().collect::<Vec<_>>().join("\n")
        })
        .collect()
}

/// Listed functions that are missing, or that call none of the functions with a pool.
fn without_pool(path: &str, source: &str, names: &[&str]) -> Vec<String> {
    let is_wrapped = |body: &String| CALLS.iter().any(|call| body.contains(call));
    let missing = names
        .iter()
        .filter(|name| !bodies(source, name).iter().any(is_wrapped));
    missing
        .map(|name| format!("{path}: {name} runs without an autorelease pool"))
        .collect()
}

/// Functions of a file that make a pool and are not listed.
fn unlisted(path: &str, source: &str) -> Vec<String> {
    let listed = WRAPPED.iter().find(|(listed, _)| *listed == path);
    let listed = listed.map_or(&[][..], |(_, names)| names);
    let (mut current, mut found) = ("", Vec::new());
    for line in source.lines() {
        let code = line.trim_start();
        let head = code.split("fn ").nth(1).filter(|_| !code.starts_with("//"));
        if let Some(name) = head.and_then(|rest| rest.split(['(', '<']).next()) {
            current = name;
        } else if !code.starts_with("//")
            && code.contains("with_autorelease_pool(")
            && !listed.contains(&current)
        {
            found.push(format!(
                "{path}: list {current} in tests/tidy/autorelease_pools.rs"
            ));
        }
    }
    found
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn everything_that_uses_the_gpu_runs_in_an_autorelease_pool() {
    let found = WRAPPED
        .iter()
        .flat_map(|(path, names)| without_pool(path, &text(path), names));
    none(&found.collect::<Vec<_>>());
    let is_of_training = |path: &str| {
        let mut folders = ["crates/trainer/src/", "crates/bench/src/"].iter();
        folders.any(|folder| path.starts_with(folder))
    };
    let sources = rust_sources().into_iter();
    let sources = sources.filter(|source| is_of_training(&source.path));
    let found = sources.flat_map(|source| unlisted(&source.path, &source.text));
    none(&found.collect::<Vec<_>>());
    let planted = "fn save() {\n    // with_autorelease_pool(work)\n    work();\n}\n";
    assert_eq!(without_pool("planted", planted, &["save", "load"]).len(), 2);
    let planted = "fn save() {\n    with_autorelease_pool(work);\n}\n";
    assert_eq!(without_pool("planted", planted, &["save"]).len(), 0);
    assert_eq!(unlisted("planted", planted).len(), 1);
}

#[test]
fn the_pool_is_one_of_objective_c_that_catches_exceptions() {
    let source = text("crates/tape/src/objective_c.rs");
    let body = &bodies(&source, "with_autorelease_pool")[0];
    let pool = body.find("objc2::rc::autoreleasepool(");
    let caught = body.find("objc2::exception::catch(");
    assert!(pool.is_some() && pool < caught, "{body}");
}
