//! Ranks that exchange weights only every few steps: they are equal after each synchronization, a
//! resumed run continues in the same bits, and a run goes on in groups of other sizes and alone.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::distributed_runs::{
    INTERRUPTED, STEPS, Session, Trained, delayed, distance, each_rank, forward_members, ledgers,
    of_documents, of_images, resume_halfway, resume_in_group, saving_every, stopping,
    train_compared, train_session, train_shared, train_with_requested_checkpoint, wrapped,
};
use dataset::{InspectOptions, TextOptions, detect};
use distributed::{Claim, ClaimRequest, Group, Share, Values};
use runlog::{
    CheckpointInterval, CheckpointReason, ExchangeChoice, OptimizerChoice, PrecisionChoice,
    RunConfig, RunEvent, ShardingChoice, StopReason,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use trainer::{Plan, RunGroup};

/// Steps between two synchronizations.
const ROUND: u64 = 5;

fn rarely(config: RunConfig) -> RunConfig {
    RunConfig {
        sync_every: Some(ROUND),
        ..saving_every(ROUND, config)
    }
}

fn saved_steps(trained: &Trained) -> Vec<u64> {
    let saved = trained.saved_steps().into_iter();
    saved.map(|(step, _)| step).collect()
}

#[test]
fn a_run_with_rare_exchanges_is_resumed_in_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let config = rarely(of_documents(folder.path()));
    let whole = train_compared(&config, 3, delayed(3));
    for rank in &whole {
        let reason = rank.outcome.as_ref().map(|outcome| outcome.reason);
        assert_eq!(reason.ok(), Some(StopReason::Finished), "{}", rank.error());
    }
    let named = whole[0].events.iter().any(|event| {
        matches!(event, RunEvent::Group { message, .. } if message.ends_with("; machines synchronize only every 5 steps, which saves 40.0 % of the exchanged bytes, but changes the training"))
    });
    assert!(named, "the events name it");
    let ended = resume_halfway(&config, &whole[0]);
    for step in [INTERRUPTED + ROUND, STEPS] {
        let files = ended.tensor_files(step);
        assert!(files.contains_key("outer.safetensors"));
        assert!(
            files == whole[0].tensor_files(step),
            "weights, moments and outer momentum after step {step}"
        );
    }
    let ledgers = ledgers(&whole[0]);
    // The exact method is another training.
    let exact = RunConfig {
        sync_every: None,
        ..config.clone()
    };
    let exact = train_shared(&exact, &ledgers, None, None);
    let (first, last) = (exact[0].weights(ROUND), exact[0].weights(STEPS));
    let drift = distance(&whole[0].weights(STEPS), &last) / distance(&first, &last);
    println!("the weights differ by {drift:.2} of the way of the exact run");
    assert!(drift > 1e-6, "{drift}");
    // With one step per round, it is the exact method.
    let every_step = RunConfig {
        sync_every: Some(1),
        ..config
    };
    let every_step = train_shared(&every_step, &ledgers, None, None);
    assert!(every_step[0].weights(STEPS) == last);
}

#[test]
fn a_stop_between_two_synchronizations_saves_equal_weights() {
    let folder = tempfile::tempdir().unwrap();
    let config = RunConfig {
        ema_decay: Some(0.9),
        ..rarely(of_images(folder.path()))
    };
    let configs = vec![config.clone(); 2];
    let begun = each_rank(&configs, delayed(4), &|group, config| {
        let session = stopping((group.rank() == 1).then_some(8));
        train_session(config, RunGroup::new(group), session, &mut |_| {})
    });
    let stopped = begun[0].outcome.as_ref().unwrap().step;
    assert!((8..=9).contains(&stopped), "step {stopped}");
    assert_eq!(saved_steps(&begun[0]), [0, 5, stopped]);
    // It goes on in three ranks, which stop at a synchronization, and ends alone.
    let three = vec![stopping(Some(15)), stopping(None), stopping(None)];
    let three = resume_in_group(&begun[0].run, three);
    assert_eq!(three[0].outcome.as_ref().unwrap().step, 15);
    let mut saved = saved_steps(&three[0]);
    // What was due before the stop is evaluated first, and may be the best.
    saved.retain(|step| *step > stopped);
    assert_eq!(saved, [10, 15]);
    assert!(three[0].tensor_files(15).contains_key("outer.safetensors"));
    let alone = Session {
        resumes: Some(begun[0].run.clone()),
        ..Session::default()
    };
    let alone = train_session(&config, RunGroup::default(), alone, &mut |_| {});
    let outcome = alone.outcome.as_ref().unwrap();
    assert_eq!(
        (outcome.reason, outcome.step),
        (StopReason::Finished, STEPS)
    );
    assert!(alone.losses().iter().all(|loss| loss.is_finite()));
}

