//! `ebb plan --parameters`: suggests settings for a transformer of which only the number of
//! parameters is known, on one or several devices like the planned one.

use super::planned_machine::PlannedMachine;
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
const USED: [&str; 9] = [
    "tokens",
    "effective_batch",
    "optimizer",
    "ema_decay",
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
    let model = model(config, parameters);
    let effective_batch = config.effective_batch.unwrap_or(WORKLOAD_BATCH);
    let devices = args.devices.unwrap_or(1);
    let share = model.suggest_config(
        effective_batch,
        devices,
        &machine.device,
        &machine.processes,
    );
    let answer = Answer {
        model,
        optimizer: config.optimizer.unwrap_or(OptimizerChoice::AdamW),
        machine,
        devices,
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

fn model(config: &RunConfig, parameters: u64) -> ParameterCount {
    let precision = config.precision.unwrap_or(PrecisionChoice::F32);
    let (element_bytes, copy_bytes) = match precision {
        PrecisionChoice::F32 => (4, 0),
        PrecisionChoice::Bf16 | PrecisionChoice::F16 => (2, 2),
        PrecisionChoice::F64 => (8, 8),
    };
    let moments_bytes = match config.optimizer.unwrap_or(OptimizerChoice::AdamW) {
        OptimizerChoice::AdamW => 8,
        OptimizerChoice::Sgd | OptimizerChoice::Lion => 4,
        OptimizerChoice::AdamW8bit => 2,
    };
    let average_bytes = config.ema_decay.map_or(0, |_| 4);
    ParameterCount {
        parameters,
        tokens: config.tokens.unwrap_or(TOKENS),
        precision: precision.name().to_owned(),
        element_bytes,
        state_bytes_per_parameter: 4 + copy_bytes + moments_bytes + average_bytes,
    }
}

/// What is printed.
struct Answer {
    model: ParameterCount,
    optimizer: OptimizerChoice,
    machine: PlannedMachine,
    devices: u32,
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
        let each = if self.devices > 1 { "each of " } else { "" };
        out!(
            "{} of memory, {} used by other apps and the system: Ebb may use {} on {each}{} ({})",
            format_bytes(machine.device.total_bytes),
            format_bytes(machine.processes.others_bytes),
            format_bytes(machine.budget_bytes()),
            counted(self.devices.into(), "device", "devices"),
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
                "Each device holds the whole model and computes {} of the {} samples of a step. Ebb itself trains a run on one device.",
                format_count(share.samples_per_device.into()),
                format_count(share.effective_batch.into())
            );
        }
    }

    fn refusal(&self, no: &DoesNotFit) -> Failure {
        let more_devices = if self.devices > 1 {
            "; more devices do not help, because each one holds the whole model"
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
            "processes": machine.processes, "devices": self.devices,
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
            model(&config, 1_000_000).state_bytes_per_parameter
        };
        assert_eq!(bytes(OptimizerChoice::AdamW), 12);
        assert_eq!(bytes(OptimizerChoice::Lion), 8);
        assert_eq!(bytes(OptimizerChoice::AdamW8bit), 6);
    }
}
