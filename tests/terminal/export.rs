//! `ebb export` writes a run's weights for other programs.

use crate::python::python;
use crate::support::{TestHome, draw_classes, run_command};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn export_refuses_a_folder_that_is_not_empty() {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 6);
    let line = "{birds} --image-size 16 --steps 2 --effective-batch 8 --model vit_micro";
    home.train(line).expect_code(0);
    let out = home.run("export birds {out} --json").expect_code(0).out;
    let output: Value = serde_json::from_str(&out).expect("a line of JSON");
    assert_eq!(
        output["files"],
        serde_json::json!([
            "README.md",
            "baseline.safetensors",
            "config.json",
            "ebb_mixture.json",
            "ebb_predictor.py",
            "image_baseline.py",
            "model.safetensors",
            "preprocessor_config.json"
        ])
    );
    let config = fs::read(home.path("out").join("config.json")).expect("the file was written");
    let config: Value = serde_json::from_slice(&config).expect("valid JSON");
    assert_eq!(config["architectures"][0], "ViTForImageClassification");
    assert_eq!(config["id2label"]["1"], "owl");
    let card = fs::read_to_string(home.path("out").join("README.md")).expect("it was written");
    assert!(
        card.starts_with("---\nlibrary_name: transformers\n"),
        "{card}"
    );
    for part in [
        "pipeline_tag: image-classification",
        "trained on `birds`",
        "Classes: `jay`, `owl`.",
        "| `effective_batch` | `8` |",
        "The weights of step ",
        "This model has no licence yet.",
        "    python3 ebb_predictor.py IMAGE\n",
    ] {
        assert!(card.contains(part), "{part}: {card}");
    }
    assert!(!card.contains(&*home.path("").to_string_lossy()), "{card}");
    let again = home.run("export birds {out}").expect_code(1);
    assert!(again.err.contains("new or empty"), "{again:?}");
}

/// Exports the only run to ONNX and compares the probabilities of onnxruntime with `ebb predict`.
fn check_onnx(home: &TestHome, python: &str, samples: &[String], classes: &[&str]) {
    let run = home.only_run().id();
    let out = home
        .run(&format!("export {run} {{out}} --format onnx"))
        .expect_code(0)
        .out;
    assert!(
        out.contains("model.onnx") && out.contains("onnxruntime"),
        "{out}"
    );
    let config = fs::read(home.path("out").join("config.json")).expect("the file was written");
    let config: Value = serde_json::from_slice(&config).expect("valid JSON");
    let names: Vec<&str> = (0..classes.len())
        .filter_map(|label| config["id2label"][label.to_string()].as_str())
        .collect();
    assert_eq!(names, classes);
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = here.join("crates/models/tests/fixtures/export/onnx_predict.py");
    let mut theirs = Command::new(python);
    theirs.arg(script).arg(home.path("out")).args(samples);
    let theirs = run_command(&mut theirs).expect_code(0).out;
    let top = classes.len().to_string();
    let words = ["predict", &run, "--json", "--top", &top].map(str::to_owned);
    let own = run_command(&mut home.ebb(words.iter().chain(samples)))
        .expect_code(0)
        .out;
    assert_eq!(own.lines().count(), samples.len());
    for (own, theirs) in own.lines().zip(theirs.lines()) {
        let own: Value = serde_json::from_str(own).expect("a line of JSON");
        let theirs: Vec<f64> = serde_json::from_str(theirs).expect("a line of JSON");
        for class in own["classes"].as_array().expect("a list of classes") {
            let label = classes.iter().position(|name| class["class"] == *name);
            let theirs = theirs[label.expect("a known class")];
            let share = class["probability"].as_f64().expect("a number");
            assert!((share - theirs).abs() < 1e-4, "{own} {theirs}");
        }
    }
}

#[test]
fn onnxruntime_classifies_images_like_ebb() {
    let Some(python) = python("numpy, onnxruntime, PIL") else {
        return;
    };
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 8);
    // The images have 32 px, so neither program resizes them.
    home.train("{birds} --image-size 32 --steps 6 --effective-batch 8 --ema-decay 0.9")
        .expect_code(0);
    let image = |name: &str| home.path("birds").join(name).display().to_string();
    let samples = ["jay/000.png", "owl/000.png", "owl/002.png"].map(image);
    check_onnx(&home, &python, &samples, &["jay", "owl"]);
}

#[test]
fn onnxruntime_classifies_texts_like_ebb() {
    let Some(python) = python("numpy, onnxruntime, tokenizers") else {
        return;
    };
    let home = TestHome::new();
    let row = |i: usize| match i % 3 {
        0 => format!("spam\twin {i} cash now\n"),
        _ => format!("ham\tsee you at home at {i}\n"),
    };
    home.file("sms.tsv", (0..90).map(row).collect::<String>());
    // The ONNX file holds the network, so the baseline has no part in the predictions here.
    let line =
        "{sms.tsv} --tokens 16 --vocabulary 300 --effective-batch 10 --steps 8 --baseline ngrams";
    home.train(line).expect_code(0);
    let samples = ["win cash now", "see you", "at home at 7 o'clock"].map(str::to_owned);
    check_onnx(&home, &python, &samples, &["ham", "spam"]);
    let refused = home
        .run("export sms {out} --format onnx")
        .expect_code(1)
        .err;
    assert!(refused.contains("new or empty"), "{refused}");
}

#[test]
fn nothing_is_exported_into_the_dataset() {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 6);
    let line = "{birds} --image-size 16 --steps 2 --effective-batch 8";
    home.train(line).expect_code(0);
    let refused = home.run("export birds {birds/exported}").expect_code(2).err;
    assert!(
        refused.contains("Ebb never writes into the folder of a dataset"),
        "{refused}"
    );
    assert!(!home.path("birds/exported").exists());
}

#[test]
fn core_ml_packages_get_their_ending_and_refuse_a_place_that_cannot_be_written() {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 6);
    let line = "{birds} --image-size 16 --steps 2 --effective-batch 8 --model vit_micro";
    home.train(line).expect_code(0);
    let out = home
        .run("export birds {out} --format coreml")
        .expect_code(0)
        .out;
    assert!(
        out.contains("out.mlpackage: ") && out.contains("Xcode"),
        "{out}"
    );
    let package = home.path("out.mlpackage");
    for file in ["Manifest.json", "Data/com.apple.CoreML/weights/weight.bin"] {
        assert!(package.join(file).is_file(), "{file}");
    }
    let again = home.run("export birds {out.mlpackage} --format coreml");
    assert!(again.expect_code(1).err.contains("new or empty"));
    // A file is in the way of the folder.
    home.file("file", "");
    let refused = home
        .run("export birds {file/out} --format coreml")
        .expect_code(1)
        .err;
    assert!(refused.contains("choose another place"), "{refused}");
}
