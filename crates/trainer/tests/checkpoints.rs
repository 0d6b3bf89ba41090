//! Checkpoints restore every bit, reject other models by tensor name, retain the newest two and
//! the best, and survive crashes and damage.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

mod support;

use candle_core::DType;
use runlog::{RunConfig, RunFolder};
use std::collections::BTreeMap;
use std::fs;
use support::{plan, samples, train_state, values, whole};
use tape::Cancel;
use tape::inplace::to_f64;
use trainer::internals::TrainState;
use trainer::internals::checkpoint::{self, OptimizerState, RunState};
use trainer::{ModelId, OptimizerKind, Precision};

fn run() -> (tempfile::TempDir, RunFolder) {
    let folder = tempfile::tempdir().unwrap();
    let run = RunFolder {
        path: folder.path().to_owned(),
    };
    run.write_config(&RunConfig::default()).unwrap();
    (folder, run)
}

fn moments(train_state: &TrainState) -> BTreeMap<String, Vec<u64>> {
    let bits = |t| to_f64(&t).unwrap().into_iter().map(f64::to_bits).collect();
    let named = train_state
        .optimizer
        .named(&train_state.parameters)
        .unwrap();
    named.into_iter().map(|(n, t)| (n, bits(t))).collect()
}

fn averages(train_state: &TrainState) -> Option<Vec<Vec<f64>>> {
    let average = train_state.average.as_ref();
    average.map(|average| values(&average.parameters))
}

fn step(train_state: &mut TrainState, step: u64) {
    let batch = whole(
        &train_state.forward_context(Cancel::default()),
        &samples(4, step),
        &[3, 1],
    );
    train_state.update(&batch, step).unwrap();
}

fn at(step: u64) -> RunState {
    RunState {
        step,
        ..Default::default()
    }
}

fn steps(run: &RunFolder) -> Vec<u64> {
    run.checkpoints().unwrap().iter().map(|c| c.step).collect()
}

const ADAMW: OptimizerKind = OptimizerKind::AdamW;

#[test]
fn a_restored_checkpoint_continues_bit_for_bit() {
    for kind in ModelId::SMALL {
        for &optimizer in OptimizerKind::ALL {
            for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
                let (_folder, run) = run();
                let mut plan = plan(kind, optimizer, dtype, 10);
                plan.ema_decay = (dtype == DType::F32).then_some(0.9);
                let mut first = train_state(&plan);
                (0..2).for_each(|i| step(&mut first, i));
                let state = RunState {
                    step: 2,
                    evaluated_step: 2,
                    at_ms: 77,
                    loss: Some(1.0 / 3.0),
                    evaluation: Some((0.1, 0.9)),
                    best: Some((0.9, 2)),
                    is_best: true,
                    loss_scale: first.loss_scale(),
                    skipped: first.skipped(),
                    controller: Default::default(),
                };
                assert_eq!(state.loss_scale.is_some(), dtype == DType::F16);
                let written = checkpoint::write(&run, &first, &state).unwrap();
                assert_eq!(written.path, "checkpoints/step-000002");
                assert!(run.path.join(&written.path).is_dir());
                assert!(written.bytes > first.parameters.bytes() + first.optimizer.bytes());
                let mut second = train_state(&plan);
                assert_ne!(values(&second.parameters), values(&first.parameters));
                let (loaded, damaged) = checkpoint::newest(&run).unwrap();
                assert_eq!((&loaded.state, damaged.len()), (&state, 0));
                checkpoint::load(&loaded, &mut second, OptimizerState::Load).unwrap();
                assert_eq!(second.loss_scale(), first.loss_scale());
                assert_eq!(second.skipped(), first.skipped());
                assert!(values(&second.parameters) == values(&first.parameters));
                assert!(moments(&second) == moments(&first));
                assert!(averages(&second) == averages(&first));
                for i in 2..5 {
                    step(&mut first, i);
                    step(&mut second, i);
                }
                assert!(values(&second.parameters) == values(&first.parameters));
                assert!(moments(&second) == moments(&first));
                assert!(averages(&second) == averages(&first));
            }
        }
    }
}

