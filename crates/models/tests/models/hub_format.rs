//! Networks from pretrained folders compute the same scores as transformers, and can be trained.
//! The folders are tiny and random, in the published format
//! (`fixtures/published/make_fixtures.py`).

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::folders::{assert_error_contains, fixture, make, opened};
use candle_core::{DType, Device, Tensor};
use models::hub_format::Head;
use serde_json::Value as Json;
use std::fs;
use tape::inplace::to_f64;
use tape::{Cancel, Kernels, Tape, Value};

const IMAGES: [&str; 7] = [
    "vit",
    "deit",
    "deit-taught",
    "dinov2",
    "resnet-basic",
    "resnet-bottleneck",
    "resnet-early",
];
/// Largest distance between two scores of size 1 due to rounding in f32 and references of six
/// digits.
const APART: f64 = 1e-5;
/// Every implementation of the operations.
const FORMS: [(DType, Kernels); 3] = [
    (DType::F32, Kernels::Fused),
    (DType::F32, Kernels::Composed),
    (DType::F64, Kernels::Fused),
];

fn references(name: &str) -> Vec<Json> {
    let text = fs::read(fixture(name).join("reference.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn numbers(json: &Json) -> Vec<f64> {
    let list = json.as_array().unwrap().iter();
    list.map(|v| v.as_f64().unwrap()).collect()
}

/// The images of the references' formula.
fn images(count: usize, side: usize, dtype: DType) -> Value {
    let all = 0..count * 3 * side * side;
    let values: Vec<f64> = all.map(|i| (0.37 * i as f64 + 0.1).sin()).collect();
    let images = Tensor::from_vec(values, (count, 3, side, side), &Device::Cpu).unwrap();
    Value::constant(images.to_dtype(dtype).unwrap())
}

fn expect_near(name: &str, found: &Tensor, expected: &Json, bar: f64) {
    let (found, expected) = (to_f64(found).unwrap(), numbers(expected));
    assert_eq!(found.len(), expected.len(), "{name}");
    let apart = found
        .iter()
        .zip(&expected)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max);
    let largest = expected.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    println!("{name}: {apart:.1e} apart, scores up to {largest:.2}");
    assert!(largest > 0.1, "{name}: the scores say something");
    assert!(apart < bar * largest.max(1.0), "{name}: {apart:e} apart");
}

#[test]
fn image_networks_compute_the_scores_of_transformers() {
    for name in IMAGES {
        let folder = opened(name);
        for reference in references(name) {
            let side = reference["side"].as_u64().unwrap() as usize;
            for (dtype, kernels) in FORMS {
                let loaded = folder
                    .image_classifier(Some(side), &make(Head::Pretrained, dtype))
                    .unwrap();
                let tape = Tape::forward_only(&loaded.parameters, Cancel::default(), kernels);
                let images = images(2, side, dtype);
                let scores = loaded.network.forward(&tape, &images, 0).unwrap();
                let what = format!("{name} at {side} px, {dtype:?} {kernels:?}");
                expect_near(&what, scores.tensor(), &reference["scores"], APART);
            }
        }
    }
}

#[test]
fn a_text_encoder_computes_the_scores_of_transformers() {
    let reference = references("bert").remove(0);
    let texts: Vec<Vec<u32>> = serde_json::from_value(reference["texts"].clone()).unwrap();
    let longest = texts.iter().map(Vec::len).max().unwrap();
    let lengths: Vec<usize> = texts.iter().map(Vec::len).collect();
    let padding = |text: &Vec<u32>| vec![1; longest - text.len()];
    let ids: Vec<u32> = texts
        .iter()
        .flat_map(|text| [text.clone(), padding(text)].concat())
        .collect();
    for (dtype, kernels) in FORMS {
        let loaded = opened("bert")
            .text_classifier(&make(Head::Pretrained, dtype))
            .unwrap();
        let tape = Tape::forward_only(&loaded.parameters, Cancel::default(), kernels);
        let scores = loaded.network.forward(&tape, &ids, &lengths, 0).unwrap();
        let what = format!("bert, {dtype:?} {kernels:?}");
        expect_near(&what, scores.tensor(), &reference["scores"], APART);
    }
}

#[test]
fn a_language_model_computes_the_scores_of_transformers() {
    for name in ["gpt2", "gpt2-sharded"] {
        let reference = references(name).remove(0);
        let texts: Vec<Vec<u32>> = serde_json::from_value(reference["texts"].clone()).unwrap();
        for (dtype, kernels) in FORMS {
            let loaded = opened(name)
                .language_model(&make(Head::New(1), dtype))
                .unwrap();
            let tape = Tape::forward_only(&loaded.parameters, Cancel::default(), kernels);
            let scores = loaded
                .network
                .scores(&tape, &texts.concat(), texts.len())
                .unwrap();
            let what = format!("{name}, {dtype:?} {kernels:?}");
            expect_near(&what, scores.tensor(), &reference["scores"], APART);
        }
    }
}

#[test]
fn checkpointing_and_splitting_keep_the_gradients() {
    for name in IMAGES {
        let loaded = opened(name)
            .image_classifier(None, &make(Head::New(3), DType::F64))
            .unwrap();
        let side = if name.starts_with("resnet") { 33 } else { 16 };
        let gradient = |checkpointed: usize, samples: &[usize]| {
            let tape = Tape::record(&loaded.parameters, Cancel::default(), Kernels::Fused);
            let all = images(4, side, DType::F64);
            let rows: Vec<u32> = samples.iter().map(|s| *s as u32).collect();
            let rows = Tensor::new(&*rows, &Device::Cpu).unwrap();
            let images = Value::constant(all.tensor().index_select(&rows, 0).unwrap());
            let labels: Vec<u32> = samples.iter().map(|s| (s % 3) as u32).collect();
            let scores = loaded
                .network
                .forward(&tape, &images, checkpointed)
                .unwrap();
            let loss = tape.cross_entropy(&scores, &labels, 0.0).unwrap();
            let gradients = tape.backward(vec![(loss.sum, 1.0)]).unwrap();
            let gradients = gradients.into_iter().zip(loaded.parameters.iter());
            gradients
                .flat_map(|(g, p)| match g {
                    Some(g) => to_f64(&g).unwrap(),
                    None => vec![0.0; p.tensor.elem_count()],
                })
                .collect::<Vec<f64>>()
        };
        let whole = gradient(0, &[0, 1, 2, 3]);
        let checkpointed = gradient(usize::MAX, &[0, 1, 2, 3]);
        let (first, rest) = (gradient(0, &[0]), gradient(2, &[1, 2, 3]));
        let split: Vec<f64> = first.iter().zip(&rest).map(|(a, b)| a + b).collect();
        let norm =
            |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
        let size = norm(&mut whole.iter().copied());
        assert!(size > 1e-3, "{name}");
        for (how, other) in [("checkpointed", checkpointed), ("split", split)] {
            let apart = norm(&mut whole.iter().zip(&other).map(|(a, b)| a - b));
            assert!(apart / size < 1e-12, "{name} {how}: {:e}", apart / size);
        }
    }
}

#[test]
fn a_new_head_is_random_and_the_body_is_pretrained() {
    for name in ["vit", "vit-body", "deit-taught", "dinov2", "resnet-basic"] {
        let folder = opened(name);
        let loaded = folder
            .image_classifier(None, &make(Head::New(7), DType::F32))
            .unwrap();
        let head = loaded.parameters.iter().find(|p| p.name == "head.weight");
        let head = head.unwrap().tensor.clone();
        assert_eq!(head.dims()[0], 7, "{name}");
        let values = to_f64(&head).unwrap();
        let spread = values.iter().map(|v| v * v).sum::<f64>() / values.len() as f64;
        assert!(spread > 0.0 && spread.sqrt() < 0.05, "{name}: {spread}");
        let zeros = loaded.parameters.iter().filter(|p| {
            let all = to_f64(&p.tensor).unwrap();
            all.iter().all(|v| *v == 0.0)
        });
        let zeros: Vec<&str> = zeros.map(|p| &*p.name).collect();
        let without_biases = [
            "blocks.0.query.bias",
            "blocks.0.value.bias",
            "blocks.1.query.bias",
            "blocks.1.value.bias",
            "head.bias",
        ];
        match name {
            "vit-body" => assert_eq!(zeros, without_biases),
            _ => assert_eq!(zeros, ["head.bias"], "{name}"),
        }
    }
    let labels = opened("vit").classes().unwrap();
    assert_eq!(labels, ["ant", "bee", "cat", "dog", "eel"]);
    assert_eq!(opened("vit-body").classes(), None);
    let refused = opened("vit-body").image_classifier(None, &make(Head::Pretrained, DType::F32));
    assert_error_contains(refused, &["has no head"]);
}
