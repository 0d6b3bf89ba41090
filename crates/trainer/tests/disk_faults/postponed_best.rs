//! On a slow disk, the checkpoint of the best evaluation waits in memory until saving costs little
//! enough. It is written when the training pauses and when the run ends, with the weights that were
//! evaluated.

use crate::scenario::{SLOW_WRITE, Scenario, Sums, sums};
use crate::temporary_folder::temporary_folder;
use disk::simulated::SimulatedDisk;
use pressure::Change;
use runlog::{CheckpointReason, RunConfig, RunEvent, RunFolder, RunStore};
use std::collections::BTreeMap;
use std::time::Duration;
use trainer::internals::checkpoint;
use trainer::{Control, Plan, Request, Results};

const STEPS: u64 = 60;
/// After this step the user asks for a checkpoint, which is slow.
const SLOW_STEP: u64 = 1;
/// After this step the user pauses, during the evaluation.
const PAUSED_AFTER: u64 = 12;
/// After this step the user stops the run, during the evaluation.
const STOPPED_AFTER: u64 = 30;

/// What a run did until it stopped.
struct Story {
    /// Steps of the best evaluations.
    best: Vec<u64>,
    /// Step and reason of each checkpoint.
    saved: Vec<(u64, CheckpointReason)>,
    sums: BTreeMap<u64, Option<Sums>>,
}

fn plan(scenario: &Scenario) -> Plan {
    let config = RunConfig {
        steps: Some(STEPS),
        effective_batch: Some(4_096),
        micro_batch: Some(64),
        learning_rate: Some(1e-3),
        ..scenario.config()
    };
    let config = RunConfig {
        checkpoint_every: None,
        ..config
    };
    Plan::resolve(&config, &scenario.found).unwrap()
}

/// Trains until the user stops the run. The first checkpoint takes `delay`.
fn train(scenario: &Scenario, run: &RunFolder, disk: &SimulatedDisk, delay: Duration) -> Story {
    let control = Control::default();
    let mut story = Story {
        best: Vec::new(),
        saved: Vec::new(),
        sums: BTreeMap::new(),
    };
    let mut observer = |event: &RunEvent| match event {
        RunEvent::Step { step, .. } => match *step {
            SLOW_STEP => {
                disk.delay_sync(delay);
                control.send(Request::Checkpoint);
            }
            PAUSED_AFTER => control.send(Request::Pause),
            STOPPED_AFTER => control.send(Request::Stop),
            _ => {}
        },
        RunEvent::Decision { decision, .. } if decision.change == Change::Pause => {
            control.send(Request::Resume);
        }
        RunEvent::Evaluation { step, best, .. } if *best => {
            story.best.push(*step);
        }
        RunEvent::Checkpoint {
            step, path, reason, ..
        } => {
            story.saved.push((*step, *reason));
            story.sums.insert(*step, sums(&run.path.join(path)));
        }
        _ => {}
    };
    let (found, context) = (scenario.found.clone(), scenario.context(&control));
    trainer::start(plan(scenario), found, run, context, &mut observer).unwrap();
    story
}

#[test]
fn the_best_checkpoint_waits_in_memory_and_is_written_at_the_end() {
    let (scenario, root) = (Scenario::texts_with_adapters(), temporary_folder());
    let disk = SimulatedDisk::new(root.path());
    let _installed = disk.install();
    let store = RunStore::open(root.path().join("runs"));
    let calm = train(
        &scenario,
        &store.create("calm").unwrap(),
        &disk,
        Duration::ZERO,
    );
    let run = store.create("slow").unwrap();
    let slow = train(&scenario, &run, &disk, SLOW_WRITE);
    let best_before = |end| calm.best.iter().copied().filter(|step| *step < end).max();
    let paused_best = best_before(PAUSED_AFTER).unwrap();
    let last = best_before(STOPPED_AFTER).unwrap();
    assert!(
        calm.best.len() >= 4 && last > paused_best,
        "{:?}",
        calm.best
    );
    assert_eq!(slow.best, calm.best);
    let best = |step| (step, CheckpointReason::Best);
    let asked = (SLOW_STEP, CheckpointReason::Requested);
    let stopped = (STOPPED_AFTER, CheckpointReason::Stop);
    let at_once = calm.best.iter().map(|step| best(*step));
    let at_once: Vec<_> = [asked].into_iter().chain(at_once).collect();
    assert_eq!(calm.saved, [at_once, vec![stopped]].concat());
    // One is written in the pause. Those that a later one replaces in time never are.
    let expected = [asked, best(paused_best), best(last), stopped];
    assert_eq!(slow.saved, expected);
    for (step, sums) in &slow.sums {
        assert!(
            sums.is_some() && Some(sums) == calm.sums.get(step),
            "{step}"
        );
    }
    let found = checkpoint::best(&run).unwrap().state;
    let best_step = found.best.map(|(_, step)| step);
    assert_eq!((found.step, best_step), (last, Some(last)));
    let newest = checkpoint::newest(&run).unwrap().0.state;
    assert_eq!((newest.step, newest.best), (STOPPED_AFTER, found.best));
    let results = Results::load(&run).unwrap().unwrap();
    assert_eq!(
        results.report.step, last,
        "the results are those of the best"
    );
}
