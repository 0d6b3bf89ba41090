//! `ebb plan --parameters`: suggests settings for a transformer of which only the number of
//! parameters is known, on one or several devices like the planned one.

use super::planned_machine::PlannedMachine;
use super::sharing::Sharing;
use super::{Plan, WORKLOAD_BATCH};
use crate::cli::failure::Failure;
use crate::cli::output::out;
use pressure::{DeviceShare, DoesNotFit, ParameterCount};
use runlog::{
    OptimizerChoice, PrecisionChoice, RunConfig, SETTINGS, counted, format_bytes, format_count,
};
use serde_json::json;

/// Default number of tokens of a sample.
const TOKENS: u32 = 1024;
/// Number of parameters that can be planned.
const PLAUSIBLE: std::ops::RangeInclusive<f64> = 1e3..=1e13;
/// Settings that change the estimate.
const USED: [&str; 11] = [
    "tokens",
    "effective_batch",
    "optimizer",
    "ema_decay",
    "sharding",
    "sync_every",
    "precision",
    "device",
    "memory_cap_bytes",
    "memory_cap_fraction",
    "max_system_fraction",
];

/// Parses the value of `--parameters`.
pub(super) fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim().replace(',', "");
    let (number, factor) = match text.char_indices().next_back() {
        Some((end, 'k' | 'K')) => (&text[..end], 1e3),
        Some((end, 'm' | 'M')) => (&text[..end], 1e6),
        Some((end, 'b' | 'B')) => (&text[..end], 1e9),
        _ => (&*text, 1.0),
    };
    let count = number.trim().parse::<f64>().map(|number| number * factor);
    match count.ok().filter(|count| PLAUSIBLE.contains(count)) {
        Some(count) => Ok(count.round() as u64),
        None => Err("write a number of parameters, such as 125M or 1e9".to_owned()),
    }
}

/// Prints the suggestion.
pub(super) fn run(args: &Plan, parameters: u64) -> Result<(), Failure> {
    refuse_other_settings(&args.settings.config)?;
    let config = &args.settings.config;
    let machine = PlannedMachine::new(args, config)?;
    let effective_batch = config.effective_batch.unwrap_or(WORKLOAD_BATCH);
    let (estimated, sharing) = Sharing::choose(args, config, &machine, |sharing| {
        let model = model(config, parameters, sharing);
        let share = model.suggest_config(
            effective_batch,
            sharing.devices,
            &machine.device,
            &machine.processes,
        );
        let need = model.whole_state(sharing.samples_per_device(effective_batch));
        Ok((Estimated { model, share }, need))
    })?;
    let Estimated { model, share } = estimated;
    let answer = Answer {
        model,
        optimizer: config.optimizer.unwrap_or(OptimizerChoice::AdamW),
        machine,
        sharing,
        share,
    };
    if args.json {
        out!("{}", answer.as_json());
    } else {
        answer.print();
    }
    match &answer.share {
        Ok(_) => Ok(()),
        Err(no) => Err(answer.refusal(no)),
    }
}

/// Refuses settings that do not change the estimate.
fn refuse_other_settings(config: &RunConfig) -> Result<(), Failure> {
    let keys = serde_json::to_value(config).unwrap_or_default();
    let is_given = |key: &str| keys.get(key).is_some();
    let mut given = SETTINGS.iter().filter(|setting| is_given(setting.key));
    match given.find(|setting| !USED.contains(&setting.key)) {
        Some(setting) => Err(Failure::usage(format!(
            "--{} has no effect with --parameters; leave it out, or plan a folder",
            setting.flag
        ))),
        None => Ok(()),
    }
}

