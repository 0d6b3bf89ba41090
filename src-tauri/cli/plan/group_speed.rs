//! `ebb plan --on HOSTS`: each machine measures a micro-batch of the planned model while the others
//! measure theirs, and the machines add up as many values as the model has parameters. From this
//! follows how long a step of the group takes, and whether this machine alone is faster.

use super::planned_machine::PlannedMachine;
use super::{Plan, TIMED_SAMPLES, config, min_checkpointing, target};
use crate::cli::failure::Failure;
use crate::cli::output::out;
use crate::cli::preset_choice::read_for_preset;
use bench::{Workload, measure_workload};
use pressure::BatchConfig;
use runlog::{
    ExchangeChoice, OptimizerChoice, RunConfig, ShardingChoice, format_bytes, format_count,
    format_duration, format_percent,
};
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
    /// Memory of the smallest micro-batch on a machine, in bytes; `None` if it was not estimated.
    least_bytes: Option<u64>,
}

/// What the machines exchange in a step.
struct Exchange {
    gradients: ExchangeChoice,
    /// Each machine also sends the parameters that it has updated.
    has_parameters: bool,
    /// If the machines exchange weights only every few steps.
    rounds: Option<Rounds>,
}

/// The machines make this many steps of their own, and then exchange weights.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Rounds {
    steps: u64,
    /// Values per parameter that they then exchange: weights, moments and averages.
    values: u64,
}

impl Rounds {
    fn new(config: &RunConfig) -> Option<Self> {
        let moments = match config.optimizer.unwrap_or(OptimizerChoice::AdamW) {
            OptimizerChoice::AdamW | OptimizerChoice::AdamW8bit => 2,
            OptimizerChoice::Sgd | OptimizerChoice::Lion => 1,
        };
        let averages = u64::from(config.ema_decay.is_some_and(|decay| decay > 0.0));
        Some(Rounds {
            steps: config.steps_per_sync()?,
            values: 1 + moments + averages,
        })
    }

    /// Values per parameter and step, instead of 1.
    fn values_per_step(self) -> f64 {
        self.values as f64 / self.steps as f64
    }

    fn describe(self) -> String {
        let saved = 1.0 - self.values_per_step();
        let saved = if saved > 0.0 {
            format!("{} less", format_percent(saved))
        } else {
            "no less".to_owned()
        };
        format!(
            "With --sync-every {}, the machines exchange {} values per parameter every {} steps, instead of 1 after each step: {saved}. This changes the training: the result differs from that of one machine",
            self.steps,
            self.values,
            format_count(self.steps)
        )
    }
}

impl Exchange {
    fn new(config: &RunConfig) -> Self {
        Exchange {
            gradients: config.exchange.unwrap_or(ExchangeChoice::F32),
            has_parameters: config.sharding == Some(ShardingChoice::Optimizer),
            rounds: Rounds::new(config),
        }
    }

    /// Seconds that it takes for this many parameters, on average per step.
    fn measure(&self, group: &RunGroup, parameters: usize) -> Result<f64, Failure> {
        let mut seconds = group.measure_exchange(parameters, self.gradients)?;
        if self.has_parameters {
            seconds += group.measure_exchange(parameters, ExchangeChoice::F32)?;
        }
        Ok(seconds * self.rounds.map_or(1.0, Rounds::values_per_step))
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
        .map_err(|error| Failure::new(format!("a machine did not report its speed: {error}")))?;
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
    let data = BatchConfig {
        effective_batch: plan.effective_batch,
        fixed_micro_batch: plan.fixed_micro_batch,
    };
    let variants = min_checkpointing(&machine, &data);
    let target = target(Some(threads), &machine);
    config.ema_decay = plan.ema_decay;
    let exchange = Exchange::new(&config);
    let divided_by = if exchange.has_parameters {
        group.size()
    } else {
        1
    };
    let target = target
        .with_moments_divided_by(divided_by)
        .with_outer_steps(exchange.rounds.is_some());
    let estimate = builder.estimate_as(plan.model, plan.input_size, target, variants)?;
    let parameters = estimate.memory.parameters;
    let need = estimate.need(&[]);
    let peaks = need.variants.iter().flat_map(|variant| &variant.peaks);
    let least_bytes = peaks.map(|peak| peak.peak_bytes).min();
    let samples = TIMED_SAMPLES.min(plan.effective_batch as usize);
    // Machines that share a memory or a processor slow each other down, so all measure at once.
    group.gather(Vec::new())?;
    let seconds = plan.seconds_per_sample(samples, 0)?;
    let subject = Subject {
        name: plan.name.clone(),
        parameters,
        effective_batch: plan.effective_batch,
        exchange,
        least_bytes,
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
        least_bytes: None,
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
                "prediction": prediction, "speedup": speedup, "least_bytes": subject.least_bytes,
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
    if let Some(rounds) = subject.exchange.rounds {
        out!("{}", rounds.describe());
    }
    out!(
        "{}: a step of {} samples takes about {}, of which the machines spend {} adding up {} gradient values",
        subject.name,
        format_count(subject.effective_batch.into()),
        seconds(prediction.step_s),
        seconds(prediction.exchange_s),
        format_count(subject.parameters)
    );
    if let Some(bytes) = subject.least_bytes {
        out!(
            "Each machine needs at least {} of memory{}",
            format_bytes(bytes),
            if subject.exchange.has_parameters {
                ", including its part of the optimizer state"
            } else {
                ""
            }
        );
    }
    if speedup < 1.0 {
        out!(
            "This machine alone is faster: {} per step. Train without --on, or with an --effective-batch of at least {}",
            seconds(prediction.alone_s),
            format_count(prediction.good_batch.into())
        );
    } else {
        out!(
            "That is {speedup:.2} times as fast as this machine alone. With an --effective-batch of at least {}, the group reaches {:.0} % of the sum of its machines' speeds",
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
    fn rare_exchanges_are_described_with_what_they_save_and_change() {
        let config = |sync_every, optimizer| RunConfig {
            sync_every: Some(sync_every),
            optimizer: Some(optimizer),
            ..RunConfig::default()
        };
        assert_eq!(Rounds::new(&config(1, OptimizerChoice::AdamW)), None);
        let rounds = Rounds::new(&config(100, OptimizerChoice::AdamW));
        let described = rounds.map(Rounds::describe).unwrap_or_default();
        assert_eq!(
            described,
            "With --sync-every 100, the machines exchange 3 values per parameter every 100 steps, instead of 1 after each step: 97.0 % less. This changes the training: the result differs from that of one machine"
        );
        let rounds = Rounds::new(&config(2, OptimizerChoice::Lion));
        let described = rounds.map(Rounds::describe).unwrap_or_default();
        assert!(described.contains(
            "2 values per parameter every 2 steps, instead of 1 after each step: no less"
        ));
    }

    #[test]
    fn processes_of_one_machine_are_compared_with_all_its_cores() {
        let speeds = [speed("studio", 30.0), speed("studio", 30.0)];
        let prediction = Prediction::new(&speeds, 0.0, 60);
        assert!((prediction.alone_s - 1.0).abs() < 1e-9, "{prediction:?}");
        assert!(prediction.speedup() < 1.0);
    }
}
