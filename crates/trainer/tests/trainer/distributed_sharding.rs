//! Ranks that have the optimizer state in parts: the training, its checkpoints and its bits are
//! those of ranks that have all of it. A checkpoint has the state of all ranks, so the run goes on
//! alone and in groups of any size.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::distributed_bf16::{ledgers, train_shared};
use crate::distributed_runs::{
    STEPS, Session, Trained, delayed, distance, each_rank, in_group, of_documents, of_images,
    of_texts, resume_in_group, train, train_session,
};
use distributed::ThreadOptions;
use runlog::{
    CheckpointInterval, CheckpointReason, OptimizerChoice, PrecisionChoice, RunConfig, RunEvent,
    RunFolder, ShardingChoice,
};
use std::time::Duration;
use trainer::{Control, Request, RunGroup};

/// More steps than a test trains.
const ENDLESS: u64 = 1_000_000;

fn sharded(config: RunConfig) -> RunConfig {
    RunConfig {
        sharding: Some(ShardingChoice::Optimizer),
        ..config
    }
}

/// The bytes of the files of a checkpoint that hold tensors.
fn tensor_files(trained: &Trained, step: u64) -> Vec<(String, Vec<u8>)> {
    let folder = trained.run.path.join(RunFolder::checkpoint_name(step));
    let files = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let files = files.map(|file| (file.file_name().into_string().unwrap(), file.path()));
    let tensors = files.filter(|(name, _)| name.ends_with(".safetensors"));
    let mut read: Vec<_> = tensors
        .map(|(name, path)| (name, std::fs::read(path).unwrap()))
        .collect();
    read.sort();
    read
}

/// Trains in three ranks that have all state, and again in the same way in three that share it.
#[track_caller]
fn check_bits(name: &str, config: &RunConfig) {
    let configs = vec![config.clone(); 3];
    let start = |group, config: &RunConfig| train(config, RunGroup::new(group), Control::default());
    let whole = each_rank(&configs, delayed(31), &start);
    let shared = train_shared(&sharded(config.clone()), &ledgers(&whole[0]), None, None);
    for rank in &shared {
        assert_eq!(rank.outcome.as_ref().unwrap().step, STEPS, "{name}");
    }
    assert_eq!(shared[0].losses(), whole[0].losses(), "{name}");
    for step in [10, STEPS] {
        let (found, expected) = (
            tensor_files(&shared[0], step),
            tensor_files(&whole[0], step),
        );
        assert!(expected.len() >= 2, "weights and moments");
        let names = |files: &[(String, Vec<u8>)]| -> Vec<String> {
            files.iter().map(|(name, _)| name.clone()).collect()
        };
        assert_eq!(names(&found), names(&expected), "{name}");
        assert!(found == expected, "{name}: the same bits after step {step}");
    }
    let named = shared[0].events.iter().any(|event| {
        matches!(event, RunEvent::Group { message, .. } if message.ends_with("; each machine has a part of the optimizer state"))
    });
    assert!(named, "{name}: the events name it");
}

#[test]
fn ranks_that_share_the_optimizer_state_end_on_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let saving = |config: RunConfig| RunConfig {
        checkpoint_every: Some(CheckpointInterval::Steps(5)),
        keep_checkpoints: Some(100),
        ..config
    };
    let images = saving(of_images(folder.path()));
    check_bits("adamw, f64", &saving(of_documents(folder.path())));
    check_bits("adamw, texts", &saving(of_texts(folder.path())));
    for optimizer in [
        OptimizerChoice::Sgd,
        OptimizerChoice::Lion,
        OptimizerChoice::AdamW8bit,
    ] {
        let config = RunConfig {
            optimizer: Some(optimizer),
            precision: Some(PrecisionChoice::F32),
            ema_decay: Some(0.9),
            ..images.clone()
        };
        check_bits(optimizer.name(), &config);
    }
}

