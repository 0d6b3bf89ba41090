//! Several ranks train one run: whatever they claim, the weights and losses are those of a run on
//! one machine. Differences between the ranks are named before the first step.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::distributed_runs::{
    PATIENCE, SAVED_STEPS, STEPS, Session, Trained, Turns, delayed, distance, images, in_group,
    in_turns, of_documents, of_images, of_steps_of_tokens, of_texts, resume_in_group, train,
    train_session, train_with, write_short_memory,
};
use dataset::{InspectOptions, TextOptions, detect};
use distributed::{ThreadOptions, ThreadRank, thread_ranks};
use runlog::{CheckpointInterval, RunConfig, RunEvent, RunFolder, StopReason};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use trainer::internals::{ImageSample, ImageTask, PrefetchOptions, Task, TrainLoader};
use trainer::{Control, Plan, Request, RunGroup, RunOutcome};

/// Largest fixed micro-batch that a rank processes without having measured its memory before.
const UNPROBED_MICRO_BATCH: u32 = 2;

/// The largest difference of the loss of a step, as a fraction of the loss of `alone`.
fn worst_difference(rank: &Trained, alone: &Trained) -> f64 {
    let losses = rank.losses().into_iter().zip(alone.losses());
    losses.map(|(a, b)| (a - b).abs() / b).fold(0.0, f64::max)
}

/// Trains alone, and in groups of 2 and 3 ranks with different micro-batches and seeded delays.
#[track_caller]
fn check_equality(name: &str, config: RunConfig) {
    let config = RunConfig {
        checkpoint_every: Some(CheckpointInterval::Steps(SAVED_STEPS)),
        keep_checkpoints: Some(100),
        ..config
    };
    let alone = train(&config, RunGroup::default(), Control::default());
    assert_eq!(alone.outcome.as_ref().unwrap().step, STEPS);
    let last = alone.weights(STEPS);
    let way = distance(&alone.weights(SAVED_STEPS), &last);
    for (seed, micro_batches) in [(1, &[2, 3][..]), (2, &[1, 4]), (3, &[3, 1, 2])] {
        let of_rank = |micro_batch: &u32| RunConfig {
            micro_batch: Some(*micro_batch),
            ..config.clone()
        };
        let configs: Vec<RunConfig> = micro_batches.iter().map(of_rank).collect();
        let ranks = in_turns(&configs, delayed(seed), Turns::Together);
        for rank in &ranks {
            assert_eq!(rank.outcome.as_ref().unwrap().reason, StopReason::Finished);
            assert_eq!(
                rank.losses(),
                ranks[0].losses(),
                "all ranks see the same losses"
            );
        }
        // Every rank works in every full step, rank 0 too: no rank begins before all have claimed
        // something. (If they do not meet, rank 0 may find nothing left, because it saves between
        // two steps: `a_rank_that_comes_late_to_a_step_is_not_waited_for`.) A rank with a larger
        // micro-batch measures its memory once, and gives these samples back.
        for (rank, micro_batch) in ranks.iter().zip(micro_batches) {
            let most = u64::from(*micro_batch > UNPROBED_MICRO_BATCH);
            let idle = rank.idle;
            assert!(
                idle <= most,
                "micro-batch {micro_batch}: idle in {idle} full steps"
            );
        }
        let drift = distance(&ranks[0].weights(STEPS), &last) / way;
        let worst = worst_difference(&ranks[0], &alone);
        println!(
            "{name}, micro-batches {micro_batches:?}: weights differ by {drift:.1e} of the way, losses by {worst:.1e}, {} micro-batches",
            ranks[0].micro_batches()
        );
        assert!(way > 0.0 && drift <= 1e-12, "{name}: {drift:e}");
        assert!(worst <= 1e-12, "{name}: {worst:e}");
        let others = ranks.iter().skip(1);
        assert!(
            others
                .clone()
                .all(|rank| rank.run.checkpoints().unwrap().is_empty())
        );
        let evaluations = |rank: &Trained| {
            let is_one = |event: &&RunEvent| matches!(event, RunEvent::Evaluation { .. });
            rank.events.iter().filter(is_one).count()
        };
        assert_eq!(evaluations(&ranks[0]), evaluations(&alone));
        assert!(others.clone().all(|rank| evaluations(rank) == 0));
    }
}

