//! Choices of what to train in a pretrained model: every offered choice is accepted, any other is
//! refused.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::folders::{self, assert_error_contains, copied, fixture};
use crate::support;
use candle_core::DType;
use models::hub_format::{Head, HubFolder};
use pressure::LighterTuning;
use runlog::{Quantize, RunConfig};
use std::fs;
use std::sync::Arc;
use trainer::estimate::{MemoryEstimate, Target, Variants};
use trainer::{ModelId, OptimizerKind, Plan, Precision};

fn named(name: &str) -> RunConfig {
    RunConfig {
        from: Some(fixture(name)),
        ..RunConfig::default()
    }
}

fn words(name: &str) -> Vec<String> {
    let choices = trainer::pretrained::open(&named(name))
        .unwrap()
        .unwrap()
        .choices();
    for choice in &choices {
        let config = trainer::pretrained::with_choice(&choice.word, named(name)).unwrap();
        let pretrained = trainer::pretrained::open(&config);
        assert_eq!(pretrained.unwrap().unwrap().current_choice(), choice.word);
    }
    choices.into_iter().map(|choice| choice.word).collect()
}

#[test]
fn offered_choices_fit_the_architecture() {
    assert_eq!(words("vit"), ["all", "last:1", "adapter:8", "head"]);
    let none = "a language model gets no new head";
    assert_eq!(words("gpt2"), ["all", "last:1", "adapter:8"], "{none}");
    let resnet = words("resnet-basic");
    assert_eq!((&*resnet[0], &**resnet.last().unwrap()), ("all", "head"));
    let adapts = resnet.iter().any(|word| word.starts_with("adapter"));
    assert!(!adapts, "convolutions have no adapters: {resnet:?}");
}

#[test]
fn an_unknown_choice_is_refused() {
    for word in ["adapter:", "adapter:x", "last:99", "some"] {
        let config = trainer::pretrained::with_choice(word, named("vit"));
        let refused = config.and_then(|config| trainer::pretrained::open(&config));
        assert_error_contains(refused, &["train_only", word, "write head, all, or last:"]);
    }
}

/// An estimate builds the network from zeros, so it must find the same errors as the training.
#[test]
fn a_network_of_zeros_checks_every_tensor() {
    let copy = copied("vit");
    let config = copy.path().join("config.json");
    let described = fs::read_to_string(&config).unwrap();
    let wider = described.replace("\"intermediate_size\": 40", "\"intermediate_size\": 48");
    fs::write(&config, wider).unwrap();
    let make = folders::make(Head::New(3), DType::F32);
    let zeros = HubFolder::open(copy.path())
        .unwrap()
        .with_zeros(None, &make);
    assert_error_contains(
        zeros,
        &["intermediate.dense.weight has the shape [40, 24] instead of [48, 24]"],
    );
}

/// What lighter ways to fine-tune would free, with AdamW.
fn lighter(name: &str, choice: &str, quantize: Option<Quantize>) -> LighterTuning {
    let config = RunConfig {
        quantize,
        ..trainer::pretrained::with_choice(choice, named(name)).unwrap()
    };
    let pretrained = trainer::pretrained::open(&config).unwrap().unwrap();
    MemoryEstimate::lighter_tuning(&pretrained, OptimizerKind::AdamW, Precision::F32).unwrap()
}

#[test]
fn lighter_ways_to_fine_tune_are_counted_from_shapes() {
    let all = lighter("chat", "all", None);
    assert!(all.trains_all);
    assert!(0 < all.adapters_bytes && all.adapters_bytes < all.nf4_bytes);
    let adapted = lighter("chat", "adapter:8", None);
    assert!(!adapted.trains_all);
    assert_eq!(adapted.adapters_bytes, 0, "it has adapters");
    assert_eq!(all.adapters_bytes + adapted.nf4_bytes, all.nf4_bytes);
    let quantized = lighter("chat", "adapter:8", Some(Quantize::Nf4));
    assert_eq!(quantized, LighterTuning::default(), "nothing is left");
    let images = lighter("vit", "all", None);
    assert_eq!(images, LighterTuning::default(), "no language model");
}

#[test]
fn a_part_of_trained_weights_can_be_frozen_unless_adapters_are_trained() {
    let part = |name: &str, choice: &str| {
        let config = trainer::pretrained::with_choice(choice, named(name)).unwrap();
        let pretrained = trainer::pretrained::open(&config).unwrap().unwrap();
        pretrained.smaller_part().map(|part| part.word)
    };
    assert_eq!(part("vit", "all").as_deref(), Some("head"));
    assert_eq!(part("gpt2", "all").as_deref(), Some("last:1"));
    for (name, choice) in [
        ("vit", "head"),
        ("vit", "adapter:8"),
        ("gpt2", "adapter:8"),
        ("gpt2", "last:1"),
    ] {
        assert_eq!(part(name, choice), None, "{name} {choice}");
    }
}

/// Largest relative error of an estimate that follows from another length.
const MAX_ERROR: f64 = 0.25;

#[test]
fn the_memory_of_a_length_follows_from_that_of_another() {
    let config = trainer::pretrained::with_choice("adapter:8", named("chat")).unwrap();
    let pretrained = trainer::pretrained::open(&config).unwrap().unwrap();
    let model = ModelId::Pretrained(pretrained.family());
    let plan = Plan {
        pretrained: Some(Arc::new(pretrained)),
        input_size: 128,
        ..support::plan(model, OptimizerKind::AdamW, DType::F32, 50)
    };
    let target = Target::new(trainer::DeviceKind::Cpu, 1, 0);
    let measured = |tokens: u32| {
        MemoryEstimate::for_plan(&plan, model, tokens, target, Variants::Planned).unwrap()
    };
    let planned = measured(128);
    for tokens in [64, 256, 512] {
        let (scaled, exact) = (planned.at_length(tokens), measured(tokens));
        assert!(exact.is_measured() && !scaled.is_measured());
        for samples in [1, 4, 8] {
            let bytes =
                |estimate: &MemoryEstimate| estimate.heap_bytes(0, samples, samples).unwrap();
            let (scaled, exact) = (bytes(&scaled), bytes(&exact));
            let error = scaled as f64 / exact as f64 - 1.0;
            assert!(
                error.abs() <= MAX_ERROR,
                "{samples} x {tokens}: {scaled} instead of {exact} bytes"
            );
        }
    }
    assert_eq!(plan.relative_sample_time(128), 1.0);
    let double = plan.relative_sample_time(256);
    assert!((2.0..4.0).contains(&double), "{double}");
}
