//! `ebb sweep-batch --controller`: measures how much throughput the memory controller costs while
//! no other app needs memory. A run with the automatic micro-batch and runs with fixed
//! micro-batches train on the same batches and take turns after each step.

use super::args::SweepBatch;
use super::failure::Failure;
use super::interrupt::AtWork;
use super::output::out;
use super::train_once;
use super::weights_from_hub::with_downloaded_weights;
use bench::{AfterStep, StepTimes, compare_controller, total_steps};
use dataset::DetectedDataset;
use runlog::{RunConfig, RunEvent, RunStore};
use serde_json::json;
use trainer::Request;

/// Trains with the automatic micro-batch and with each fixed micro-batch. Prints each throughput,
/// also as a fraction of the throughput of the best fixed micro-batch.
pub fn run(args: &SweepBatch) -> Result<(), Failure> {
    let batch = args.batches.iter().copied().max().unwrap_or(1);
    let steps = total_steps(args.steps);
    let config = RunConfig {
        effective_batch: Some(batch),
        // One more than is measured, since the last step of a run is evaluated.
        steps: Some(steps + 1),
        evaluate_every_epochs: Some(100_000),
        ..with_downloaded_weights(args.tried.config()?)?
    };
    config.validate()?;
    let config = train_once::without_baseline(config);
    let folder = std::env::temp_dir().join(format!("ebb-compare-{}", std::process::id()));
    let trial = Trial {
        found: train_once::inspect(&config, &args.tried.folder)?,
        config,
        store: RunStore::open(&folder),
        at_work: AtWork::handled()?,
    };
    let times = compare_controller(
        &args.batches,
        args.steps,
        &|fixed, after_step| trial.train(fixed, after_step),
        || Failure::new("a run ended unexpectedly"),
    );
    // A model trained for a few steps is of no use.
    let _ = ::disk::remove_dir_all(&folder);
    let times = times?;
    if times.iter().any(|one| one.seconds.len() < steps as usize) {
        return Err(Failure::stopped(
            "stopped by request before all steps were measured, so nothing was compared",
        ));
    }
    print(&times, batch, args.tried.json);
    Ok(())
}

/// The config and the dataset of all runs, and where the runs are stored.
struct Trial {
    config: RunConfig,
    found: DetectedDataset,
    store: RunStore,
    at_work: AtWork,
}

impl Trial {
    /// Trains once with a fixed micro-batch, or with the automatic one if `fixed` is `None`. Calls
    /// `after_step` after each step.
    fn train(
        &self,
        fixed: Option<u32>,
        after_step: &mut (dyn FnMut(u64, &[u32]) -> AfterStep + Send),
    ) -> Result<(), Failure> {
        let config = RunConfig {
            micro_batch: fixed,
            ..self.config.clone()
        };
        let place = train_once::Place {
            store: &self.store,
            name: None,
        };
        let tried = train_once::train(
            &config,
            &self.found,
            place,
            &self.at_work,
            |event, control| {
                if let RunEvent::Step {
                    step,
                    micro_batches,
                    ..
                } = event
                    && after_step(*step, micro_batches) == AfterStep::Stop
                {
                    control.send(Request::Stop);
                }
            },
        )?;
        tried.failed.map_or(Ok(()), |error| Err(error.into()))
    }
}

fn print(times: &[StepTimes], batch: u32, json: bool) {
    let fixed = times.iter().filter(|one| one.fixed.is_some());
    let Some(best) = fixed.min_by(|a, b| a.mean().total_cmp(&b.mean())) else {
        return;
    };
    if !json {
        out!(
            "{:>11}  Samples/s  Relative to the best fixed size",
            "Micro-batch"
        );
    }
    for one in times {
        let name = one
            .fixed
            .map_or_else(|| "auto".to_owned(), |size| size.to_string());
        let samples_per_second = f64::from(batch) / one.mean();
        let (fraction, error) = one.fraction_of(best);
        if json {
            out!(
                "{}",
                json!({
                    "micro_batch": name, "samples_per_second": samples_per_second, "of_best_fixed": fraction,
                    "standard_error": error, "steps": one.steady().len(), "micro_batches": one.micro_batches,
                    "seconds": one.seconds,
                })
            );
        } else {
            let sizes: Vec<String> = one.micro_batches.iter().map(u32::to_string).collect();
            out!(
                "{name:>11}  {samples_per_second:>9.1}  {fraction:.3}, standard error {error:.3}; last step in micro-batches of {}",
                sizes.join(", ")
            );
        }
    }
}
