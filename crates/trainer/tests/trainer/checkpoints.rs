//! Checkpoints restore every bit, reject other models by tensor name, retain the newest two and
//! the best, and survive crashes and damage.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::support::{plan, samples, train_state, values, whole};
use crate::temporary_folder::temporary_folder;
use candle_core::DType;
use disk::simulated::{SimulatedDisk, Survivors};
use runlog::{RunConfig, RunFolder, RunStore};
use std::collections::BTreeMap;
use std::fs;
use tape::Cancel;
use tape::inplace::to_f64;
use trainer::internals::TrainState;
use trainer::internals::checkpoint::{self, OptimizerState, Retention, RunState};
use trainer::{ModelId, OptimizerKind, Precision, RunDataset};

fn run() -> (tempfile::TempDir, RunFolder) {
    let folder = temporary_folder();
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

/// The names in a folder, sorted.
fn names(folder: &std::path::Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn steps(run: &RunFolder) -> Vec<u64> {
    run.checkpoints().unwrap().iter().map(|c| c.step).collect()
}

const ADAMW: OptimizerKind = OptimizerKind::AdamW;
const NEWEST_TWO: Retention = Retention {
    newest: 2,
    every: None,
};

#[test]
fn a_restored_checkpoint_continues_bit_for_bit() {
    for kind in ModelId::SMALL {
        for &optimizer in OptimizerKind::ALL {
            // The state of an optimizer does not depend on the network.
            if kind != ModelId::VIT_MICRO && optimizer != ADAMW {
                continue;
            }
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
                    baseline_share: Some(0.25),
                    evaluations_since_best: 0,
                    number: 1,
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
    checkpoint::remove_old(&run, 5, Some(2), NEWEST_TWO).unwrap();
    assert_eq!(steps(&run), [2, 4, 5]);
    checkpoint::remove_old(&run, 5, None, NEWEST_TWO).unwrap();
    assert_eq!(steps(&run), [4, 5]);
    checkpoint::remove_old(&run, 5, Some(5), NEWEST_TWO).unwrap();
    assert_eq!(steps(&run), [4, 5]);
    assert_eq!(
        names(&run.checkpoints_path()),
        ["step-000004", "step-000005"]
    );
}

/// Every third checkpoint stays. The others are removed only after a newer one is complete.
#[test]
fn the_newest_the_best_and_every_nth_are_retained() {
    let (_folder, run) = run();
    let train_state = train_state(&plan(ModelId::VIT_MICRO, ADAMW, DType::F32, 10));
    let retention = Retention {
        newest: 1,
        every: Some(3),
    };
    for number in 1..=8 {
        let state = RunState {
            number,
            ..at(10 * number)
        };
        let before = steps(&run);
        checkpoint::write(&run, &train_state, &state).unwrap();
        assert!(before.iter().all(|step| steps(&run).contains(step)));
        checkpoint::remove_old(&run, 10 * number, Some(20), retention).unwrap();
    }
    assert_eq!(steps(&run), [20, 30, 60, 80]);
    // Fewer than one would remove the checkpoint that was just written.
    let none = Retention {
        newest: 0,
        every: None,
    };
    checkpoint::remove_old(&run, 80, None, none).unwrap();
    assert_eq!(steps(&run), [80]);
}

/// The newest checkpoint was damaged, and the run fell back to an earlier one: the damaged one does
/// not count as one of the newest two.
#[test]
fn a_damaged_checkpoint_does_not_push_out_a_good_one() {
    let (_folder, run) = run();
    let train_state = train_state(&plan(ModelId::VIT_MICRO, ADAMW, DType::F32, 10));
    for step in [10, 20, 30] {
        checkpoint::write(&run, &train_state, &at(step)).unwrap();
    }
    let newest = run.path.join(RunFolder::checkpoint_name(30));
    fs::write(newest.join("model.safetensors"), b"torn").unwrap();
    assert_eq!(checkpoint::newest(&run).unwrap().0.state.step, 20);
    checkpoint::write(&run, &train_state, &at(25)).unwrap();
    checkpoint::remove_old(&run, 25, None, NEWEST_TWO).unwrap();
    assert_eq!(steps(&run), [20, 25, 30]);
    checkpoint::write(&run, &train_state, &at(30)).unwrap();
    checkpoint::remove_old(&run, 30, None, NEWEST_TWO).unwrap();
    assert_eq!(steps(&run), [25, 30]);
    assert_eq!(checkpoint::newest(&run).unwrap().0.state.step, 30);
}

/// What a crash leaves under temporary names: an incomplete checkpoint, a complete one, one that
/// was being removed, and files beside the checkpoints.
#[test]
fn the_next_start_finishes_what_a_crash_interrupted() {
    let (_folder, run) = run();
    let train_state = train_state(&plan(ModelId::VIT_MICRO, ADAMW, DType::F32, 10));
    for step in [1, 2, 3, 4] {
        checkpoint::write(&run, &train_state, &at(step)).unwrap();
    }
    let parent = run.checkpoints_path();
    let rename = |from: &str, to: &str| fs::rename(parent.join(from), parent.join(to)).unwrap();
    rename("step-000001", ".draft-step-000001.removed.4711");
    // The old checkpoint of step 3 was moved out of the way of a new one.
    rename("step-000003", ".draft-step-000003.replaced.4711");
    // As earlier versions named it.
    rename("step-000004", ".draft-4.4711");
    let incomplete = parent.join(".draft-step-000005.4711");
    fs::create_dir(&incomplete).unwrap();
    fs::write(incomplete.join("model.safetensors"), b"half").unwrap();
    fs::create_dir(run.path.join(".draft-published.4711")).unwrap();
    fs::write(run.path.join(".draft-config.toml.4711"), b"half").unwrap();
    assert_eq!(checkpoint::newest(&run).unwrap().0.state.step, 2);
    checkpoint::recover(&run).unwrap();
    assert_eq!(
        names(&parent),
        ["step-000002", "step-000003", "step-000004"]
    );
    assert_eq!(names(&run.path), ["checkpoints", "config.toml"]);
    let (loaded, damaged) = checkpoint::newest(&run).unwrap();
    assert_eq!((loaded.state.step, damaged.len()), (4, 0));
}

/// A checkpoint of the same step with other weights is replaced, and the power fails after any
/// change.
#[test]
fn a_replaced_checkpoint_is_there_at_every_moment() {
    let root = tempfile::tempdir().unwrap();
    let disk = SimulatedDisk::new(root.path());
    let (id, before) = {
        let _installed = disk.install();
        let run = RunStore::open(root.path()).create("birds").unwrap();
        let mut train_state = train_state(&plan(ModelId::VIT_MICRO, ADAMW, DType::F32, 10));
        checkpoint::write(&run, &train_state, &at(1)).unwrap();
        let before = disk.changes();
        step(&mut train_state, 0);
        checkpoint::write(&run, &train_state, &at(1)).unwrap();
        (run.id(), before)
    };
    let mut cuts = disk.power_cuts();
    let mut changes = 0;
    while let Some(change) = cuts.next_change() {
        changes += 1;
        let some = Survivors::Seed(changes as u64);
        for survivors in [Survivors::All, Survivors::None, some] {
            if changes < before {
                continue;
            }
            let left = tempfile::tempdir().unwrap();
            cuts.leave(survivors, left.path()).unwrap();
            let run = RunFolder {
                path: left.path().join(&id),
            };
            checkpoint::recover(&run).unwrap();
            let newest = checkpoint::newest(&run).map(|(loaded, _)| loaded.state.step);
            assert_eq!(newest.ok(), Some(1), "{survivors:?} after {change}");
            assert_eq!(names(&run.checkpoints_path()), ["step-000001"]);
        }
    }
    assert!(changes > before + 10, "{changes}");
}

/// People share run folders: a changed `state.json` is not believed, and must not name files
/// elsewhere.
#[test]
fn a_changed_state_file_is_refused() {
    let (_folder, run) = run();
    let train_state = train_state(&plan(ModelId::VIT_MICRO, ADAMW, DType::F32, 10));
    let problem = |change: &dyn Fn(String) -> String| {
        let written = checkpoint::write(&run, &train_state, &at(7)).unwrap();
        let file = run.path.join(written.path).join("state.json");
        fs::write(&file, change(fs::read_to_string(&file).unwrap())).unwrap();
        let error = checkpoint::newest(&run).err().unwrap();
        assert_eq!(error.code(), "no_checkpoint");
        let damage = checkpoint::verify(file.parent().unwrap()).err().unwrap();
        damage.to_string()
    };
    let step = problem(&|text| text.replacen("\"step\": 7", "\"step\": 9", 1));
    assert!(step.contains("state.json has changed"), "{step}");
    // As versions without a checksum wrote it.
    let without_sum = |text: String| {
        let lines = text.lines().filter(|line| !line.contains("\"sum\""));
        lines.collect::<Vec<_>>().join(
            "
",
        )
    };
    for elsewhere in ["../../config.toml", "/dev/zero", ".."] {
        let named = problem(&|text| {
            let listed = format!("\"files\": {{ \"{elsewhere}\": [0, 0],");
            without_sum(text).replacen("\"files\": {", &listed, 1)
        });
        assert!(
            named.contains("names a file outside the checkpoint"),
            "{named}"
        );
    }
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
    let error = checkpoint::newest(&run).err().unwrap();
    assert_eq!(error.code(), "no_checkpoint");
    let text = error.to_string();
    for part in [
        "(step-000002: model.safetensors has changed",
        "; step-000001: ",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_checkpoint_of_another_version_names_the_next_move() {
    let (_folder, run) = run();
    let train_state = train_state(&plan(ModelId::VIT_MICRO, ADAMW, DType::F32, 10));
    checkpoint::write(&run, &train_state, &at(1)).unwrap();
    let file = run.path.join(RunFolder::checkpoint_name(1));
    let file = file.join("state.json");
    let written: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let state = &written["state"];
    // An earlier version with the same fields and no checksum, and a later one with other fields.
    for other in [
        serde_json::json!({"format": 0, "state": state, "files": {}}),
        serde_json::json!({"format": 7, "position": 400}),
    ] {
        fs::write(&file, other.to_string()).unwrap();
        let error = checkpoint::newest(&run).err().unwrap();
        assert_eq!(error.code(), "checkpoint_version");
        let expected = format!(
            "step-000001 has format {}, but this version of Ebb reads format 1; use the version of Ebb that wrote it",
            other["format"]
        );
        assert!(error.to_string().ends_with(&expected), "{error}");
    }
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

#[test]
fn a_manifest_names_only_files_inside_its_folder() {
    let (_folder, run) = run();
    let read = |file: &str| {
        let files = format!("[[\"{file}\", 0, 0, 16, 16, 700]]");
        let text = format!(
            "{{\"folder\": \"/data\", \"name\": \"birds\", \"classes\": [\"jay\"], \"files\": {files}}}"
        );
        fs::write(run.path.join("data.json"), text).unwrap();
        let dataset = RunDataset::read(&run);
        let folder = dataset.map(|dataset| dataset.folder().to_owned());
        folder.map_err(|error| error.to_string())
    };
    assert_eq!(read("jay/1.png"), Ok("/data".into()));
    for outside in ["../1.png", "jay/../../1.png", "/dev/zero"] {
        let refused = read(outside).expect_err(outside);
        assert!(
            refused.contains("outside of the dataset folder"),
            "{refused}"
        );
    }
}
