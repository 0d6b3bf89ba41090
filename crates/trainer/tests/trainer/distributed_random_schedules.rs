//! Groups of 2 to 8 ranks with random schedules: ranks claim less than they could, come late, rest,
//! give samples back, and free their weights for a while. Whatever they do, the training is that of
//! one machine. A recorded schedule repeats the bits.
//!
//! `EBB_GROUP_SCHEDULES` sets the number of schedules and `EBB_GROUP_SEED` the first of them; the
//! seed alone repeats one.

use crate::distributed_runs::{
    SAVED_STEPS, Trained, config, delayed, distance, each_rank, forward_members, of_documents,
    of_images, of_texts, train, train_with, wrapped, write_random_memory,
};
use crate::watchdog::Watchdog;
use distributed::{Claim, ClaimRequest, Ended, Group, Share, Values};
use runlog::{CheckpointInterval, PrecisionChoice, RunConfig, TaskChoice};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tape::Rng;
use trainer::{Control, Replay, RunGroup};

/// Steps of a schedule in every test run, and in `make test-long`.
const STEPS: u64 = 30;
const LONG_STEPS: u64 = 50;
/// Steps of a schedule that is replayed.
const REPLAYED: u64 = 12;
/// Schedules that every test run plays, one per task; `make test-long` plays more.
const SCHEDULES: u64 = TASKS.len() as u64;
/// From this number of schedules on, some of them let a rank free its weights.
const MANY_SCHEDULES: u64 = 100;
/// A schedule that takes longer hangs.
const HANGS_AFTER: Duration = Duration::from_secs(300);
/// Largest difference from one machine in f64: of a loss, and of the weights as a part of the way.
const LARGEST_DIFFERENCE: f64 = 1e-12;

/// What the ranks of all schedules did.
#[derive(Default)]
struct Counts {
    claims: AtomicU64,
    /// Claims that brought samples of other ranks, or samples that were given back.
    taken_over: AtomicU64,
    given_back: AtomicU64,
    /// Steps in which a rank claimed nothing for a while.
    rests: AtomicU64,
}

impl Counts {
    fn all(&self) -> [u64; 4] {
        let counts = [
            &self.claims,
            &self.taken_over,
            &self.given_back,
            &self.rests,
        ];
        counts.map(|count| count.load(Ordering::Relaxed))
    }
}