#[test]
fn a_group_trains_images_as_one_machine() {
    let folder = tempfile::tempdir().unwrap();
    check_equality("images", of_images(folder.path()));
}

#[test]
fn a_group_trains_texts_as_one_machine() {
    let folder = tempfile::tempdir().unwrap();
    check_equality("texts", of_texts(folder.path()));
}

#[test]
fn a_group_trains_documents_as_one_machine() {
    let folder = tempfile::tempdir().unwrap();
    check_equality("documents", of_documents(folder.path()));
}

/// The samples of each step.
fn samples_of_steps(trained: &Trained) -> Vec<u32> {
    let samples = trained.events.iter().filter_map(|event| match event {
        RunEvent::Step {
            micro_batches,
            ledger,
            ..
        } if ledger.is_empty() => Some(micro_batches.iter().sum()),
        RunEvent::Step { ledger, .. } => Some(ledger.iter().map(|(_, _, count)| count).sum()),
        _ => None,
    });
    samples.collect()
}

#[test]
fn a_group_trains_steps_of_tokens_as_one_machine() {
    let folder = tempfile::tempdir().unwrap();
    let config = RunConfig {
        steps: None,
        epochs: Some(2),
        ..of_steps_of_tokens(folder.path())
    };
    let alone = train(&config, RunGroup::default(), Control::default());
    let samples = samples_of_steps(&alone);
    let started = alone.events.iter().find_map(|event| match event {
        RunEvent::Started(started) => Some(started),
        _ => None,
    });
    let started = started.unwrap();
    // The schedule knows the number of steps, which follows from the tokens.
    assert_eq!(samples.len() as u64, started.steps);
    assert_eq!(started.steps, 2 * started.steps_per_epoch);
    let (first, second) = samples.split_at(samples.len() / 2);
    for epoch in [first, second] {
        assert_eq!(
            epoch.iter().map(|n| u64::from(*n)).sum::<u64>(),
            started.train_samples
        );
    }
    assert!(samples.iter().min() < samples.iter().max(), "{samples:?}");
    for (seed, micro_batches) in [(1, &[2, 3][..]), (2, &[3, 1, 2])] {
        let of_rank = |micro_batch: &u32| RunConfig {
            micro_batch: Some(*micro_batch),
            ..config.clone()
        };
        let configs: Vec<RunConfig> = micro_batches.iter().map(of_rank).collect();
        let ranks = in_group(&configs, delayed(seed));
        assert!(ranks.iter().all(|rank| rank.outcome.is_ok()));
        assert_eq!(samples_of_steps(&ranks[0]), samples);
        let worst = worst_difference(&ranks[0], &alone);
        println!("steps of tokens, micro-batches {micro_batches:?}: losses differ by {worst:.1e}");
        assert!(worst <= 1e-12, "{worst:e}");
    }
}

#[test]
fn a_resumed_run_trains_the_same_steps_of_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let config = of_steps_of_tokens(folder.path());
    let whole = train(&config, RunGroup::default(), Control::default());
    let stopping = |stops_at| Session {
        stops_at,
        ..Session::default()
    };
    let begun = train_session(&config, RunGroup::default(), stopping(Some(6)), &mut |_| {});
    let ranks = resume_in_group(&begun.run, vec![stopping(Some(13)), stopping(None)]);
    let resumed = Session {
        resumes: Some(begun.run.clone()),
        ..Session::default()
    };
    let last = train_session(&config, RunGroup::default(), resumed, &mut |_| {});
    let parts = [&begun, &ranks[0], &last];
    let samples: Vec<Vec<u32>> = parts.iter().map(|part| samples_of_steps(part)).collect();
    assert_eq!(samples.iter().map(Vec::len).collect::<Vec<_>>(), [6, 7, 7]);
    assert_eq!(samples.concat(), samples_of_steps(&whole));
    let losses = parts.iter().flat_map(|part| part.losses());
    for (a, b) in losses.zip(whole.losses()) {
        assert!((a - b).abs() <= 1e-12 * b, "{a} {b}");
    }
}

