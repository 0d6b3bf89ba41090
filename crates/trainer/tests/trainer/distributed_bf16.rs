//! Ranks that exchange gradients in bf16: they have the same weights after every step, the run
//! stays close to one that exchanges f32, and a resumed run continues in the same bits.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::distributed_runs::{
    STEPS, Session, Trained, delayed, distance, each_rank, of_documents, of_images, of_texts,
    train, train_replay, train_session, write_short_memory,
};
use crate::distributed_training::{train_short_of_memory, train_until_return};
use dataset::{InspectOptions, TextOptions, detect};
use distributed::{Share, ThreadOptions, ThreadRank, thread_ranks};
use runlog::{
    CheckpointInterval, ExchangeChoice, PrecisionChoice, RunConfig, RunEvent, RunFolder, StopReason,
};
use trainer::{Control, Plan, Replay, RunGroup};

/// The interval between checkpoints, in steps: between two of them, rounding errors are carried on.
const SAVED_STEPS: u64 = 5;
/// After this step, a run is interrupted.
const INTERRUPTED: u64 = 10;

/// A config in f32 whose ranks exchange gradients in `exchange`.
fn exchanging(exchange: ExchangeChoice, config: RunConfig) -> RunConfig {
    RunConfig {
        precision: Some(PrecisionChoice::F32),
        exchange: Some(exchange),
        checkpoint_every: Some(CheckpointInterval::Steps(SAVED_STEPS)),
        keep_checkpoints: Some(100),
        ..config
    }
}

/// Trains in a group that compares all weights of all ranks after every step.
fn train_compared(config: &RunConfig, size: usize, seed: u64) -> Vec<Trained> {
    let configs = vec![config.clone(); size];
    each_rank(&configs, delayed(seed), &|group, config| {
        let group = RunGroup::new(group).comparing_weights_every(1);
        train(config, group, Control::default())
    })
}

#[track_caller]
fn check_closeness(name: &str, config: RunConfig) {
    let exact = exchanging(ExchangeChoice::F32, config.clone());
    let exact = train(&exact, RunGroup::default(), Control::default());
    let last = exact.weights(STEPS);
    let way = distance(&exact.weights(SAVED_STEPS), &last);
    let rounded = exchanging(ExchangeChoice::Bf16, config);
    for (seed, size) in [(1, 2), (2, 3)] {
        let ranks = train_compared(&rounded, size, seed);
        for rank in &ranks {
            let reason = rank.outcome.as_ref().map(|outcome| outcome.reason);
            assert_eq!(reason.ok(), Some(StopReason::Finished), "{}", rank.error());
            assert_eq!(rank.losses(), ranks[0].losses());
        }
        let drift = distance(&ranks[0].weights(STEPS), &last) / way;
        let losses = ranks[0].losses().into_iter().zip(exact.losses());
        let worst = losses.map(|(a, b)| (a - b).abs() / b.max(0.1));
        let worst = worst.fold(0.0, f64::max);
        println!(
            "{name}, {size} ranks that exchange bf16: weights differ by {drift:.1e} of the way, losses by {worst:.1e}"
        );
        assert!(drift > 0.0 && drift <= 0.05, "{name}: {drift:e}");
        assert!(worst <= 0.005, "{name}: {worst:e}");
        let named = ranks[0].events.iter().any(|event| {
            matches!(event, RunEvent::Group { message, .. } if message.ends_with("; gradients are exchanged in bf16"))
        });
        assert!(named, "the events name the data type");
    }
}

#[test]
fn ranks_that_exchange_bf16_stay_equal_and_close_to_one_machine() {
    let folder = tempfile::tempdir().unwrap();
    check_closeness("images", of_images(folder.path()));
    check_closeness("texts", of_texts(folder.path()));
    check_closeness("documents", of_documents(folder.path()));
}

/// Which rank processed which samples of each step.
pub(crate) fn ledgers(trained: &Trained) -> Vec<Vec<Share>> {
    let share = |&(rank, first, count): &(u32, u32, u32)| Share {
        rank: rank as usize,
        samples: first..first + count,
    };
    let ledger = |event: &RunEvent| match event {
        RunEvent::Step { ledger, .. } => Some(ledger.iter().map(share).collect()),
        _ => None,
    };
    trained.events.iter().filter_map(ledger).collect()
}