fn add_one(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

/// A rank that behaves at random by a seed.
struct Erratic {
    group: Box<dyn Group>,
    random: Rng,
    drawn: u64,
    /// Number of calls to come in which the rank claims nothing.
    rests: u64,
    /// The rest of the rank's own range, as its last claim of the step was told.
    announced: Option<Range<u32>>,
    counts: Arc<Counts>,
}

impl Erratic {
    fn new(group: Box<dyn Group>, seed: u64) -> Self {
        let random = Rng::new(1000 * seed + group.rank() as u64);
        Erratic {
            group,
            random,
            drawn: 0,
            rests: 0,
            announced: None,
            counts: Arc::default(),
        }
    }

    fn draw(&mut self) -> f64 {
        self.drawn += 1;
        self.random.uniform(self.drawn)
    }

    /// From 1 to `most`.
    fn some_of(&mut self, most: u32) -> u32 {
        1 + (self.draw() * f64::from(most)) as u32
    }

    /// Claims samples, and counts whose they are.
    fn ask(&mut self, request: ClaimRequest) -> distributed::Result<Claim> {
        let claim = self.group.claim(request)?;
        if let Claim::Samples { samples, next } = &claim {
            add_one(&self.counts.claims);
            let is_other = |own: Range<u32>| own.is_empty() || own.start != samples.start;
            if self.announced.replace(next.clone()).is_some_and(is_other) {
                add_one(&self.counts.taken_over);
            }
        }
        Ok(claim)
    }
}

impl Group for Erratic {
    forward_members!();

    fn begin_step(&mut self, samples: u32) {
        self.announced = None;
        if self.draw() < 0.15 {
            self.rests = (60.0 * self.draw()) as u64;
            add_one(&self.counts.rests);
        }
        self.group.begin_step(samples);
    }

    fn claim(&mut self, request: ClaimRequest) -> distributed::Result<Claim> {
        if request.at_most == 0 {
            return self.group.claim(request);
        }
        if self.rests > 0 {
            self.rests -= 1;
            let at_most = 0;
            return self.group.claim(ClaimRequest { at_most, ..request });
        }
        if self.draw() < 0.2 {
            std::thread::sleep(Duration::from_secs_f64(0.003 * self.draw()));
        }
        let at_most = self.some_of(request.at_most);
        let claim = self.ask(ClaimRequest { at_most, ..request })?;
        if matches!(claim, Claim::Samples { .. }) && self.draw() < 0.2 {
            let at_most = self.some_of(request.at_most);
            add_one(&self.counts.given_back);
            return self.ask(ClaimRequest {
                at_most,
                ended: Some(Ended::GivenBack),
                stop: false,
            });
        }
        Ok(claim)
    }

    fn sum(&mut self, values: Values) -> distributed::Result<Values> {
        self.group.sum(values)
    }

    fn replay(&mut self, ledgers: Vec<Vec<Share>>) {
        self.group.replay(ledgers);
    }

    fn ledger(&self) -> Vec<Share> {
        self.group.ledger()
    }

    fn check_alive(&mut self) -> distributed::Result<()> {
        self.group.check_alive()
    }

    fn fail(&mut self, message: &str) {
        self.group.fail(message);
    }

    fn leave(&mut self) -> distributed::Result<()> {
        self.group.leave()
    }
}

fn of_compression(folder: &Path) -> RunConfig {
    RunConfig {
        task: Some(TaskChoice::TokenCompression),
        model: Some("compress_micro".to_owned()),
        vocabulary: None,
        ..of_documents(folder)
    }
}

fn of_targets(folder: &Path) -> RunConfig {
    let path = folder.join("birds.csv");
    let row = |number: u64| {
        let stream = Rng::new(5).at(number);
        let bytes: Vec<u8> = (0..3 * 16 * 16)
            .map(|at| (255.0 * stream.uniform(at)) as u8)
            .collect();
        let file = format!("{number}.png");
        let image = image::RgbImage::from_raw(16, 16, bytes).unwrap();
        image.save(folder.join(&file)).unwrap();
        format!("{file},{:.3}\n", 1.0 + stream.uniform(9999))
    };
    let rows: String = (0..30).map(row).collect();
    std::fs::write(path, format!("file,grams\n{rows}")).unwrap();
    RunConfig {
        model: Some("convnet".to_owned()),
        image_size: Some(16),
        folder: Some(folder.to_owned()),
        ..config(folder)
    }
}

/// A task, and its samples in a folder.
#[derive(Clone, Copy)]
struct Setup {
    name: &'static str,
    config: fn(&Path) -> RunConfig,
}

const fn setup(name: &'static str, config: fn(&Path) -> RunConfig) -> Setup {
    Setup { name, config }
}

/// Every task, and images with regression targets.
const TASKS: [Setup; 5] = [
    setup("images", of_images),
    setup("texts", of_texts),
    setup("documents", of_documents),
    setup("token compression", of_compression),
    setup("regression targets", of_targets),
];

/// A folder with the samples of a task, and its training on one machine.
struct Reference {
    name: &'static str,
    config: RunConfig,
    alone: Trained,
    _folder: tempfile::TempDir,
}

impl Reference {
    fn new(setup: Setup, precision: PrecisionChoice, steps: u64) -> Self {
        let (name, folder) = (setup.name, tempfile::tempdir().unwrap());
        let config = RunConfig {
            precision: Some(precision),
            steps: Some(steps),
            checkpoint_every: Some(CheckpointInterval::Steps(steps)),
            ..(setup.config)(folder.path())
        };
        let saving = RunConfig {
            checkpoint_every: Some(CheckpointInterval::Steps(SAVED_STEPS)),
            keep_checkpoints: Some(100),
            ..config.clone()
        };
        let alone = train(&saving, RunGroup::default(), Control::default());
        assert_eq!(alone.outcome.as_ref().unwrap().step, steps, "{name}");
        Reference {
            name,
            config,
            alone,
            _folder: folder,
        }
    }

    /// The largest difference of a loss relative to it (in f32 at least to 1), and the difference
    /// of the weights as a part of the way that they have travelled.
    fn differences(&self, group: &Trained) -> (f64, f64) {
        let (found, expected) = (group.losses(), self.alone.losses());
        assert_eq!(found.len(), expected.len());
        // In f32, a loss below 1 is rounded about as much as the larger values that it is made of.
        let is_exact = self.config.precision == Some(PrecisionChoice::F64);
        let least = if is_exact { 0.0 } else { 1.0 };
        let losses = found.into_iter().zip(expected);
        let losses = losses.map(|(a, b)| (a - b).abs() / b.abs().max(least));
        let steps = self.config.steps.unwrap();
        let last = self.alone.weights(steps);
        let way = distance(&self.alone.weights(SAVED_STEPS), &last);
        assert!(way > 0.0);
        let weights = distance(&group.weights(steps), &last) / way;
        (losses.fold(0.0, f64::max), weights)
    }
}

/// Trains by the random schedule of a seed. In every fourth one, rank 1 frees its weights while the
/// memory of its machine is short.
fn train_at_random(
    config: &RunConfig,
    size: usize,
    seed: u64,
    counts: &Arc<Counts>,
) -> Vec<Trained> {
    let configs: Vec<RunConfig> = (0..size as u64)
        .map(|rank| RunConfig {
            micro_batch: Some(1 + ((seed + rank) % 4) as u32),
            ..config.clone()
        })
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("memory");
    write_random_memory(&script, seed);
    let start = |group: Box<dyn Group>, config: &RunConfig| {
        let is_short = seed % 4 == 3 && group.rank() == 1;
        let group = RunGroup::new(Box::new(Erratic {
            counts: Arc::clone(counts),
            ..Erratic::new(group, seed)
        }));
        if is_short {
            // The controller suspends only what it may also make smaller.
            let micro_batch = None;
            let config = RunConfig {
                micro_batch,
                ..config.clone()
            };
            return train_with(&config, group, Some(script.clone()));
        }
        train_with(config, group, None)
    };
    each_rank(&configs, delayed(seed), &start)
}

/// A number from the environment.
fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number"))
}

