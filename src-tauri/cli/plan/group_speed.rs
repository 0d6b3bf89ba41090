//! `ebb plan --on HOSTS`: each machine measures a micro-batch of the planned model while the others
//! measure theirs, and the machines add up as many values as the model has parameters. From this
//! follows how long a step of the group takes, and whether this machine alone is faster.

use super::planned_machine::PlannedMachine;
use super::{Plan, TIMED_SAMPLES, config, min_checkpointing, target};
use crate::cli::failure::Failure;
use crate::cli::output::out;
use crate::cli::preset_choice::read_for_preset;
use bench::{Workload, measure_workload};
use runlog::{ExchangeChoice, RunConfig, ShardingChoice, format_count, format_duration};
use serde::{Deserialize, Serialize};
use serde_json::json;
use trainer::{ModelBuilder, RunGroup, default_threads};

/// The part of the ideal speed that a good group of machines reaches.
const GOOD_FRACTION: f64 = 0.85;
/// What a rank is assumed to lose at the end of a step, because micro-batches cannot be cut.
const BALANCE: f64 = 0.97;

/// What a rank measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Speed {
    host: String,
    threads: u32,
    samples_per_second: f64,
}

/// What is planned.
struct Subject {
    name: String,
    parameters: u64,
    effective_batch: u32,
    exchange: Exchange,
}

/// What the machines exchange in a step.
struct Exchange {
    gradients: ExchangeChoice,
    /// Each machine also sends the parameters that it has updated.
    has_parameters: bool,
}

impl Exchange {
    fn new(config: &RunConfig) -> Self {
        Exchange {
            gradients: config.exchange.unwrap_or(ExchangeChoice::F32),
            has_parameters: config.sharding == Some(ShardingChoice::Optimizer),
        }
    }

    /// Seconds that it takes for this many parameters.
    fn measure(&self, group: &RunGroup, parameters: usize) -> Result<f64, Failure> {
        let mut seconds = group.measure_exchange(parameters, self.gradients)?;
        if self.has_parameters {
            seconds += group.measure_exchange(parameters, ExchangeChoice::F32)?;
        }
        Ok(seconds)
    }
}

/// The time of a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Prediction {
    compute_s: f64,
    exchange_s: f64,
    step_s: f64,
    /// A step of this machine alone.
    alone_s: f64,
    /// The smallest effective batch with which the group reaches 85 % of the sum of its speeds.
    good_batch: u32,
}

impl Prediction {
    fn new(speeds: &[Speed], exchange_s: f64, effective_batch: u32) -> Self {
        let sum = |host: Option<&str>| -> f64 {
            let those = speeds
                .iter()
                .filter(|speed| host.is_none_or(|host| host == speed.host));
            those.map(|speed| speed.samples_per_second).sum()
        };
        let here = speeds.first().map(|speed| speed.host.as_str());
        let batch = f64::from(effective_batch);
        let compute_s = batch / (sum(None) * BALANCE);
        // With this batch, the exchange and the balance take 15 % of the step.
        let ideal_s = exchange_s * GOOD_FRACTION * BALANCE / (BALANCE - GOOD_FRACTION);
        Prediction {
            compute_s,
            exchange_s,
            step_s: compute_s + exchange_s,
            alone_s: batch / sum(here),
            good_batch: (ideal_s * sum(None)).ceil().max(1.0) as u32,
        }
    }

    fn speedup(&self) -> f64 {
        self.alone_s / self.step_s
    }
}

/// Measures as one rank of a group, and prints the prediction as rank 0.
pub(super) fn run(args: &Plan, group: &RunGroup) -> Result<(), Failure> {
    let threads = args.settings.config.threads;
    let shared = (default_threads() / group.ranks_here()).max(1) as u32;
    let threads = threads.unwrap_or(shared);
    let (subject, samples_per_second) = match &args.workload {
        Some(name) => of_workload(args, name, threads, group)?,
        None => of_folder(args, threads, group)?,
    };
    let mine = Speed {
        host: RunGroup::host_name(),
        threads,
        samples_per_second,
    };
    let mine = serde_json::to_vec(&mine).map_err(|error| Failure::new(error.to_string()))?;
    let speeds = group.gather(mine)?.into_iter();
    let speeds = speeds.map(|bytes| serde_json::from_slice(&bytes));
    let speeds: Vec<Speed> = speeds
        .collect::<Result<_, _>>()
        .map_err(|error| Failure::new(format!("a machine sent no speed: {error}")))?;
    let parameters = subject.parameters as usize;
    let exchange_s = subject.exchange.measure(group, parameters)?;
    if group.keeps_run() {
        let prediction = Prediction::new(&speeds, exchange_s, subject.effective_batch);
        print(args.json, &subject, &speeds, &prediction);
    }
    Ok(())
}

