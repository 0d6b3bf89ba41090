//! Several ranks train one run: whatever they claim, the weights and losses are those of a run on
//! one machine. Differences between the ranks are named before the first step.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use dataset::{InspectOptions, TextOptions, detect};
use distributed::{
    Claim, ClaimRequest, Ended, Group, Member, Share, ThreadOptions, ThreadRank, Values,
    thread_ranks,
};
use runlog::{
    Augmentation, BaselineChoice, CheckpointInterval, DeviceChoice, PrecisionChoice, RunConfig,
    RunEvent, RunFolder, RunStore, StopReason,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use tape::Rng;
use tape::inplace::to_f64;
use tempfile::TempDir;
use trainer::internals::{ImageSample, ImageTask, PrefetchOptions, Task, TrainLoader};
use trainer::{
    Control, Machine, MemoryScript, Plan, Replay, Request, Result, RunContext, RunGroup,
    RunOutcome, ScriptBy,
};

const STEPS: u64 = 20;
/// Longest time until a rank that was suspended works again, or until all ranks have claimed.
const PATIENCE: Duration = Duration::from_secs(90);

/// Two classes of noise, eleven images each.
fn images(folder: &Path) -> PathBuf {
    for (label, class) in ["jay", "owl"].into_iter().enumerate() {
        let class = folder.join("birds").join(class);
        std::fs::create_dir_all(&class).unwrap();
        for number in 0..11u32 {
            let stream = Rng::new(label as u64).at(u64::from(number));
            let image = image::RgbImage::from_fn(16, 16, |x, y| {
                let shade = stream.uniform(u64::from(16 * y + x)) * 200.0;
                image::Rgb([shade as u8, 40 * label as u8, 90])
            });
            image.save(class.join(format!("{number}.png"))).unwrap();
        }
    }
    folder.join("birds")
}

/// Labeled texts of very different lengths.
fn texts(folder: &Path) -> PathBuf {
    let words = ["rain", "cash", "win", "home", "see", "you", "soon", "prize"];
    let row = |i: u64| {
        let stream = Rng::new(3).at(i);
        let label = if stream.uniform(0) < 0.4 {
            "spam"
        } else {
            "ham"
        };
        let count = 1 + (stream.uniform(1) * stream.uniform(2) * 20.0) as u64;
        let word = |n: u64| words[(stream.uniform(10 + n) * words.len() as f64) as usize];
        let text: Vec<&str> = (0..count).map(word).collect();
        format!("{label}\t{} {i}\n", text.join(" "))
    };
    let path = folder.join("sms.tsv");
    std::fs::write(&path, (0..60).map(row).collect::<String>()).unwrap();
    path
}

/// Documents, for a language model.
fn book(folder: &Path) -> PathBuf {
    let folder = folder.join("book");
    std::fs::create_dir_all(&folder).unwrap();
    for i in 0..9u64 {
        let text = format!("Chapter {i}. ") + &"It rained all day. ".repeat(1 + 7 * i as usize);
        std::fs::write(folder.join(format!("{i}.txt")), text).unwrap();
    }
    folder
}

pub(crate) fn config(folder: &Path) -> RunConfig {
    RunConfig {
        folder: Some(folder.to_owned()),
        precision: Some(PrecisionChoice::F64),
        device: Some(DeviceChoice::Cpu),
        threads: Some(1),
        steps: Some(STEPS),
        effective_batch: Some(7),
        micro_batch: Some(2),
        baseline: None,
        ..RunConfig::default()
    }
}

pub(crate) fn of_images(folder: &Path) -> RunConfig {
    RunConfig {
        model: Some("convnet".to_owned()),
        image_size: Some(16),
        augment: Some(Augmentation::Standard),
        ..config(&images(folder))
    }
}

pub(crate) fn of_texts(folder: &Path) -> RunConfig {
    RunConfig {
        tokens: Some(24),
        baseline: Some(BaselineChoice::None),
        ..config(&texts(folder))
    }
}

pub(crate) fn of_documents(folder: &Path) -> RunConfig {
    RunConfig {
        model: Some("gpt_micro".to_owned()),
        tokens: Some(16),
        vocabulary: Some(300),
        ..config(&book(folder))
    }
}

/// How the ranks of a test take turns.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Turns {
    /// As they come.
    Free,
    /// In each step, no rank works before all ranks have claimed something.
    Together,
    /// In each step, rank 0 asks only after the others have processed everything.
    Rank0Last,
}

