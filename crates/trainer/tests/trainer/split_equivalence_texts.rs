//! Split equivalence for texts and documents: losses do not depend on the micro-batches.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use dataset::{DetectedDataset, InspectOptions, TextOptions, detect};
use runlog::{
    AdapterKind, ClassWeights, DeviceChoice, LengthBuckets, PackingChoice, PrecisionChoice,
    RunConfig, RunFolder,
};
use std::path::Path;
use tape::{Cancel, Rng};
use tempfile::TempDir;
use trainer::Plan;
use trainer::internals::{
    AccumulatedBatch, EffectiveBatch, LanguageTask, PrefetchOptions, Task, TextTask, TrainLoader,
    TrainState,
};

const STEPS: u64 = 50;

/// Texts of very different lengths, three of four in one class.
fn messages() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let words = [
        "rain", "cash", "win", "home", "see", "you", "soon", "prize", "call", "late",
    ];
    let row = |i: u64| {
        let stream = Rng::new(3).at(i);
        let label = if stream.uniform(0) < 0.25 {
            "spam"
        } else {
            "ham"
        };
        let count = 1 + (stream.uniform(1) * stream.uniform(2) * 30.0) as u64;
        let word = |n: u64| words[(stream.uniform(10 + n) * words.len() as f64) as usize];
        let text: Vec<&str> = (0..count).map(word).collect();
        format!("{label}\t{} {i}\n", text.join(" "))
    };
    std::fs::write(
        folder.path().join("sms.tsv"),
        (0..90).map(row).collect::<String>(),
    )
    .unwrap();
    folder
}

/// Documents of very different lengths.
fn book() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for i in 0..9u64 {
        let text = format!("Chapter {i}. ") + &"It rained all day. ".repeat(1 + 7 * i as usize);
        std::fs::write(folder.path().join(format!("{i}.txt")), text).unwrap();
    }
    folder
}

fn opened<T: Task>(folder: &Path, config: RunConfig) -> (Plan, T::Data) {
    let found = detect(
        folder,
        &InspectOptions::default(),
        &TextOptions::default(),
        &|_| {},
    )
    .unwrap();
    assert!(matches!(found, DetectedDataset::Texts(_)));
    let plan = Plan::resolve(&config, &found).unwrap();
    let run = tempfile::tempdir().unwrap();
    let run = RunFolder {
        path: run.path().to_owned(),
    };
    std::fs::create_dir_all(&run.path).unwrap();
    let data = T::open(&plan, &found, &run).unwrap();
    (plan, data)
}

fn config(effective_batch: u32, tokens: u32) -> RunConfig {
    RunConfig {
        steps: Some(STEPS),
        effective_batch: Some(effective_batch),
        tokens: Some(tokens),
        device: Some(DeviceChoice::Cpu),
        threads: Some(2),
        ..RunConfig::default()
    }
}

/// The loss and the weight of every step, processed in the micro-batches that `split` returns for
/// a number of samples.
fn losses<T: Task>(
    plan: &Plan,
    data: &T::Data,
    split: impl Fn(u64, usize) -> Vec<usize>,
) -> Vec<(f64, f64)> {
    let mut train_state = TrainState::new(plan, &candle_core::Device::Cpu).unwrap();
    let mut loader = T::train_loader(plan, data, PrefetchOptions::new(plan, 0, 0), 0);
    let step = |step: u64| {
        train_state.begin_step(step);
        let count = loader.begin(step);
        let mut batch = EffectiveBatch::<T::Sample>::new(count);
        assert!(batch.pending.deliver(loader.fetch(count)).is_empty());
        for size in split(step, count) {
            let result = train_state
                .gradients(Cancel::default(), batch.pending.micro_batch(size))
                .unwrap();
            batch.add(result).unwrap();
        }
        assert_eq!(batch.pending.remaining(), 0);
        let whole = batch.finish().unwrap();
        assert_eq!(train_state.update(&whole, step).unwrap().skipped, None);
        (whole.loss, whole.weight)
    };
    (0..STEPS).map(step).collect()
}

