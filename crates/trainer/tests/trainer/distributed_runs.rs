//! Runs of a group for tests: their data, ranks that count what they do, and what a run leaves.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::temporary_folder::temporary_folder;
use distributed::{
    Claim, ClaimRequest, Ended, Group, Share, ThreadOptions, ThreadRank, Values, thread_ranks,
};
use runlog::{
    Augmentation, BaselineChoice, CheckpointInterval, CheckpointReason, DeviceChoice,
    PackingChoice, PrecisionChoice, RunConfig, RunEvent, RunFolder, RunStore,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use tape::Rng;
use tape::inplace::to_f64;
use tempfile::TempDir;
use trainer::{
    Control, Machine, MemoryScript, Plan, Replay, Request, Result, RunContext, RunGroup,
    RunOutcome, ScriptBy, read_dataset,
};

/// Methods of a wrapped group that no test changes. They are those of the field `group`.
macro_rules! forward_members {
    () => {
        fn rank(&self) -> usize {
            self.group.rank()
        }

        fn size(&self) -> usize {
            self.group.size()
        }

        fn member(&self, rank: usize) -> distributed::Member {
            self.group.member(rank)
        }

        fn gather(&mut self, mine: Vec<u8>) -> distributed::Result<Vec<Vec<u8>>> {
            self.group.gather(mine)
        }

        fn sum_rounded(
            &mut self,
            values: Vec<f32>,
        ) -> distributed::Result<distributed::RoundedSum> {
            self.group.sum_rounded(values)
        }
    };
}
pub(crate) use forward_members;

pub(crate) const STEPS: u64 = 20;
/// Steps between two checkpoints of a test that compares them.
pub(crate) const SAVED_STEPS: u64 = 5;
/// Longest time until a rank that was suspended works again, or until all ranks have claimed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Two classes of noise, eleven images each.
pub(crate) fn images(folder: &Path) -> PathBuf {
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
pub(crate) fn texts(folder: &Path) -> PathBuf {
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
pub(crate) fn book(folder: &Path) -> PathBuf {
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

/// Conversations of different lengths, whose steps are limited by their tokens.
pub(crate) fn of_steps_of_tokens(folder: &Path) -> RunConfig {
    let row = |i: u64| {
        let stream = Rng::new(5).at(i);
        let [a, b] = [0, 1].map(|n| (9.0 * stream.uniform(n)) as u64);
        let please = "Please. ".repeat(i as usize % 5);
        let asked = format!("What is {a} plus {b}? {please}");
        format!(
            r#"{{"messages":[{{"role":"user","content":"{asked}"}},{{"role":"assistant","content":"{}"}}]}}"#,
            a + b
        )
    };
    let rows: Vec<String> = (0..40).map(row).collect();
    let path = folder.join("chats.jsonl");
    std::fs::write(&path, rows.join("\n")).unwrap();
    let model =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tests/fixtures/published/chat");
    RunConfig {
        from: Some(model),
        adapter_rank: Some(4),
        tokens: Some(256),
        packing: Some(PackingChoice::Off),
        effective_batch: None,
        effective_batch_tokens: Some(300),
        prompts: Some(PathBuf::from("0")),
        ..config(&path)
    }
}

/// How the ranks of a test take turns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Turns {
    /// As they come.
    Free,
    /// In each step, no rank works before all ranks have claimed something.
    Together,
    /// In each step, rank 0 asks only after the others have processed everything.
    Rank0Last,
}

/// The places where ranks meet: how often they have passed each of them.
#[derive(Default)]
pub(crate) struct Meetings {
    pub(crate) passed: Mutex<BTreeMap<u64, usize>>,
    pub(crate) changed: Condvar,
}

impl Meetings {
    pub(crate) fn pass(&self, step: u64) {
        *self.passed.lock().unwrap().entry(step).or_default() += 1;
        self.changed.notify_all();
    }

    /// Waits until `count` ranks have passed the meeting of a step.
    pub(crate) fn wait(&self, step: u64, count: usize) {
        let passed = self.passed.lock().unwrap();
        let is_early = |passed: &mut BTreeMap<u64, usize>| passed.get(&step) < Some(&count);
        let waited = self.changed.wait_timeout_while(passed, PATIENCE, is_early);
        assert!(!waited.unwrap().1.timed_out(), "step {step}");
    }
}

/// The samples of a step of which every rank gets some if all ranks claim. The last step of an
/// epoch has fewer.
pub(crate) const FULL_STEP: u32 = 7;

/// Counts the samples that a rank confirms, and the full steps in which it confirms none.
pub(crate) struct Counting {
    pub(crate) group: Box<dyn Group>,
    pub(crate) turns: Turns,
    pub(crate) meetings: Arc<Meetings>,
    pub(crate) step: u64,
    pub(crate) samples: u32,
    pub(crate) has_met: bool,
    pub(crate) claimed: u32,
    pub(crate) confirmed: Arc<AtomicU32>,
    pub(crate) confirmed_in: u64,
    pub(crate) idle: Arc<AtomicU64>,
}

impl Counting {
    /// Meets the other ranks once in each step, after `claim`.
    pub(crate) fn meet(&mut self, claim: &Claim) {
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
    forward_members!();

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
    pub(crate) confirmed: u32,
    pub(crate) idle: u64,
    pub(crate) outcome: Result<RunOutcome>,
    pub(crate) events: Vec<RunEvent>,
    pub(crate) run: RunFolder,
    pub(crate) _folder: TempDir,
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
    pub(crate) fn processed(&self) -> u32 {
        let count = |event: &RunEvent| match event {
            RunEvent::Step { micro_batches, .. } => micro_batches.iter().sum(),
            _ => 0,
        };
        self.events.iter().map(count).sum()
    }

    /// The bytes of the files of a checkpoint that hold tensors, by name.
    pub(crate) fn tensor_files(&self, step: u64) -> BTreeMap<String, Vec<u8>> {
        let folder = self.run.path.join(RunFolder::checkpoint_name(step));
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap());
        let files = files.map(|file| (file.file_name().into_string().unwrap(), file.path()));
        let tensors = files.filter(|(name, _)| name.ends_with(".safetensors"));
        tensors
            .map(|(name, path)| (name, std::fs::read(path).unwrap()))
            .collect()
    }

    /// The steps whose checkpoints were saved, in this order, with the reason of each.
    pub(crate) fn saved_steps(&self) -> Vec<(u64, CheckpointReason)> {
        let saved = |event: &RunEvent| match event {
            RunEvent::Checkpoint { step, reason, .. } => Some((*step, *reason)),
            _ => None,
        };
        self.events.iter().filter_map(saved).collect()
    }

    /// Number of micro-batches of all steps.
    pub(crate) fn micro_batches(&self) -> usize {
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
pub(crate) struct Session {
    pub(crate) control: Control,
    /// The run to resume; rank 0 alone has its folder.
    pub(crate) resumes: Option<RunFolder>,
    /// Stops after this step.
    pub(crate) stops_at: Option<u64>,
    pub(crate) machine: Machine,
    /// The folder of a resumed run's samples on this machine.
    pub(crate) data_folder: Option<PathBuf>,
    pub(crate) replay: Option<Replay>,
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
pub(crate) fn train_session(
    config: &RunConfig,
    group: RunGroup,
    session: Session,
    observer: &mut (dyn FnMut(&RunEvent) + Send),
) -> Trained {
    let folder = temporary_folder();
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
        let found = read_dataset(data, config, &|_| {}).unwrap();
        let plan = Plan::resolve(config, &found).unwrap();
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
pub(crate) fn resume_in_group(run: &RunFolder, sessions: Vec<Session>) -> Vec<Trained> {
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
pub(crate) fn in_group(configs: &[RunConfig], options: ThreadOptions) -> Vec<Trained> {
    in_turns(configs, options, Turns::Free)
}

pub(crate) fn in_turns(
    configs: &[RunConfig],
    options: ThreadOptions,
    turns: Turns,
) -> Vec<Trained> {
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

/// A config whose checkpoints of every `every` steps stay, so that they can be compared.
pub(crate) fn saving_every(every: u64, config: RunConfig) -> RunConfig {
    RunConfig {
        checkpoint_every: Some(CheckpointInterval::Steps(every)),
        keep_checkpoints: Some(100),
        ..config
    }
}

/// A session that ends after a step, if one is given.
pub(crate) fn stopping(stops_at: Option<u64>) -> Session {
    Session {
        stops_at,
        ..Session::default()
    }
}

/// Trains in a group of ranks with the same config, which compare all weights after every step.
pub(crate) fn train_compared(
    config: &RunConfig,
    size: usize,
    options: ThreadOptions,
) -> Vec<Trained> {
    each_rank(&vec![config.clone(); size], options, &|group, config| {
        let group = RunGroup::new(group).comparing_weights_every(1);
        train(config, group, Control::default())
    })
}

/// Trains in two ranks. The user asks rank 0 for a checkpoint after a step.
pub(crate) fn train_with_requested_checkpoint(
    config: &RunConfig,
    seed: u64,
    requested_at: u64,
) -> Vec<Trained> {
    let configs = [config.clone(), config.clone()];
    let ranks = each_rank(&configs, delayed(seed), &|group, config| {
        let control = Control::default();
        let session = Session {
            control: control.clone(),
            ..Session::default()
        };
        let is_first = group.rank() == 0;
        train_session(config, RunGroup::new(group), session, &mut |event| {
            if is_first && matches!(event, RunEvent::Step { step, .. } if *step == requested_at) {
                control.send(Request::Checkpoint);
            }
        })
    });
    for rank in &ranks {
        assert!(rank.outcome.is_ok(), "{}", rank.error());
    }
    ranks
}

/// Which rank processed which samples of each step.
pub(crate) fn ledgers(trained: &Trained) -> Vec<Vec<Share>> {
    let share = |&(rank, first, count): &(u32, u32, u32)| Share {
        rank: rank as usize,
        samples: first..first + count,
    };
    let ledger = |event: &RunEvent| match event {
        RunEvent::Step { ledger, .. } => Some(ledger.iter().map(share).collect()),
        _ => None,
    };
    trained.events.iter().filter_map(ledger).collect()
}

/// Trains in three ranks that share the samples as the ledgers say.
pub(crate) fn train_shared(
    config: &RunConfig,
    ledgers: &[Vec<Share>],
    resumes: Option<&RunFolder>,
    stops_at: Option<u64>,
) -> Vec<Trained> {
    let configs = vec![config.clone(); 3];
    each_rank(&configs, delayed(7), &|mut group, config| {
        if group.rank() == 0 {
            group.replay(ledgers.to_vec());
        }
        let session = Session {
            resumes: resumes.cloned(),
            stops_at,
            ..Session::default()
        };
        let group = RunGroup::new(group).comparing_weights_every(1);
        train_session(config, group, session, &mut |_| {})
    })
}

/// After this step, [`resume_halfway`] interrupts a run.
pub(crate) const INTERRUPTED: u64 = 10;

/// Repeats a run of three ranks, interrupts it, and resumes it. Checks that the losses are those of
/// the run without an interruption, and returns what rank 0 of the second half has.
pub(crate) fn resume_halfway(config: &RunConfig, whole: &Trained) -> Trained {
    let (ledgers, losses) = (ledgers(whole), whole.losses());
    assert_eq!(ledgers.len() as u64, STEPS);
    let begun = train_shared(config, &ledgers, None, Some(INTERRUPTED));
    assert_eq!(begun[0].outcome.as_ref().unwrap().step, INTERRUPTED);
    let (done, rest) = ledgers.split_at(INTERRUPTED as usize);
    let mut ended = train_shared(config, rest, Some(&begun[0].run), None);
    assert_eq!(ended[0].outcome.as_ref().unwrap().step, STEPS);
    assert_eq!(begun[0].losses(), losses[..done.len()]);
    assert_eq!(ended[0].losses(), losses[done.len()..]);
    Trained {
        // The run is in its folder.
        _folder: begun.into_iter().next().unwrap()._folder,
        ..ended.swap_remove(0)
    }
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
pub(crate) fn write_short_memory(path: &Path) {
    let (total, calm) = (8_000_000_000u64, 1_000_000_000u64);
    let rise = (0..30).map(|line| calm + 230_000_000 * line);
    let others = std::iter::repeat_n(calm, 20).chain(rise);
    let others = others.chain([total; 20]).chain([calm; 200]);
    write_memory(path, total, others);
}

pub(crate) fn write_memory(path: &Path, total: u64, others: impl Iterator<Item = u64>) {
    let line = |(number, others): (usize, u64)| {
        format!(
            "{{\"at_ms\":{},\"total_bytes\":{total},\"others_bytes\":{others}}}\n",
            5_000 * number
        )
    };
    let lines: String = others.enumerate().map(line).collect();
    std::fs::write(path, lines).unwrap();
}
