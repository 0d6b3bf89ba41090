//! Runs exported ONNX files with onnxruntime.

use super::{answer, assert_close, python};
use models::export::{TrainedNetwork, export_onnx};
use serde_json::Value as Json;

/// A Python with onnxruntime; prints a message and returns `None` if there is none.
pub fn runtime() -> Option<String> {
    python("numpy, onnxruntime")
}

/// Exports the network, runs it with onnxruntime, compares its `logits` and returns all outputs.
pub fn check(python: &str, name: &str, trained: &TrainedNetwork, own: &[f64]) -> Json {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    let exported = export_onnx(trained, &out).unwrap();
    let of_texts = exported.files.contains(&"tokenizer.json".to_owned());
    let beside = if of_texts {
        "tokenizer.json"
    } else {
        "preprocessor_config.json"
    };
    for file in ["config.json", "model.onnx", beside] {
        assert!(out.join(file).is_file(), "{name}: {:?}", exported.files);
    }
    let kind = if of_texts { "texts" } else { "images" };
    let words = [kind, &trained.input_size.to_string()];
    let output = answer(python, "onnx_scores.py", &out, &words);
    assert_close(&format!("{name} by onnxruntime"), own, &output["logits"]);
    output
}