#[track_caller]
fn check<T: Task>(name: &str, opened: &(Plan, T::Data)) -> Vec<(f64, f64)> {
    let (plan, data) = opened;
    let unsplit = losses::<T>(plan, data, |_, count| vec![count]);
    let random = |step: u64, count: usize| {
        let (stream, mut left, mut sizes) = (Rng::new(8).at(step), count, Vec::new());
        while left > 0 {
            let size = 1 + (stream.uniform(sizes.len() as u64) * left as f64) as usize;
            sizes.push(size.min(left));
            left -= size.min(left);
        }
        sizes
    };
    let split = losses::<T>(plan, data, random);
    let difference = |(a, b): (&(f64, f64), &(f64, f64))| (a.0 - b.0).abs() / b.0;
    let worst = split
        .iter()
        .zip(&unsplit)
        .map(difference)
        .fold(0.0, f64::max);
    println!("{name}: losses of {STEPS} steps differ by {worst:.1e}");
    assert!(worst <= 1e-4, "{name}: {worst:e}");
    for (a, b) in split.iter().zip(&unsplit) {
        assert!((a.1 - b.1).abs() <= 1e-9 * b.1, "{name}: {a:?} {b:?}");
    }
    let (first, last) = (unsplit[0].0, unsplit[STEPS as usize - 1].0);
    assert!(last < 0.9 * first, "{name} learns nothing: {first} {last}");
    unsplit
}

#[test]
fn a_random_split_of_texts_keeps_the_losses() {
    let folder = messages();
    let opened = opened::<TextTask>(folder.path(), config(11, 24));
    let steps = check::<TextTask>("texts", &opened);
    assert!(
        steps.iter().all(|(_, weight)| *weight == weight.round()),
        "every text weighs 1"
    );
}

#[test]
fn a_random_split_of_weighted_texts_keeps_the_losses() {
    let folder = messages();
    let config = RunConfig {
        class_weights: Some(ClassWeights::Balanced),
        ..config(11, 24)
    };
    let opened = opened::<TextTask>(folder.path(), config);
    let weights = opened.0.class_weights.clone().unwrap();
    assert!(
        weights[1] > 2.0 * weights[0],
        "the rare class counts more: {weights:?}"
    );
    check::<TextTask>("weighted texts", &opened);
}

#[test]
fn a_random_split_of_documents_keeps_the_losses() {
    let folder = book();
    let config = RunConfig {
        model: Some("gpt_micro".to_owned()),
        ..config(5, 32)
    };
    let (plan, data) = opened::<LanguageTask>(folder.path(), config);
    let train = data.train.documents();
    let places = (train.token_count() + train.len()) as f64;
    let per_epoch = plan.steps_per_epoch as usize;
    let steps = check::<LanguageTask>("documents", &(plan, data));
    let weight: f64 = steps[..per_epoch].iter().map(|(_, weight)| weight).sum();
    assert_eq!(
        weight, places,
        "an epoch weighs as much as its tokens, although its last window is short"
    );
}

#[test]
fn a_random_split_of_byte_pairs_keeps_the_losses() {
    let folder = book();
    let config = RunConfig {
        model: Some("gpt_micro".to_owned()),
        vocabulary: Some(300),
        ..config(3, 16)
    };
    let (plan, data) = opened::<LanguageTask>(folder.path(), config);
    let train = data.train.documents();
    let tokens =
        (0..train.len()).flat_map(|n| (0..train.length(n)).map(move |at| train.token(n, at)));
    assert!(tokens.max() < Some(300));
    assert!(
        2 * train.token_count() < train.bytes() as usize,
        "byte pairs are shorter than bytes: {} of {}",
        train.token_count(),
        train.bytes()
    );
    check::<LanguageTask>("byte pairs", &(plan, data));
}

/// Conversations of one to four turns, and the tiny model that learns them.
fn conversations(packing: PackingChoice) -> (TempDir, RunConfig) {
    let folder = tempfile::tempdir().unwrap();
    let row = |i: u64| {
        let stream = Rng::new(5).at(i);
        let turn = |n: u64| {
            let (a, b) = (
                (9.0 * stream.uniform(n)) as u64,
                (9.0 * stream.uniform(100 + n)) as u64,
            );
            let asked = format!("What is {a} plus {b}? {}", "Please. ".repeat(n as usize));
            format!(
                r#"{{"role":"user","content":"{asked}"}},{{"role":"assistant","content":"{}"}}"#,
                a + b
            )
        };
        let turns: Vec<String> = (0..1 + i % 4).map(turn).collect();
        format!("{{\"messages\":[{}]}}\n", turns.join(","))
    };
    let rows: String = (0..60).map(row).collect();
    std::fs::write(folder.path().join("chats.jsonl"), rows).unwrap();
    let model =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tests/fixtures/published/chat");
    let config = RunConfig {
        from: Some(model),
        adapter_rank: Some(4),
        learning_rate: Some(0.02),
        packing: Some(packing),
        ..config(7, 256)
    };
    (folder, config)
}