/// Whether many schedules are played.
fn is_long() -> bool {
    setting("EBB_GROUP_SCHEDULES").is_some_and(|count| count > SCHEDULES)
}

/// The seeds to play.
fn seeds() -> Range<u64> {
    let count = setting("EBB_GROUP_SCHEDULES");
    match setting("EBB_GROUP_SEED") {
        Some(first) => first..first + count.unwrap_or(1),
        None => 0..count.unwrap_or(SCHEDULES),
    }
}

/// The task of a schedule, and its number of ranks. Successive seeds go through all tasks, and the
/// seeds of one task through all numbers of ranks.
fn task_and_size(seed: u64) -> (usize, usize) {
    let (round, task) = (seed as usize / TASKS.len(), seed as usize % TASKS.len());
    (task, [2, 3, 4, 8][(round + task) % 4])
}

/// The largest differences over all schedules, and what failed.
#[derive(Default)]
struct Found {
    losses: f64,
    weights: f64,
    /// Schedules in which a rank freed its weights.
    suspended: u64,
    failures: Vec<String>,
}

impl Found {
    /// Compares the ranks of one schedule with one machine.
    fn add(&mut self, name: &str, reference: &Reference, ranks: &[Trained]) {
        if let Some(failed) = ranks.iter().find(|rank| rank.outcome.is_err()) {
            self.failures.push(format!("{name}: {}", failed.error()));
            return;
        }
        self.suspended += u64::from(ranks[0].has_suspended());
        let (losses, weights) = reference.differences(&ranks[0]);
        println!("{name}: losses {losses:.1e}, weights {weights:.1e}");
        let is_same = losses <= LARGEST_DIFFERENCE && weights <= LARGEST_DIFFERENCE;
        if !is_same {
            let failure = format!("{name}: losses differ by {losses:e}, weights by {weights:e}");
            self.failures.push(failure);
        }
        self.losses = self.losses.max(losses);
        self.weights = self.weights.max(weights);
    }
}

