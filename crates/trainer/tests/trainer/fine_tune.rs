//! Fine-tuning: only trained parameters have gradients, moments and a place in checkpoints; no
//! split changes the training; resuming from a checkpoint gives the same bits; the estimate counts
//! only trained parameters.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

mod onnx_and_core_ml;
mod exported;
mod refused;

use crate::folders::{self, fixture};
use crate::support::{self, random_split, samples, train_state, values, whole};
use candle_core::{DType, Device};
use models::export::{TrainedNetwork, export_hub_folder};
use models::hub_format::{Head, HubFolder};
use models::merged_parameters;
use runlog::{AdapterKind, Quantize, RunConfig, RunFolder};
use std::path::Path;
use std::sync::Arc;
use tape::inplace::to_f64;
use tape::{Cancel, Rng};
use trainer::estimate::{MemoryEstimate, Target, Variants};
use trainer::internals::checkpoint::{self, OptimizerState, RunState};
use trainer::internals::{ImageTask, TrainState};
use trainer::{ModelId, OptimizerKind, Plan, PretrainedFamily};

/// A way to fine-tune, as settings of a config.
#[derive(Debug, Clone, Copy, Default)]
struct Tuned {
    from: &'static str,
    train_only: Option<&'static str>,
    adapter: Option<u32>,
    quantize: Option<Quantize>,
    kind: Option<AdapterKind>,
    dropout: Option<f64>,
}

impl Tuned {
    fn config(self, folder: &Path) -> RunConfig {
        RunConfig {
            from: Some(folder.to_owned()),
            train_only: self
                .train_only
                .map(|part| part.parse().expect("it is a part")),
            adapter_rank: self.adapter,
            adapter_kind: self.kind,
            adapter_dropout: self.dropout,
            quantize: self.quantize,
            ..RunConfig::default()
        }
    }

    fn plan(self, dtype: DType) -> Plan {
        self.plan_from(&fixture(self.from), dtype)
    }

    fn plan_from(self, folder: &Path, dtype: DType) -> Plan {
        let pretrained = trainer::pretrained::open(&self.config(folder))
            .unwrap()
            .unwrap();
        Plan {
            pretrained: Some(Arc::new(pretrained)),
            learning_rate: 3e-3,
            ..support::plan(
                ModelId::Pretrained(match self.from {
                    "vit" => PretrainedFamily::Vit,
                    "dinov2" => PretrainedFamily::Dinov2,
                    _ => PretrainedFamily::ResNet,
                }),
                OptimizerKind::AdamW,
                dtype,
                50,
            )
        }
    }
}

const fn vit(
    train_only: Option<&'static str>,
    adapter: Option<u32>,
    quantize: Option<Quantize>,
) -> Tuned {
    Tuned {
        from: "vit",
        train_only,
        adapter,
        quantize,
        kind: None,
        dropout: None,
    }
}

/// Adapters of rank 2.
const fn with(
    kind: Option<AdapterKind>,
    dropout: Option<f64>,
    quantize: Option<Quantize>,
) -> Tuned {
    Tuned {
        kind,
        dropout,
        ..vit(None, Some(2), quantize)
    }
}

/// Every way to fine-tune.
const WAYS: [Tuned; 14] = [
    vit(None, None, None),
    vit(Some("head"), None, None),
    vit(Some("last:1"), None, None),
    vit(Some("last:1"), None, Some(Quantize::Eight)),
    vit(None, Some(2), None),
    vit(None, Some(2), Some(Quantize::Eight)),
    vit(None, Some(2), Some(Quantize::Four)),
    vit(None, Some(2), Some(Quantize::Nf4)),
    with(None, Some(0.2), None),
    with(Some(AdapterKind::Dora), None, None),
    with(Some(AdapterKind::Dora), None, Some(Quantize::Eight)),
    with(Some(AdapterKind::Dora), Some(0.2), None),
    Tuned {
        from: "dinov2",
        train_only: Some("last:1"),
        adapter: None,
        quantize: None,
        kind: None,
        dropout: None,
    },
    Tuned {
        from: "resnet-bottleneck",
        train_only: Some("last:2"),
        adapter: None,
        quantize: None,
        kind: None,
        dropout: None,
    },
];

