//! Rungs beside the micro-batch change no bit: moments in a mapped file, blocks checkpointed more and fewer between pieces.

// Helpers of tests are tests: what fails here fails the claim.
#![allow(clippy::unwrap_used)]

mod support;

use candle_core::DType;
use pressure::Moments;
use runlog::{RunConfig, RunFolder};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use support::{learner, plan, samples, values};
use tape::Cancel;
use tape::inplace::to_f64;
use trainer::models::Network;
use trainer::rooms::checkpoint::{self, RunState};
use trainer::rooms::{EffectiveBatch, Learner};
use trainer::{ModelKind, OptimizerKind};

const STEPS: u64 = 6;

fn moments(learner: &Learner) -> BTreeMap<String, Vec<u64>> {
    let bits = |t| to_f64(&t).unwrap().into_iter().map(f64::to_bits).collect();
    let named = learner.optimizer.named(&learner.parameters).unwrap();
    named.into_iter().map(|(n, t)| (n, bits(t))).collect()
}

/// One step of seven samples in pieces of 3, 3 and 1; `before` each piece something may move.
fn step(learner: &mut Learner, step: u64, mut before: impl FnMut(&mut Learner, usize)) -> u64 {
    let mut batch = EffectiveBatch::new(7);
    let samples = samples(7, 11 + step).into_iter().map(Ok).collect();
    assert!(batch.pending.deliver(samples).is_empty());
    for (piece, size) in [3, 3, 1].into_iter().enumerate() {
        before(learner, piece);
        let task = learner.task(Cancel::default());
        let piece = task.gradients(batch.pending.piece(size)).unwrap();
        batch.add(piece).unwrap();
    }
    let whole = batch.whole().unwrap();
    assert_eq!(learner.update(&whole, step).unwrap().skipped, None);
    whole.loss.to_bits()
}

/// The tensor files that a checkpoint of this learner has.
fn files(learner: &Learner) -> BTreeMap<String, Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let run = RunFolder {
        path: folder.path().to_owned(),
    };
    run.write_config(&RunConfig::default()).unwrap();
    let written = checkpoint::write(&run, learner, &RunState::default()).unwrap();
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
fn moments_in_a_file_are_the_same_to_the_bit_and_so_is_every_checkpoint() {
    for optimizer in OptimizerKind::ALL {
        for dtype in [DType::F32, DType::F64] {
            let plan = plan(ModelKind::ConvNet, optimizer, dtype, STEPS);
            let (mut calm, mut pressed) = (learner(&plan), learner(&plan));
            let name = format!("{} in {dtype:?}", optimizer.name());
            let folder = tempfile::tempdir().unwrap();
            let all = pressed.optimizer.bytes();
            let state = pressed.state_bytes();
            for i in 0..STEPS {
                match i {
                    1 => pressed.keep_moments(Moments::Mapped, folder.path()),
                    4 => pressed.keep_moments(Moments::Resident, folder.path()),
                    _ => Ok(()),
                }
                .unwrap();
                let resident = if (1..4).contains(&i) { 0 } else { all };
                assert_eq!(pressed.optimizer.resident_bytes(), resident, "{name}");
                assert_eq!(pressed.optimizer.bytes(), all, "{name}");
                assert_eq!(pressed.state_bytes(), state - (all - resident), "{name}");
                assert!(is_empty(folder.path()), "a crash leaves nothing behind");
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
fn moments_that_the_disk_does_not_take_stay_in_memory_untouched() {
    let plan = plan(ModelKind::ConvNet, OptimizerKind::AdamW, DType::F32, STEPS);
    let mut learner = learner(&plan);
    step(&mut learner, 0, |_, _| ());
    let before = moments(&learner);
    let error = learner.keep_moments(Moments::Mapped, Path::new("/nowhere/at/all"));
    let said = error.unwrap_err().to_string();
    assert!(said.contains("/nowhere/at/all"), "{said}");
    assert!(!learner.optimizer.is_mapped());
    assert!(before == moments(&learner));
    step(&mut learner, 1, |_, _| ());
}

#[test]
fn a_checkpoint_comes_back_into_moments_that_were_in_a_file() {
    let plan = plan(
        ModelKind::ConvNet,
        OptimizerKind::AdamW8bit,
        DType::F32,
        STEPS,
    );
    let (mut first, mut second) = (learner(&plan), learner(&plan));
    let folder = tempfile::tempdir().unwrap();
    let run = RunFolder {
        path: folder.path().to_owned(),
    };
    first.keep_moments(Moments::Mapped, folder.path()).unwrap();
    step(&mut first, 0, |_, _| ());
    checkpoint::write(&run, &first, &RunState::default()).unwrap();
    second.keep_moments(Moments::Mapped, folder.path()).unwrap();
    let (loaded, _) = checkpoint::newest(&run).unwrap();
    checkpoint::load(&loaded, &mut second, checkpoint::OptimizerState::Load).unwrap();
    assert!(moments(&first) == moments(&second));
}

#[test]
fn blocks_that_come_and_go_between_pieces_change_no_bit() {
    for kind in ModelKind::SMALL {
        for dtype in [DType::F32, DType::F64] {
            let plan = plan(kind, OptimizerKind::AdamW, dtype, STEPS);
            let all = Network::blocks(kind, support::SIDE as u32);
            let (mut calm, mut pressed) = (learner(&plan), learner(&plan));
            assert_eq!(pressed.reserve().blocks, all);
            for i in 0..STEPS {
                let expected = step(&mut calm, i, |_, _| ());
                // 0, 1, 2, … all, and down again, one at a time.
                let found = step(&mut pressed, i, |learner, piece| {
                    let at = (3 * i as u32 + piece as u32) % (2 * all);
                    learner.checkpoint_blocks(at.min(2 * all - at));
                });
                assert_eq!(expected, found, "{} in {dtype:?}, step {i}", kind.name());
            }
            assert!(values(&calm.parameters) == values(&pressed.parameters));
            assert!(moments(&calm) == moments(&pressed));
        }
    }
}