/// A model that devices share. If they divide the moments, they do so in equal parts.
fn model(config: &RunConfig, parameters: u64, sharing: Sharing) -> ParameterCount {
    let precision = config.precision.unwrap_or(PrecisionChoice::F32);
    // The optimizer keeps its own values in f32 or f64.
    let (value_bytes, element_bytes, copy_bytes) = match precision {
        PrecisionChoice::F32 => (4, 4, 0),
        PrecisionChoice::Bf16 | PrecisionChoice::F16 => (4, 2, 2),
        PrecisionChoice::F64 => (8, 8, 0),
    };
    let moments_bytes = match config.optimizer.unwrap_or(OptimizerChoice::AdamW) {
        OptimizerChoice::AdamW => 2 * value_bytes,
        OptimizerChoice::Sgd | OptimizerChoice::Lion => value_bytes,
        OptimizerChoice::AdamW8bit => 2,
    };
    let average_bytes = config.ema_decay.map_or(0, |_| value_bytes);
    let outer_bytes = if sharing.has_outer_steps(config) {
        2 * value_bytes
    } else {
        0
    };
    let whole_bytes = value_bytes + copy_bytes + average_bytes + outer_bytes;
    let owners = sharing.moments_divided_by() as f64;
    ParameterCount {
        parameters,
        tokens: config.tokens.unwrap_or(TOKENS),
        precision: precision.name().to_owned(),
        element_bytes,
        state_bytes_per_parameter: whole_bytes as f64 + moments_bytes as f64 / owners,
    }
}

/// A model with a way to share it, and the settings with which it fits.
struct Estimated {
    model: ParameterCount,
    share: Result<DeviceShare, DoesNotFit>,
}

/// What is printed.
struct Answer {
    model: ParameterCount,
    optimizer: OptimizerChoice,
    machine: PlannedMachine,
    sharing: Sharing,
    share: Result<DeviceShare, DoesNotFit>,
}

impl Answer {
    fn print(&self) {
        let (model, shape, machine) = (&self.model, self.model.shape(), &self.machine);
        out!(
            "A transformer with {} parameters (assumed: {} of width {}), {} tokens per sample, {}, {}",
            format_count(model.parameters),
            counted(shape.blocks.into(), "block", "blocks"),
            format_count(shape.width.into()),
            format_count(model.tokens.into()),
            self.optimizer,
            model.precision
        );
        let devices = self.sharing.devices;
        let each = if devices > 1 { "each of " } else { "" };
        out!(
            "{} of memory, {} used by other apps and the system: Ebb may use {} on {each}{} ({})",
            format_bytes(machine.device.total_bytes),
            format_bytes(machine.processes.others_bytes),
            format_bytes(machine.budget_bytes()),
            counted(devices.into(), "device", "devices"),
            machine.kind
        );
        for assumed in &machine.assumed {
            out!("Assumed: {assumed}");
        }
        if let Ok(share) = &self.share {
            self.print_share(share);
        }
        out!(
            "This is a rough estimate. For a network of Ebb, `ebb plan FOLDER` measures the memory."
        );
    }

    fn print_share(&self, share: &DeviceShare) {
        let config = &share.config;
        out!(
            "Suggested config: effective batch {}, micro-batch {}, {} per step{}, {}",
            format_count(share.effective_batch.into()),
            config.micro_batch,
            counted(config.accumulation.into(), "micro-batch", "micro-batches"),
            if share.devices > 1 {
                " on each device"
            } else {
                ""
            },
            match config.checkpoint_blocks {
                0 => "no checkpointed blocks".to_owned(),
                blocks => format!(
                    "{blocks} checkpointed blocks ({:.0} % more time)",
                    100.0 * config.extra_time_fraction
                ),
            }
        );
        let state_bytes = self.model.need(&[]).state_bytes;
        out!(
            "Peak memory {}{}, of which {} stays in use between steps; headroom {}",
            format_bytes(config.predicted_peak_bytes),
            if share.devices > 1 { " per device" } else { "" },
            format_bytes(state_bytes),
            format_bytes(config.headroom_bytes)
        );
        if share.devices > 1 {
            out!(
                "Each device holds the whole model and computes {} of the {} samples of a step. {}",
                format_count(share.samples_per_device.into()),
                format_count(share.effective_batch.into()),
                if self.sharing.divides_optimizer {
                    "The devices divide the optimizer state among themselves."
                } else {
                    "Each device holds the whole optimizer state."
                }
            );
        }
    }

