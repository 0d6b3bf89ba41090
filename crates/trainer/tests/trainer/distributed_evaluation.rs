//! Rank 0 of a group evaluates alone while the others begin the next step. It may then not go back
//! to an earlier step, even if its memory is short.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::distributed_runs::{
    STEPS, Session, Trained, delayed, distance, each_rank, of_images, train, train_session,
    write_memory,
};
use pressure::{Action, Phase};
use runlog::{BaselineChoice, CheckpointInterval, RunConfig, RunEvent, RunFolder};
use std::path::{Path, PathBuf};
use trainer::{Control, Machine, MemoryScript, RunGroup, ScriptBy};

/// The run begins on one machine. The group resumes it after this step.
const BEGUN: u64 = 2;

/// A run whose decisions are mostly those of evaluations, so that memory is short in some of them.
fn evaluated_often(folder: &Path) -> RunConfig {
    RunConfig {
        checkpoint_every: Some(CheckpointInterval::Steps(1000)),
        keep_checkpoints: Some(100),
        baseline: Some(BaselineChoice::None),
        // The controller suspends only what it may also make smaller.
        micro_batch: None,
        effective_batch: Some(4),
        held_out_fraction: Some(0.7),
        evaluation_batch: Some(1),
        ..of_images(folder)
    }
}

/// Memory that other apps take completely, again and again, without a warning.
fn write_sudden_shortages(path: &Path) {
    let (total, calm) = (8_000_000_000u64, 1_000_000_000u64);
    let period = || std::iter::repeat_n(calm, 30).chain([total; 10]);
    let others = (0..40).flat_map(|_| period());
    write_memory(path, total, others.chain([calm; 5000]));
}

/// Resumes the run in two ranks, the first one with the memory of the script.
fn resume_pressed(begun: &Trained, config: &RunConfig, script: PathBuf) -> Vec<Trained> {
    let (configs, run) = (vec![config.clone(); 2], &begun.run);
    each_rank(&configs, delayed(41), &|group, config| {
        let script = (group.rank() == 0).then(|| MemoryScript {
            path: script.clone(),
            by: ScriptBy::Decision,
        });
        let session = Session {
            resumes: Some(run.clone()),
            machine: Machine {
                script,
                ..Machine::default()
            },
            ..Session::default()
        };
        train_session(config, RunGroup::new(group), session, &mut |_| {})
    })
}

/// Whether an evaluation before the last step was suspended.
fn is_suspended_evaluation(event: &RunEvent) -> bool {
    match event {
        RunEvent::Decision {
            step,
            phase: Phase::Evaluate,
            decision,
            ..
        } => *step < STEPS && decision.action == Action::Suspend,
        _ => false,
    }
}

#[test]
fn rank_0_does_not_go_back_if_an_evaluation_is_suspended() {
    let folder = tempfile::tempdir().unwrap();
    let config = evaluated_often(folder.path());
    let whole = train(&config, RunGroup::default(), Control::default());
    let stopped = Session {
        stops_at: Some(BEGUN),
        ..Session::default()
    };
    let begun = train_session(&config, RunGroup::default(), stopped, &mut |_| {});
    // Files in their places make the checkpoints of these steps fail, so the newest is an old one.
    for step in BEGUN + 1..STEPS {
        let place = begun.run.path.join(RunFolder::checkpoint_name(step));
        std::fs::write(place, "no folder").unwrap();
    }
    let script = folder.path().join("script");
    write_sudden_shortages(&script);
    let ranks = resume_pressed(&begun, &config, script);
    for rank in &ranks {
        assert_eq!(rank.outcome.as_ref().unwrap().step, STEPS);
    }
    let events = &ranks[0].events;
    let suspended = events.iter().filter(|event| is_suspended_evaluation(event));
    let suspended = suspended.count();
    println!("an evaluation was suspended {suspended} times");
    assert!(suspended > 0, "memory was short in an evaluation");
    let steps = events.iter().filter_map(|event| match event {
        RunEvent::Step { step, .. } => Some(*step),
        _ => None,
    });
    assert!(steps.eq(BEGUN + 1..=STEPS), "each step once, in order");
    let expected = whole.weights(STEPS);
    let way = distance(&begun.weights(BEGUN), &expected);
    let drift = distance(&ranks[0].weights(STEPS), &expected) / way;
    assert!(way > 0.0 && drift < 1e-9, "{drift:e}");
}