/// Trains in three ranks that share the samples as the ledgers say.
pub(crate) fn train_shared(
    config: &RunConfig,
    ledgers: &[Vec<Share>],
    resumes: Option<&RunFolder>,
    stops_at: Option<u64>,
) -> Vec<Trained> {
    std::thread::scope(|scope| {
        let start = |rank: ThreadRank| {
            scope.spawn(move || {
                let mut group = rank.join().unwrap();
                if group.rank() == 0 {
                    group.replay(ledgers.to_vec());
                }
                let session = Session {
                    resumes: resumes.cloned(),
                    stops_at,
                    ..Session::default()
                };
                let group = RunGroup::new(group).comparing_weights_every(1);
                train_session(config, group, session, &mut |_| {})
            })
        };
        let ranks = thread_ranks(3, delayed(7)).into_iter();
        let threads: Vec<_> = ranks.map(start).collect();
        let trained = threads.into_iter().map(|thread| thread.join().unwrap());
        trained.collect()
    })
}

#[test]
fn a_resumed_run_that_exchanges_bf16_continues_in_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let config = exchanging(ExchangeChoice::Bf16, of_documents(folder.path()));
    let whole = train_compared(&config, 3, 3);
    assert_eq!(whole[0].outcome.as_ref().unwrap().step, STEPS);
    let ledgers = ledgers(&whole[0]);
    assert_eq!(ledgers.len() as u64, STEPS);
    let begun = train_shared(&config, &ledgers, None, Some(INTERRUPTED));
    assert_eq!(begun[0].outcome.as_ref().unwrap().step, INTERRUPTED);
    let (done, rest) = ledgers.split_at(INTERRUPTED as usize);
    let ended = train_shared(&config, rest, Some(&begun[0].run), None);
    assert_eq!(ended[0].outcome.as_ref().unwrap().step, STEPS);
    let losses = whole[0].losses();
    assert_eq!(begun[0].losses(), losses[..done.len()]);
    assert_eq!(ended[0].losses(), losses[done.len()..]);
    for step in [INTERRUPTED + SAVED_STEPS, STEPS] {
        let same = ended[0].weights(step) == whole[0].weights(step);
        assert!(same, "the weights after step {step}");
    }
    let exact = exchanging(ExchangeChoice::F32, config);
    let exact = train_shared(&exact, &ledgers, None, None);
    assert!(exact[0].weights(STEPS) != whole[0].weights(STEPS));
}

#[test]
fn a_suspended_rank_returns_to_ranks_that_exchange_bf16() {
    let folder = tempfile::tempdir().unwrap();
    let config = RunConfig {
        steps: Some(1_000_000),
        // The controller suspends only what it may also make smaller.
        micro_batch: None,
        checkpoint_every: None,
        ..exchanging(ExchangeChoice::Bf16, of_images(folder.path()))
    };
    let script = folder.path().join("script");
    write_short_memory(&script);
    let mut ranks = thread_ranks(2, ThreadOptions::default()).into_iter();
    let (first, second) = (ranks.next().unwrap(), ranks.next().unwrap());
    let trained = std::thread::scope(|scope| {
        scope.spawn(|| train_short_of_memory(&config, second, script));
        train_until_return(&config, first)
    });
    assert!(trained.outcome.is_ok(), "{}", trained.error());
    assert!(trained.has_suspended());
    let newest = trained.events.iter().rev().find_map(|event| match event {
        RunEvent::Machines { machines, .. } => Some(machines[1].is_suspended),
        _ => None,
    });
    assert_eq!(newest, Some(false), "rank 1 returned");
    assert!(trained.losses().iter().all(|loss| loss.is_finite()));
}

#[test]
fn precisions_and_replays_that_bf16_would_break_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let config = exchanging(ExchangeChoice::Bf16, of_images(folder.path()));
    let data = config.folder.clone().unwrap();
    let (images, texts) = (InspectOptions::default(), TextOptions::default());
    let found = detect(&data, &images, &texts, &|_| {}).unwrap();
    for (precision, is_allowed) in [
        (PrecisionChoice::F32, true),
        (PrecisionChoice::Bf16, true),
        (PrecisionChoice::F16, false),
        (PrecisionChoice::F64, false),
    ] {
        let config = RunConfig {
            precision: Some(precision),
            ..config.clone()
        };
        let refused = Plan::resolve(&config, &found).err();
        let message = refused.map(|error| error.to_string());
        assert_eq!(message.is_none(), is_allowed, "{message:?}");
        let names_it = message.is_none_or(|message| message.contains("exchange"));
        assert!(names_it);
    }
    let recorded = train_compared(&config, 2, 4);
    let replay = Replay::from_events(&recorded[0].events);
    let configs = vec![config.clone(); 2];
    let ranks = each_rank(&configs, delayed(5), &|group, config| {
        let replay = (group.rank() == 0).then(|| replay.clone());
        train_replay(config, RunGroup::new(group), replay)
    });
    let error = ranks[0].error();
    assert!(error.contains("--exchange f32"), "{error}");
}