/// The places where ranks meet: how often they have passed each of them.
#[derive(Default)]
struct Meetings {
    passed: Mutex<BTreeMap<u64, usize>>,
    changed: Condvar,
}

impl Meetings {
    fn pass(&self, step: u64) {
        *self.passed.lock().unwrap().entry(step).or_default() += 1;
        self.changed.notify_all();
    }

    /// Waits until `count` ranks have passed the meeting of a step.
    fn wait(&self, step: u64, count: usize) {
        let passed = self.passed.lock().unwrap();
        let is_early = |passed: &mut BTreeMap<u64, usize>| passed.get(&step) < Some(&count);
        let waited = self.changed.wait_timeout_while(passed, PATIENCE, is_early);
        assert!(!waited.unwrap().1.timed_out(), "step {step}");
    }
}

/// The samples of a step of which every rank gets some if all ranks claim. The last step of an
/// epoch has fewer.
const FULL_STEP: u32 = 7;

/// Counts the samples that a rank confirms, and the full steps in which it confirms none.
struct Counting {
    group: Box<dyn Group>,
    turns: Turns,
    meetings: Arc<Meetings>,
    step: u64,
    samples: u32,
    has_met: bool,
    claimed: u32,
    confirmed: Arc<AtomicU32>,
    confirmed_in: u64,
    idle: Arc<AtomicU64>,
}

impl Counting {
    /// Meets the other ranks once in each step, after `claim`.
    fn meet(&mut self, claim: &Claim) {
        let others = self.group.size() - 1;
        let is_first = self.group.rank() == 0;
        let has_samples = matches!(claim, Claim::Samples { .. });
        match self.turns {
            Turns::Together if has_samples && !self.has_met && self.samples >= FULL_STEP => {
                self.meetings.pass(self.step);
                self.meetings.wait(self.step, others + 1);
            }
            Turns::Rank0Last if !is_first && !has_samples && !self.has_met => {
                self.meetings.pass(self.step);
            }
            _ => return,
        }
        self.has_met = true;
    }
}

impl Group for Counting {
    fn rank(&self) -> usize {
        self.group.rank()
    }

    fn size(&self) -> usize {
        self.group.size()
    }

    fn member(&self, rank: usize) -> Member {
        self.group.member(rank)
    }

    fn gather(&mut self, mine: Vec<u8>) -> distributed::Result<Vec<Vec<u8>>> {
        self.group.gather(mine)
    }

    fn begin_step(&mut self, samples: u32) {
        self.step += 1;
        self.samples = samples;
        self.has_met = false;
        self.group.begin_step(samples);
    }

    fn claim(&mut self, request: ClaimRequest) -> distributed::Result<Claim> {
        if request.ended == Some(Ended::Confirmed) {
            self.confirmed.fetch_add(self.claimed, Ordering::Relaxed);
            self.confirmed_in = self.step;
        }
        if self.turns == Turns::Rank0Last && self.group.rank() == 0 && !request.stop {
            self.meetings.wait(self.step, self.group.size() - 1);
        }
        let claim = self.group.claim(request)?;
        if let Claim::Samples { samples, .. } = &claim {
            self.claimed = samples.end - samples.start;
        }
        let is_idle = self.samples >= FULL_STEP && self.confirmed_in != self.step;
        if claim == Claim::Complete && is_idle {
            self.idle.fetch_add(1, Ordering::Relaxed);
        }
        self.meet(&claim);
        Ok(claim)
    }

