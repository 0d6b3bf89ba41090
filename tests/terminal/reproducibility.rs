//! The same plan gives bit-identical weights: in a replay, and after an interruption.

use crate::support::{TestHome, draw_classes};
use runlog::{RunEvent, RunFolder};
use std::fs;

const PLAN: &str = "{birds} --image-size 16 --steps 12 --effective-batch 8";

fn birds() -> TestHome {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 14);
    home
}

/// Step, weights and moments of the last checkpoint.
fn last_checkpoint(run: &RunFolder) -> (u64, [Vec<u8>; 2]) {
    let checkpoint = run
        .checkpoints()
        .expect("the checkpoints can be listed")
        .pop();
    let checkpoint = checkpoint.expect("there is a checkpoint");
    let read = |name: &str| fs::read(checkpoint.path.join(name)).expect("the file can be read");
    let bytes = ["model.safetensors", "optimizer.safetensors"].map(read);
    (checkpoint.step, bytes)
}

/// Micro-batches and checkpointed blocks of every step. A repeated step counts once, as in its last
/// execution.
fn schedule(run: &RunFolder) -> Vec<(Vec<u32>, Vec<u32>)> {
    let mut steps = std::collections::BTreeMap::new();
    for event in runlog::read_events(&run.events_path()).expect("the events can be read") {
        if let RunEvent::Step {
            step,
            micro_batches,
            checkpoint_blocks,
            ..
        } = event
        {
            steps.insert(step, (micro_batches, checkpoint_blocks));
        }
    }
    steps.into_values().collect()
}

/// The only run of the folder `out`.
fn run_in(home: &TestHome, out: &str) -> RunFolder {
    let runs = runlog::RunStore::open(home.path(out))
        .list()
        .expect("the checkpoints can be listed");
    runs.into_iter().next().expect("one run")
}

#[track_caller]
fn assert_same(home: &TestHome, one: &str, other: &str) {
    let (one, other) = (run_in(home, one), run_in(home, other));
    assert_eq!(schedule(&one), schedule(&other));
    let ((step, one), (other_step, other)) = (last_checkpoint(&one), last_checkpoint(&other));
    assert_eq!((step, other_step), (12, 12));
    assert!(one[0] == other[0], "the weights differ");
    assert!(one[1] == other[1], "the moments differ");
}

#[test]
fn a_replayed_run_has_identical_weights() {
    let home = birds();
    // Without the replay, the controller would not choose micro-batches of 3.
    let first = format!("{PLAN} --micro-batch 3 --out {{first}}");
    home.train(&first).expect_code(0);
    let first = run_in(&home, "first").path;
    let again = format!("{PLAN} --out {{again}} --replay {}", first.display());
    home.train(&again).expect_code(0);
    assert_same(&home, "first", "again");
}

#[test]
fn a_replayed_run_checkpoints_the_same_blocks() {
    let home = birds();
    let blocks = format!("{PLAN} --model convnet --checkpoint-blocks");
    for count in [2, 0] {
        home.train(&format!("{blocks} {count} --out {{by{count}}}"))
            .expect_code(0);
    }
    let first = run_in(&home, "by2");
    assert!(
        schedule(&first)
            .iter()
            .all(|(_, blocks)| blocks.contains(&2))
    );
    assert!(
        schedule(&run_in(&home, "by0"))
            .iter()
            .all(|(_, blocks)| blocks.is_empty())
    );
    let again = format!(
        "{blocks} 0 --out {{again}} --replay {}",
        first.path.display()
    );
    home.train(&again).expect_code(0);
    assert_same(&home, "by2", "again");
}

#[test]
fn an_interrupted_run_has_identical_weights() {
    let home = birds();
    let mut training = home.start(&format!("train {PLAN} --out {{broken}}"));
    training.until(|event| matches!(event, RunEvent::Step { step: 5, .. }));
    training.signal("INT");
    let (code, rest) = training.finish();
    assert_eq!(code, Some(0), "{rest:#?}");
    let broken = run_in(&home, "broken").path;
    let (code, events) = home.start(&format!("resume {}", broken.display())).finish();
    assert_eq!(code, Some(0), "{events:#?}");
    assert!(
        matches!(events[0], RunEvent::Resumed { step: 5..12, .. }),
        "{:?}",
        events[0]
    );
    let whole = format!("{PLAN} --out {{whole}} --replay {}", broken.display());
    home.train(&whole).expect_code(0);
    assert_same(&home, "broken", "whole");
}

#[test]
fn a_run_that_trains_longer_has_the_weights_of_a_longer_run() {
    let home = birds();
    // The first step has the same learning rate in a run of any length.
    let one_step = PLAN.replace("12", "1");
    home.train(&format!("{one_step} --out {{extended}}"))
        .expect_code(0);
    let extended = run_in(&home, "extended").path;
    let line = format!("resume {} --steps 12", extended.display());
    home.run(&line).expect_code(0);
    let whole = format!("{PLAN} --out {{whole}} --replay {}", extended.display());
    home.train(&whole).expect_code(0);
    assert_same(&home, "extended", "whole");
}

#[test]
fn another_seed_gives_other_weights() {
    let home = birds();
    let plan = PLAN.replace("12", "2");
    for (out, seed) in [("one", "1"), ("two", "2")] {
        let line = format!("train {plan} --device cpu --threads 2 --out {{{out}}} --seed {seed}");
        home.run(&line).expect_code(0);
    }
    let [one, two] = ["one", "two"].map(|out| last_checkpoint(&run_in(&home, out)).1);
    assert!(one[0] != two[0]);
}