#[test]
fn a_rank_that_comes_late_to_a_step_is_not_waited_for() {
    // Rank 0 saves after each step. Until it is done, the others process the next step.
    let folder = tempfile::tempdir().unwrap();
    let config = of_texts(folder.path());
    let alone = train(&config, RunGroup::default(), Control::default());
    let configs = vec![config; 3];
    let ranks = in_turns(&configs, delayed(11), Turns::Rank0Last);
    assert!(ranks.iter().all(|rank| rank.outcome.is_ok()));
    // In the first step, a rank that measures its memory may give samples back.
    let (first, others) = ranks.split_first().unwrap();
    assert!(first.idle + 3 >= STEPS, "the others have left it nothing");
    let of_others: u32 = others.iter().map(|rank| rank.confirmed).sum();
    assert_eq!(of_others + first.confirmed, first.processed());
    let worst = worst_difference(&ranks[0], &alone);
    assert!(worst <= 1e-12, "{worst:e}");
}

#[test]
fn automatic_micro_batches_train_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let config = RunConfig {
        micro_batch: None,
        checkpoint_every: Some(CheckpointInterval::Steps(STEPS)),
        ..of_images(folder.path())
    };
    let alone = train(&config, RunGroup::default(), Control::default());
    let ranks = in_group(&[config.clone(), config], delayed(4));
    let drift = distance(&ranks[0].weights(STEPS), &alone.weights(STEPS));
    assert!(drift < 1e-9, "{drift}");
}

#[test]
fn the_first_difference_between_ranks_is_named() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = of_images(here.path());
    let copy = of_images(there.path());
    let with = |other: RunConfig| in_group(&[config.clone(), config.clone(), other], delayed(5));
    let check = |ranks: Vec<Trained>, parts: &[&str]| {
        for rank in &ranks {
            let error = rank.error();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
            assert!(
                rank.events.is_empty(),
                "no event of a run that did not begin"
            );
        }
    };
    let other_rate = RunConfig {
        learning_rate: Some(0.02),
        ..config.clone()
    };
    check(
        with(other_rate),
        &[
            "the machines disagree: the first setting that differs is `learning_rate = ",
            "`learning_rate = 0.02` at rank 2 (",
        ],
    );
    // A copy of the folder elsewhere is the same dataset.
    let ranks = with(copy.clone());
    assert!(ranks.iter().all(|rank| rank.outcome.is_ok()));
    image::RgbImage::new(16, 17)
        .save(there.path().join("birds/owl/3.png"))
        .unwrap();
    check(
        with(copy),
        &[
            "the first entry of the dataset that differs is",
            "owl/3.png",
        ],
    );
}

#[test]
fn a_stop_at_any_rank_stops_all_after_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let config = RunConfig {
        steps: Some(1_000_000),
        ..of_images(folder.path())
    };
    for stopped in 0..2 {
        let ranks = thread_ranks(2, delayed(6)).into_iter().enumerate();
        let has_trained = &AtomicBool::new(false);
        let trained: Vec<Trained> = std::thread::scope(|scope| {
            let start = |(index, rank): (usize, ThreadRank)| {
                let (config, control) = (config.clone(), Control::default());
                if index == stopped {
                    let control = control.clone();
                    scope.spawn(move || {
                        let began = Instant::now();
                        while !has_trained.load(Ordering::Relaxed) && began.elapsed() < PATIENCE {
                            std::thread::sleep(Duration::from_millis(10));
                        }
                        control.send(Request::Stop);
                    });
                }
                scope.spawn(move || {
                    let session = Session {
                        control,
                        ..Session::default()
                    };
                    let group = RunGroup::new(rank.join().unwrap());
                    train_session(&config, group, session, &mut |event| {
                        if matches!(event, RunEvent::Step { step: 5.., .. }) {
                            has_trained.store(true, Ordering::Relaxed);
                        }
                    })
                })
            };
            let threads: Vec<_> = ranks.map(start).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        let outcomes: Vec<RunOutcome> = trained
            .iter()
            .map(|rank| *rank.outcome.as_ref().unwrap())
            .collect();
        assert!(
            outcomes
                .iter()
                .all(|outcome| outcome.reason == StopReason::Requested)
        );
        assert!(outcomes[0].step > 0 && outcomes[0].step == outcomes[1].step);
        let saved = trained[0].run.checkpoints().unwrap();
        assert!(saved.iter().any(|saved| saved.step == outcomes[0].step));
    }
}

#[test]
fn an_error_of_one_rank_ends_the_run_and_names_the_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let config = RunConfig {
        steps: Some(1_000_000),
        ..of_images(folder.path())
    };
    // Rank 1 stops to answer after some steps.
    let options = ThreadOptions {
        silence: Duration::from_secs(2),
        death: Some((1, 200)),
        ..ThreadOptions::default()
    };
    let ranks = in_group(&[config.clone(), config], options);
    let error = ranks[0].error();
    let saved = ranks[0].run.checkpoints().unwrap();
    let newest = saved.iter().map(|saved| saved.step).max().unwrap();
    let named = RunFolder::checkpoint_name(newest);
    assert!(
        error.contains("rank 1 (") && error.contains("has not answered for"),
        "{error}"
    );
    assert!(
        error.contains(&named) && error.contains("ebb resume"),
        "{error}"
    );
    let last = ranks[0].events.last();
    assert!(
        matches!(last, Some(RunEvent::Failed { code, .. }) if code == "group"),
        "{last:?}"
    );
    assert!(newest > 0);
}

