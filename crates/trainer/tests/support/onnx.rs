//! What claims about ONNX files share: the runtime that is asked, the samples, and how far apart scores may be.

use candle_core::{Device, Tensor};
use serde_json::Value as Json;
use std::path::Path;
use std::process::Command;
use tape::inplace::to_f64;
use tape::{Cancel, Kernels, Parameters, Stream, Tape, Value};
use trainer::models::Network;
use trainer::rooms::Trained;

/// What the issue asks.
const APART: f64 = 1e-4;

/// A Python that has onnxruntime; where there is none, says so and gives nothing.
pub fn runtime() -> Option<String> {
    let python = std::env::var("EBB_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let there = Command::new(&python)
        .args(["-c", "import numpy, onnxruntime"])
        .output();
    if there.is_ok_and(|said| said.status.success()) {
        return Some(python);
    }
    println!("skipped: {python} has no onnxruntime; EBB_PYTHON names one that has");
    None
}

/// As after some training: no parameter that trains stands where it began.
pub fn moved(parameters: &mut Parameters) {
    for index in 0..parameters.len() {
        let like = parameters.at(index).tensor.clone();
        let stream = Stream::new(index as u64);
        let noise: Vec<f32> = (0..like.elem_count())
            .map(|i| 0.1 * stream.normal(i as u64) as f32)
            .collect();
        let noise = Tensor::from_vec(noise, like.dims(), &Device::Cpu).unwrap();
        parameters.set(index, (like + noise).unwrap()).unwrap();
    }
}

/// Ebb's own outputs for the samples that the script knows.
pub fn scores(network: &Network, parameters: &Parameters, side: usize) -> Vec<f64> {
    let tape = Tape::forward_only(parameters, Cancel::default(), Kernels::Fused);
    let scores = match network {
        Network::TextEncoder(network) => {
            let ids = [1, 5, 9, 3, 7, 2, 4, 8, 0, 0];
            network.forward(&tape, &ids, &[5, 3], 0)
        }
        images => {
            let all = 0..2 * 3 * side * side;
            let values: Vec<f32> = all.map(|i| (0.37 * i as f64 + 0.1).sin() as f32).collect();
            let values = Tensor::from_vec(values, (2, 3, side, side), &Device::Cpu).unwrap();
            images.forward(&tape, &Value::constant(values), 0)
        }
    };
    to_f64(scores.unwrap().tensor()).unwrap()
}

/// Writes the network, asks onnxruntime, and compares its `logits`; gives all that it said.
pub fn check(python: &str, name: &str, trained: &Trained, own: &[f64]) -> Json {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    let exported = trained.write_onnx(&out).unwrap();
    let of_texts = exported.files.contains(&"tokenizer.json".to_owned());
    let beside = match of_texts {
        true => "tokenizer.json",
        false => "preprocessor_config.json",
    };
    for file in ["config.json", "model.onnx", beside] {
        assert!(out.join(file).is_file(), "{name}: {:?}", exported.files);
    }
    let kind = if of_texts { "texts" } else { "images" };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/export/onnx_scores.py");
    let output = Command::new(python)
        .arg(script)
        .arg(&out)
        .args([kind, &trained.side.to_string()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {said}");
    let said: Json = serde_json::from_slice(&output.stdout).unwrap();
    let theirs = said["logits"].as_array().cloned().unwrap_or_default();
    let theirs: Vec<f64> = theirs.iter().map(|v| v.as_f64().unwrap()).collect();
    assert_eq!(own.len(), theirs.len(), "{name}");
    let each = own.iter().zip(&theirs);
    let apart = each.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    println!("{name} by onnxruntime: {apart:.1e} apart");
    assert!(apart < APART, "{name}: {own:?} {theirs:?}");
    said
}
