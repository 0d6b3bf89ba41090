//! Texts stay in memory as tokens for the whole run: a plan and an estimate count their bytes.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use dataset::{InspectOptions, TextOptions, detect};
use runlog::{DeviceChoice, RunConfig, RunFolder};
use std::path::Path;
use tape::Rng;
use tape::counting_allocator::live_bytes;
use trainer::Plan;
use trainer::estimate::{MemoryEstimate, Target, Variants};
use trainer::internals::{LanguageTask, Task, TextTask};

/// Largest relative error of the count for documents that are read byte by byte.
const MAX_RELATIVE_ERROR: f64 = 0.05;
/// Largest ratio of counted to actual bytes of labeled texts. The count assumes three characters
/// per token; banking77 has 4.3, sms_spam 3.2, the texts below 4.6.
const MOST: f64 = 1.5;

/// Bytes of texts in memory.
struct Bytes {
    /// As the plan counts them.
    counted: f64,
    /// On the heap.
    taken: f64,
}

/// Sentences of a dozen words out of two million, distributed as in natural language.
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

/// The bytes that a plan counts for a folder's texts, and those that opening them takes on the
/// heap.
#[track_caller]
fn text_bytes<T: Task>(folder: &Path, config: &RunConfig) -> Bytes {
    let look = detect(
        folder,
        &InspectOptions::default(),
        &TextOptions::default(),
        &|_| {},
    );
    let found = look.unwrap();
    let plan = Plan::resolve(config, &found).unwrap();
    let run = tempfile::tempdir().unwrap();
    let run = RunFolder {
        path: run.path().to_owned(),
    };
    let before = live_bytes();
    let data = T::open(&plan, &found, &run).unwrap();
    let taken = (live_bytes() - before) as f64;
    drop(data);
    let counted = plan.texts_bytes as f64;
    println!("{}: counted {counted}, taken {taken}", folder.display());
    let estimate = |plan: &Plan| {
        let target = Target::new(trainer::DeviceKind::Cpu, 2, 0);
        let estimate =
            MemoryEstimate::for_plan(plan, plan.model, plan.input_size, target, Variants::Planned);
        estimate
            .unwrap()
            .without_prefetch()
            .heap_bytes(0, 1, 8)
            .unwrap()
    };
    let without = Plan {
        texts_bytes: 0,
        ..plan.clone()
    };
    assert_eq!(estimate(&plan), estimate(&without) + plan.texts_bytes);
    Bytes { counted, taken }
}

#[track_caller]
fn check(bytes: Bytes) {
    let Bytes { counted, taken } = bytes;
    assert!(
        taken > 100_000.0 && (counted / taken - 1.0).abs() <= MAX_RELATIVE_ERROR,
        "{counted} {taken}"
    );
}

/// One test, because the allocator counts the whole process.
#[test]
fn texts_in_memory_are_counted() {
    let config = |model: &str| RunConfig {
        model: Some(model.to_owned()),
        tokens: Some(64),
        effective_batch: Some(8),
        device: Some(DeviceChoice::Cpu),
        ..RunConfig::default()
    };
    let labelled = |texts: usize| {
        let folder = tempfile::tempdir().unwrap();
        let row = |(i, text): (usize, String)| format!("{}\t{text}\n", ["spam", "ham"][i % 2]);
        let rows: String = sentences(texts).enumerate().map(row).collect();
        std::fs::write(folder.path().join("sms.tsv"), rows).unwrap();
        text_bytes::<TextTask>(folder.path(), &config("text_micro"))
    };
    // Let the library allocate its buffers for the whole process, a third of a megabyte.
    labelled(300);
    // The learned vocabulary and the words that its library caches per thread are freed by now;
    // only tokens stay.
    for texts in [3_000, 9_000] {
        let Bytes { counted, taken } = labelled(texts);
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
    check(text_bytes::<LanguageTask>(
        folder.path(),
        &config("gpt_micro"),
    ));
}