#[test]
fn selected_samples_are_those_of_the_step() {
    let folder = tempfile::tempdir().unwrap();
    let config = of_images(folder.path());
    let data = config.folder.as_ref().unwrap();
    let found = detect(
        data,
        &InspectOptions::default(),
        &TextOptions::default(),
        &|_| {},
    );
    let found = found.unwrap();
    let plan = Plan::resolve(&config, &found).unwrap();
    let run = RunFolder {
        path: folder.path().to_owned(),
    };
    let data = ImageTask::open(&plan, &found, &run).unwrap();
    for workers in [0, 2] {
        let options = PrefetchOptions::new(&plan, workers, 0);
        let mut in_order = ImageTask::train_loader(&plan, &data, options, 0);
        let mut selecting = ImageTask::train_loader(&plan, &data, options, 0);
        selecting.select(0..0, 0..0);
        for step in 0..2 {
            let count = in_order.begin(step);
            assert_eq!(selecting.begin(step), count);
            let pixels = |samples: Vec<_>| -> Vec<(u32, Vec<u8>)> {
                let samples = samples.into_iter().map(std::result::Result::unwrap);
                samples
                    .map(|sample: ImageSample| (sample.index, sample.pixels))
                    .collect()
            };
            let expected = pixels(in_order.fetch(count));
            // In advance, from the back, and again after they were given back.
            for (range, ahead) in [(0..2, 2..4), (2..3, 3..4), (5..7, 0..0), (2..4, 4..5)] {
                selecting.select(range.clone(), ahead);
                let found = pixels(selecting.fetch(range.len()));
                assert!(found == expected[range.clone()], "{range:?} of step {step}");
            }
        }
    }
}

/// Trains a run alone to step 6, in a group to step 13, and alone to the end.
fn check_resumption(name: &str, config: &RunConfig) {
    let whole = train(config, RunGroup::default(), Control::default());
    let stopping = |stops_at| Session {
        stops_at,
        ..Session::default()
    };
    let begun = train_session(config, RunGroup::default(), stopping(Some(6)), &mut |_| {});
    assert_eq!(begun.outcome.as_ref().unwrap().step, 6);
    let sessions = vec![stopping(Some(13)), stopping(None), stopping(None)];
    let ranks = resume_in_group(&begun.run, sessions);
    for rank in &ranks {
        assert_eq!(rank.outcome.as_ref().unwrap().step, 13, "{name}");
        assert_eq!(rank.losses(), ranks[0].losses());
    }
    let last = Session {
        resumes: Some(begun.run.clone()),
        ..Session::default()
    };
    let last = train_session(config, RunGroup::default(), last, &mut |_| {});
    assert_eq!(last.outcome.as_ref().unwrap().step, STEPS);
    let (expected, found) = (whole.weights(STEPS), last.weights(STEPS));
    let way = distance(&whole.weights(SAVED_STEPS), &expected);
    let drift = distance(&found, &expected) / way;
    println!("{name}, resumed in a group and alone: weights differ by {drift:.1e} of the way");
    assert!(way > 0.0 && drift <= 1e-12, "{name}: {drift:e}");
    let group = runlog::read_events(&begun.run.events_path()).unwrap();
    let named = group
        .iter()
        .any(|event| matches!(event, RunEvent::Group { members, .. } if members.len() == 3));
    assert!(named, "the events name the group");
}