fn names(train_state: &TrainState) -> Vec<String> {
    train_state
        .parameters
        .iter()
        .map(|p| p.name.clone())
        .collect()
}

fn frozen(train_state: &TrainState) -> Vec<(String, Vec<f64>)> {
    let one = |(name, values): (&str, &tape::Frozen)| {
        (name.to_owned(), to_f64(&values.whole().unwrap()).unwrap())
    };
    train_state.parameters.frozen().map(one).collect()
}

/// One step on six samples in micro-batches of these sizes: its mean loss.
fn step(train_state: &mut TrainState, step: u64, split: &[usize]) -> f64 {
    let samples = samples(6, 30 + step % 10);
    train_state.begin_step(step);
    let batch = whole(
        &train_state.forward_context(Cancel::default()),
        &samples,
        split,
    );
    assert_eq!(train_state.update(&batch, step).unwrap().skipped, None);
    batch.loss
}

#[test]
fn only_trained_parameters_change_and_have_moments() {
    for way in WAYS {
        let mut train_state = train_state(&way.plan(DType::F32));
        let (all, before) = (names(&train_state), frozen(&train_state));
        let expected = |name: &str| match (way.train_only, way.adapter) {
            (None, None) => true,
            (_, Some(_)) => name.starts_with("head.") || name.contains(".lora_"),
            (Some("head"), _) => name.starts_with("head."),
            (Some("last:2"), _) => ["head.", "blocks.2.", "blocks.3."]
                .iter()
                .any(|start| name.starts_with(start)),
            (Some(_), _) => ["head.", "blocks.1.", "norm."]
                .iter()
                .any(|start| name.starts_with(start)),
        };
        assert!(all.iter().all(|name| expected(name)), "{way:?}: {all:?}");
        assert!(before.iter().all(|(name, _)| !expected(name)), "{way:?}");
        // First and second moment of the trained parameters only.
        assert_eq!(
            train_state.optimizer.bytes(),
            2 * train_state.parameters.bytes()
        );
        assert_eq!(
            train_state.state_bytes(),
            4 * train_state.parameters.bytes() + train_state.parameters.frozen_bytes()
        );
        let start = values(&train_state.parameters);
        for number in 0..3 {
            step(&mut train_state, number, &[4, 2]);
        }
        assert_eq!(
            frozen(&train_state),
            before,
            "{way:?}: a frozen parameter moved"
        );
        for (name, (a, b)) in all
            .iter()
            .zip(start.iter().zip(values(&train_state.parameters)))
        {
            assert_ne!(*a, b, "{way:?}: {name} did not move");
        }
    }
}

#[test]
fn fine_tuning_starts_from_the_pretrained_scores() {
    let whole = train_state(&vit(Some("head"), None, None).plan(DType::F32));
    let expected = frozen(&whole);
    // The widest gap between two levels of NF4 is 0.304.
    let kinds = [
        (None, 0.0),
        (Some(Quantize::Eight), 1.0 / 127.0),
        (Some(Quantize::Four), 1.0 / 7.0),
        (Some(Quantize::Nf4), 0.304),
    ];
    for (quantize, bar) in kinds {
        let way = vit(None, Some(2), quantize);
        let found = train_state(&way.plan(DType::F32));
        for ((name, a), (_, b)) in frozen(&found).iter().zip(&expected) {
            let largest = b.iter().fold(0.0f64, |m, v| m.max(v.abs()));
            let apart = a
                .iter()
                .zip(b)
                .map(|(a, b)| (a - b).abs())
                .fold(0.0, f64::max);
            assert!(apart <= 0.51 * bar * largest, "{way:?} {name}: {apart:e}");
        }
        // Adapters add nothing yet, so the same head gives the same scores.
        let (a, b) = (scores(&found), scores(&whole));
        let apart = a
            .iter()
            .zip(&b)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f64::max);
        // Unquantized scores differ by the rounding of a sum in two steps.
        let bar = if quantize.is_none() { 1e-6 } else { 0.2 };
        assert!(apart < bar, "{quantize:?}: {apart:e}");
    }
}