    fn refusal(&self, no: &DoesNotFit) -> Failure {
        let more_devices = if self.sharing.divides_optimizer {
            "; more devices divide the optimizer state into smaller parts, but each one holds the whole model"
        } else if self.sharing.devices > 1 {
            "; more devices do not help, because each one holds the whole model and the whole optimizer state"
        } else {
            ""
        };
        Failure::new(format!(
            "not even one sample fits: it needs {}, but Ebb may use only {}{more_devices}. Choose --optimizer adamw8bit, fewer --tokens or a machine on which Ebb may use {}",
            format_bytes(no.least.0),
            format_bytes(no.budget_bytes),
            format_bytes(no.enough_bytes)
        ))
    }

    fn as_json(&self) -> serde_json::Value {
        let machine = &self.machine;
        let mut line = json!({
            "model": self.model, "shape": self.model.shape(), "optimizer": self.optimizer,
            "device": machine.kind.name(), "device_limits": machine.device,
            "processes": machine.processes, "devices": self.sharing.devices,
            "divides_optimizer": self.sharing.divides_optimizer,
            "assumed": machine.assumed, "budget_bytes": machine.budget_bytes(),
        });
        match &self.share {
            Ok(share) => line["suggested"] = json!(share),
            Err(no) => line["does_not_fit"] = json!(no),
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: Sharing = Sharing {
        devices: 1,
        divides_optimizer: false,
    };

    #[test]
    fn a_number_of_parameters_is_parsed() {
        for (text, expected) in [
            ("1e9", 1_000_000_000),
            ("125M", 125_000_000),
            ("1.5 b", 1_500_000_000),
            ("350,000", 350_000),
        ] {
            assert_eq!(parse(text), Ok(expected));
        }
        for nonsense in ["", "M", "many", "-1e9", "nan", "1e30", "12é"] {
            let error = parse(nonsense).expect_err("not a number of parameters");
            assert!(error.contains("125M or 1e9"), "{error}");
        }
    }

    #[test]
    fn a_setting_without_effect_is_refused() {
        let used = RunConfig {
            tokens: Some(512),
            ..RunConfig::default()
        };
        assert!(refuse_other_settings(&used).is_ok());
        let unused = RunConfig {
            image_size: Some(64),
            ..RunConfig::default()
        };
        assert!(refuse_other_settings(&unused).is_err());
    }

    #[test]
    fn a_smaller_state_is_that_of_the_chosen_optimizer() {
        let bytes = |optimizer| {
            let config = RunConfig {
                optimizer: Some(optimizer),
                ..RunConfig::default()
            };
            let of = |devices| {
                let sharing = Sharing {
                    devices,
                    divides_optimizer: true,
                };
                model(&config, 3_000_000, sharing).need(&[]).state_bytes
            };
            let program = model(&config, 0, ALONE).need(&[]).state_bytes;
            [1, 2, 3].map(|devices| (of(devices) - program) / 1_000_000)
        };
        // Of three million parameters. The weights stay whole; the moments of several devices are
        // divided, into parts that need not be whole bytes per parameter.
        assert_eq!(bytes(OptimizerChoice::AdamW), [36, 24, 20]);
        assert_eq!(bytes(OptimizerChoice::Lion), [24, 18, 16]);
        assert_eq!(bytes(OptimizerChoice::AdamW8bit), [18, 15, 14]);
    }

    #[test]
    fn a_precision_has_its_own_values() {
        let bytes = |precision| {
            let config = RunConfig {
                precision: Some(precision),
                ema_decay: Some(0.9),
                ..RunConfig::default()
            };
            model(&config, 1_000_000, ALONE).state_bytes_per_parameter
        };
        assert_eq!(bytes(PrecisionChoice::F32), 16.0);
        assert_eq!(bytes(PrecisionChoice::Bf16), 18.0, "and a copy of 16 bits");
        assert_eq!(bytes(PrecisionChoice::F64), 32.0);
    }

    #[test]
    fn rare_exchanges_need_8_more_bytes_on_each_of_several_devices() {
        let bytes = |sync_every, devices| {
            let config = RunConfig {
                sync_every: Some(sync_every),
                ..RunConfig::default()
            };
            let sharing = Sharing {
                devices,
                divides_optimizer: false,
            };
            model(&config, 1_000_000, sharing).state_bytes_per_parameter
        };
        let found = [bytes(1, 2), bytes(100, 1), bytes(100, 2)];
        assert_eq!(found, [12.0, 12.0, 20.0]);
    }
}
