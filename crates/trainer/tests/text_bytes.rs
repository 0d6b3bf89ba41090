//! Texts stay in memory as tokens for the whole run: a plan counts them, and so does a forecast, whatever gives way to a piece.

// Helpers of tests are tests: what fails here fails the claim.
#![allow(clippy::unwrap_used)]

use dataset::{InspectOptions, TextOptions, look};
use runlog::{RunConfig, RunFolder};
use std::path::Path;
use tape::memory::{Counting, live_bytes};
use trainer::Plan;
use trainer::forecast::{Forecast, Forms, Target};
use trainer::rooms::Data;

#[global_allocator]
static ALLOCATOR: Counting<std::alloc::System> = Counting(std::alloc::System);

/// What is counted beside what the opened texts take on the heap: characters are not tokens, and lists have room to grow.
const BAR: f64 = 0.35;

/// Many sentences, each with its number, so that there is something to learn.
fn sentences(count: usize) -> impl Iterator<Item = String> {
    let words = [
        "rain",
        "yesterday",
        "morning",
        "garden",
        "neighbour",
        "always",
        "together",
        "evening",
        "kitchen",
        "remember",
    ];
    let word = move |i: usize, n: usize| words[(i * (n + 3) + i / 7 + n * n) % words.len()];
    let sentence = move |i| (0..14).map(|n| word(i, n)).collect::<Vec<_>>().join(" ");
    (0..count).map(move |i| format!("{} {i}", sentence(i)))
}

/// What a plan counts of a folder's texts, and what opening them takes of the heap.
#[track_caller]
fn counted_and_taken(folder: &Path, config: &RunConfig) -> (f64, f64) {
    let look = look(
        folder,
        &InspectOptions::default(),
        &TextOptions::default(),
        &|_| {},
    );
    let found = look.unwrap();
    let plan = Plan::check(config, &found).unwrap();
    let run = tempfile::tempdir().unwrap();
    let run = RunFolder {
        path: run.path().to_owned(),
    };
    let before = live_bytes();
    let data = Data::open(&plan, &found, &run).unwrap();
    let taken = (live_bytes() - before) as f64;
    drop(data);
    let counted = plan.texts_bytes as f64;
    println!("{}: counted {counted}, taken {taken}", folder.display());
    let forecast = |plan: &Plan| {
        let target = Target::of("cpu", 2, 0);
        let forecast = Forecast::of_plan(plan, plan.model, plan.image_size, target, Forms::Planned);
        forecast
            .unwrap()
            .without_waiting()
            .heap_bytes(0, 1, 8)
            .unwrap()
    };
    let without = Plan {
        texts_bytes: 0,
        ..plan.clone()
    };
    assert_eq!(forecast(&plan), forecast(&without) + plan.texts_bytes);
    (counted, taken)
}

#[track_caller]
fn check((counted, taken): (f64, f64)) {
    assert!(
        taken > 100_000.0 && (counted / taken - 1.0).abs() <= BAR,
        "{counted} {taken}"
    );
}

/// One test: the count is the process's.
#[test]
fn texts_in_memory_are_counted() {
    let config = |model: &str| RunConfig {
        model: Some(model.to_owned()),
        tokens: Some(64),
        effective_batch: Some(8),
        device: Some("cpu".to_owned()),
        ..RunConfig::default()
    };
    let labelled = |texts: usize| {
        let folder = tempfile::tempdir().unwrap();
        let row = |(i, text): (usize, String)| format!("{}\t{text}\n", ["spam", "ham"][i % 2]);
        let rows: String = sentences(texts).enumerate().map(row).collect();
        std::fs::write(folder.path().join("sms.tsv"), rows).unwrap();
        counted_and_taken(folder.path(), &config("text_micro"))
    };
    // What a learnt vocabulary takes for its maps is not counted, and it grows with what there is to learn: the tokens are from a
    // third of what opening takes to all of it.
    for texts in [3_000, 9_000] {
        let (counted, taken) = labelled(texts);
        assert!(
            counted <= taken && counted >= taken / 3.0,
            "{counted} {taken}"
        );
    }

    let folder = tempfile::tempdir().unwrap();
    for (i, text) in sentences(9).enumerate() {
        let text = format!("{text}. ").repeat(300);
        std::fs::write(folder.path().join(format!("{i}.txt")), text).unwrap();
    }
    check(counted_and_taken(folder.path(), &config("gpt_micro")));
}