fn scores(train_state: &TrainState) -> Vec<f64> {
    let context = train_state.evaluation_context(Cancel::default());
    let found = ImageTask::predict(&context, &samples(4, 1), 0.0);
    let mut found: Vec<Vec<(u32, f64)>> = found.unwrap().into_iter().map(|p| p.classes).collect();
    found.iter_mut().for_each(|p| p.sort_by_key(|(c, _)| *c));
    found
        .into_iter()
        .flatten()
        .map(|(_, score)| score)
        .collect()
}

/// The losses of fifty steps; `split` gives the micro-batch sizes of each.
fn losses(way: Tuned, dtype: DType, split: impl Fn(u64) -> Vec<usize>) -> Vec<f64> {
    let mut train_state = train_state(&way.plan(dtype));
    (0..50)
        .map(|number| step(&mut train_state, number, &split(number)))
        .collect()
}

#[test]
fn splitting_never_changes_fine_tuning() {
    for way in WAYS {
        for (dtype, bar) in [(DType::F64, 1e-10), (DType::F32, 1e-4)] {
            let unsplit = losses(way, dtype, |_| vec![6]);
            let split = losses(way, dtype, |step| random_split(6, Rng::new(5).at(step)));
            let apart = split.iter().zip(&unsplit).map(|(a, b)| (a - b).abs() / b);
            let worst = apart.fold(0.0, f64::max);
            println!("{way:?} {dtype:?}: {worst:.1e}");
            // Quantized weights have the precision of f32, whatever the element type.
            assert!(worst < bar, "{way:?} {dtype:?}: {worst:e}");
            assert!(unsplit[49] < unsplit[0], "{way:?} learns: {unsplit:?}");
        }
    }
}

fn run() -> (tempfile::TempDir, RunFolder) {
    let folder = tempfile::tempdir().unwrap();
    let run = RunFolder {
        path: folder.path().to_owned(),
    };
    run.write_config(&RunConfig::default()).unwrap();
    (folder, run)
}

#[test]
fn resuming_from_trained_parameters_gives_the_same_bits() {
    for way in WAYS {
        let ((_folder, run), plan) = (run(), way.plan(DType::F32));
        let mut first = train_state(&plan);
        (0..3).for_each(|number| {
            step(&mut first, number, &[6]);
        });
        let state = RunState {
            step: 3,
            ..RunState::default()
        };
        let written = checkpoint::write(&run, &first, &state).unwrap();
        let folder = run.path.join(&written.path);
        let of = |file: &str| -> Vec<String> {
            let all = candle_core::safetensors::load(folder.join(file), &Device::Cpu);
            let mut names: Vec<String> = all.unwrap().into_keys().collect();
            names.sort();
            names
        };
        let mut expected = names(&first);
        expected.sort();
        let mut saved = of("model.safetensors");
        if way.adapter.is_some() {
            let adapters = of("adapter.safetensors");
            assert!(adapters.iter().all(|name| name.contains(".lora_")));
            assert!(!saved.iter().any(|name| name.contains(".lora_")));
            saved.extend(adapters);
            saved.sort();
        }
        assert_eq!(saved, expected, "{way:?}");
        let mut second = train_state(&plan);
        let (loaded, _) = checkpoint::newest(&run).unwrap();
        checkpoint::load(&loaded, &mut second, OptimizerState::Load).unwrap();
        for number in 3..6 {
            let (a, b) = (
                step(&mut first, number, &[2, 4]),
                step(&mut second, number, &[2, 4]),
            );
            assert_eq!(a.to_bits(), b.to_bits(), "{way:?} at {number}");
        }
    }
}

#[test]
fn merged_adapters_give_the_same_scores() {
    let kinds = [None, Some(AdapterKind::Dora)];
    for (kind, quantize) in kinds
        .into_iter()
        .flat_map(|k| [(k, None), (k, Some(Quantize::Eight))])
    {
        let way = with(kind, None, quantize);
        let mut tuned = train_state(&way.plan(DType::F32));
        (0..20).for_each(|number| {
            step(&mut tuned, number, &[6]);
        });
        let shape = way.plan(DType::F32).pretrained.unwrap().tuning().adapter;
        let all = merged_parameters(&tuned.parameters, shape).unwrap();
        let mut plain = train_state(&vit(None, None, None).plan(DType::F32));
        assert_eq!(all.len(), plain.parameters.len(), "no adapter is left");
        for index in 0..plain.parameters.len() {
            let name = plain.parameters.at(index).name.clone();
            plain.parameters.set(index, all[&name].clone()).unwrap();
        }
        let apart = scores(&plain)
            .iter()
            .zip(scores(&tuned))
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f64::max);
        assert!(apart < 1e-5, "{kind:?} {quantize:?}: {apart:e}");
    }
}

