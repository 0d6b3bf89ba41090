//! What the start of a run in a group takes: no rank makes moments that another one has, and the
//! group divides them if the plan fits into the memory only then.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::noise_images::write_noise_images;
use crate::support::plan;
use crate::temporary_folder::temporary_folder;
use candle_core::{DType, Device};
use dataset::{ImageInspection, InspectOptions, inspect_images};
use distributed::{ThreadOptions, ThreadRank, thread_ranks};
use pressure::StateShortage;
use runlog::{CheckpointBlocks, DeviceChoice, RunConfig, RunEvent, RunFolder, RunStore};
use std::path::Path;
use tape::counting_allocator::{live_bytes, take_peak_bytes};
use tempfile::TempDir;
use trainer::internals::TrainState;
use trainer::internals::checkpoint::{self, OptimizerState, RunState};
use trainer::{Control, ModelBuilder, ModelId, OptimizerKind, Plan, Request, RunContext, RunGroup};

/// Side of the images in pixels.
const SIDE: u32 = 32;
/// Samples per step.
const BATCH: u32 = 2;
/// A cap below the weights, gradients and moments of the model, so that rank 0 has all moments.
const SMALL_CAP_BYTES: u64 = 64 << 20;

/// A cap that is large enough for everything.
const LARGE_CAP_BYTES: u64 = 8 << 30;

fn config(folder: &Path) -> RunConfig {
    RunConfig {
        folder: Some(folder.to_owned()),
        model: Some("vit_tiny".to_owned()),
        image_size: Some(SIDE),
        steps: Some(1),
        effective_batch: Some(BATCH),
        checkpoint_blocks: Some(CheckpointBlocks::Count(0)),
        workers: Some(1),
        device: Some(DeviceChoice::Cpu),
        threads: Some(1),
        ..RunConfig::default()
    }
}

fn inspected(folder: &Path) -> ImageInspection {
    inspect_images(folder, &InspectOptions::default(), &|_| {}).unwrap()
}

fn weights_bytes(config: &RunConfig, found: &ImageInspection) -> u64 {
    let builder = ModelBuilder::from_config(config, found).unwrap();
    let (_, parameters) = builder.build(&Device::Cpu).unwrap();
    parameters.bytes()
}

/// What rank 0 has seen, and the run in its folder.
struct Started {
    /// The largest heap until the first event.
    peak_bytes: u64,
    /// The message about the group.
    message: String,
    run: RunFolder,
    _folder: TempDir,
}

/// What a rank does.
enum Task {
    Start(Box<Plan>),
    /// Resumes this run; rank 0 alone has its folder.
    Resume(RunFolder),
}

/// Starts or resumes a run in two ranks, and stops at the first event: the weights and moments are
/// ready then. Returns what rank 0 has seen.
fn in_group(first: Task, second: Task) -> Started {
    let mut ranks = thread_ranks(2, ThreadOptions::default()).into_iter();
    let (rank_0, rank_1) = (ranks.next().unwrap(), ranks.next().unwrap());
    take_peak_bytes();
    std::thread::scope(|scope| {
        scope.spawn(|| in_rank(rank_1, second));
        in_rank(rank_0, first)
    })
}

fn start(first: &Plan, second: &Plan) -> Started {
    let task = |plan: &Plan| Task::Start(Box::new(plan.clone()));
    in_group(task(first), task(second))
}

fn in_rank(rank: ThreadRank, task: Task) -> Started {
    let group = RunGroup::new(rank.join().unwrap());
    let folder = temporary_folder();
    let run = RunStore::open(folder.path().to_owned()).create("run");
    let (mut run, control) = (run.unwrap(), Control::default());
    let context = RunContext {
        control: control.clone(),
        group: group.clone(),
        ..RunContext::default()
    };
    let (mut peak_bytes, mut message) = (0, String::new());
    let mut observer = |event: &RunEvent| {
        if peak_bytes == 0 {
            peak_bytes = take_peak_bytes();
            control.send(Request::Stop);
        }
        if let RunEvent::Group {
            message: reported, ..
        } = event
        {
            message.clone_from(reported);
        }
    };
    let outcome = match task {
        Task::Start(plan) => {
            let found = inspected(&plan.folder);
            trainer::start(*plan, found, &run, context, &mut observer)
        }
        Task::Resume(resumed) => {
            if group.keeps_run() {
                run = resumed;
            }
            trainer::resume_to(&run, None, context, &mut observer)
        }
    };
    outcome.unwrap();
    group.leave().unwrap();
    Started {
        peak_bytes,
        message,
        run,
        _folder: folder,
    }
}

