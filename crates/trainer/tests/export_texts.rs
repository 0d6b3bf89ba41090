//! Ebb's own networks for texts leave as folders that transformers opens: the same scores, and the same tokens of a text. Ebb reads
//! its own language model back as a published one.

// Helpers of tests are tests: what fails here fails the claim.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use dataset::{Tokenizer, Vocabulary};
use runlog::RunConfig;
use serde_json::Value as Json;
use std::fs;
use std::path::Path;
use std::process::Command;
use tape::inplace::to_f64;
use tape::{Cancel, Kernels, Parameters, Stream, Tape};
use trainer::models::Network;
use trainer::published::{Classes, Make, PublishedFolder, Tuning};
use trainer::rooms::Trained;
use trainer::{ModelKind, Origin, TextModel, TextSize};

/// What the issue asks.
const APART: f64 = 1e-4;
const TOKENS: u32 = 24;
const TEXTS: [&str; 3] = [
    "the cat and the hat",
    "Ünïcode \u{1F980}, 7 o'clock\n\tok",
    "a",
];

fn vocabulary(kind: Vocabulary) -> Tokenizer {
    let texts = [
        "the cat and the hat in the house",
        "seven o'clock in the ünïcode",
    ];
    Tokenizer::learn(kind, 300, texts.into_iter()).unwrap()
}

/// A network of that size as after some training, for that vocabulary.
fn trained(size: TextSize, tokenizer: &Tokenizer) -> (ModelKind, Network, Parameters) {
    let kind = ModelKind::Texts(TextModel {
        size,
        tokens: TOKENS,
        vocabulary: tokenizer.vocabulary() as u32,
        policy: None,
    });
    let built = Network::build(kind, 0, 3, 9, DType::F32, &Device::Cpu);
    let (network, mut parameters) = built.unwrap();
    for index in 0..parameters.len() {
        let like = parameters.at(index).tensor.clone();
        let stream = Stream::new(index as u64);
        let noise: Vec<f32> = (0..like.elem_count())
            .map(|i| 0.1 * stream.normal(i as u64) as f32)
            .collect();
        let noise = Tensor::from_vec(noise, like.dims(), &Device::Cpu).unwrap();
        parameters.set(index, (like + noise).unwrap()).unwrap();
    }
    (kind, network, parameters)
}

fn scores(network: &Network, parameters: &Parameters) -> Vec<f64> {
    let tape = Tape::forward_only(parameters, Cancel::default(), Kernels::Fused);
    let scores = match network {
        Network::TextEncoder(network) => {
            let ids = [1, 5, 9, 3, 7, 2, 4, 8, 0, 0];
            network.forward(&tape, &ids, &[5, 3], 0)
        }
        Network::Gpt(network) => network.scores(&tape, &[1, 5, 9, 3, 7], 1),
        _ => panic!("it is for texts"),
    };
    to_f64(scores.unwrap().tensor()).unwrap()
}

fn written(kind: ModelKind, parameters: &Parameters, tokenizer: &Tokenizer, folder: &Path) {
    let names = ["ham", "spam", "\"else\""].map(str::to_owned);
    let of_classes = matches!(kind, ModelKind::Texts(model) if model.size == TextSize::TextMicro);
    let trained = Trained {
        kind,
        side: TOKENS,
        classes: if of_classes { &names } else { &[] },
        columns: &[],
        parameters,
        origin: None,
        tokenizer: Some(tokenizer),
    };
    let exported = trained.write(folder).unwrap();
    for file in [
        "tokenizer.json",
        "tokenizer_config.json",
        "model.safetensors",
    ] {
        assert!(
            exported.files.contains(&file.to_owned()),
            "{:?}",
            exported.files
        );
    }
}