#[test]
fn a_run_goes_on_in_a_group_and_alone_again() {
    let folder = tempfile::tempdir().unwrap();
    let saving = |config: RunConfig| RunConfig {
        checkpoint_every: Some(CheckpointInterval::Steps(SAVED_STEPS)),
        keep_checkpoints: Some(100),
        ..config
    };
    check_resumption("images", &saving(of_images(folder.path())));
    check_resumption("texts", &saving(of_texts(folder.path())));
    check_resumption("documents", &saving(of_documents(folder.path())));
}

#[test]
fn a_rank_without_the_samples_is_refused_before_it_trains() {
    let folder = tempfile::tempdir().unwrap();
    let config = of_images(folder.path());
    let stopping = Session {
        stops_at: Some(3),
        ..Session::default()
    };
    let begun = train_session(&config, RunGroup::default(), stopping, &mut |_| {});
    let copy = tempfile::tempdir().unwrap();
    images(copy.path());
    let at = |folder: PathBuf| Session {
        data_folder: Some(folder),
        stops_at: Some(5),
        ..Session::default()
    };
    let copied = copy.path().join("birds");
    let ranks = resume_in_group(
        &begun.run,
        vec![
            Session {
                stops_at: Some(5),
                ..Session::default()
            },
            at(copied.clone()),
        ],
    );
    assert_eq!(ranks[0].outcome.as_ref().unwrap().step, 5);
    // A changed file is named.
    image::RgbImage::new(3, 3)
        .save(copied.join("owl/4.png"))
        .unwrap();
    let ranks = resume_in_group(&begun.run, vec![Session::default(), at(copied.clone())]);
    for rank in &ranks {
        let error = rank.error();
        assert!(error.contains("owl/4.png"), "{error}");
    }
    std::fs::remove_file(copied.join("owl/4.png")).unwrap();
    let ranks = resume_in_group(&begun.run, vec![Session::default(), at(copied)]);
    assert!(
        ranks[1].error().contains("owl/4.png"),
        "{}",
        ranks[1].error()
    );
    assert!(
        ranks[0].error().contains("rank 1 ("),
        "{}",
        ranks[0].error()
    );
}

#[test]
fn a_run_that_another_process_trains_is_refused_at_all_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let config = of_images(folder.path());
    let stopping = Session {
        stops_at: Some(3),
        ..Session::default()
    };
    let begun = train_session(&config, RunGroup::default(), stopping, &mut |_| {});
    let before = std::fs::read(begun.run.events_path()).unwrap();
    let claim = begun.run.claim().unwrap();
    let ranks = resume_in_group(&begun.run, vec![Session::default(), Session::default()]);
    drop(claim);
    let error = ranks[0].error();
    let named = ranks[1].error();
    assert!(
        named.contains("rank 0 (") && named.contains(&error),
        "{error} {named}"
    );
    let after = std::fs::read(begun.run.events_path()).unwrap();
    assert!(before == after, "the run is not touched");
}

/// A rank whose memory is short for a while, as the script says.
pub(crate) fn train_short_of_memory(config: &RunConfig, rank: ThreadRank, script: PathBuf) {
    let group = RunGroup::new(rank.join().unwrap());
    train_with(config, group, Some(script));
}