#[test]
fn a_checkpoint_of_another_model_is_rejected_by_tensor_name() {
    let (_folder, run) = run();
    let convnet = plan(ModelId::CONV_NET, ADAMW, DType::F32, 10);
    checkpoint::write(&run, &train_state(&convnet), &at(1)).unwrap();
    let (loaded, _) = checkpoint::newest(&run).unwrap();
    let check = |change: &dyn Fn(&mut trainer::Plan), parts: &[&str]| {
        let mut plan = convnet.clone();
        change(&mut plan);
        let result = checkpoint::load(&loaded, &mut train_state(&plan), OptimizerState::Load);
        let error = result.expect_err("another model does not fit");
        assert_eq!(error.code(), "weights_mismatch");
        for part in parts {
            assert!(error.to_string().contains(part), "{error}: no {part}");
        }
    };
    check(
        &|p| p.model = ModelId::VIT_MICRO,
        &["model.safetensors", "patch.weight is missing"],
    );
    check(
        &|p| p.classes.truncate(3),
        &["head.weight", "[5, 256]", "[3, 256]"],
    );
    check(&|p| p.precision = Precision::F64, &["stem.conv.weight"]);
    check(
        &|p| p.optimizer = OptimizerKind::Sgd,
        &["optimizer.safetensors", "momentum"],
    );
    check(
        &|p| p.optimizer = OptimizerKind::AdamW8bit,
        &["optimizer.safetensors", "first_moment.codes is missing"],
    );
    check(
        &|p| p.ema_decay = Some(0.99),
        &["average.safetensors", "saved no average"],
    );
}

#[test]
fn the_newest_two_and_the_best_are_retained() {
    let (_folder, run) = run();
    let train_state = train_state(&plan(ModelId::VIT_MICRO, ADAMW, DType::F32, 10));
    for step in [1, 2, 3, 4, 5] {
        checkpoint::write(&run, &train_state, &at(step)).unwrap();
    }
    assert_eq!(steps(&run), [1, 2, 3, 4, 5]);
    // The temporary folder of a crash during step 6, as `write` names it.
    let draft = run.checkpoints_path().join(".draft-6.4711");
    fs::create_dir(&draft).unwrap();
    fs::write(draft.join("model.safetensors"), b"half").unwrap();
    checkpoint::remove_old(&run, Some(2)).unwrap();
    assert_eq!(steps(&run), [2, 4, 5]);
    assert!(!draft.exists());
    checkpoint::remove_old(&run, None).unwrap();
    assert_eq!(steps(&run), [4, 5]);
    checkpoint::remove_old(&run, Some(5)).unwrap();
    assert_eq!(steps(&run), [4, 5]);
}

/// A file in place of the checkpoint folder makes the last rename fail.
#[test]
fn a_failed_write_leaves_no_temporary_folder() {
    let (_folder, run) = run();
    let train_state = train_state(&plan(ModelId::VIT_MICRO, ADAMW, DType::F32, 10));
    checkpoint::write(&run, &train_state, &at(1)).unwrap();
    let last = run.path.join(RunFolder::checkpoint_name(2));
    fs::write(&last, b"in the way").unwrap();
    let error = checkpoint::write(&run, &train_state, &at(2)).err().unwrap();
    assert_eq!(error.code(), "checkpoint_write");
    assert!(error.to_string().contains("step-000002"), "{error}");
    assert_eq!(
        fs::read_dir(run.checkpoints_path()).unwrap().count(),
        2,
        "the temporary folder is removed"
    );
    assert_eq!(checkpoint::newest(&run).unwrap().0.state.step, 1);
}

