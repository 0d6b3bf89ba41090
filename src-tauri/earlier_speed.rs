//! Finds an earlier run of the same network on this machine. Ebb estimates the time of a plan on a
//! GPU from the speed of this run, because it computes nothing on a GPU before the training.

use crate::run_registry::Runs;
use runlog::{EventReader, RunEvent, RunFolder, Started};
use trainer::{Plan, predict_device_kind};

/// Number of runs that are searched, the newest ones: the events of each are read.
const MOST_RUNS: usize = 100;

/// What the speed of a run depends on.
#[derive(Debug, PartialEq)]
struct Work<'a> {
    task: &'a str,
    model: &'a str,
    input_size: u32,
    /// Trained parameters: fewer if a part of the network is frozen.
    parameters: u64,
    precision: &'a str,
    device: &'a str,
    /// Memory of the machine: a run folder may come from another one.
    total_bytes: u64,
}

impl<'a> Work<'a> {
    fn from_run(started: &'a Started) -> Self {
        Work {
            task: &started.task,
            model: &started.model,
            input_size: started.input_size,
            parameters: started.parameters,
            precision: &started.precision,
            device: &started.device,
            total_bytes: started.total_bytes,
        }
    }

    fn for_plan(plan: &'a Plan, total_bytes: u64) -> trainer::Result<Self> {
        Ok(Work {
            task: plan.task().name(),
            model: plan.model.name(),
            input_size: plan.input_size,
            parameters: plan.trained_parameters()?,
            precision: plan.precision.name(),
            device: predict_device_kind(plan.device).name(),
            total_bytes,
        })
    }
}

/// Samples per second of the newest run that trained the same network on this machine, which has
/// `total_bytes` of memory; `None` if there is none.
///
/// # Errors
/// The network of the plan cannot be built.
pub fn samples_per_second(
    runs: &Runs,
    plan: &Plan,
    total_bytes: u64,
) -> trainer::Result<Option<f64>> {
    Ok(newest(runs, &Work::for_plan(plan, total_bytes)?))
}

fn newest(runs: &Runs, work: &Work) -> Option<f64> {
    let folders = runs.store().list().ok()?;
    let mut similar = folders
        .iter()
        .take(MOST_RUNS)
        .filter(|folder| begins_with(folder, work));
    similar.find_map(|folder| {
        let speed = runs.with_run(&folder.id(), |run| {
            let same = run.started().is_some_and(|s| Work::from_run(s) == *work);
            same.then(|| run.median_samples_per_second()).flatten()
        });
        speed.ok().flatten()
    })
}

/// Whether the first event of a run names this work, whatever the device, which a resume may have
/// changed. Thousands of runs are too many to read all their events.
fn begins_with(folder: &RunFolder, work: &Work) -> bool {
    let first = EventReader::open(&folder.events_path()).map(|mut events| events.next());
    match first {
        Ok(Some(Ok(RunEvent::Started(started)))) => {
            let begun = Work {
                device: work.device,
                ..Work::from_run(&started)
            };
            begun == *work
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runlog::{EventWriter, RunStore};

    const WORK: Work = Work {
        task: "image-classification",
        model: "convnet",
        input_size: 64,
        parameters: 1000,
        precision: "f32",
        device: "metal",
        total_bytes: 16 << 30,
    };

    /// A run whose steps had these speeds.
    fn add_run(store: &RunStore, work: &Work, speeds: &[f64]) {
        let folder = store.create("birds").expect("it can be made");
        let mut writer = EventWriter::append(&folder).expect("it can be opened");
        let started = Started {
            task: work.task.to_owned(),
            model: work.model.to_owned(),
            input_size: work.input_size,
            parameters: work.parameters,
            precision: work.precision.to_owned(),
            device: work.device.to_owned(),
            total_bytes: work.total_bytes,
            ..Started::default()
        };
        let steps = speeds.iter().zip(1..).map(|(speed, step)| RunEvent::Step {
            at_ms: 1000 * step,
            step,
            epoch: 0,
            loss: 1.0,
            learning_rate: 0.1,
            gradient_norm: 1.0,
            samples_per_second: *speed,
            wait_ms: 0.0,
            command_buffer_ms: None,
            micro_batches: vec![8],
            checkpoint_blocks: Vec::new(),
            ledger: Vec::new(),
            metrics: Default::default(),
        });
        let events = std::iter::once(RunEvent::Started(Box::new(started))).chain(steps);
        for event in events {
            writer.write(&event).expect("it can be written");
        }
    }

    #[test]
    fn only_a_run_of_the_same_network_on_this_machine_has_the_speed() {
        let home = tempfile::tempdir().expect("a temporary folder");
        let runs = Runs::watch(RunStore::open(home.path().join("runs")));
        assert_eq!(newest(&runs, &WORK), None);
        for other in [
            Work {
                device: "cpu",
                ..WORK
            },
            Work {
                model: "resnet",
                ..WORK
            },
            Work {
                input_size: 96,
                ..WORK
            },
            Work {
                parameters: 10,
                ..WORK
            },
            Work {
                precision: "f16",
                ..WORK
            },
            Work {
                total_bytes: 8 << 30,
                ..WORK
            },
        ] {
            add_run(runs.store(), &other, &[7.0; 5]);
        }
        // Too short to be measured.
        add_run(runs.store(), &WORK, &[9.0, 9.0]);
        assert_eq!(newest(&runs, &WORK), None);
        // The first step is slow, and other apps slowed another one.
        add_run(runs.store(), &WORK, &[2.0, 50.0, 52.0, 51.0, 11.0, 51.0]);
        assert_eq!(newest(&runs, &WORK), Some(51.0));
    }
}