#[test]
fn a_checkpoint_that_a_user_asks_for_synchronizes_after_the_step() {
    let folder = tempfile::tempdir().unwrap();
    let config = rarely(of_images(folder.path()));
    let ranks = train_with_requested_checkpoint(&config, 5, 11);
    let mut saved = saved_steps(&ranks[0]);
    // It is saved again if it is evaluated as the best.
    saved.dedup();
    assert_eq!(saved, [0, 5, 10, 12, 15, STEPS]);
}

/// Counts the values that a rank adds up.
struct Summed {
    group: Box<dyn Group>,
    values: Arc<AtomicUsize>,
}

impl Group for Summed {
    forward_members!();

    fn begin_step(&mut self, samples: u32) {
        self.group.begin_step(samples);
    }

    fn claim(&mut self, request: ClaimRequest) -> distributed::Result<Claim> {
        self.group.claim(request)
    }

    fn sum(&mut self, values: Values) -> distributed::Result<Values> {
        self.values.fetch_add(values.len(), Ordering::Relaxed);
        self.group.sum(values)
    }

    fn ledger(&self) -> Vec<Share> {
        self.group.ledger()
    }

    fn check_alive(&mut self) -> distributed::Result<()> {
        self.group.check_alive()
    }

    fn fail(&mut self, message: &str) {
        self.group.fail(message);
    }

    fn leave(&mut self) -> distributed::Result<()> {
        self.group.leave()
    }
}

/// Values that two ranks add up in a run.
fn summed_values(config: &RunConfig) -> usize {
    let values = Arc::new(AtomicUsize::new(0));
    let count = |group: Box<dyn Group>| -> Box<dyn Group> {
        Box::new(Summed {
            group,
            values: Arc::clone(&values),
        })
    };
    let trained = wrapped(&[config.clone(), config.clone()], delayed(6), &count);
    assert!(trained[0].outcome.is_ok(), "{}", trained[0].error());
    values.load(Ordering::Relaxed)
}

#[test]
fn rare_exchanges_add_up_as_few_values_as_described() {
    let folder = tempfile::tempdir().unwrap();
    // Evaluations and checkpoints wait for a synchronization.
    let config = RunConfig {
        checkpoint_every: Some(CheckpointInterval::Steps(3)),
        ema_decay: Some(0.0),
        ..rarely(of_images(folder.path()))
    };
    let exact = summed_values(&RunConfig {
        sync_every: None,
        ..config.clone()
    });
    let rare = summed_values(&config);
    // AdamW: the weights and two moments every 5 steps.
    assert_eq!(rare * 5, exact * 3);
    let trained = train_compared(&config, 2, delayed(8));
    assert_eq!(saved_steps(&trained[0]), [0, 5, 10, 15, 20]);
    let evaluated = trained[0].events.iter().filter_map(|event| match event {
        RunEvent::Evaluation { step, .. } => Some(*step),
        _ => None,
    });
    let evaluated: Vec<u64> = evaluated.collect();
    assert!(!evaluated.is_empty() && evaluated.iter().all(|step| step % ROUND == 0));
    assert_eq!(evaluated.last(), Some(&STEPS));
    let saved = trained[0].saved_steps();
    let mut reasons = saved.iter().map(|(_, reason)| *reason);
    assert!(reasons.any(|reason| reason != CheckpointReason::Stop));
}

#[test]
fn combinations_without_a_meaning_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let config = RunConfig {
        precision: Some(PrecisionChoice::F32),
        ..rarely(of_images(folder.path()))
    };
    let data = config.folder.clone().unwrap();
    let (images, texts) = (InspectOptions::default(), TextOptions::default());
    let found = detect(&data, &images, &texts, &|_| {}).unwrap();
    let refused = |config: RunConfig| {
        let error = Plan::resolve(&config, &found).err();
        error.map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(refused(config.clone()), "");
    let bf16 = RunConfig {
        exchange: Some(ExchangeChoice::Bf16),
        ..config.clone()
    };
    let sharded = RunConfig {
        sharding: Some(ShardingChoice::Optimizer),
        ..config.clone()
    };
    let scaled = RunConfig {
        precision: Some(PrecisionChoice::F16),
        ..config.clone()
    };
    let bytes = RunConfig {
        optimizer: Some(OptimizerChoice::AdamW8bit),
        ..config.clone()
    };
    for (config, named) in [
        (bf16.clone(), "--exchange bf16"),
        (sharded, "--sharding optimizer"),
        (scaled, "--precision f16"),
        (bytes, "--optimizer adamw8bit"),
    ] {
        let message = refused(config);
        assert!(
            message.contains("sync_every") && message.contains(named),
            "{message}"
        );
    }
    let exact = RunConfig {
        sync_every: Some(1),
        ..bf16
    };
    assert_eq!(refused(exact), "");
}
