//! Direct preference optimization has the loss, the rewards and the gradients of adapters of
//! equation 7 in Rafailov et al. 2023, computed with the PEFT model and checked with TRL by
//! `make_decoders.py`.

use crate::folders::adapters::{assert_gradients, numbers, set_adapters};
use crate::folders::{fixture, make, opened};
use crate::support::task;
use candle_core::{DType, Tensor};
use dataset::{NOT_LEARNED, Window};
use models::hub_format::{FineTuning, Head, LoadOptions, TrainedLayers};
use models::{AdapterShape, Network};
use serde_json::Value as Json;
use std::fs;
use tape::{Cancel, Kernels, Parameters};
use trainer::internals::ForwardContext;

/// Largest distance of a loss or a reward.
const APART: f64 = 1e-4;
/// Every implementation of the operations.
const FORMS: [(DType, Kernels); 3] = [
    (DType::F32, Kernels::Fused),
    (DType::F32, Kernels::Composed),
    (DType::F64, Kernels::Fused),
];

fn reference() -> Json {
    let file = fixture("decoders/llama/reference.json");
    let all: Json = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    all["preferences"].clone()
}

/// A pair as the loader makes it: both conversations in one window, of which only the answers are
/// learned.
fn window(index: usize, pair: &Json) -> Window {
    let tokens = |key: &str| numbers(&pair[key]).into_iter().map(|token| token as u32);
    let learned_from = tokens("prompt_ids").count() - 1;
    let mut window = Window {
        index: index as u32,
        ..Window::default()
    };
    for (document, answer) in ["chosen_ids", "rejected_ids"].into_iter().enumerate() {
        let all: Vec<u32> = tokens("prompt_ids").chain(tokens(answer)).collect();
        for (place, next) in all.windows(2).enumerate() {
            let is_learned = place >= learned_from;
            window.inputs.push(next[0]);
            let target = if is_learned { next[1] } else { NOT_LEARNED };
            window.targets.push(target);
            window.documents.push(document as u32);
            window.positions.push(place as u32);
        }
    }
    window
}

/// The network with the adapters of the reference.
fn model(dtype: DType) -> (Network, Parameters) {
    let options = LoadOptions {
        tuning: FineTuning {
            trained: TrainedLayers::Head,
            adapter: Some(AdapterShape::new(2, 6.0)),
            ..FineTuning::default()
        },
        ..make(Head::Pretrained, dtype)
    };
    let mut loaded = opened("decoders/llama").language_model(&options).unwrap();
    set_adapters(&mut loaded.parameters);
    (Network::Gpt(loaded.network), loaded.parameters)
}

fn near(what: &str, found: f64, expected: f64) {
    let apart = (found - expected).abs();
    println!("{what}: {apart:.1e} apart");
    assert!(
        apart <= APART * expected.abs(),
        "{what}: {found} {expected}"
    );
}

#[test]
fn pairs_of_unequal_length_have_the_loss_and_the_gradients_of_peft_and_trl() {
    let reference = reference();
    let pairs = reference["pairs"].as_array().unwrap().iter().enumerate();
    let pairs: Vec<Window> = pairs.map(|(index, pair)| window(index, pair)).collect();
    assert_eq!(pairs.len(), 2);
    let (loss, rewards) = (
        reference["loss"].as_f64().unwrap(),
        numbers(&reference["rewards"]),
    );
    let margins = rewards.chunks(2).map(|pair| pair[0] - pair[1]);
    let margin = margins.sum::<f64>() / 2.0;
    for (dtype, kernels) in FORMS {
        for checkpointed in [0, 2] {
            let model = model(dtype);
            let context = ForwardContext {
                preference_beta: reference["beta"].as_f64(),
                label_smoothing: 0.0,
                checkpointed,
                kernels,
                input_size: 32,
                ..task(&model, dtype, Cancel::default())
            };
            let name = format!("{dtype:?} {kernels:?}, {checkpointed} checkpointed");
            let found = context.gradients(&pairs).unwrap();
            assert_eq!((found.weight, found.samples), (2.0, 2));
            near(&name, found.loss / found.weight, loss);
            near(&name, found.metrics.means()["reward_margin"], margin);
            let averaged = found.gradients.iter().map(|sum| (sum * 0.5).unwrap());
            let averaged: Vec<Tensor> = averaged.collect();
            assert_gradients(&name, &model.1, &averaged, &reference["gradients"]);
            let held_out = context.evaluate(&pairs).unwrap();
            near(&name, held_out.loss / held_out.weight, loss);
            assert_eq!(held_out.metrics.means()["preference_accuracy"], 0.5);
        }
    }
}
