//! A fine-tuned network leaves as a folder from which transformers computes the same scores.

use crate::Tuned;
use crate::folders::{copied, fixture, opened};
use candle_core::{DType, Device, Tensor};
use std::fs;
use std::path::Path;
use std::process::Command;
use tape::inplace::to_f64;
use tape::{Cancel, Kernels, Parameters, Stream, Tape, Value};
use trainer::models::Network;
use trainer::published::{Classes, Make, PublishedFolder};
use trainer::rooms::Trained;
use trainer::{ModelKind, Origin};

/// What the issue asks.
const APART: f64 = 1e-4;
const SIDE: usize = 16;

/// As after some training: no parameter that trains stands where it began.
fn moved(parameters: &mut Parameters) {
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

fn scores(network: &Network, parameters: &Parameters) -> Vec<f64> {
    let tape = Tape::forward_only(parameters, Cancel::default(), Kernels::Fused);
    let scores = match network {
        Network::TextEncoder(network) => {
            let ids = [1, 5, 9, 3, 7, 2, 4, 8, 0, 0];
            network.forward(&tape, &ids, &[5, 3], 0)
        }
        Network::Gpt(network) => network.scores(&tape, &[1, 5, 9, 3, 7], 1),
        images => {
            let all = 0..2 * 3 * SIDE * SIDE;
            let values: Vec<f32> = all.map(|i| (0.37 * i as f64 + 0.1).sin() as f32).collect();
            let values = Tensor::from_vec(values, (2, 3, SIDE, SIDE), &Device::Cpu).unwrap();
            images.forward(&tape, &Value::constant(values), 0)
        }
    };
    to_f64(scores.unwrap().tensor()).unwrap()
}

fn check(python: &str, way: Tuned, folder: &Path) {
    let origin = Origin::of(&way.config(folder)).unwrap().unwrap();
    let kind = origin.family();
    let (classes, input) = match kind.task() {
        dataset::Task::LanguageModel => (Classes::Published, "documents"),
        dataset::Task::TextClassification => (Classes::New(3), "texts"),
        _ => (Classes::New(3), "images"),
    };
    let make = Make {
        classes,
        tuning: origin.tuning(),
        seed: 3,
        dtype: DType::F32,
        device: &Device::Cpu,
    };
    let folder = PublishedFolder::open(folder).unwrap();
    let mut loaded = folder.network(Some(SIDE), &make).unwrap();
    moved(&mut loaded.parameters);
    let names = ["apple", "Brot & Käse", "\"soup\""].map(str::to_owned);
    let place = tempfile::tempdir().unwrap();
    let trained = Trained {
        kind: ModelKind::Published(kind),
        side: SIDE as u32,
        classes: if input == "documents" { &[] } else { &names },
        columns: &[],
        parameters: &loaded.parameters,
        origin: Some(&origin),
        tokenizer: None,
    };
    let out = place.path().join("out");
    trained.write(&out).unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(python)
        .arg(here.join("tests/fixtures/export/fine_tuned.py"))
        .arg(&out)
        .args([input, &SIDE.to_string()])
        .env("HF_HOME", place.path().join("cache"))
        .env("HF_HUB_OFFLINE", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{way:?}: {said}");
    let theirs: Vec<f64> = serde_json::from_slice(&output.stdout).unwrap();
    let own = scores(&loaded.network, &loaded.parameters);
    assert_eq!(own.len(), theirs.len(), "{way:?}");
    let apart = own
        .iter()
        .zip(&theirs)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max);
    println!("{way:?}: {apart:.1e} apart");
    assert!(apart < APART, "{way:?}: {own:?} {theirs:?}");
}

#[test]
fn transformers_computes_the_same_scores_from_an_exported_fine_tune() {
    let python = std::env::var("EBB_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let there = Command::new(&python)
        .args(["-c", "import torch, transformers"])
        .output();
    if !there.is_ok_and(|said| said.status.success()) {
        println!("skipped: {python} has no torch and transformers; EBB_PYTHON names one that has");
        return;
    }
    let of = |from: &'static str, adapter: Option<u32>| Tuned {
        from,
        adapter,
        ..Tuned::default()
    };
    for way in [
        of("vit", Some(2)),
        of("deit-taught", None),
        of("dinov2", Some(2)),
        of("resnet-bottleneck", None),
        of("bert", Some(2)),
        of("gpt2", Some(2)),
    ] {
        check(&python, way, &fixture(way.from));
    }
    // Without a pooler the mean token stands for a text: the folder carries the lines that know it.
    let copy = copied("bert");
    let pooling = copy.path().join("1_Pooling");
    fs::create_dir(&pooling).unwrap();
    fs::write(
        pooling.join("config.json"),
        r#"{"pooling_mode_mean_tokens": true}"#,
    )
    .unwrap();
    check(&python, of("bert", None), copy.path());
    assert!(
        opened("bert").classes().is_some(),
        "the fixture stays as it was"
    );
}