#[test]
fn a_run_goes_on_with_shared_optimizer_state_and_alone_again() {
    let folder = tempfile::tempdir().unwrap();
    // Only stops save: they gather the state.
    let config = RunConfig {
        checkpoint_every: Some(CheckpointInterval::Steps(1000)),
        keep_checkpoints: Some(100),
        ..sharded(of_images(folder.path()))
    };
    let whole = train(&config, RunGroup::default(), Control::default());
    let stopping = |stops_at| Session {
        stops_at,
        ..Session::default()
    };
    let begun = train_session(&config, RunGroup::default(), stopping(Some(6)), &mut |_| {});
    assert_eq!(begun.outcome.as_ref().unwrap().step, 6);
    // The same run in groups of two sizes; any rank may stop it.
    let sessions = vec![stopping(Some(10)), stopping(None)];
    let pair = resume_in_group(&begun.run, sessions);
    assert!(
        pair.iter()
            .all(|rank| rank.outcome.as_ref().unwrap().step == 10)
    );
    let sessions = vec![stopping(None), stopping(None), stopping(Some(14))];
    let three = resume_in_group(&begun.run, sessions);
    let stopped = three[0].outcome.as_ref().unwrap().step;
    assert!((14..STEPS).contains(&stopped), "{stopped}");
    let last = Session {
        resumes: Some(begun.run.clone()),
        ..Session::default()
    };
    let last = train_session(&config, RunGroup::default(), last, &mut |_| {});
    assert_eq!(last.outcome.as_ref().unwrap().step, STEPS);
    let expected = whole.weights(STEPS);
    let way = distance(&begun.weights(6), &expected);
    let drift = distance(&last.weights(STEPS), &expected) / way;
    println!("resumed with shared state and alone: weights differ by {drift:.1e} of the way");
    assert!(way > 0.0 && drift <= 1e-12, "{drift:e}");
}

#[test]
fn a_checkpoint_that_a_user_asks_for_is_written_after_the_step() {
    let folder = tempfile::tempdir().unwrap();
    let config = RunConfig {
        checkpoint_every: Some(CheckpointInterval::Steps(1000)),
        keep_checkpoints: Some(100),
        ..sharded(of_texts(folder.path()))
    };
    let configs = vec![config; 2];
    let ranks = each_rank(&configs, delayed(32), &|group, config| {
        let control = Control::default();
        let session = Session {
            control: control.clone(),
            ..Session::default()
        };
        let is_first = group.rank() == 0;
        train_session(config, RunGroup::new(group), session, &mut |event| {
            if is_first && matches!(event, RunEvent::Step { step: 3, .. }) {
                control.send(Request::Checkpoint);
            }
        })
    });
    assert!(ranks.iter().all(|rank| rank.outcome.is_ok()));
    let requested = |event: &RunEvent| match event {
        RunEvent::Checkpoint {
            step,
            reason: CheckpointReason::Requested,
            ..
        } => Some(*step),
        _ => None,
    };
    let requested: Vec<u64> = ranks[0].events.iter().filter_map(requested).collect();
    assert_eq!(requested, [4]);
}

#[test]
fn without_a_rank_the_run_continues_from_the_newest_whole_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let config = RunConfig {
        steps: Some(ENDLESS),
        checkpoint_every: Some(CheckpointInterval::Steps(1)),
        ..sharded(of_images(folder.path()))
    };
    let options = ThreadOptions {
        silence: Duration::from_secs(4),
        death: Some((1, 600)),
        ..ThreadOptions::default()
    };
    let ranks = in_group(&[config.clone(), config.clone()], options);
    let error = ranks[0].error();
    assert!(
        error.contains("rank 1 (") && error.contains("ebb resume"),
        "{error}"
    );
    let saved = ranks[0].run.checkpoints().unwrap();
    let newest = saved.iter().map(|saved| saved.step).max().unwrap();
    assert!(newest > 0);
    let session = Session {
        resumes: Some(ranks[0].run.clone()),
        stops_at: Some(newest + 3),
        ..Session::default()
    };
    let alone = train_session(&config, RunGroup::default(), session, &mut |_| {});
    assert_eq!(alone.outcome.as_ref().unwrap().step, newest + 3);
    assert!(alone.losses().iter().all(|loss| loss.is_finite()));
}
