//! Token compression: no split changes the training, including hard decisions and noise, and a
//! policy learns.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use bench::split_equivalence::{SplitSelection, compare};
use dataset::{DetectedDataset, InspectOptions, TextOptions, detect};
use runlog::{
    DeviceChoice, DropPolicyChoice, PolicyTraining, PrecisionChoice, RunConfig, RunFolder,
    TaskChoice,
};
use tape::inplace::to_f64;
use tape::{Cancel, Rng};
use tempfile::TempDir;
use trainer::Plan;
use trainer::internals::{
    AccumulatedBatch, CompressionTask, EffectiveBatch, PrefetchOptions, Sequence, Task,
    TrainLoader, TrainState,
};

type Data = <CompressionTask as Task>::Data;

const STEPS: u64 = 50;
/// Samples per step: the windows of an epoch are not a multiple of it, and the last window is
/// short.
const BATCH: u32 = 7;

/// Sentences of predictable words with one random word.
fn book() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for i in 0..6u64 {
        let stream = Rng::new(4).at(i);
        let line = |n: u64| {
            let letter = |at: u64| (b'a' + (stream.at(n).uniform(at) * 26.0) as u8) as char;
            let name: String = (0..4).map(letter).collect();
            format!("The name of it was {name} and so on. ")
        };
        let text: String = (0..40).map(line).collect();
        std::fs::write(folder.path().join(format!("{i}.txt")), text).unwrap();
    }
    folder
}

fn config(policy: DropPolicyChoice) -> RunConfig {
    RunConfig {
        task: Some(TaskChoice::TokenCompression),
        model: Some("compress_micro".to_owned()),
        policy: Some(policy),
        precision: Some(PrecisionChoice::F64),
        steps: Some(STEPS),
        effective_batch: Some(BATCH),
        tokens: Some(30),
        device: Some(DeviceChoice::Cpu),
        threads: Some(2),
        ..RunConfig::default()
    }
}

fn learning(training: PolicyTraining) -> RunConfig {
    RunConfig {
        policy_training: Some(training),
        ..config(DropPolicyChoice::Learned)
    }
}

fn opened(folder: &TempDir, config: &RunConfig) -> (Plan, Data) {
    let found = detect(
        folder.path(),
        &InspectOptions::default(),
        &TextOptions::default(),
        &|_| {},
    )
    .unwrap();
    assert!(matches!(found, DetectedDataset::Texts(_)));
    let plan = Plan::resolve(config, &found).unwrap();
    assert_eq!(plan.task(), dataset::Task::TokenCompression);
    let run = tempfile::tempdir().unwrap();
    let run = RunFolder {
        path: run.path().to_owned(),
    };
    std::fs::create_dir_all(&run.path).unwrap();
    let data = CompressionTask::open(&plan, &found, &run).unwrap();
    (plan, data)
}

/// The samples of a step.
fn samples(plan: &Plan, data: &Data, step: u64) -> Vec<Sequence> {
    let options = PrefetchOptions::new(plan, 0, 0);
    let mut loader = CompressionTask::train_loader(plan, data, options, step);
    let count = loader.begin(step);
    loader
        .fetch(count)
        .into_iter()
        .map(|s| s.unwrap())
        .collect()
}

fn train_state(plan: &Plan) -> TrainState {
    TrainState::new(plan, &candle_core::Device::Cpu).unwrap()
}

/// The sums of each step, processed in the micro-batches that `split` returns for a number of
/// samples.
fn steps(
    opened: &(Plan, Data),
    count: u64,
    split: impl Fn(u64, usize) -> Vec<usize>,
) -> Vec<AccumulatedBatch> {
    let (plan, data) = opened;
    let mut train_state = train_state(plan);
    let step = |step: u64| {
        let samples = samples(plan, data, step);
        let mut batch = EffectiveBatch::<Sequence>::new(samples.len());
        let sizes = split(step, samples.len());
        batch.pending.deliver(samples.into_iter().map(Ok).collect());
        for size in sizes {
            let result = train_state
                .gradients(Cancel::default(), batch.pending.micro_batch(size))
                .unwrap();
            batch.add(result).unwrap();
        }
        let whole = batch.finish().unwrap();
        assert_eq!(train_state.update(&whole, step).unwrap().skipped, None);
        whole
    };
    (0..count).map(step).collect()
}