#[test]
fn a_random_split_of_conversations_keeps_the_losses() {
    for packing in [PackingChoice::On, PackingChoice::Off] {
        let (folder, config) = conversations(packing);
        let (plan, data) = opened::<LanguageTask>(folder.path(), config);
        let train = data.train.documents();
        let tokens = train.token_count() as f64;
        let windows = data.sample_counts(&plan).train;
        assert!(windows < train.len() as u64 || packing == PackingChoice::Off);
        let plan = Plan {
            effective_batch: plan.effective_batch.min(windows as u32),
            ..plan
        };
        let steps =
            check::<LanguageTask>(&format!("conversations, packing {packing}"), &(plan, data));
        let weights: f64 = steps.iter().map(|(_, weight)| weight).sum();
        let of_step = weights / STEPS as f64;
        assert!(
            of_step < 0.5 * tokens,
            "only answers count: {of_step} of {tokens}"
        );
    }
}

/// The plan of unpacked conversations in this order, and their windows.
fn unpacked(order: LengthBuckets) -> (Plan, <LanguageTask as Task>::Data) {
    let (folder, config) = conversations(PackingChoice::Off);
    let config = RunConfig {
        length_buckets: Some(order),
        effective_batch: Some(8),
        ..config
    };
    opened::<LanguageTask>(folder.path(), config)
}

/// The index and the length of each window of a step.
fn windows_of_step(
    loader: &mut <LanguageTask as Task>::TrainLoader,
    step: u64,
) -> Vec<(u32, usize)> {
    let count = loader.begin(step);
    let windows = loader.fetch(count).into_iter();
    let windows = windows.map(|window| window.unwrap_or_else(|_| panic!("it is in memory")));
    windows.map(|it| (it.index, it.inputs.len())).collect()
}

#[test]
fn steps_of_conversations_of_similar_lengths_need_less_padding() {
    let padded = |order: LengthBuckets| {
        let (plan, data) = unpacked(order);
        let options = PrefetchOptions::new(&plan, 0, 0);
        let mut loader = LanguageTask::train_loader(&plan, &data, options, 0);
        let windows = data.sample_counts(&plan).train;
        let steps = windows.div_ceil(8);
        let (mut indices, mut padded, mut real) = (Vec::new(), 0, 0);
        for step in 2 * steps..3 * steps {
            let found = windows_of_step(&mut loader, step);
            let longest = found.iter().map(|(_, length)| *length).max().unwrap();
            assert!(loader.sample_cost(u64::MAX) >= longest as u64);
            padded += longest * found.len();
            real += found.iter().map(|(_, length)| length).sum::<usize>();
            indices.extend(found.into_iter().map(|(index, _)| index));
        }
        indices.sort_unstable();
        let all: Vec<u32> = (0..windows as u32).collect();
        assert_eq!(indices, all, "{order}: an epoch has each window once");
        padded as f64 / real as f64
    };
    let (on, off) = (padded(LengthBuckets::On), padded(LengthBuckets::Off));
    assert!(on < 1.25 && off > 1.4, "{on} with buckets, {off} without");
}

#[test]
fn a_step_of_similar_lengths_depends_on_the_seed_and_the_step_alone() {
    let (plan, data) = unpacked(LengthBuckets::On);
    let options = || PrefetchOptions::new(&plan, 0, 0);
    let mut loader = LanguageTask::train_loader(&plan, &data, options(), 0);
    let all: Vec<_> = (0..20)
        .map(|step| windows_of_step(&mut loader, step))
        .collect();
    // As after a resume, and after a step that is repeated.
    for step in [0, 3, 11, 19] {
        let mut resumed = LanguageTask::train_loader(&plan, &data, options(), step);
        for _ in 0..2 {
            assert_eq!(windows_of_step(&mut resumed, step), all[step as usize]);
        }
        assert!(
            all[step as usize].is_sorted_by(|a, b| a.1 >= b.1),
            "the longest is first"
        );
    }
    let other = Plan {
        seed: plan.seed + 1,
        ..plan.clone()
    };
    let mut loader = LanguageTask::train_loader(&other, &data, options(), 0);
    let others: Vec<_> = (0..20)
        .map(|step| windows_of_step(&mut loader, step))
        .collect();
    assert_ne!(others, all);
}