    fn sum(&mut self, values: Values) -> distributed::Result<Values> {
        self.group.sum(values)
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

/// What a rank of a run returned, and the run itself.
pub(crate) struct Trained {
    /// Samples that the rank confirmed, in a group, and the full steps in which it did none.
    confirmed: u32,
    idle: u64,
    pub(crate) outcome: Result<RunOutcome>,
    pub(crate) events: Vec<RunEvent>,
    pub(crate) run: RunFolder,
    _folder: TempDir,
}

impl Trained {
    pub(crate) fn losses(&self) -> Vec<f64> {
        let loss = |event: &RunEvent| match event {
            RunEvent::Step { loss, .. } => Some(*loss),
            _ => None,
        };
        self.events.iter().filter_map(loss).collect()
    }

    /// Number of samples of all steps.
    fn processed(&self) -> u32 {
        let count = |event: &RunEvent| match event {
            RunEvent::Step { micro_batches, .. } => micro_batches.iter().sum(),
            _ => 0,
        };
        self.events.iter().map(count).sum()
    }

    /// Number of micro-batches of all steps.
    fn micro_batches(&self) -> usize {
        let count = |event: &RunEvent| match event {
            RunEvent::Step { micro_batches, .. } => micro_batches.len(),
            _ => 0,
        };
        self.events.iter().map(count).sum()
    }

    /// The weights after `step`.
    pub(crate) fn weights(&self, step: u64) -> BTreeMap<String, Vec<f64>> {
        let path = self.run.path.join(RunFolder::checkpoint_name(step));
        let path = path.join("model.safetensors");
        let loaded = candle_core::safetensors::load(path, &candle_core::Device::Cpu).unwrap();
        let values = loaded.into_iter();
        values
            .map(|(name, tensor)| (name, to_f64(&tensor).unwrap()))
            .collect()
    }

    /// Whether another rank has freed its weights, as rank 0 sees it.
    pub(crate) fn has_suspended(&self) -> bool {
        let suspended = |event: &RunEvent| matches!(event, RunEvent::Machines { machines, .. } if machines.iter().any(|machine| machine.is_suspended));
        self.events.iter().any(suspended)
    }

    pub(crate) fn error(&self) -> String {
        self.outcome.as_ref().unwrap_err().to_string()
    }
}

/// How a rank trains.
#[derive(Default)]
struct Session {
    control: Control,
    /// The run to resume; rank 0 alone has its folder.
    resumes: Option<RunFolder>,
    /// Stops after this step.
    stops_at: Option<u64>,
    machine: Machine,
    /// The folder of a resumed run's samples on this machine.
    data_folder: Option<PathBuf>,
    replay: Option<Replay>,
}

/// Trains as one rank. A rank that fails informs the others, as the terminal does.
pub(crate) fn train(config: &RunConfig, group: RunGroup, control: Control) -> Trained {
    let session = Session {
        control,
        ..Session::default()
    };
    train_session(config, group, session, &mut |_| {})
}

/// Trains as one rank, on the machine whose memory the script describes.
pub(crate) fn train_with(config: &RunConfig, group: RunGroup, script: Option<PathBuf>) -> Trained {
    let by = ScriptBy::Decision;
    let session = Session {
        machine: Machine {
            script: script.map(|path| MemoryScript { path, by }),
            ..Machine::default()
        },
        ..Session::default()
    };
    train_session(config, group, session, &mut |_| {})
}

/// Trains as one rank, and repeats a recorded run.
pub(crate) fn train_replay(config: &RunConfig, group: RunGroup, replay: Option<Replay>) -> Trained {
    let session = Session {
        replay,
        ..Session::default()
    };
    train_session(config, group, session, &mut |_| {})
}

/// Trains or resumes as one rank; `observer` sees every event.
fn train_session(
    config: &RunConfig,
    group: RunGroup,
    session: Session,
    observer: &mut (dyn FnMut(&RunEvent) + Send),
) -> Trained {
    let folder = tempfile::tempdir().unwrap();
    let resumed = session.resumes.clone().filter(|_| group.keeps_run());
    let run = resumed.unwrap_or_else(|| {
        let store = RunStore::open(folder.path().to_owned());
        store.create("run").unwrap()
    });
    let context = RunContext {
        control: session.control.clone(),
        group: group.clone(),
        machine: session.machine,
        data_folder: session.data_folder,
        replay: session.replay,
        ..RunContext::default()
    };
    let mut events = Vec::new();
    let mut receive = |event: &RunEvent| {
        if let RunEvent::Step { step, .. } = event
            && session.stops_at == Some(*step)
        {
            session.control.send(Request::Stop);
        }
        observer(event);
        events.push(event.clone());
    };
    let outcome = if session.resumes.is_some() {
        trainer::resume_to(&run, None, context, &mut receive)
    } else {
        let data = config.folder.as_ref().unwrap();
        let (images, texts) = (InspectOptions::default(), TextOptions::default());
        let found = detect(data, &images, &texts, &|_| {}).unwrap();
        let plan = Plan::check(config, &found).unwrap();
        trainer::start(plan, found, &run, context, &mut receive)
    };
    if let Err(error) = &outcome {
        group.fail(&error.to_string());
    }
    let left = group.leave();
    Trained {
        confirmed: 0,
        idle: 0,
        outcome: outcome.and_then(|outcome| left.map(|()| outcome)),
        events,
        run,
        _folder: folder,
    }
}

/// Resumes a run on several ranks.
fn resume_in_group(run: &RunFolder, sessions: Vec<Session>) -> Vec<Trained> {
    let ranks = thread_ranks(sessions.len(), delayed(9)).into_iter();
    std::thread::scope(|scope| {
        let start = |(rank, session): (ThreadRank, Session)| {
            let session = Session {
                resumes: Some(run.clone()),
                ..session
            };
            scope.spawn(move || {
                let group = RunGroup::new(rank.join().unwrap());
                train_session(&RunConfig::default(), group, session, &mut |_| {})
            })
        };
        let threads: Vec<_> = ranks.zip(sessions).map(start).collect();
        let trained = threads.into_iter().map(|thread| thread.join().unwrap());
        trained.collect()
    })
}

/// Trains in a group whose rank `i` has `configs[i]`.
fn in_group(configs: &[RunConfig], options: ThreadOptions) -> Vec<Trained> {
    in_turns(configs, options, Turns::Free)
}

fn in_turns(configs: &[RunConfig], options: ThreadOptions, turns: Turns) -> Vec<Trained> {
    let counts: Vec<_> = configs.iter().map(|_| Default::default()).collect();
    let counts: Vec<(Arc<AtomicU32>, Arc<AtomicU64>)> = counts;
    let meetings = Arc::new(Meetings::default());
    let wrap = |group: Box<dyn Group>| -> Box<dyn Group> {
        let (confirmed, idle) = counts[group.rank()].clone();
        Box::new(Counting {
            group,
            turns,
            meetings: Arc::clone(&meetings),
            step: 0,
            samples: 0,
            has_met: false,
            claimed: 0,
            confirmed,
            confirmed_in: 0,
            idle,
        })
    };
    let trained = wrapped(configs, options, &wrap).into_iter();
    let counted = trained
        .zip(&counts)
        .map(|(trained, (confirmed, idle))| Trained {
            confirmed: confirmed.load(Ordering::Relaxed),
            idle: idle.load(Ordering::Relaxed),
            ..trained
        });
    counted.collect()
}

/// Trains in a group, each of whose ranks uses it through `wrap`.
pub(crate) fn wrapped(
    configs: &[RunConfig],
    options: ThreadOptions,
    wrap: &(dyn Fn(Box<dyn Group>) -> Box<dyn Group> + Sync),
) -> Vec<Trained> {
    let start =
        |group, config: &RunConfig| train(config, RunGroup::new(wrap(group)), Control::default());
    each_rank(configs, options, &start)
}

/// Calls `train` on each rank of a group with its config.
pub(crate) fn each_rank(
    configs: &[RunConfig],
    options: ThreadOptions,
    train: &(dyn Fn(Box<dyn Group>, &RunConfig) -> Trained + Sync),
) -> Vec<Trained> {
    let ranks = thread_ranks(configs.len(), options);
    std::thread::scope(|scope| {
        let start = |(rank, config): (ThreadRank, _)| {
            scope.spawn(move || train(rank.join().unwrap(), config))
        };
        let threads: Vec<_> = ranks.into_iter().zip(configs).map(start).collect();
        let trained = threads.into_iter().map(|thread| thread.join().unwrap());
        trained.collect()
    })
}

pub(crate) fn delayed(seed: u64) -> ThreadOptions {
    ThreadOptions {
        seed,
        max_delay: Duration::from_millis(2),
        ..ThreadOptions::default()
    }
}

/// Distance between two sets of weights.
pub(crate) fn distance(a: &BTreeMap<String, Vec<f64>>, b: &BTreeMap<String, Vec<f64>>) -> f64 {
    assert!(a.keys().eq(b.keys()));
    let squares = a.values().flatten().zip(b.values().flatten());
    squares.map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

/// Trains alone, and in groups of 2 and 3 ranks with different micro-batches and seeded delays.
#[track_caller]
fn check_equality(name: &str, config: RunConfig) {
    let config = RunConfig {
        checkpoint_every: Some(CheckpointInterval::Steps(1)),
        keep_checkpoints: Some(100),
        ..config
    };
    let alone = train(&config, RunGroup::default(), Control::default());
    assert_eq!(alone.outcome.as_ref().unwrap().step, STEPS);
    let last = alone.weights(STEPS);
    let way = distance(&alone.weights(1), &last);
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
        // In the first step, a rank that measures its memory may give back all that it claims.
        let idle: Vec<u64> = ranks.iter().map(|rank| rank.idle).collect();
        let works = idle.iter().all(|steps| *steps <= 1);
        assert!(works, "every rank works in every full step: {idle:?}");
        let drift = distance(&ranks[0].weights(STEPS), &last) / way;
        let losses = ranks[0].losses().into_iter().zip(alone.losses());
        let worst = losses.map(|(a, b)| (a - b).abs() / b).fold(0.0, f64::max);
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
    let losses = ranks[0].losses().into_iter().zip(alone.losses());
    let worst = losses.map(|(a, b)| (a - b).abs() / b).fold(0.0, f64::max);
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
        let trained: Vec<Trained> = std::thread::scope(|scope| {
            let start = |(index, rank): (usize, ThreadRank)| {
                let (config, control) = (config.clone(), Control::default());
                if index == stopped {
                    let control = control.clone();
                    scope.spawn(move || {
                        std::thread::sleep(Duration::from_millis(1500));
                        control.send(Request::Stop);
                    });
                }
                scope.spawn(move || train(&config, RunGroup::new(rank.join().unwrap()), control))
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
    let plan = Plan::check(&config, &found).unwrap();
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
    let way = distance(&whole.weights(1), &expected);
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
    let every_step = |config: RunConfig| RunConfig {
        checkpoint_every: Some(CheckpointInterval::Steps(1)),
        keep_checkpoints: Some(100),
        ..config
    };
    check_resumption("images", &every_step(of_images(folder.path())));
    check_resumption("texts", &every_step(of_texts(folder.path())));
    check_resumption("documents", &every_step(of_documents(folder.path())));
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

/// Memory of a machine that other apps fill completely for some random times.
pub(crate) fn write_random_memory(path: &Path, seed: u64) {
    let random = Rng::new(seed);
    let (total, calm) = (8_000_000_000u64, 1_000_000_000u64);
    let mut others = Vec::new();
    for period in 0..40 {
        let length = |at: u64, most: f64| (most * random.uniform(2 * period + at)) as usize;
        others.extend(vec![calm; 5 + length(0, 40.0)]);
        others.extend((0..20).map(|line| calm + line * (total - calm) / 20));
        others.extend(vec![total; 1 + length(1, 20.0)]);
    }
    others.extend([calm; 5000]);
    write_memory(path, total, others.into_iter());
}

/// Memory of a machine that other apps fill completely for a while.
fn write_short_memory(path: &Path) {
    let (total, calm) = (8_000_000_000u64, 1_000_000_000u64);
    let rise = (0..30).map(|line| calm + 230_000_000 * line);
    let others = std::iter::repeat_n(calm, 20).chain(rise);
    let others = others.chain([total; 20]).chain([calm; 200]);
    write_memory(path, total, others);
}

fn write_memory(path: &Path, total: u64, others: impl Iterator<Item = u64>) {
    let line = |(number, others): (usize, u64)| {
        format!(
            "{{\"at_ms\":{},\"total_bytes\":{total},\"others_bytes\":{others}}}\n",
            5_000 * number
        )
    };
    let lines: String = others.enumerate().map(line).collect();
    std::fs::write(path, lines).unwrap();
}

/// A rank whose memory is short for a while, as the script says.
fn train_short_of_memory(config: &RunConfig, rank: ThreadRank, script: PathBuf) {
    let group = RunGroup::new(rank.join().unwrap());
    train_with(config, group, Some(script));
}

/// Trains as rank 0 until rank 1 was suspended and works again.
fn train_until_return(config: &RunConfig, rank: ThreadRank) -> Trained {
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
    let losses = ranks[0].losses().into_iter().zip(alone.losses());
    let worst = losses.map(|(a, b)| (a - b).abs() / b).fold(0.0, f64::max);
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
    let losses = ranks[0].losses().into_iter().zip(alone.losses());
    let worst = losses.map(|(a, b)| (a - b).abs() / b).fold(0.0, f64::max);
    assert!(
        ranks.iter().all(|rank| rank.outcome.is_ok()) && worst <= 1e-12,
        "{worst:e}"
    );
}
