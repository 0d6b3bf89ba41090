//! Helpers for tests of exports: they find Python, change parameters as training would, compute
//! the scores of the samples in the scripts of `fixtures/export`, and compare scores.

#![allow(dead_code)]

pub mod core_ml;
pub mod onnx;

#[path = "../../../../tests/support/python.rs"]
mod python;

pub use python::python;

use candle_core::{DType, Device, Tensor};
use models::export::TokenizerFile;
use models::{ModelId, Network, TextModel, TextSize};
use serde_json::Value as Json;
use std::path::Path;
use std::process::Command;
use tape::inplace::to_f64;
use tape::{Cancel, Kernels, Parameters, Rng, Tape, Value};

/// Longest text of [`text_model`] in tokens.
pub const TEXT_TOKENS: u32 = 12;

/// Largest allowed distance between two scores.
const APART: f64 = 1e-4;

/// Three class names with characters that need escaping.
pub fn classes() -> Vec<String> {
    ["apple", "Brot & Käse", "\"soup\""]
        .map(str::to_owned)
        .to_vec()
}

/// A text network of this size with a small vocabulary.
pub fn text_model(size: TextSize) -> ModelId {
    ModelId::Text(TextModel {
        size,
        tokens: TEXT_TOKENS,
        vocabulary: 40,
        policy: None,
        neighbors: TextModel::NEIGHBORS,
    })
}

/// A tokenizer for [`text_model`]. Its vocabulary is left out.
pub fn tokenizer() -> TokenizerFile {
    TokenizerFile {
        json: "{}".to_owned(),
        boundary: None,
        special_tokens: vec!["[PAD]"],
    }
}

/// A network for images of `side` pixels, or for texts, with parameters as after some training.
pub fn built(kind: ModelId, side: usize, outputs: usize) -> (Network, Parameters) {
    let built = Network::build(kind, side, outputs, 9, DType::F32, &Device::Cpu);
    let (network, mut parameters) = built.unwrap();
    moved(&mut parameters);
    (network, parameters)
}

/// Changes every trained parameter, including norms and biases, as training would.
pub fn moved(parameters: &mut Parameters) {
    for index in 0..parameters.len() {
        let like = parameters.at(index).tensor.clone();
        let stream = Rng::new(index as u64);
        let noise: Vec<f32> = (0..like.elem_count())
            .map(|i| 0.1 * stream.normal(i as u64) as f32)
            .collect();
        let noise = Tensor::from_vec(noise, like.dims(), &Device::Cpu).unwrap();
        parameters.set(index, (like + noise).unwrap()).unwrap();
    }
}

/// Ebb's own outputs for the samples of the scripts; images have this side.
pub fn scores(network: &Network, parameters: &Parameters, side: usize) -> Vec<f64> {
    let tape = Tape::forward_only(parameters, Cancel::default(), Kernels::Fused);
    let scores = match network {
        Network::TextEncoder(network) => {
            let ids = [1, 5, 9, 3, 7, 2, 4, 8, 0, 0];
            network.forward(&tape, &ids, &[5, 3], 0)
        }
        Network::Gpt(network) => network.scores(&tape, &[1, 5, 9, 3, 7], 1),
        images => {
            let all = 0..2 * 3 * side * side;
            let values: Vec<f32> = all.map(|i| (0.37 * i as f64 + 0.1).sin() as f32).collect();
            let values = Tensor::from_vec(values, (2, 3, side, side), &Device::Cpu).unwrap();
            images.forward(&tape, &Value::constant(values), 0)
        }
    };
    to_f64(scores.unwrap().tensor()).unwrap()
}

/// The output of a script of `fixtures/export` for an exported folder. It downloads nothing.
pub fn answer(python: &str, script: &str, folder: &Path, words: &[&str]) -> Json {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let cache = tempfile::tempdir().unwrap();
    let output = Command::new(python)
        .arg(here.join("../models/tests/fixtures/export").join(script))
        .arg(folder)
        .args(words)
        .env("HF_HOME", cache.path())
        .env("HF_HUB_OFFLINE", "1")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script} {words:?}: {errors}");
    // Libraries may print something before.
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    serde_json::from_str(printed.lines().last().unwrap()).unwrap()
}

/// Asserts that another program computed Ebb's scores.
pub fn assert_close(what: &str, own: &[f64], theirs: &Json) {
    let theirs: Vec<f64> = if theirs.is_null() {
        Vec::new()
    } else {
        serde_json::from_value(theirs.clone()).unwrap()
    };
    assert_eq!(own.len(), theirs.len(), "{what}");
    let each = own.iter().zip(&theirs);
    let apart = each.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    println!("{what}: {apart:.1e} apart");
    assert!(apart < APART, "{what}: {own:?} {theirs:?}");
}
