//! Ranks that exchange gradients in bf16: they have the same weights after every step, the run
//! stays close to one that exchanges f32, and a resumed run continues in the same bits.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::distributed_runs::{
    INTERRUPTED, SAVED_STEPS, STEPS, delayed, distance, each_rank, ledgers, of_documents,
    of_images, of_texts, resume_halfway, saving_every, train, train_compared, train_replay,
    train_shared, write_short_memory,
};
use crate::distributed_training::{train_short_of_memory, train_until_return};
use dataset::{InspectOptions, TextOptions, detect};
use distributed::{ThreadOptions, thread_ranks};
use runlog::{ExchangeChoice, PrecisionChoice, RunConfig, RunEvent, StopReason};
use trainer::{Control, Plan, Replay, RunGroup};

/// A config in f32 whose ranks exchange gradients in `exchange`. Between two checkpoints, rounding
/// errors are carried on.
fn exchanging(exchange: ExchangeChoice, config: RunConfig) -> RunConfig {
    RunConfig {
        precision: Some(PrecisionChoice::F32),
        exchange: Some(exchange),
        ..saving_every(SAVED_STEPS, config)
    }
}

#[track_caller]
fn check_closeness(name: &str, config: RunConfig, sizes: &[usize]) {
    let exact = exchanging(ExchangeChoice::F32, config.clone());
    let exact = train(&exact, RunGroup::default(), Control::default());
    let last = exact.weights(STEPS);
    let way = distance(&exact.weights(SAVED_STEPS), &last);
    let rounded = exchanging(ExchangeChoice::Bf16, config);
    for &size in sizes {
        let ranks = train_compared(&rounded, size, delayed(size as u64));
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
    check_closeness("images", of_images(folder.path()), &[2, 3]);
    check_closeness("texts", of_texts(folder.path()), &[2]);
    check_closeness("documents", of_documents(folder.path()), &[3]);
}

#[test]
fn a_resumed_run_that_exchanges_bf16_continues_in_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let config = exchanging(ExchangeChoice::Bf16, of_documents(folder.path()));
    let whole = train_compared(&config, 3, delayed(3));
    assert_eq!(whole[0].outcome.as_ref().unwrap().step, STEPS);
    let ended = resume_halfway(&config, &whole[0]);
    for step in [INTERRUPTED + SAVED_STEPS, STEPS] {
        let same = ended.weights(step) == whole[0].weights(step);
        assert!(same, "the weights after step {step}");
    }
    let exact = exchanging(ExchangeChoice::F32, config);
    let exact = train_shared(&exact, &ledgers(&whole[0]), None, None);
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
    let recorded = train_compared(&config, 2, delayed(4));
    let replay = Replay::from_events(&recorded[0].events);
    let configs = vec![config.clone(); 2];
    let ranks = each_rank(&configs, delayed(5), &|group, config| {
        let replay = (group.rank() == 0).then(|| replay.clone());
        train_replay(config, RunGroup::new(group), replay)
    });
    let error = ranks[0].error();
    assert!(error.contains("--exchange f32"), "{error}");
}
