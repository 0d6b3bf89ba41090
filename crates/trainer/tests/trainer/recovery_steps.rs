//! Recovery steps change no bit of the result: moments in a mapped file, and more or fewer
//! checkpointed blocks between micro-batches.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::support::{plan, samples, train_state, values};
use candle_core::DType;
use pressure::Moments;
use runlog::{RunConfig, RunFolder};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tape::Cancel;
use tape::inplace::to_f64;
use trainer::internals::checkpoint::{self, RunState};
use trainer::internals::{EffectiveBatch, TrainState};
use trainer::{ModelId, OptimizerKind};

const STEPS: u64 = 6;

fn moments(train_state: &TrainState) -> BTreeMap<String, Vec<u64>> {
    let bits = |t| to_f64(&t).unwrap().into_iter().map(f64::to_bits).collect();
    let named = train_state
        .optimizer
        .named(&train_state.parameters)
        .unwrap();
    named.into_iter().map(|(n, t)| (n, bits(t))).collect()
}

/// One step of seven samples in micro-batches of 3, 3 and 1. `before` runs before each of them.
fn step(
    train_state: &mut TrainState,
    step: u64,
    mut before: impl FnMut(&mut TrainState, usize),
) -> u64 {
    let mut batch = EffectiveBatch::new(7);
    let samples = samples(7, 11 + step).into_iter().map(Ok).collect();
    assert!(batch.pending.deliver(samples).is_empty());
    for (index, size) in [3, 3, 1].into_iter().enumerate() {
        before(train_state, index);
        let task = train_state.forward_context(Cancel::default());
        let result = task.gradients(batch.pending.micro_batch(size)).unwrap();
        batch.add(result).unwrap();
    }
    let whole = batch.finish().unwrap();
    assert_eq!(train_state.update(&whole, step).unwrap().skipped, None);
    whole.loss.to_bits()
}

/// The tensor files in a checkpoint of this train state.
fn files(train_state: &TrainState) -> BTreeMap<String, Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let run = RunFolder {
        path: folder.path().to_owned(),
    };
    run.write_config(&RunConfig::default()).unwrap();
    let written = checkpoint::write(&run, train_state, &RunState::default()).unwrap();
    let entries = fs::read_dir(run.path.join(written.path)).unwrap();
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "safetensors"))
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, fs::read(path).unwrap())
        })
        .collect()
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn moments_on_disk_change_no_bit_of_weights_and_checkpoints() {
    for &optimizer in OptimizerKind::ALL {
        for dtype in [DType::F32, DType::F64] {
            let plan = plan(ModelId::CONV_NET, optimizer, dtype, STEPS);
            let (mut calm, mut pressed) = (train_state(&plan), train_state(&plan));
            let name = format!("{} in {dtype:?}", optimizer.name());
            let folder = tempfile::tempdir().unwrap();
            let all = pressed.optimizer.bytes();
            let state = pressed.state_bytes();
            for i in 0..STEPS {
                match i {
                    1 => pressed.move_moments(Moments::Mapped, folder.path()),
                    4 => pressed.move_moments(Moments::Resident, folder.path()),
                    _ => Ok(()),
                }
                .unwrap();
                let resident = if (1..4).contains(&i) { 0 } else { all };
                assert_eq!(pressed.optimizer.resident_bytes(), resident, "{name}");
                assert_eq!(pressed.optimizer.bytes(), all, "{name}");
                assert_eq!(pressed.state_bytes(), state - (all - resident), "{name}");
                assert!(is_empty(folder.path()), "the scratch file is unlinked");
                let losses = [&mut calm, &mut pressed].map(|l| step(l, i, |_, _| ()));
                assert_eq!(losses[0], losses[1], "{name}, step {i}");
                assert!(
                    values(&calm.parameters) == values(&pressed.parameters),
                    "{name}"
                );
                assert!(moments(&calm) == moments(&pressed), "{name}, step {i}");
                assert!(files(&calm) == files(&pressed), "{name}, step {i}");
            }
        }
    }
}

#[test]
fn moments_stay_in_memory_if_the_disk_fails() {
    let plan = plan(ModelId::CONV_NET, OptimizerKind::AdamW, DType::F32, STEPS);
    let mut train_state = train_state(&plan);
    step(&mut train_state, 0, |_, _| ());
    let before = moments(&train_state);
    let error = train_state.move_moments(Moments::Mapped, Path::new("/nowhere/at/all"));
    let message = error.unwrap_err().to_string();
    assert!(message.contains("/nowhere/at/all"), "{message}");
    assert!(!train_state.optimizer.is_mapped());
    assert!(before == moments(&train_state));
    step(&mut train_state, 1, |_, _| ());
}

#[test]
fn a_checkpoint_loads_into_moments_on_disk() {
    let plan = plan(
        ModelId::CONV_NET,
        OptimizerKind::AdamW8bit,
        DType::F32,
        STEPS,
    );
    let (mut first, mut second) = (train_state(&plan), train_state(&plan));
    let folder = tempfile::tempdir().unwrap();
    let run = RunFolder {
        path: folder.path().to_owned(),
    };
    first.move_moments(Moments::Mapped, folder.path()).unwrap();
    step(&mut first, 0, |_, _| ());
    checkpoint::write(&run, &first, &RunState::default()).unwrap();
    second.move_moments(Moments::Mapped, folder.path()).unwrap();
    let (loaded, _) = checkpoint::newest(&run).unwrap();
    checkpoint::load(&loaded, &mut second, checkpoint::OptimizerState::Load).unwrap();
    assert!(moments(&first) == moments(&second));
}

#[test]
fn changing_checkpointed_blocks_within_a_step_changes_no_bit() {
    for kind in ModelId::SMALL {
        for dtype in [DType::F32, DType::F64] {
            let plan = plan(kind, OptimizerKind::AdamW, dtype, STEPS);
            let all = kind.blocks();
            let (mut calm, mut pressed) = (train_state(&plan), train_state(&plan));
            assert_eq!(pressed.reserve().blocks, all);
            for i in 0..STEPS {
                let expected = step(&mut calm, i, |_, _| ());
                // 0, 1, 2, … all, and down again.
                let found = step(&mut pressed, i, |train_state, index| {
                    let at = (3 * i as u32 + index as u32) % (2 * all);
                    train_state.set_checkpoint_blocks(at.min(2 * all - at));
                });
                assert_eq!(expected, found, "{} in {dtype:?}, step {i}", kind.name());
            }
            assert!(values(&calm.parameters) == values(&pressed.parameters));
            assert!(moments(&calm) == moments(&pressed));
        }
    }
}
