//! Texts stay in memory as tokens for the whole run: a plan counts them, and so does a forecast, whatever gives way to a piece.

// Helpers of tests are tests: what fails here fails the claim.
#![allow(clippy::unwrap_used)]

use dataset::{InspectOptions, TextOptions, look};
use runlog::{RunConfig, RunFolder};
use std::path::Path;
use tape::Rng;
use tape::memory::{Counting, live_bytes};
use trainer::Plan;
use trainer::forecast::{Forecast, Forms, Target};
use trainer::rooms::Data;

#[global_allocator]
static ALLOCATOR: Counting<std::alloc::System> = Counting(std::alloc::System);

/// What is counted beside what opened documents, read byte by byte, take on the heap.
const BAR: f64 = 0.05;
/// The most that may be counted for each byte that labelled texts take: a token is taken to hold three characters, and holds 4.3 in
/// banking77, 3.2 in sms_spam, 4.6 in the texts below.
const MOST: f64 = 1.5;

/// Sentences of a dozen words out of two million, a few of them frequent as in any language.
fn sentences(count: usize) -> impl Iterator<Item = String> {
    let word = |rank: u64| {
        let draw = Rng::new(rank);
        let letter =
            |of: &[u8], i: u64| char::from(of[(draw.uniform(i) * of.len() as f64) as usize]);
        let syllables = 2 + (3.0 * draw.uniform(0)) as u64;
        let syllable = |i: u64| {
            [
                letter(b"bdfgklmnprstvz", 2 * i),
                letter(b"aeiou", 2 * i + 1),
            ]
        };
        (1..=syllables).flat_map(syllable).collect::<String>()
    };
    let rank = |i: usize, n: u64| 2e6_f64.powf(Rng::new(i as u64).uniform(n)) as u64;
    let sentence = move |i| {
        (0..12)
            .map(|n| word(rank(i, n)))
            .collect::<Vec<_>>()
            .join(" ")
    };
    (0..count).map(sentence)
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
        let target = Target::of(trainer::DeviceKind::Cpu, 2, 0);
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
    // What the library makes once for a process, a third of a megabyte, is made.
    labelled(300);
    // A learnt vocabulary is gone when the texts are opened, and the words that its library keeps for each thread went with the
    // thread: what stays is tokens.
    for texts in [3_000, 9_000] {
        let (counted, taken) = labelled(texts);
        assert!(
            counted >= taken && counted <= MOST * taken,
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