#[test]
fn dropout_belongs_to_the_step_and_is_off_in_evaluations() {
    let plan_of = |dropout| with(None, dropout, None).plan(DType::F32);
    let (mut dropped, mut plain) = (
        train_state(&plan_of(Some(0.3))),
        train_state(&plan_of(None)),
    );
    (0..3).for_each(|number| {
        step(&mut dropped, number, &[6]);
    });
    for index in 0..plain.parameters.len() {
        let tensor = dropped.parameters.at(index).tensor.clone();
        plain.parameters.set(index, tensor).unwrap();
    }
    assert_eq!(scores(&dropped), scores(&plain));
    let mut loss = |step: u64| {
        dropped.begin_step(step);
        let context = dropped.forward_context(Cancel::default());
        whole(&context, &samples(6, 1), &[6]).loss.to_bits()
    };
    assert_eq!(loss(4), loss(4));
    assert_ne!(loss(4), loss(5), "each step drops other values");
}

#[test]
fn an_exported_network_reads_back_with_the_same_scores() {
    for way in WAYS.into_iter().filter(|way| way.quantize.is_none()) {
        let plan = way.plan(DType::F32);
        let mut tuned = train_state(&plan);
        (0..20).for_each(|number| {
            step(&mut tuned, number, &[6]);
        });
        let place = tempfile::tempdir().unwrap();
        let trained = TrainedNetwork {
            model: plan.model,
            input_size: plan.input_size,
            classes: &plan.classes,
            targets: &[],
            parameters: &tuned.parameters,
            pretrained: plan.pretrained.as_deref(),
            tokenizer: None,
        };
        let folder = place.path().join("out");
        export_hub_folder(&trained, &folder).unwrap();
        let folder = HubFolder::open(&folder).unwrap();
        assert_eq!(folder.classes().unwrap(), plan.classes);
        let make = folders::make(Head::Pretrained, DType::F32);
        let loaded = folder.image_classifier(None, &make).unwrap();
        let before = scores(&tuned);
        (tuned.network, tuned.parameters) = (loaded.network, loaded.parameters);
        let apart = before
            .iter()
            .zip(scores(&tuned))
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f64::max);
        println!("{way:?}: {apart:.1e}");
        assert!(apart < 1e-5, "{way:?}: {apart:e}");
    }
}

#[test]
fn estimates_count_gradients_of_trained_parameters_only() {
    let standing = |way: Tuned| {
        let plan = way.plan(DType::F32);
        let target = Target::new(trainer::DeviceKind::Cpu, 2, u64::MAX);
        let (model, side) = (plan.model, plan.input_size);
        let found =
            MemoryEstimate::for_plan(&plan, model, side, target, Variants::Planned).unwrap();
        let train_state = train_state(&plan);
        let baseline = found.baseline;
        assert_eq!(found.parameters, train_state.parameters.count() as u64);
        assert_eq!(baseline.moments_bytes, train_state.optimizer.bytes());
        assert_eq!(baseline.gradients_bytes, train_state.parameters.bytes());
        assert_eq!(
            baseline.weights_bytes,
            train_state.parameters.bytes() + train_state.parameters.frozen_bytes(),
            "{way:?}"
        );
        (baseline.weights_bytes, found.heap_bytes(0, 6, 6).unwrap())
    };
    let [all, head, adapters, in_bits] = [
        vit(None, None, None),
        vit(Some("head"), None, None),
        vit(None, Some(2), None),
        vit(None, Some(2), Some(Quantize::Four)),
    ]
    .map(standing);
    assert_eq!(all.0, head.0);
    assert!(head.1 < all.1 / 4 * 3, "{head:?} {all:?}");
    assert!(in_bits.0 < adapters.0 && in_bits.1 < adapters.1);
}