/// Checks the gradient of an effective batch in many splits, and the losses of 50 steps in random
/// ones.
#[track_caller]
fn check(name: &str, config: &RunConfig) {
    let folder = book();
    let opened = opened(&folder, config);
    let (plan, data) = &opened;
    let last = plan.steps_per_epoch - 1;
    let (first, short) = (samples(plan, data, 0), samples(plan, data, last));
    assert!(short.len() < first.len(), "the last batch is short");
    let train_state = train_state(plan);
    for batch in [&first, &short] {
        let splits = SplitSelection::Standard { random: 4 };
        let splits = splits.for_batch(batch.len(), Rng::new(2)).unwrap();
        let gradients = |range| train_state.gradients(Cancel::default(), &batch[range]);
        let found = compare(&train_state.parameters, batch.len(), splits, gradients).unwrap();
        let worst = found.worst();
        println!(
            "{name}: gradients differ by {:.1e} ({})",
            worst.difference, worst.name
        );
        assert!(worst.difference <= 1e-10, "{name}: {worst:?}");
        let all_learn = found.parameters.iter().all(|line| line.norm > 0.0);
        assert!(all_learn, "{name}: a parameter has no gradient");
    }
    let unsplit = steps(&opened, STEPS, |_, count| vec![count]);
    let random = |step, count: usize| {
        let (stream, mut left, mut sizes) = (Rng::new(8).at(step), count, Vec::new());
        while left > 0 {
            let size = 1 + (stream.uniform(sizes.len() as u64) * left as f64) as usize;
            sizes.push(size.min(left));
            left -= size.min(left);
        }
        sizes
    };
    let split = steps(&opened, STEPS, random);
    let pairs = split.iter().zip(&unsplit);
    let worst = pairs.clone().map(|(a, b)| (a.loss - b.loss).abs() / b.loss);
    let worst = worst.fold(0.0, f64::max);
    println!("{name}: losses of {STEPS} steps differ by {worst:.1e}");
    assert!(worst <= 1e-4, "{name}: {worst:e}");
    for (a, b) in pairs {
        let (a, b) = (a.metrics.means(), b.metrics.means());
        assert_eq!(a["kept_fraction"], b["kept_fraction"], "{name}");
        assert!((a["reward"] - b["reward"]).abs() < 1e-4, "{name}");
    }
    let (first, last) = (unsplit[0].loss, unsplit[STEPS as usize - 1].loss);
    assert!(last < 0.9 * first, "{name} learns nothing: {first} {last}");
}

#[test]
fn no_split_changes_a_relaxed_policy() {
    check("gumbel", &learning(PolicyTraining::Gumbel));
}

#[test]
fn no_split_changes_a_policy_gradient() {
    check("policy gradient", &learning(PolicyTraining::PolicyGradient));
}

#[test]
fn no_split_changes_a_jointly_learned_policy() {
    check("joint", &learning(PolicyTraining::Joint));
}

#[test]
fn no_split_changes_a_policy_with_a_cost() {
    let config = RunConfig {
        keep_cost: Some(1.0),
        ..learning(PolicyTraining::Joint)
    };
    check("cost", &config);
}

#[test]
fn no_split_changes_a_random_policy() {
    check("random", &config(DropPolicyChoice::Random));
}

#[test]
fn every_policy_keeps_the_requested_fraction() {
    let folder = book();
    for &policy in DropPolicyChoice::ALL {
        for fraction in [0.5, 0.2] {
            let config = RunConfig {
                keep_fraction: Some(fraction),
                ..config(policy)
            };
            let (plan, data) = opened(&folder, &config);
            let train_state = train_state(&plan);
            let samples = samples(&plan, &data, 0);
            let trained = train_state.gradients(Cancel::default(), &samples).unwrap();
            let evaluated = train_state.evaluate(Cancel::default(), &samples).unwrap();
            for sums in [trained.metrics, evaluated.metrics] {
                let found = sums.means()["kept_fraction"];
                assert!(
                    (found - fraction).abs() < 0.01,
                    "{policy} {fraction}: {found}"
                );
            }
        }
    }
}

#[test]
fn a_higher_cost_keeps_fewer_tokens() {
    let folder = book();
    let fraction = |cost| {
        let config = RunConfig {
            keep_cost: Some(cost),
            ..learning(PolicyTraining::Joint)
        };
        let steps = steps(&opened(&folder, &config), 40, |_, count| vec![count]);
        steps[39].metrics.means()["kept_fraction"]
    };
    let (cheap, dear) = (fraction(0.1), fraction(6.0));
    assert!(cheap > 0.7 && dear < 0.3, "{cheap} {dear}");
}

#[test]
fn a_learned_policy_beats_a_random_one() {
    let folder = book();
    let config = RunConfig {
        precision: Some(PrecisionChoice::F32),
        keep_fraction: Some(0.2),
        steps: Some(200),
        learning_rate: Some(3e-3),
        ..learning(PolicyTraining::Joint)
    };
    let loss = |policy, seed| {
        let config = RunConfig {
            policy: Some(policy),
            seed: Some(seed),
            ..config.clone()
        };
        let steps = steps(&opened(&folder, &config), 200, |_, count| vec![count]);
        steps[190..].iter().map(|step| step.loss).sum::<f64>() / 10.0
    };
    // With some seeds, a policy learns nothing in so few steps.
    let mut ratios = [1, 2, 3]
        .map(|seed| loss(DropPolicyChoice::Learned, seed) / loss(DropPolicyChoice::Random, seed));
    ratios.sort_by(f64::total_cmp);
    assert!(ratios[1] < 0.8, "{ratios:?}");
}

#[test]
fn one_backward_pass_trains_both_networks() {
    let folder = book();
    let (plan, data) = opened(&folder, &learning(PolicyTraining::Joint));
    let train_state = train_state(&plan);
    let result = train_state.gradients(Cancel::default(), &samples(&plan, &data, 0));
    let result = result.unwrap();
    for part in ["model.", "policy."] {
        let of_part = train_state.parameters.iter().zip(&result.gradients);
        let mut of_part = of_part.filter(|(p, _)| p.name.starts_with(part));
        assert!(of_part.all(|(_, g)| to_f64(g).unwrap().iter().any(|v| *v != 0.0)));
    }
}