/// The most tokens of a step, for tests.
const STEP_TOKENS: u32 = 400;

/// The plan of conversations whose steps are limited by their tokens, and their windows.
fn steps_of_tokens(packing: PackingChoice, most: u32) -> (Plan, <LanguageTask as Task>::Data) {
    let (folder, config) = conversations(packing);
    let config = RunConfig {
        effective_batch_tokens: Some(most),
        ..config
    };
    opened::<LanguageTask>(folder.path(), config)
}

#[test]
fn a_random_split_of_steps_of_tokens_keeps_the_losses() {
    for packing in [PackingChoice::On, PackingChoice::Off] {
        let opened = steps_of_tokens(packing, STEP_TOKENS);
        check::<LanguageTask>(&format!("steps of tokens, packing {packing}"), &opened);
    }
}

#[test]
fn a_step_of_tokens_depends_on_the_seed_and_the_step_alone() {
    for packing in [PackingChoice::On, PackingChoice::Off] {
        let (plan, data) = steps_of_tokens(packing, STEP_TOKENS);
        let per_epoch = data.sample_counts(&plan).steps_per_epoch.unwrap();
        let options = || PrefetchOptions::new(&plan, 0, 0);
        let mut loader = LanguageTask::train_loader(&plan, &data, options(), 0);
        let all: Vec<_> = (0..2 * per_epoch)
            .map(|step| windows_of_step(&mut loader, step))
            .collect();
        let counts: std::collections::BTreeSet<usize> = all.iter().map(Vec::len).collect();
        assert!(
            counts.len() > 1 || packing == PackingChoice::On,
            "{counts:?}"
        );
        for (step, windows) in (0..).zip(&all) {
            let tokens: usize = windows.iter().map(|(_, length)| length).sum();
            assert!(tokens <= STEP_TOKENS as usize, "{windows:?}");
            // As after a resume, and with another limit of the micro-batches.
            let other = Plan {
                fixed_micro_batch: Some(1 + step as u32 % 3),
                ..plan.clone()
            };
            let options = PrefetchOptions::new(&other, 0, 0);
            let mut resumed = LanguageTask::train_loader(&other, &data, options, step);
            assert_eq!(windows_of_step(&mut resumed, step), *windows);
        }
        for epoch in all.chunks(per_epoch as usize) {
            let mut indices: Vec<u32> = epoch.concat().iter().map(|(index, _)| *index).collect();
            indices.sort_unstable();
            let every: Vec<u32> = (0..plan.train_samples as u32).collect();
            assert!(
                indices == every || packing == PackingChoice::On,
                "{indices:?}"
            );
            assert!(indices.windows(2).all(|pair| pair[0] + 1 == pair[1]));
        }
    }
}

#[test]
fn a_conversation_longer_than_a_step_is_alone_in_it() {
    let (plan, data) = steps_of_tokens(PackingChoice::Off, 60);
    let per_epoch = data.sample_counts(&plan).steps_per_epoch.unwrap();
    let options = PrefetchOptions::new(&plan, 0, 0);
    let mut loader = LanguageTask::train_loader(&plan, &data, options, 0);
    let mut longer = 0;
    for step in 0..per_epoch {
        let windows = windows_of_step(&mut loader, step);
        if windows.iter().any(|(_, length)| *length > 60) {
            assert_eq!(windows.len(), 1, "{windows:?}");
            longer += 1;
        }
    }
    assert!(
        longer > 1,
        "{longer} long conversations in {per_epoch} steps"
    );
}

#[test]
fn tokens_limit_only_the_steps_of_language_models() {
    let (inspect, texts) = (InspectOptions::default(), TextOptions::default());
    let found = detect(messages().path(), &inspect, &texts, &|_| {}).unwrap();
    let config = RunConfig {
        effective_batch_tokens: Some(STEP_TOKENS),
        ..config(11, 24)
    };
    let message = Plan::resolve(&config, &found).unwrap_err().to_string();
    assert!(message.contains("--effective-batch instead"), "{message}");
    // The limit in tokens has precedence, and the run's config has only one of both.
    let folder = book();
    let found = detect(folder.path(), &inspect, &texts, &|_| {}).unwrap();
    let plan = Plan::resolve(&config, &found).unwrap();
    assert!(
        (16..=17).contains(&plan.effective_batch),
        "{}",
        plan.effective_batch
    );
    assert_eq!(plan.config.effective_batch, None);
    assert_eq!(plan.config.effective_batch_tokens, Some(STEP_TOKENS));
}

