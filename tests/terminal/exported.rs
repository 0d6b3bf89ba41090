//! A run's weights leave as a folder for other programs.

use crate::support::{Place, draw_classes};
use serde_json::Value;
use std::fs;

#[test]
fn a_run_is_exported_once_and_never_over_something() {
    let place = Place::new();
    draw_classes(&place.path("birds"), &["jay", "owl"], 6);
    let line = "{birds} --image-size 16 --steps 2 --effective-batch 8 --model vit_micro";
    place.train(line).ended(0);
    let out = place.run("export birds {out} --json").ended(0).out;
    let said: Value = serde_json::from_str(&out).expect("a line of JSON");
    assert_eq!(
        said["files"],
        serde_json::json!([
            "config.json",
            "model.safetensors",
            "preprocessor_config.json"
        ])
    );
    let config = fs::read(place.path("out").join("config.json")).expect("it was written");
    let config: Value = serde_json::from_slice(&config).expect("it is JSON");
    assert_eq!(config["architectures"][0], "ViTForImageClassification");
    assert_eq!(config["id2label"]["1"], "owl");
    let again = place.run("export birds {out}").ended(1);
    assert!(again.err.contains("new or empty"), "{again:?}");
}