fn of_folder(args: &Plan, threads: u32, group: &RunGroup) -> Result<(Subject, f64), Failure> {
    let mut config = config(args)?;
    config.threads = Some(threads);
    if let Some(folder) = &args.hosts.folder_here {
        config.folder = Some(folder.clone());
    }
    let folder = config.folder.clone();
    let folder = folder.ok_or_else(|| Failure::usage("no folder to plan for"))?;
    let found = read_for_preset(&folder, &config, args.preset.as_deref())?;
    let builder = ModelBuilder::from_config(&config, &found)?;
    let plan = builder.plan();
    plan.check_start()?;
    let machine = PlannedMachine::new(args, &config)?;
    let variants = min_checkpointing(&machine, plan.effective_batch, plan.fixed_micro_batch);
    let target = target(Some(threads), &machine);
    let estimate = builder.estimate_as(plan.model, plan.input_size, target, variants)?;
    let parameters = estimate.memory.parameters;
    let samples = TIMED_SAMPLES.min(plan.effective_batch as usize);
    // Machines that share a memory or a processor slow each other down, so all measure at once.
    group.gather(Vec::new())?;
    let seconds = plan.seconds_per_sample(samples, 0)?;
    let subject = Subject {
        name: plan.name.clone(),
        parameters,
        effective_batch: plan.effective_batch,
        exchange: Exchange::new(&config),
    };
    Ok((subject, 1.0 / seconds.max(1e-9)))
}

fn of_workload(
    args: &Plan,
    name: &str,
    threads: u32,
    group: &RunGroup,
) -> Result<(Subject, f64), Failure> {
    let workload: Workload = super::workload(name)?;
    let batch = args.settings.config.effective_batch;
    let batch = batch.unwrap_or(super::WORKLOAD_BATCH);
    let samples = TIMED_SAMPLES.min(batch as usize);
    // Machines that share a memory or a processor slow each other down, so all measure at once.
    group.gather(Vec::new())?;
    let measured = measure_workload(workload, samples, threads as usize)?;
    let subject = Subject {
        name: name.to_owned(),
        parameters: measured.parameters,
        effective_batch: batch,
        exchange: Exchange::new(&args.settings.config),
    };
    Ok((subject, 1.0 / measured.seconds_per_sample.max(1e-9)))
}

fn print(is_json: bool, subject: &Subject, speeds: &[Speed], prediction: &Prediction) {
    let speedup = prediction.speedup();
    if is_json {
        out!(
            "{}",
            json!({
                "subject": subject.name, "parameters": subject.parameters,
                "effective_batch": subject.effective_batch, "machines": speeds,
                "prediction": prediction, "speedup": speedup,
            })
        );
        return;
    }
    for (rank, speed) in speeds.iter().enumerate() {
        out!(
            "Rank {rank} ({}): {:.3} samples per second with {} threads",
            speed.host,
            speed.samples_per_second,
            speed.threads
        );
    }
    out!(
        "{}: a step of {} samples takes about {}, of which the machines spend {} adding up {} gradient values",
        subject.name,
        format_count(subject.effective_batch.into()),
        seconds(prediction.step_s),
        seconds(prediction.exchange_s),
        format_count(subject.parameters)
    );
    if speedup < 1.0 {
        out!(
            "This machine alone is faster: {} per step. Train without --on, or with an --effective-batch of at least {}",
            seconds(prediction.alone_s),
            format_count(prediction.good_batch.into())
        );
    } else {
        out!(
            "That is {speedup:.2} times as fast as this machine alone. From an --effective-batch of {} on, the group reaches {:.0} % of the sum of its machines' speeds",
            format_count(prediction.good_batch.into()),
            100.0 * GOOD_FRACTION
        );
    }
}

/// "0.31 s" for short times.
fn seconds(seconds: f64) -> String {
    if seconds < 10.0 {
        format!("{seconds:.2} s")
    } else {
        format_duration(seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(host: &str, samples_per_second: f64) -> Speed {
        Speed {
            host: host.to_owned(),
            threads: 1,
            samples_per_second,
        }
    }

    #[test]
    fn a_slow_network_makes_a_group_slower_than_one_machine() {
        let speeds = [speed("studio", 60.0), speed("air", 10.0)];
        let slow = Prediction::new(&speeds, 1.5, 64);
        assert!(slow.speedup() < 1.0, "{slow:?}");
        let fast = Prediction::new(&speeds, 0.01, 64);
        assert!(
            fast.speedup() > 1.0 && fast.speedup() < 70.0 / 60.0,
            "{fast:?}"
        );
        let good = Prediction::new(&speeds, 1.5, slow.good_batch);
        let reached = f64::from(slow.good_batch) / 70.0 / good.step_s;
        assert!((reached - GOOD_FRACTION).abs() < 0.01, "{reached}");
    }

    #[test]
    fn processes_of_one_machine_are_compared_with_all_its_cores() {
        let speeds = [speed("studio", 30.0), speed("studio", 30.0)];
        let prediction = Prediction::new(&speeds, 0.0, 60);
        assert!((prediction.alone_s - 1.0).abs() < 1e-9, "{prediction:?}");
        assert!(prediction.speedup() < 1.0);
    }
}
