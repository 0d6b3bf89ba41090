//! A trained network leaves as a folder that others open: PyTorch computes the same scores from it, by its tensors alone and by
//! transformers' loader, and so does Ebb when it reads the folder back.

// Helpers of tests are tests: what fails here fails the claim.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use serde_json::Value as Json;
use std::fs;
use std::path::Path;
use std::process::Command;
use tape::inplace::to_f64;
use tape::{Cancel, Kernels, Parameters, Stream, Tape, Value};
use trainer::models::Network;
use trainer::published::{Classes, Make, PublishedFolder, Tuning};
use trainer::rooms::Trained;
use trainer::{ImageSize, ModelKind};

const SIDE: u32 = 32;
/// What the issue asks.
const APART: f64 = 1e-4;

/// A network as after some training: no two parameters alike, norms and biases included.
fn trained(kind: ModelKind, classes: usize) -> (Network, Parameters) {
    let (network, mut parameters) =
        Network::build(kind, SIDE as usize, classes, 9, DType::F32, &Device::Cpu).unwrap();
    for index in 0..parameters.len() {
        let like = parameters.at(index).tensor.clone();
        let stream = Stream::new(index as u64);
        let noise: Vec<f32> = (0..like.elem_count())
            .map(|i| 0.1 * stream.normal(i as u64) as f32)
            .collect();
        let noise = Tensor::from_vec(noise, like.dims(), &Device::Cpu).unwrap();
        parameters.set(index, (like + noise).unwrap()).unwrap();
    }
    (network, parameters)
}

fn scores(network: &Network, parameters: &Parameters) -> Vec<f64> {
    let side = SIDE as usize;
    let all = 0..2 * 3 * side * side;
    let values: Vec<f32> = all.map(|i| (0.37 * i as f64 + 0.1).sin() as f32).collect();
    let images = Tensor::from_vec(values, (2, 3, side, side), &Device::Cpu).unwrap();
    let tape = Tape::forward_only(parameters, Cancel::default(), Kernels::Fused);
    let scores = network.forward(&tape, &Value::constant(images), 0).unwrap();
    to_f64(scores.tensor()).unwrap()
}

fn classes() -> Vec<String> {
    ["apple", "Brot & Käse", "\"soup\""]
        .map(str::to_owned)
        .to_vec()
}

fn written(kind: ModelKind, parameters: &Parameters, folder: &Path) {
    let classes = classes();
    let trained = Trained {
        columns: &[],
        kind,
        side: SIDE,
        classes: &classes,
        parameters,
        origin: None,
        tokenizer: None,
    };
    let exported = trained.write(folder).unwrap();
    let on_disk = exported.files.iter().map(|name| folder.join(name));
    let bytes: u64 = on_disk.map(|file| fs::metadata(file).unwrap().len()).sum();
    assert_eq!(exported.bytes, bytes);
}

fn most_apart(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max)
}

#[test]
fn pytorch_computes_the_same_scores_from_an_exported_folder() {
    let python = std::env::var("EBB_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let torch = Command::new(&python).args(["-c", "import torch"]).output();
    if !torch.is_ok_and(|said| said.status.success()) {
        println!("skipped: {python} has no torch; EBB_PYTHON names one that has");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/export/scores.py");
    let sized = [ImageSize::ResNet18, ImageSize::ResNet50, ImageSize::VitTiny];
    let kinds = sized.map(ModelKind::Images);
    for kind in ModelKind::SMALL.into_iter().chain(kinds) {
        let folder = tempfile::tempdir().unwrap();
        let (network, parameters) = trained(kind, classes().len());
        written(kind, &parameters, folder.path());
        let cache = tempfile::tempdir().unwrap();
        let output = Command::new(&python)
            .arg(&script)
            .arg(folder.path())
            .env("HF_HOME", cache.path())
            .env("HF_HUB_OFFLINE", "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{kind:?}: {said}");
        let said: Json = serde_json::from_slice(&output.stdout).unwrap();
        let own = scores(&network, &parameters);
        for loader in ["plain", "transformers"] {
            let Some(theirs) = said[loader].as_array() else {
                println!("{kind:?}: transformers is not there, and not asked");
                continue;
            };
            let theirs: Vec<f64> = theirs.iter().map(|v| v.as_f64().unwrap()).collect();
            let apart = most_apart(&own, &theirs);
            println!("{kind:?} by {loader}: {apart:.1e} apart");
            assert!(apart < APART, "{kind:?} by {loader}: {own:?} {theirs:?}");
            if loader == "transformers" {
                let names: Vec<String> = serde_json::from_value(said["classes"].clone()).unwrap();
                assert_eq!(names, classes());
            }
        }
    }
}

#[test]
fn ebb_reads_its_own_transformer_back() {
    let folder = tempfile::tempdir().unwrap();
    let (network, parameters) = trained(ModelKind::VitMicro, classes().len());
    written(ModelKind::VitMicro, &parameters, folder.path());
    let read = PublishedFolder::open(folder.path()).unwrap();
    assert_eq!(read.classes(), Some(classes()));
    let own = read.preprocessor().unwrap();
    assert_eq!((own.side, own.shorter_side), (Some(32), Some(32)));
    let make = Make {
        tuning: Tuning::default(),
        classes: Classes::Published,
        seed: 0,
        dtype: DType::F32,
        device: &Device::Cpu,
    };
    let loaded = read.image_classifier(None, &make).unwrap();
    assert_eq!(
        scores(&network, &parameters),
        scores(&loaded.network, &loaded.parameters)
    );
}

#[test]
fn a_folder_with_something_in_it_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (_, parameters) = trained(ModelKind::ConvNet, classes().len());
    fs::write(folder.path().join("notes.txt"), "mine").unwrap();
    let classes = classes();
    let trained = Trained {
        columns: &[],
        kind: ModelKind::ConvNet,
        side: SIDE,
        classes: &classes,
        parameters: &parameters,
        origin: None,
        tokenizer: None,
    };
    let said = trained.write(folder.path()).unwrap_err().to_string();
    assert!(said.contains("new or empty"), "{said}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let said = trained.write(&folder.path().join("notes.txt"));
    assert!(said.unwrap_err().to_string().contains("new or empty"));
    // Nothing half done stays behind where the folder cannot be made.
    let nowhere = folder.path().join("notes.txt").join("out");
    assert!(trained.write(&nowhere).is_err());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