#[test]
fn only_conversations_that_are_not_packed_are_ordered_by_length() {
    for (packing, is_by_length) in [(PackingChoice::On, false), (PackingChoice::Off, true)] {
        let (folder, config) = conversations(packing);
        let (plan, _) = opened::<LanguageTask>(folder.path(), config);
        let options = plan.conversations.unwrap();
        assert_eq!(options.by_length, is_by_length, "{packing}");
        let written = plan.config.length_buckets;
        assert_eq!(
            written == Some(LengthBuckets::On),
            is_by_length,
            "{packing}"
        );
    }
    let (folder, config) = conversations(PackingChoice::On);
    let config = RunConfig {
        length_buckets: Some(LengthBuckets::On),
        ..config
    };
    let (inspect, texts) = (InspectOptions::default(), TextOptions::default());
    let found = detect(folder.path(), &inspect, &texts, &|_| {}).unwrap();
    let message = Plan::resolve(&config, &found).unwrap_err().to_string();
    assert!(message.contains("packed conversations"), "{message}");
}

#[test]
fn a_random_split_keeps_the_losses_of_adapters_with_dropout() {
    for kind in [AdapterKind::Lora, AdapterKind::Dora] {
        let (folder, config) = conversations(PackingChoice::On);
        let config = RunConfig {
            adapter_dropout: Some(0.1),
            adapter_kind: Some(kind),
            ..config
        };
        let (plan, data) = opened::<LanguageTask>(folder.path(), config);
        let windows = data.sample_counts(&plan).train as u32;
        let plan = Plan {
            effective_batch: plan.effective_batch.min(windows),
            ..plan
        };
        check::<LanguageTask>(&format!("{kind} with dropout"), &(plan, data));
    }
}

/// The loss, the weight and the gradients of all training windows as one effective batch, in f64.
fn whole_epoch(packing: PackingChoice) -> (usize, AccumulatedBatch) {
    let (folder, config) = conversations(packing);
    let config = RunConfig {
        precision: Some(PrecisionChoice::F64),
        ..config
    };
    let (plan, data) = opened::<LanguageTask>(folder.path(), config);
    let windows = data.sample_counts(&plan).train as u32;
    let plan = Plan {
        effective_batch: windows,
        ..plan
    };
    let train_state = TrainState::new(&plan, &candle_core::Device::Cpu).unwrap();
    let options = PrefetchOptions::new(&plan, 0, 0);
    let mut loader = LanguageTask::train_loader(&plan, &data, options, 0);
    let count = loader.begin(0);
    let mut batch = EffectiveBatch::<dataset::Window>::new(count);
    assert!(batch.pending.deliver(loader.fetch(count)).is_empty());
    while batch.pending.remaining() > 0 {
        let samples = batch.pending.micro_batch(3);
        let result = train_state.gradients(Cancel::default(), samples).unwrap();
        batch.add(result).unwrap();
    }
    (count, batch.finish().unwrap())
}

#[test]
fn packed_conversations_have_the_loss_and_the_gradients_of_single_ones() {
    let (packed_windows, packed) = whole_epoch(PackingChoice::On);
    let (windows, alone) = whole_epoch(PackingChoice::Off);
    assert!(
        2 * packed_windows < windows,
        "{packed_windows} of {windows}"
    );
    assert_eq!(packed.weight, alone.weight);
    let difference = (packed.loss - alone.loss).abs() / alone.loss;
    assert!(difference <= 1e-12, "the losses differ by {difference:e}");
    let mut worst = 0.0f64;
    for (a, b) in packed.gradients.iter().zip(&alone.gradients) {
        let [a, b] = [a, b].map(|tensor| tape::inplace::to_f64(tensor).unwrap());
        let largest = b.iter().fold(0.0f64, |most, value| most.max(value.abs()));
        let pairs = a.iter().zip(&b);
        let apart = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        worst = worst.max(apart / largest.max(1e-300));
    }
    println!("packed and single losses differ by {difference:.1e}, gradients by {worst:.1e}");
    assert!(worst <= 1e-12, "the gradients differ by {worst:e}");
}