#[test]
fn a_rank_makes_no_moments_that_another_one_has() {
    let folder = tempfile::tempdir().unwrap();
    let images = folder.path().join("birds");
    write_noise_images(&images, 4, SIDE);
    let config = config(&images);
    let capped = RunConfig {
        memory_cap_bytes: Some(SMALL_CAP_BYTES),
        ..config.clone()
    };
    let found = inspected(&images);
    let plan = Plan::resolve(&config, &found).unwrap();
    let capped = Plan::resolve(&capped, &found).unwrap();
    let moments_bytes = 2 * weights_bytes(&config, &found);
    let growth = |second: &Plan| {
        let before = live_bytes();
        start(&plan, second).peak_bytes.saturating_sub(before)
    };
    let (whole, at_rank_0) = (growth(&plan), growth(&capped));
    println!(
        "two ranks that have all moments take {whole} bytes to start, and {at_rank_0} if rank 0 alone has the {moments_bytes} bytes of moments"
    );
    assert!(whole >= 3 * moments_bytes, "{whole}");
    let saved = whole.saturating_sub(at_rank_0);
    assert!(10 * saved >= 7 * moments_bytes, "only {saved} bytes less");
}

#[test]
fn a_plan_that_fits_only_in_parts_starts_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    let images = folder.path().join("birds");
    write_noise_images(&images, 4, SIDE);
    let (config, found) = (config(&images), inspected(&images));
    let moments_bytes = 2 * weights_bytes(&config, &found);
    let planned = |cap_bytes: u64| {
        let capped = RunConfig {
            memory_cap_bytes: Some(cap_bytes),
            ..config.clone()
        };
        let plan = Plan::within_cap(&capped, &found, 0, 2).unwrap();
        let need = plan.whole_state.unwrap();
        (need, plan)
    };
    // The first estimate also changes what the allocator holds.
    let wholes = [LARGE_CAP_BYTES; 2].map(|cap_bytes| planned(cap_bytes).0.peak_bytes);
    let starting = |cap_bytes: u64| {
        let (need, plan) = planned(cap_bytes);
        (need.shortage(cap_bytes), start(&plan, &plan))
    };
    // Half of the moments fit, but not all.
    let (shortage, begun) = starting(wholes[1] - moments_bytes / 4);
    assert!(
        matches!(shortage, Some(StateShortage::MicroBatch { .. })),
        "{shortage:?}"
    );
    let task = || Task::Resume(begun.run.clone());
    let resumed = in_group(task(), task());
    for message in [&begun.message, &resumed.message] {
        assert!(
            message.contains("; each machine has a part of the optimizer state, because the smallest micro-batch with"),
            "{message}"
        );
    }
    let (shortage, roomy) = starting(LARGE_CAP_BYTES);
    assert_eq!(shortage, None);
    assert!(
        roomy
            .message
            .ends_with("the whole optimizer state, which fits into its memory"),
        "{}",
        roomy.message
    );
}

#[test]
fn a_checkpoint_is_loaded_without_the_moments_of_other_ranks() {
    let folder = temporary_folder();
    let run = RunFolder {
        path: folder.path().to_owned(),
    };
    run.write_config(&RunConfig::default()).unwrap();
    let plan = plan(ModelId::CONV_NET, OptimizerKind::AdamW, DType::F32, 100);
    let saved = TrainState::new(&plan, &Device::Cpu).unwrap();
    let weights_bytes = saved.parameters.bytes();
    checkpoint::write(&run, &saved, &RunState::default()).unwrap();
    let (loaded, _) = checkpoint::newest(&run).unwrap();
    let growth = |is_owner: bool| {
        let mut learner = TrainState::without_moments(&plan, &Device::Cpu).unwrap();
        let owned = vec![is_owner; learner.parameters.len()];
        learner.begin_moments(Some(&owned)).unwrap();
        let before = live_bytes();
        take_peak_bytes();
        checkpoint::load(&loaded, &mut learner, OptimizerState::Load).unwrap();
        take_peak_bytes().saturating_sub(before)
    };
    let (none, all) = (growth(false), growth(true));
    println!(
        "loading takes {none} bytes, and {all} with the moments of {weights_bytes} bytes of weights"
    );
    // The weights are read before they replace the ones that were there.
    assert!(none <= 5 * weights_bytes / 2, "{none}");
    // Neither the file of all moments nor more than one of its tensors is in memory besides.
    assert!(all <= 4 * weights_bytes, "{all}");
}
