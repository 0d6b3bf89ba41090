//! Ranks that have the optimizer state in parts: the training, its checkpoints and its bits are
//! those of ranks that have all of it. A checkpoint has the state of all ranks, so the run goes on
//! alone and in groups of any size.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::distributed_runs::{
    SAVED_STEPS, STEPS, Session, delayed, distance, in_group, ledgers, of_documents, of_images,
    of_texts, resume_in_group, saving_every, stopping, train, train_compared, train_session,
    train_shared, train_with_requested_checkpoint,
};
use distributed::ThreadOptions;
use runlog::{
    CheckpointInterval, CheckpointReason, OptimizerChoice, PrecisionChoice, RunConfig, RunEvent,
    ShardingChoice,
};
use std::time::Duration;
use trainer::{Control, RunGroup};

/// Steps of the runs whose bits are compared.
const COMPARED: u64 = 10;
/// More steps than a test trains.
const ENDLESS: u64 = 1_000_000;

fn sharded(config: RunConfig) -> RunConfig {
    RunConfig {
        sharding: Some(ShardingChoice::Optimizer),
        ..config
    }
}

/// Trains in three ranks that have all state, and again in the same way in three that share it.
#[track_caller]
fn check_bits(name: &str, config: &RunConfig) {
    let whole = train_compared(config, 3, delayed(31));
    let shared = train_shared(&sharded(config.clone()), &ledgers(&whole[0]), None, None);
    for rank in &shared {
        assert_eq!(rank.outcome.as_ref().unwrap().step, COMPARED, "{name}");
    }
    assert_eq!(shared[0].losses(), whole[0].losses(), "{name}");
    for step in [SAVED_STEPS, COMPARED] {
        let (found, expected) = (shared[0].tensor_files(step), whole[0].tensor_files(step));
        assert!(expected.len() >= 2, "weights and moments");
        assert!(found.keys().eq(expected.keys()), "{name}");
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
        steps: Some(COMPARED),
        ..saving_every(SAVED_STEPS, config)
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
    let config = saving_every(1000, sharded(of_images(folder.path())));
    let whole = train(&config, RunGroup::default(), Control::default());
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
fn by_default_the_optimizer_state_is_whole_where_it_fits() {
    let folder = tempfile::tempdir().unwrap();
    let config = RunConfig {
        steps: Some(2),
        ..of_texts(folder.path())
    };
    let ranks = in_group(&[config.clone(), config], delayed(33));
    for rank in &ranks {
        assert_eq!(rank.outcome.as_ref().unwrap().step, 2);
    }
    let message = ranks[0].events.iter().find_map(|event| match event {
        RunEvent::Group { message, .. } => Some(message.as_str()),
        _ => None,
    });
    let message = message.expect("the events name the group");
    assert!(
        message
            .ends_with("; each machine has the whole optimizer state, which fits into its memory"),
        "{message}"
    );
}

/// Rank 1 may use less memory than the program has.
#[test]
fn rank_0_keeps_the_optimizer_state_for_a_rank_with_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let config = RunConfig {
        steps: Some(COMPARED),
        ema_decay: Some(0.9),
        ..saving_every(SAVED_STEPS, of_images(folder.path()))
    };
    let small = RunConfig {
        memory_cap_bytes: Some(64 << 20),
        ..config.clone()
    };
    let alone = train(&config, RunGroup::default(), Control::default());
    let ranks = in_group(&[config, small], delayed(34));
    for rank in &ranks {
        assert_eq!(rank.outcome.as_ref().unwrap().step, COMPARED);
    }
    let named = ranks[0].events.iter().any(|event| {
        matches!(event, RunEvent::Group { message, .. } if message.contains("; only rank 0 has the optimizer state, because "))
    });
    assert!(named, "the events name it");
    let expected = alone.weights(COMPARED);
    let way = distance(&alone.weights(SAVED_STEPS), &expected);
    let drift = distance(&ranks[0].weights(COMPARED), &expected) / way;
    assert!(way > 0.0 && drift <= 1e-12, "{drift:e}");
}

#[test]
fn a_checkpoint_that_a_user_asks_for_is_written_after_the_step() {
    let folder = tempfile::tempdir().unwrap();
    let config = saving_every(1000, sharded(of_texts(folder.path())));
    let ranks = train_with_requested_checkpoint(&config, 32, 3);
    let mut requested = ranks[0].saved_steps();
    requested.retain(|(_, reason)| *reason == CheckpointReason::Requested);
    let requested: Vec<u64> = requested.into_iter().map(|(step, _)| step).collect();
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
        silence: Duration::from_secs(2),
        death: Some((1, 300)),
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