/// Trains as rank 0 until rank 1 was suspended and works again.
pub(crate) fn train_until_return(config: &RunConfig, rank: ThreadRank) -> Trained {
    let control = Control::default();
    let session = Session {
        control: control.clone(),
        ..Session::default()
    };
    let (mut was_suspended, began) = (false, Instant::now());
    let group = RunGroup::new(rank.join().unwrap());
    train_session(config, group, session, &mut |event| {
        if let RunEvent::Machines { machines, .. } = event {
            let rank_1 = &machines[1];
            was_suspended |= rank_1.is_suspended;
            let works = was_suspended && !rank_1.is_suspended && rank_1.samples > 0;
            if works || began.elapsed() > PATIENCE {
                control.send(Request::Stop);
            }
        }
    })
}

#[test]
fn a_suspended_rank_frees_its_weights_and_returns() {
    let folder = tempfile::tempdir().unwrap();
    let config = RunConfig {
        steps: Some(1_000_000),
        keep_checkpoints: Some(100),
        // The controller suspends only what it may also make smaller.
        micro_batch: None,
        ..of_images(folder.path())
    };
    let script = folder.path().join("script");
    write_short_memory(&script);
    let mut ranks = thread_ranks(2, ThreadOptions::default()).into_iter();
    let (first, second) = (ranks.next().unwrap(), ranks.next().unwrap());
    let group = std::thread::scope(|scope| {
        scope.spawn(|| train_short_of_memory(&config, second, script));
        train_until_return(&config, first)
    });
    let last = group.outcome.as_ref().unwrap().step;
    let messages = group.events.iter().filter_map(|event| match event {
        RunEvent::Machine {
            rank: 1, message, ..
        } => Some(message.as_str()),
        _ => None,
    });
    let messages: Vec<&str> = messages.collect();
    let suspended = |event: &RunEvent| matches!(event, RunEvent::Machines { machines, .. } if machines[1].is_suspended && !machines[0].is_suspended);
    assert!(group.events.iter().any(suspended), "{messages:?}");
    assert!(
        messages.iter().any(|m| m.contains("uspend")),
        "{messages:?}"
    );
    let newest = group.events.iter().rev().find_map(|event| match event {
        RunEvent::Machines { machines, .. } => Some(machines[1].is_suspended),
        _ => None,
    });
    assert_eq!(newest, Some(false), "rank 1 returned: {messages:?}");
    let session = Session {
        stops_at: Some(last),
        ..Session::default()
    };
    let alone = train_session(&config, RunGroup::default(), session, &mut |_| {});
    let (expected, found) = (alone.weights(last), group.weights(last));
    let way = distance(&group.weights(0), &expected);
    let drift = distance(&found, &expected) / way;
    println!("suspended and returned in {last} steps: weights differ by {drift:.1e} of the way");
    assert!(drift <= 1e-12, "{drift:e}");
}

#[test]
fn a_sample_that_one_rank_cannot_read_is_processed_by_rank_0() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (config, copy) = (of_images(here.path()), of_images(there.path()));
    let damaged = there.path().join("birds/owl/3.png");
    let mut bytes = std::fs::read(&damaged).unwrap();
    // The header stays valid, so the inspection accepts the file.
    bytes[40..].fill(0);
    std::fs::write(&damaged, bytes).unwrap();
    let alone = train(&config, RunGroup::default(), Control::default());
    let ranks = in_group(&[config, copy], delayed(8));
    assert!(ranks.iter().all(|rank| rank.outcome.is_ok()));
    let worst = worst_difference(&ranks[0], &alone);
    assert!(worst <= 1e-12, "{worst:e}");
    let named = ranks[0].events.iter().any(|event| {
        matches!(event, RunEvent::Machine { rank: 1, message, .. } if message.contains("owl/3.png"))
    });
    assert!(named && ranks[1].confirmed > 0);
    let skipped = |event: &RunEvent| matches!(event, RunEvent::Skipped { .. });
    assert!(!ranks[0].events.iter().any(skipped));
}

#[test]
fn more_ranks_than_samples_train_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let config = RunConfig {
        effective_batch: Some(2),
        ..of_images(folder.path())
    };
    let alone = train(&config, RunGroup::default(), Control::default());
    let configs = vec![config; 4];
    let ranks = in_group(&configs, delayed(10));
    let worst = worst_difference(&ranks[0], &alone);
    assert!(
        ranks.iter().all(|rank| rank.outcome.is_ok()) && worst <= 1e-12,
        "{worst:e}"
    );
}