fn apart(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let each = a.iter().zip(b);
    each.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

fn check(python: &str, size: TextSize, tokenizer: &Tokenizer, input: &str) {
    let (kind, network, parameters) = trained(size, tokenizer);
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    written(kind, &parameters, tokenizer, &out);
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(python)
        .arg(here.join("tests/fixtures/export/own_texts.py"))
        .arg(&out)
        .arg(input)
        .args(TEXTS)
        .env("HF_HOME", place.path().join("cache"))
        .env("HF_HUB_OFFLINE", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{size:?}: {said}");
    // Libraries may say something before.
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let said: Json = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    let theirs: Vec<f64> = serde_json::from_value(said["logits"].clone()).unwrap();
    let apart = apart(&scores(&network, &parameters), &theirs);
    println!(
        "{size:?} of {} tokens: {apart:.1e} apart",
        tokenizer.vocabulary()
    );
    assert!(apart < APART, "{size:?}: {apart:e}");
    let ids: Vec<Vec<u32>> = serde_json::from_value(said["ids"].clone()).unwrap();
    let own = TEXTS.map(|text| tokenizer.encode_framed(text).unwrap());
    assert_eq!(ids, own, "{size:?}");
    assert_eq!(said["most"], TOKENS);
    match input {
        "texts" => {
            assert_eq!(
                said["classes"],
                serde_json::json!(["ham", "spam", "\"else\""])
            );
            assert_eq!(
                said["pad"].as_u64(),
                tokenizer.token("[PAD]").map(u64::from)
            );
        }
        _ => {
            assert_eq!(said["eos"].as_u64(), tokenizer.boundary().map(u64::from));
            assert_eq!(said["back"], serde_json::json!(TEXTS));
        }
    }
}

#[test]
fn transformers_computes_the_same_scores_from_texts_own_networks() {
    let python = std::env::var("EBB_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let there = Command::new(&python)
        .args(["-c", "import torch, transformers"])
        .output();
    if !there.is_ok_and(|said| said.status.success()) {
        println!("skipped: {python} has no torch and transformers; EBB_PYTHON names one that has");
        return;
    }
    check(
        &python,
        TextSize::TextMicro,
        &vocabulary(Vocabulary::WordPieces),
        "texts",
    );
    check(
        &python,
        TextSize::GptMicro,
        &vocabulary(Vocabulary::BytePairs),
        "documents",
    );
    check(
        &python,
        TextSize::GptMicro,
        &Tokenizer::bytes(),
        "documents",
    );
}

#[test]
fn ebb_goes_on_with_its_own_language_model_as_a_published_one() {
    for tokenizer in [Tokenizer::bytes(), vocabulary(Vocabulary::BytePairs)] {
        let (kind, network, parameters) = trained(TextSize::GptMicro, &tokenizer);
        let place = tempfile::tempdir().unwrap();
        let out = place.path().join("out");
        written(kind, &parameters, &tokenizer, &out);
        let folder = PublishedFolder::open(&out).unwrap();
        let make = Make {
            tuning: Tuning::default(),
            classes: Classes::Published,
            seed: 0,
            dtype: DType::F32,
            device: &Device::Cpu,
        };
        let loaded = folder.network(None, &make).unwrap();
        let again = scores(&loaded.network, &loaded.parameters);
        assert_eq!(scores(&network, &parameters), again);
        let config = RunConfig {
            from: Some(out.clone()),
            ..RunConfig::default()
        };
        assert!(Origin::of(&config).unwrap().is_some());
        let read = Tokenizer::load(&out.join("tokenizer.json")).unwrap();
        assert_eq!(read.boundary(), tokenizer.boundary());
        for text in TEXTS {
            let ids = tokenizer.encode(text).unwrap();
            assert_eq!(read.encode(text).unwrap(), ids, "{text:?}");
            assert_eq!(read.decode(&ids), text);
        }
    }
}

#[test]
fn a_token_compression_is_refused_and_leaves_nothing_behind() {
    let (kind, _, parameters) = trained(TextSize::CompressMicro, &Tokenizer::bytes());
    let place = tempfile::tempdir().unwrap();
    let trained = Trained {
        kind,
        side: TOKENS,
        classes: &[],
        columns: &[],
        parameters: &parameters,
        origin: None,
        tokenizer: None,
    };
    let said = trained
        .write(&place.path().join("out"))
        .unwrap_err()
        .to_string();
    assert!(said.contains("two networks at once"), "{said}");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}