#[test]
fn drafts_are_ignored_and_damaged_checkpoints_reported() {
    let (_folder, run) = run();
    assert_eq!(
        checkpoint::newest(&run).err().map(|e| e.code()),
        Some("no_checkpoint")
    );
    let train_state = train_state(&plan(ModelId::VIT_MICRO, ADAMW, DType::F32, 10));
    for step in [1, 2, 3] {
        checkpoint::write(&run, &train_state, &at(step)).unwrap();
    }
    let parent = run.checkpoints_path();
    fs::rename(parent.join("step-000003"), parent.join(".draft-3.4711")).unwrap();
    assert_eq!(checkpoint::newest(&run).unwrap().0.state.step, 2);
    // Flip one bit of the weights: same length, another checksum.
    let file = parent.join("step-000002/model.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).unwrap();
    let (loaded, messages) = checkpoint::newest(&run).unwrap();
    assert_eq!(loaded.state.step, 1);
    assert!(
        messages.len() == 1
            && messages[0].contains("step-000002")
            && messages[0].contains("model.safetensors"),
        "{messages:?}"
    );
    fs::remove_file(parent.join("step-000001/state.json")).unwrap();
    assert_eq!(
        checkpoint::newest(&run).err().map(|e| e.code()),
        Some("no_checkpoint")
    );
}

#[test]
fn a_damaged_average_invalidates_its_checkpoint() {
    let (_folder, run) = run();
    let mut plan = plan(ModelId::VIT_MICRO, ADAMW, DType::F32, 10);
    plan.ema_decay = Some(0.99);
    let train_state = train_state(&plan);
    checkpoint::write(&run, &train_state, &at(1)).unwrap();
    checkpoint::write(&run, &train_state, &at(2)).unwrap();
    let newest = run.path.join(RunFolder::checkpoint_name(2));
    fs::write(newest.join("average.safetensors"), b"torn").unwrap();
    let (loaded, messages) = checkpoint::newest(&run).unwrap();
    assert_eq!(loaded.state.step, 1);
    assert!(messages[0].contains("average.safetensors"), "{messages:?}");
}

#[test]
fn the_best_is_found_among_newer_checkpoints() {
    let (_folder, run) = run();
    let train_state = train_state(&plan(ModelId::VIT_MICRO, ADAMW, DType::F32, 10));
    for step in [1, 2, 3] {
        let state = RunState {
            is_best: step == 2,
            ..at(step)
        };
        checkpoint::write(&run, &train_state, &state).unwrap();
    }
    assert_eq!(checkpoint::best(&run).unwrap().state.step, 2);
    fs::remove_dir_all(run.path.join(RunFolder::checkpoint_name(2))).unwrap();
    assert_eq!(checkpoint::best(&run).unwrap().state.step, 3);
}

/// A kill between removing the old folder and renaming the new one would leave none, so the old
/// weights stay in place.
#[cfg(unix)]
#[test]
fn saving_a_step_again_leaves_its_weights_in_place() {
    use std::os::unix::fs::MetadataExt;
    let (_folder, run) = run();
    let mut train_state = train_state(&plan(ModelId::VIT_MICRO, ADAMW, DType::F32, 10));
    checkpoint::write(&run, &train_state, &at(1)).unwrap();
    let file = run.path.join("checkpoints/step-000001/model.safetensors");
    let number = fs::metadata(&file).unwrap().ino();
    let later = RunState { at_ms: 9, ..at(1) };
    checkpoint::write(&run, &train_state, &later).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().ino(), number);
    assert_eq!(checkpoint::newest(&run).unwrap().0.state, later);
    assert_eq!(fs::read_dir(run.checkpoints_path()).unwrap().count(), 1);
    // Other weights of the same step are written again.
    step(&mut train_state, 0);
    checkpoint::write(&run, &train_state, &later).unwrap();
    assert_ne!(fs::metadata(&file).unwrap().ino(), number);
    assert_eq!(checkpoint::newest(&run).unwrap().0.state, later);
}
