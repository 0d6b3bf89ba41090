//! What claims about ONNX files share: the runtime that is asked, and what it is asked.

use super::{answer, assert_close, python};
use serde_json::Value as Json;
use trainer::rooms::Trained;

/// A Python that has onnxruntime; where there is none, says so and gives nothing.
pub fn runtime() -> Option<String> {
    python("numpy, onnxruntime")
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
    let words = [kind, &trained.side.to_string()];
    let said = answer(python, "onnx_scores.py", &out, &words);
    assert_close(&format!("{name} by onnxruntime"), own, &said["logits"]);
    said
}
