//! What a pause gives back, and what saving takes.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::noise_images::write_noise_images;
use crate::support::plan;
use candle_core::{DType, Device};
use dataset::{InspectOptions, inspect_images};
use pressure::Change;
use runlog::{Augmentation, DeviceChoice, RunConfig, RunEvent, RunFolder, RunStore};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use tape::counting_allocator::{live_bytes, take_peak_bytes};
use trainer::internals::TrainState;
use trainer::internals::checkpoint::{self, RunState};
use trainer::{Control, ModelId, OptimizerKind, Plan, Request, RunContext};

const MB: u64 = 1 << 20;
/// Side of the images in pixels.
const SIDE: u32 = 96;
/// Steps of the run.
const STEPS: u64 = 10;
/// The step after which the run is paused.
const PAUSED_AFTER: u64 = 5;
/// Longest time from the request to continue until the training does. The first step is done after
/// this time and that of a step.
const MAX_BACK: Duration = Duration::from_millis(200);

/// A short run on small images with a long prefetch.
fn config() -> RunConfig {
    RunConfig {
        image_size: Some(SIDE),
        augment: Some(Augmentation::None),
        steps: Some(STEPS),
        effective_batch: Some(8),
        prefetch_batches: Some(12),
        workers: Some(2),
        device: Some(DeviceChoice::Cpu),
        threads: Some(1),
        ..RunConfig::default()
    }
}

/// What was seen of a pause.
#[derive(Default)]
struct Seen {
    /// When each step before the pause was done.
    steps: Vec<Instant>,
    before_bytes: u64,
    paused_bytes: u64,
    continued: Option<Instant>,
    next_step: Option<Instant>,
}

/// Notes what an event shows, and pauses the run once. `paused` learns that it is.
fn observe(event: &RunEvent, seen: &mut Seen, paused: &Sender<()>, control: &Control) {
    match event {
        RunEvent::Step { step, .. } if *step < PAUSED_AFTER => seen.steps.push(Instant::now()),
        RunEvent::Step { step, .. } if *step == PAUSED_AFTER => {
            seen.steps.push(Instant::now());
            // The worker threads fill the queue.
            thread::sleep(Duration::from_millis(1500));
            seen.before_bytes = live_bytes();
            control.send(Request::Pause);
        }
        RunEvent::Step { .. } if seen.continued.is_some() => {
            seen.next_step.get_or_insert_with(Instant::now);
        }
        RunEvent::Decision { decision, .. } if decision.change == Change::Pause => {
            seen.paused_bytes = live_bytes();
            paused.send(()).unwrap();
        }
        RunEvent::Decision { decision, .. } if decision.change == Change::Continue => {
            seen.continued.get_or_insert_with(Instant::now);
        }
        _ => {}
    }
}

/// The median time of a step before the pause.
fn median_step(seen: &Seen) -> Duration {
    let mut times: Vec<Duration> = seen.steps.windows(2).map(|two| two[1] - two[0]).collect();
    times.sort();
    times[times.len() / 2]
}

/// Most runs that are paused: other processes may hold one of them up.
const TRIES: usize = 5;

#[test]
fn a_pause_gives_back_what_was_loaded_ahead_and_ends_at_once() {
    let pauses: Vec<Pause> = (0..TRIES)
        .scan(false, |is_enough, _| {
            let pause = (!*is_enough).then(pause_once)?;
            *is_enough = pause.gives_back() && pause.ends_at_once();
            Some(pause)
        })
        .collect();
    let last = pauses.last().unwrap();
    assert!(last.gives_back(), "{pauses:#?}");
    assert!(last.ends_at_once(), "{pauses:#?}");
}

/// What a pause gave back, and how long it took to train again after it.
#[derive(Debug)]
struct Pause {
    freed_bytes: u64,
    /// From the request until the training continued.
    back: Duration,
    /// From the request until the first step was done.
    step: Duration,
    /// What a step takes otherwise.
    usual: Duration,
}

impl Pause {
    fn gives_back(&self) -> bool {
        self.freed_bytes > MB / 2
    }

    fn ends_at_once(&self) -> bool {
        self.back < MAX_BACK && self.step < MAX_BACK + self.usual
    }
}

/// Trains and pauses once.
fn pause_once() -> Pause {
    let folder = tempfile::tempdir().unwrap();
    let images = folder.path().join("birds");
    write_noise_images(&images, 40, SIDE);
    let inspection = inspect_images(&images, &InspectOptions::default(), &|_| {}).unwrap();
    let plan = Plan::resolve(&config(), &inspection).unwrap();
    let run = RunStore::open(folder.path().join("runs"))
        .create("birds")
        .unwrap();
    let context = RunContext::default();
    let (control, own) = (context.control.clone(), context.control.clone());
    let (paused, wait) = channel();
    let user = thread::spawn(move || {
        wait.recv().unwrap();
        thread::sleep(Duration::from_millis(700));
        let requested = Instant::now();
        control.send(Request::Resume);
        requested
    });
    let mut seen = Seen::default();
    let mut observer = |event: &RunEvent| observe(event, &mut seen, &paused, &own);
    let outcome = trainer::start(plan, inspection, &run, context, &mut observer).unwrap();
    assert_eq!(outcome.step, STEPS);
    let requested = user.join().unwrap();
    // Five batches of eight images of 96 x 96 pixels, and as many in the cache.
    let pause = Pause {
        freed_bytes: seen.before_bytes.saturating_sub(seen.paused_bytes),
        back: seen.continued.unwrap() - requested,
        step: seen.next_step.unwrap() - requested,
        usual: median_step(&seen),
    };
    println!("{pause:?}");
    pause
}

/// Saves a state of this size, and returns its bytes, those of its largest tensor and the growth of
/// the heap meanwhile.
fn save(run: &RunFolder) -> (u64, u64, u64) {
    let plan = plan(ModelId::CONV_NET, OptimizerKind::AdamW, DType::F32, 100);
    let learner = TrainState::new(&plan, &Device::Cpu).unwrap();
    let sizes = learner
        .parameters
        .iter()
        .map(|p| 4 * p.tensor.elem_count() as u64);
    let largest = sizes.max().unwrap();
    let before = live_bytes();
    take_peak_bytes();
    let written = checkpoint::write(run, &learner, &RunState::default()).unwrap();
    (
        written.bytes,
        largest,
        take_peak_bytes().saturating_sub(before),
    )
}

#[test]
fn saving_makes_no_second_copy_of_the_weights() {
    let folder = tempfile::tempdir().unwrap();
    let run = RunFolder {
        path: folder.path().to_owned(),
    };
    run.write_config(&RunConfig::default()).unwrap();
    let (bytes, largest, grown) = save(&run);
    println!("{bytes} bytes saved, {largest} in the largest tensor, {grown} more in memory");
    // The buffer of the file has a megabyte.
    assert!(grown <= 3 * MB / 2, "{grown} bytes");
    assert!(
        bytes > 4 * grown,
        "{bytes} bytes saved, {grown} more in memory"
    );
}
