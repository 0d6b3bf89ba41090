//! The same plan gives the same bytes: twice, and through an interruption.

use crate::support::{TestHome, draw_classes};
use runlog::{RunEvent, RunFolder};
use std::fs;

const PLAN: &str = "{birds} --image-size 16 --steps 12 --effective-batch 8";

fn place() -> TestHome {
    let place = TestHome::new();
    draw_classes(&place.path("birds"), &["jay", "owl"], 14);
    place
}

/// The last checkpoint of a run: weights and moments.
fn last_bytes(run: &RunFolder) -> (u64, [Vec<u8>; 2]) {
    let checkpoint = run.checkpoints().expect("they can be listed").pop();
    let checkpoint = checkpoint.expect("the run left one");
    let read = |name: &str| fs::read(checkpoint.path.join(name)).expect("it can be read");
    let bytes = ["model.safetensors", "optimizer.safetensors"].map(read);
    (checkpoint.step, bytes)
}

/// The sizes of all pieces and the blocks that they computed twice by step, the last life's where a
/// step was repeated.
fn schedule(run: &RunFolder) -> Vec<(Vec<u32>, Vec<u32>)> {
    let mut steps = std::collections::BTreeMap::new();
    for event in runlog::read_events(&run.events_path()).expect("they can be read") {
        if let RunEvent::Step {
            step,
            micro_batches,
            checkpoint_blocks: blocks,
            ..
        } = event
        {
            steps.insert(step, (micro_batches, blocks));
        }
    }
    steps.into_values().collect()
}

fn run_in(place: &TestHome, out: &str) -> RunFolder {
    let runs = runlog::RunStore::open(place.path(out))
        .list()
        .expect("they can be listed");
    runs.into_iter().next().expect("one run")
}

#[track_caller]
fn assert_same(place: &TestHome, one: &str, other: &str) {
    let (one, other) = (run_in(place, one), run_in(place, other));
    assert_eq!(schedule(&one), schedule(&other));
    let ((step, one), (other_step, other)) = (last_bytes(&one), last_bytes(&other));
    assert_eq!((step, other_step), (12, 12));
    assert!(one[0] == other[0], "the weights differ");
    assert!(one[1] == other[1], "the moments differ");
}

#[test]
fn a_replayed_run_ends_in_the_same_bytes() {
    let place = place();
    // Pieces of three, which nothing but the replay would choose again.
    let first = format!("{PLAN} --micro-batch 3 --out {{first}}");
    place.train(&first).ended(0);
    let first = run_in(&place, "first").path;
    let again = format!("{PLAN} --out {{again}} --replay {}", first.display());
    place.train(&again).ended(0);
    assert_same(&place, "first", "again");
}

#[test]
fn a_replayed_run_computes_the_same_blocks_twice() {
    let place = place();
    let blocks = format!("{PLAN} --model convnet --checkpoint-blocks");
    for count in [2, 0] {
        place
            .train(&format!("{blocks} {count} --out {{by{count}}}"))
            .ended(0);
    }
    let first = run_in(&place, "by2");
    assert!(
        schedule(&first)
            .iter()
            .all(|(_, blocks)| blocks.contains(&2))
    );
    assert!(
        schedule(&run_in(&place, "by0"))
            .iter()
            .all(|(_, blocks)| blocks.is_empty())
    );
    let again = format!(
        "{blocks} 0 --out {{again}} --replay {}",
        first.path.display()
    );
    place.train(&again).ended(0);
    assert_same(&place, "by2", "again");
}

#[test]
fn an_interrupted_run_ends_in_the_bytes_of_an_uninterrupted_one() {
    let place = place();
    let mut live = place.start(&format!("train {PLAN} --out {{broken}}"));
    live.until(|event| matches!(event, RunEvent::Step { step: 5, .. }));
    live.signal("INT");
    let (code, rest) = live.end();
    assert_eq!(code, Some(0), "{rest:#?}");
    let broken = run_in(&place, "broken").path;
    let (code, events) = place.start(&format!("resume {}", broken.display())).end();
    assert_eq!(code, Some(0), "{events:#?}");
    assert!(
        matches!(events[0], RunEvent::Resumed { step: 5..12, .. }),
        "{:?}",
        events[0]
    );
    let whole = format!("{PLAN} --out {{whole}} --replay {}", broken.display());
    place.train(&whole).ended(0);
    assert_same(&place, "broken", "whole");
}

#[test]
fn another_seed_gives_other_bytes() {
    let place = place();
    let plan = PLAN.replace("12", "2");
    for (out, seed) in [("one", "1"), ("two", "2")] {
        let line = format!("train {plan} --device cpu --threads 2 --out {{{out}}} --seed {seed}");
        place.run(&line).ended(0);
    }
    let [one, two] = ["one", "two"].map(|out| last_bytes(&run_in(&place, out)).1);
    assert!(one[0] != two[0]);
}
