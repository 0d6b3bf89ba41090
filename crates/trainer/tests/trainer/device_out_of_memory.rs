//! A device that runs out of memory: the loop makes micro-batches smaller and the result does not
//! change. If they cannot be smaller the run ends with advice.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::noise_images::write_noise_images;
use crate::support::{SIDE, build};
use candle_core::{DType, Device, Tensor};
use pressure::Change;
use runlog::{DeviceChoice, PrecisionChoice, RunConfig, RunEvent, RunStore};
use std::fmt::Write;
use tape::{Cancel, Kernels, Tape, Value};
use trainer::{Machine, MemoryScript, ModelId, Plan, Result, RunContext, RunOutcome, ScriptBy};

/// Samples per micro-batch that fit on the device.
const FITS: usize = 3;
const STEPS: u64 = 12;

/// Bytes that a micro-batch of `samples` saves for its backward pass.
fn saved_bytes(samples: usize) -> u64 {
    let (network, parameters) = build(ModelId::VIT_MICRO, DType::F64);
    let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
    let images = Tensor::ones((samples, 3, SIDE, SIDE), DType::F64, &Device::Cpu).unwrap();
    let scores = network.forward(&tape, &Value::constant(images), 0).unwrap();
    tape.cross_entropy(&scores, &vec![0; samples], 0.1).unwrap();
    tape.saved_bytes()
}

/// Outcome and events of a run in f64 on a device with this limit per micro-batch.
fn trained(
    micro_batch_limit_bytes: Option<u64>,
    fixed: Option<u32>,
) -> (Result<RunOutcome>, Vec<RunEvent>) {
    let folder = tempfile::tempdir().unwrap();
    let images = folder.path().join("birds");
    write_noise_images(&images, 12, SIDE as u32);
    // 250 ms per decision, with plenty of memory.
    let mut script = String::new();
    for line in 0..400 {
        let at_ms = 250 * line;
        writeln!(
            script,
            r#"{{"at_ms":{at_ms},"total_bytes":16000000000,"others_bytes":1000000000}}"#
        )
        .unwrap();
    }
    let path = folder.path().join("script");
    std::fs::write(&path, script).unwrap();
    let config = RunConfig {
        folder: Some(images.clone()),
        model: Some("vit_micro".to_owned()),
        image_size: Some(SIDE as u32),
        effective_batch: Some(10),
        micro_batch: fixed,
        steps: Some(STEPS),
        precision: Some(PrecisionChoice::F64),
        device: Some(DeviceChoice::Cpu),
        threads: Some(2),
        ..RunConfig::default()
    };
    let inspection = dataset::inspect_images(&images, &Default::default(), &|_| {}).unwrap();
    let plan = Plan::resolve(&config, &inspection).unwrap();
    let run = RunStore::open(folder.path().join("runs"))
        .create("birds")
        .unwrap();
    let machine = Machine {
        script: Some(MemoryScript {
            path,
            by: ScriptBy::Decision,
        }),
        micro_batch_limit_bytes,
        ..Machine::default()
    };
    let context = RunContext {
        machine,
        ..RunContext::default()
    };
    let mut events = Vec::new();
    let outcome = trainer::start(plan, inspection, &run, context, &mut |event| {
        events.push(event.clone());
    });
    (outcome, events)
}

/// Loss and micro-batches of every step.
fn steps(events: &[RunEvent]) -> Vec<(f64, Vec<u32>)> {
    let step = |event: &RunEvent| match event {
        RunEvent::Step {
            loss,
            micro_batches,
            ..
        } => Some((*loss, micro_batches.clone())),
        _ => None,
    };
    events.iter().filter_map(step).collect()
}

fn largest(steps: &[(f64, Vec<u32>)]) -> u32 {
    let sizes = steps.iter().flat_map(|(_, micro_batches)| micro_batches);
    sizes.copied().max().unwrap()
}

#[test]
fn a_refused_micro_batch_shrinks_and_the_losses_stay() {
    let (outcome, calm) = trained(None, None);
    assert_eq!(outcome.unwrap().step, STEPS);
    // Half a sample more than fits covers the bytes that are saved once per micro-batch.
    let limit = (saved_bytes(FITS) + saved_bytes(FITS + 1)) / 2;
    let (outcome, events) = trained(Some(limit), None);
    assert_eq!(outcome.unwrap().step, STEPS);
    let (calm, tight) = (steps(&calm), steps(&events));
    assert!(largest(&calm) as usize > FITS, "{calm:?}");
    assert!(largest(&tight) as usize <= FITS, "{tight:?}");
    let refused = events.iter().any(|event| {
        matches!(event, RunEvent::Decision { decision, .. } if decision.reason.contains("refused"))
    });
    assert!(refused, "nothing was refused: {tight:?}");
    assert_eq!((calm.len(), tight.len()), (STEPS as usize, STEPS as usize));
    for ((calm, _), (tight, _)) in calm.iter().zip(&tight) {
        assert!((calm - tight).abs() <= 1e-12 * calm.abs(), "{calm} {tight}");
    }
}

#[test]
fn a_refused_single_sample_runs_with_checkpointed_blocks() {
    let (_, calm) = trained(None, None);
    let (outcome, events) = trained(Some(saved_bytes(1) / 2), None);
    assert_eq!(outcome.unwrap().step, STEPS);
    let blocks = events.iter().filter_map(|event| match event {
        RunEvent::Decision { decision, .. } if decision.change == Change::CheckpointMore => {
            Some(decision.checkpoint_blocks)
        }
        _ => None,
    });
    let blocks: Vec<u32> = blocks.collect();
    assert!(!blocks.is_empty() && blocks.iter().copied().eq(1..=blocks.len() as u32));
    for ((calm, _), (tight, _)) in steps(&calm).iter().zip(&steps(&events)) {
        assert!((calm - tight).abs() <= 1e-12 * calm.abs(), "{calm} {tight}");
    }
}

#[test]
fn a_run_ends_with_advice_if_it_cannot_shrink() {
    for (limit, fixed, next) in [
        (
            saved_bytes(1) / 50,
            None,
            "try this first: a smaller --image-size frees",
        ),
        (
            saved_bytes(2),
            Some(5),
            "try this first: a smaller --micro-batch, or auto frees",
        ),
    ] {
        let (outcome, events) = trained(Some(limit), fixed);
        let error = outcome.unwrap_err();
        assert_eq!(error.code(), "out_of_memory", "{error}");
        assert!(error.to_string().contains(next), "{error}");
        assert!(steps(&events).is_empty(), "no step was done");
    }
}
