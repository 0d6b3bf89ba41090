//! A device that refuses large pieces: the loop makes them smaller, and the training does not notice. What cannot be made
//! smaller ends with a reason.

// Helpers of tests are tests: what fails here fails the claim.
#![allow(clippy::unwrap_used)]

mod support;

use candle_core::{DType, Device, Tensor};
use pressure::Change;
use runlog::{RunConfig, RunEvent, RunStore};
use std::fmt::Write;
use std::path::Path;
use support::{SIDE, build};
use tape::{Cancel, Kernels, Rng, Tape, Value};
use trainer::{Ending, Flight, Machine, MemoryScript, ModelKind, Plan, Result, ScriptBy};

/// Samples that the device has room for.
const FITS: usize = 3;
const STEPS: u64 = 12;

fn draw(folder: &Path) {
    for (label, class) in ["jay", "owl"].into_iter().enumerate() {
        std::fs::create_dir_all(folder.join(class)).unwrap();
        for number in 0..12u32 {
            let stream = Rng::new(label as u64).at(u64::from(number));
            let image = image::RgbImage::from_fn(SIDE as u32, SIDE as u32, |x, y| {
                let shade = stream.uniform(u64::from(SIDE as u32 * y + x)) * 200.0;
                image::Rgb([shade as u8, 40 * label as u8, 90])
            });
            let path = folder.join(class).join(format!("{number}.png"));
            image.save(path).unwrap();
        }
    }
}

/// Bytes that a piece of so many samples keeps for its backward pass.
fn kept_bytes(samples: usize) -> u64 {
    let (network, parameters) = build(ModelKind::VitMicro, DType::F64);
    let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
    let images = Tensor::ones((samples, 3, SIDE, SIDE), DType::F64, &Device::Cpu).unwrap();
    let scores = network.forward(&tape, &Value::constant(images), 0).unwrap();
    tape.cross_entropy(&scores, &vec![0; samples], 0.1).unwrap();
    tape.saved_bytes()
}

/// How a training in f64 ended on a device with so much room for a piece, and what it said.
fn trained(piece_limit_bytes: Option<u64>, fixed: Option<u32>) -> (Result<Ending>, Vec<RunEvent>) {
    let folder = tempfile::tempdir().unwrap();
    let photographs = folder.path().join("birds");
    draw(&photographs);
    // A quarter of a second a decision, with memory in plenty.
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
    let word = |text: &str| Some(text.to_owned());
    let config = RunConfig {
        folder: Some(photographs.clone()),
        model: word("vit_micro"),
        image_size: Some(SIDE as u32),
        effective_batch: Some(10),
        micro_batch: fixed,
        steps: Some(STEPS),
        precision: word("f64"),
        device: word("cpu"),
        threads: Some(2),
        ..RunConfig::default()
    };
    let inspection = dataset::inspect(&photographs, &Default::default(), &|_| {}).unwrap();
    let plan = Plan::check(&config, &inspection).unwrap();
    let run = RunStore::open(folder.path().join("runs"))
        .create("birds")
        .unwrap();
    let machine = Machine {
        script: Some(MemoryScript {
            path,
            by: ScriptBy::Piece,
        }),
        piece_limit_bytes,
        ..Machine::default()
    };
    let flight = Flight {
        machine,
        ..Flight::default()
    };
    let mut events = Vec::new();
    let ended = trainer::start(plan, inspection, &run, flight, &mut |event| {
        events.push(event.clone());
    });
    (ended, events)
}

/// Loss and pieces of every step.
fn steps(events: &[RunEvent]) -> Vec<(f64, Vec<u32>)> {
    let step = |event: &RunEvent| match event {
        RunEvent::Step { loss, pieces, .. } => Some((*loss, pieces.clone())),
        _ => None,
    };
    events.iter().filter_map(step).collect()
}

fn largest(steps: &[(f64, Vec<u32>)]) -> u32 {
    let pieces = steps.iter().flat_map(|(_, pieces)| pieces);
    pieces.copied().max().unwrap()
}

#[test]
fn a_refused_piece_is_made_smaller_and_the_training_does_not_notice() {
    let (ended, calm) = trained(None, None);
    assert_eq!(ended.unwrap().step, STEPS);
    // Half a sample more than fits: the margin of whatever is kept once a piece.
    let limit = (kept_bytes(FITS) + kept_bytes(FITS + 1)) / 2;
    let (ended, events) = trained(Some(limit), None);
    assert_eq!(ended.unwrap().step, STEPS);
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
fn a_single_sample_that_is_refused_is_worked_with_blocks_computed_twice() {
    let (_, calm) = trained(None, None);
    let (ended, events) = trained(Some(kept_bytes(1) / 2), None);
    assert_eq!(ended.unwrap().step, STEPS);
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
fn a_piece_that_cannot_be_made_smaller_ends_the_run_with_a_reason() {
    for (limit, fixed, next) in [
        (
            kept_bytes(1) / 50,
            None,
            "what would help first: a smaller --image-size or --tokens frees",
        ),
        (
            kept_bytes(2),
            Some(5),
            "what would help first: a smaller --micro-batch, or auto frees",
        ),
    ] {
        let (ended, events) = trained(Some(limit), fixed);
        let error = ended.unwrap_err();
        assert_eq!(error.code(), "no_room", "{error}");
        assert!(error.to_string().contains(next), "{error}");
        assert!(steps(&events).is_empty(), "nothing was learnt from nothing");
    }
}