#[test]
fn random_schedules_train_as_one_machine() {
    let (seeds, counts) = (seeds(), Arc::new(Counts::default()));
    let watchdog = Watchdog::new("EBB_GROUP_SEED", HANGS_AFTER);
    let mut found = Found::default();
    let steps = if is_long() { LONG_STEPS } else { STEPS };
    for (task, setup) in TASKS.into_iter().enumerate() {
        let of_task: Vec<u64> = seeds
            .clone()
            .filter(|&s| task_and_size(s).0 == task)
            .collect();
        if of_task.is_empty() {
            continue;
        }
        let reference = Reference::new(setup, PrecisionChoice::F64, steps);
        for seed in of_task {
            let (_, size) = task_and_size(seed);
            let name = format!("{}, {size} ranks, EBB_GROUP_SEED={seed}", reference.name);
            watchdog.begin(seed);
            let ranks = train_at_random(&reference.config, size, seed, &counts);
            found.add(&name, &reference, &ranks);
        }
    }
    let count = seeds.end - seeds.start;
    let [claims, taken_over, given_back, rests] = counts.all();
    println!(
        "{count} schedules, in {} of them a rank freed its weights; {claims} claims, {taken_over} of samples of other ranks, {given_back} given back, {rests} rests; losses differ by at most {:.1e}, weights by {:.1e} of the way",
        found.suspended, found.losses, found.weights
    );
    let failures = &found.failures;
    assert!(
        failures.is_empty(),
        "{} failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(taken_over > 0 && given_back > 0 && rests > 0);
    assert!(found.suspended > 0 || count < MANY_SCHEDULES);
}

#[test]
fn rounding_in_f32_stays_small() {
    // All tasks if there is time for many schedules. The order of the sums depends on the timing of
    // the threads, and with it their rounding: one run of many exceeds the bar of the long test.
    let (tasks, steps, most) = if is_long() {
        (&TASKS[..], 100, 1e-5)
    } else {
        (&TASKS[..1], 50, 1e-4)
    };
    for setup in tasks {
        let reference = Reference::new(*setup, PrecisionChoice::F32, steps);
        let ranks = train_at_random(&reference.config, 3, 1, &Arc::default());
        let (losses, weights) = reference.differences(&ranks[0]);
        println!(
            "{}, f32, {steps} steps: losses differ by {losses:.1e}, weights by {weights:.1e} of the way",
            reference.name
        );
        assert!(losses <= most && weights <= 5e-4, "{}", reference.name);
    }
}

/// Changes the sign of the largest gradient at rank 1 in one step: the norm of the gradients stays
/// the same.
struct Flipping {
    group: Box<dyn Group>,
    sums: Arc<Mutex<u64>>,
}

impl Group for Flipping {
    forward_members!();

    fn begin_step(&mut self, samples: u32) {
        self.group.begin_step(samples);
    }

    fn claim(&mut self, request: ClaimRequest) -> distributed::Result<Claim> {
        self.group.claim(request)
    }

    fn sum(&mut self, values: Values) -> distributed::Result<Values> {
        let mut sum = self.group.sum(values)?;
        let mut sums = self.sums.lock().unwrap();
        *sums += u64::from(self.rank() == 1);
        if let Values::Single(values) = &mut sum
            && self.group.rank() == 1
            && *sums == 40
        {
            let values = values.iter_mut();
            let largest = values.max_by(|a, b| a.abs().total_cmp(&b.abs()));
            let largest = largest.expect("there are gradients");
            *largest = -*largest;
        }
        Ok(sum)
    }

    fn ledger(&self) -> Vec<Share> {
        self.group.ledger()
    }

    fn fail(&mut self, message: &str) {
        self.group.fail(message);
    }

    fn leave(&mut self) -> distributed::Result<()> {
        self.group.leave()
    }
}

#[test]
fn all_ranks_have_the_same_weights_after_every_step() {
    let folder = tempfile::tempdir().unwrap();
    let steps = if is_long() { 100 } else { 40 };
    let config = RunConfig {
        precision: Some(PrecisionChoice::F32),
        steps: Some(steps),
        checkpoint_every: Some(CheckpointInterval::Steps(steps)),
        ..of_images(folder.path())
    };
    let compared = |size: usize, seed| {
        let start = |group: Box<dyn Group>, config: &RunConfig| {
            let group = RunGroup::new(Box::new(Erratic::new(group, seed)));
            train(config, group.comparing_weights_every(1), Control::default())
        };
        each_rank(&vec![config.clone(); size], delayed(seed), &start)
    };
    for size in [2, 3] {
        for rank in compared(size, 12) {
            assert_eq!(rank.outcome.as_ref().unwrap().step, steps);
        }
        println!(
            "{size} ranks: the SHA-256 of all weights is the same after each of {steps} steps"
        );
    }
    // A wrong gradient at one rank is found after the step.
    let config = RunConfig {
        steps: Some(100),
        ..config.clone()
    };
    let sums = Arc::default();
    let start = |group: Box<dyn Group>, config: &RunConfig| {
        let sums = Arc::clone(&sums);
        let group = RunGroup::new(Box::new(Flipping { group, sums }));
        train(config, group.comparing_weights_every(1), Control::default())
    };
    let ranks = each_rank(&vec![config.clone(); 2], delayed(13), &start);
    for rank in &ranks {
        let error = rank.error();
        assert!(error.contains("differ after the last step"), "{error}");
    }
}

#[test]
fn a_replayed_group_repeats_the_bits() {
    let folder = tempfile::tempdir().unwrap();
    let config = RunConfig {
        precision: Some(PrecisionChoice::F32),
        steps: Some(REPLAYED),
        checkpoint_every: Some(CheckpointInterval::Steps(REPLAYED)),
        ..of_images(folder.path())
    };
    for size in [2, 3] {
        let configs = vec![config.clone(); size];
        let seeds = if is_long() { 20..23 } else { 20..22 };
        for seed in seeds {
            let wrap =
                |group: Box<dyn Group>| -> Box<dyn Group> { Box::new(Erratic::new(group, seed)) };
            let first = wrapped(&configs, delayed(seed), &wrap);
            let replay = Replay::from_events(&first[0].events);
            assert_eq!(replay.ranks() as usize, size);
            let start = |group: Box<dyn Group>, config: &RunConfig| {
                let is_first = group.rank() == 0;
                // Other delays, rests and give-backs than before.
                let group = RunGroup::new(Box::new(Erratic::new(group, seed + 100)));
                let replay = is_first.then(|| replay.clone());
                crate::distributed_runs::train_replay(config, group, replay)
            };
            let again = each_rank(&configs, delayed(seed + 50), &start);
            assert_eq!(again[0].losses(), first[0].losses(), "seed {seed}");
            let (found, expected) = (again[0].weights(REPLAYED), first[0].weights(REPLAYED));
            assert!(found == expected, "seed {seed}: the same bits");
        }
        println!("{size} ranks: all replays end on the same bits");
    }
    // Not on another number of machines.
    let first = wrapped(&[config.clone(), config.clone()], delayed(1), &|group| {
        group
    });
    let replay = Replay::from_events(&first[0].events);
    let alone = crate::distributed_runs::train_replay(&config, RunGroup::default(), Some(replay));
    let error = alone.error();
    assert!(
        error.contains("the recorded run had 2 processes, but this run has 1 process"),
        "{error}"
    );
}
