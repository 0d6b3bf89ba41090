//! Computes exported Core ML packages with NumPy.

use super::{assert_close, python};
use models::export::{TrainedNetwork, export_core_ml};
use serde_json::Value as Json;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A Python with coremltools; prints a message and returns `None` if there is none.
pub fn runtime() -> Option<String> {
    python("numpy, coremltools")
}

/// A package, and Ebb's own scores for the samples of the script.
pub struct Package {
    name: String,
    words: [String; 3],
    own: Vec<f64>,
    /// Deletes the package.
    _place: TempDir,
}

impl Package {
    /// Exports the network.
    pub fn export(name: &str, trained: &TrainedNetwork, own: Vec<f64>) -> Self {
        let place = tempfile::tempdir().unwrap();
        let exported = export_core_ml(trained, &place.path().join("out")).unwrap();
        let of_texts = exported
            .files
            .contains(&"Data/ebb/tokenizer.json".to_owned());
        let kind = if of_texts { "texts" } else { "images" };
        let folder = exported.folder.display().to_string();
        Package {
            name: name.to_owned(),
            words: [kind.to_owned(), trained.input_size.to_string(), folder],
            own,
            _place: place,
        }
    }
}

/// Computes all packages, compares their scores, and returns the outputs. One Python reads all:
/// coremltools takes seconds to start.
pub fn check(python: &str, packages: &[Package]) -> Vec<Json> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(python)
        .arg(here.join("../models/tests/fixtures/export/core_ml_scores.py"))
        .args(packages.iter().flat_map(|package| &package.words))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = printed.lines().filter(|l| l.starts_with('{')).collect();
    assert_eq!(lines.len(), packages.len(), "{printed}");
    let each = packages.iter().zip(lines);
    each.map(|(package, line)| {
        let output: Json = serde_json::from_str(line).unwrap();
        let name = format!("{} by Core ML", package.name);
        assert_close(&name, &package.own, &output["logits"]);
        output
    })
    .collect()
}
