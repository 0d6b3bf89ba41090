//! transformers opens exported text networks with the same scores and the same tokens of a text,
//! and Ebb reads its own language model back as pretrained weights.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::exports::{answer, assert_close, moved, python, scores};
use candle_core::{DType, Device};
use dataset::{Tokenizer, Vocabulary};
use models::Network;
use models::export::{TrainedNetwork, export_hub_folder};
use models::hub_format::{FineTuning, Head, HubFolder, LoadOptions};
use runlog::RunConfig;
use std::fs;
use std::path::Path;
use tape::Parameters;
use trainer::{ModelId, TextModel, TextSize};

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
    Tokenizer::train(kind, 300, texts.into_iter()).unwrap()
}

/// A network of this size with parameters as after some training.
fn trained(size: TextSize, tokenizer: &Tokenizer) -> (ModelId, Network, Parameters) {
    let kind = ModelId::Text(TextModel {
        size,
        tokens: TOKENS,
        vocabulary: tokenizer.vocabulary() as u32,
        policy: None,
        neighbors: TextModel::NEIGHBORS,
    });
    let built = Network::build(kind, 0, 3, 9, DType::F32, &Device::Cpu);
    let (network, mut parameters) = built.unwrap();
    moved(&mut parameters);
    (kind, network, parameters)
}

fn written(kind: ModelId, parameters: &Parameters, tokenizer: &Tokenizer, folder: &Path) {
    let names = ["ham", "spam", "\"else\""].map(str::to_owned);
    let of_classes = matches!(kind, ModelId::Text(model) if model.size == TextSize::TextMicro);
    let tokenizer = trainer::internals::tokenizer_file(tokenizer).unwrap();
    let trained = TrainedNetwork {
        model: kind,
        input_size: TOKENS,
        classes: if of_classes { &names } else { &[] },
        targets: &[],
        parameters,
        pretrained: None,
        tokenizer: Some(&tokenizer),
    };
    let exported = export_hub_folder(&trained, folder).unwrap();
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

fn check(python: &str, size: TextSize, tokenizer: &Tokenizer, input: &str) {
    let (kind, network, parameters) = trained(size, tokenizer);
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    written(kind, &parameters, tokenizer, &out);
    let words = [&[input][..], &TEXTS].concat();
    let output = answer(python, "own_texts.py", &out, &words);
    let what = format!("{size:?} of {} tokens", tokenizer.vocabulary());
    assert_close(&what, &scores(&network, &parameters, 0), &output["logits"]);
    let ids: Vec<Vec<u32>> = serde_json::from_value(output["ids"].clone()).unwrap();
    let own = TEXTS.map(|text| tokenizer.encode_framed(text).unwrap());
    assert_eq!(ids, own, "{size:?}");
    assert_eq!(output["most"], TOKENS);
    match input {
        "texts" => {
            assert_eq!(
                output["classes"],
                serde_json::json!(["ham", "spam", "\"else\""])
            );
            assert_eq!(
                output["pad"].as_u64(),
                tokenizer.token("[PAD]").map(u64::from)
            );
        }
        _ => {
            assert_eq!(output["eos"].as_u64(), tokenizer.boundary().map(u64::from));
            assert_eq!(output["back"], serde_json::json!(TEXTS));
        }
    }
}

#[test]
fn transformers_computes_the_same_scores_from_text_networks() {
    let Some(python) = python("torch, transformers") else {
        return;
    };
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
fn ebb_fine_tunes_its_own_exported_language_model() {
    for tokenizer in [Tokenizer::bytes(), vocabulary(Vocabulary::BytePairs)] {
        let (kind, network, parameters) = trained(TextSize::GptMicro, &tokenizer);
        let place = tempfile::tempdir().unwrap();
        let out = place.path().join("out");
        written(kind, &parameters, &tokenizer, &out);
        let folder = HubFolder::open(&out).unwrap();
        let make = LoadOptions {
            tuning: FineTuning::default(),
            head: Head::Pretrained,
            seed: 0,
            dtype: DType::F32,
            device: &Device::Cpu,
        };
        let loaded = folder.network(None, &make).unwrap();
        let again = scores(&loaded.network, &loaded.parameters, 0);
        assert_eq!(scores(&network, &parameters, 0), again);
        let config = RunConfig {
            from: Some(out.clone()),
            ..RunConfig::default()
        };
        assert!(trainer::pretrained::open(&config).unwrap().is_some());
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
fn a_token_compression_is_refused_and_leaves_no_files() {
    let (kind, _, parameters) = trained(TextSize::CompressMicro, &Tokenizer::bytes());
    let place = tempfile::tempdir().unwrap();
    let trained = TrainedNetwork {
        model: kind,
        input_size: TOKENS,
        classes: &[],
        targets: &[],
        parameters: &parameters,
        pretrained: None,
        tokenizer: None,
    };
    let error = export_hub_folder(&trained, &place.path().join("out")).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("two networks at once"), "{message}");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}
