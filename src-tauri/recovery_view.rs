//! The recovery steps that change the result of a training: what each step saves and costs, and
//! which setting applies it. Ebb never applies them by itself; the user chooses.

use dataset::Task;
use pressure::{RecoveryOption, RecoveryStep, Shortage, options_needing_consent};
use runlog::{Run, RunConfig, Started, TrainableLayers, format_bytes};
use serde::Serialize;
use trainer::estimate::IMAGE_SIZES;
use ts_rs::TS;

/// The plan's field for the image size or the length of texts.
pub const INPUT_SIZE: &str = "resolution";
/// The plan's field for the trained part of pretrained weights.
pub const TRAINED_PART: &str = "trains";
/// Lengths of texts that can be chosen, in tokens, beside the suggested one.
pub const TOKENS: [u32; 5] = [32, 64, 128, 256, 512];
/// The word that trains only a new output layer.
const HEAD: &str = "head";
/// Bytes per trained parameter: weight, gradient, and the two moments of AdamW.
const STATE_BYTES: u64 = 16;
/// The part of it that the two moments take.
const MOMENTS_BYTES: u64 = 8;

/// A way to need less memory that changes the result of the training.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, TS)]
pub struct RecoveryView {
    /// What it does: "Train at 96 px instead of 160 px".
    pub title: String,
    /// What it saves and what it costs, in two sentences.
    pub price: String,
    /// The setting that takes it: a field of the plan's settings, or a key of the other settings.
    pub setting: String,
    /// The value of this setting.
    pub value: String,
}

/// What the steps depend on.
pub struct Situation {
    /// What is missing, and what could be freed. `missing_bytes` is 0 if that is unknown; the sizes
    /// then are those of `micro_batch`.
    pub shortage: Shortage,
    /// Whether the samples are images.
    pub images: bool,
    /// Side of an image in pixels, or length of a text in tokens.
    pub input_size: u32,
    /// Input sizes that the network accepts, in any order.
    pub sizes: Vec<u32>,
    /// Whether a GPU trains.
    pub on_gpu: bool,
    /// Whether the network has pretrained weights, of which only the head could be trained.
    pub can_freeze: bool,
}

/// The steps for a run that is suspended because memory is short, or ended for this reason; none
/// for every other run.
pub fn for_run(run: &Run, config: &RunConfig) -> Vec<RecoveryView> {
    match run.started() {
        Some(started) if run.is_short_of_memory() => {
            situation(run, started, config).recovery_steps()
        }
        _ => Vec::new(),
    }
}

/// The situation of a run, from the smallest micro-batch that was measured.
fn situation(run: &Run, started: &Started, config: &RunConfig) -> Situation {
    let measured = run.predictions().iter();
    let smallest = measured
        .filter(|prediction| prediction.measured_peak_bytes > 0)
        .min_by_key(|prediction| prediction.micro_batch);
    let (micro_batch, peak_bytes) = match smallest {
        Some(smallest) => (smallest.micro_batch, smallest.measured_peak_bytes),
        None => (1, started.estimated_peak_bytes),
    };
    // A suspended run has freed its state.
    let state_bytes = run.state_bytes().max(STATE_BYTES * started.parameters);
    let task = Task::from_name(&started.task);
    let images = task == Some(Task::ImageClassification);
    let is_pretrained = config.from.is_some();
    let has_head = task.is_some_and(|task| !task.is_on_documents());
    Situation {
        shortage: Shortage {
            activations_bytes: peak_bytes.saturating_sub(state_bytes),
            moments_bytes: match &*started.optimizer {
                "adamw" => MOMENTS_BYTES * started.parameters,
                _ => 0,
            },
            own_bytes: peak_bytes,
            micro_batch,
            element_bytes: match &*started.precision {
                "f64" => 8,
                "f32" => 4,
                _ => 2,
            },
            ..Shortage::default()
        },
        images,
        input_size: started.input_size,
        sizes: match (is_pretrained, images) {
            // Pretrained weights may accept one size alone.
            (true, _) => Vec::new(),
            (false, true) => IMAGE_SIZES.to_vec(),
            (false, false) => TOKENS.to_vec(),
        },
        on_gpu: !started.device.to_ascii_lowercase().starts_with("cpu"),
        can_freeze: is_pretrained
            && has_head
            && config.adapter_rank.is_none()
            && config.train_only != Some(TrainableLayers::Head),
    }
}

impl Situation {
    /// The steps that would save memory, in the order of the recovery steps.
    pub fn recovery_steps(&self) -> Vec<RecoveryView> {
        options_needing_consent(&self.shortage)
            .into_iter()
            .filter_map(|(option, freed_bytes)| self.step(&option, freed_bytes))
            .collect()
    }

    fn step(&self, option: &RecoveryOption, freed_bytes: u64) -> Option<RecoveryView> {
        let view = |title: &str, cost: &str, (setting, value): (&str, &str), freed_bytes: u64| {
            let saves = self.saves(freed_bytes, option.extra_time_fraction);
            (freed_bytes > 0).then(|| RecoveryView {
                title: title.to_owned(),
                price: format!("{saves} {cost}"),
                setting: setting.to_owned(),
                value: value.to_owned(),
            })
        };
        match option.step {
            RecoveryStep::LowerResolution => {
                let (size, freed_bytes) = self.smaller_input()?;
                let (title, cost) = if self.images {
                    (
                        format!("Train at {size} px instead of {} px", self.input_size),
                        "Small details of the images are lost, which may cost accuracy.",
                    )
                } else {
                    (
                        format!("Read {size} tokens instead of {}", self.input_size),
                        "The model no longer sees the rest of longer texts.",
                    )
                };
                view(
                    &title,
                    cost,
                    (INPUT_SIZE, size.to_string().as_str()),
                    freed_bytes,
                )
            }
            RecoveryStep::HalvePrecision if self.on_gpu => view(
                "Compute in 16 bits",
                "Activations and gradients are rounded to bf16; the result differs slightly.",
                ("precision", "bf16"),
                freed_bytes,
            ),
            RecoveryStep::ShrinkOptimizerState => view(
                "Store the optimizer's moments in 8 bits",
                "The moments are rounded; the result differs slightly.",
                ("optimizer", "adamw8bit"),
                freed_bytes,
            ),
            RecoveryStep::FreezeBlocks if self.can_freeze => view(
                "Train only a new head",
                "The pretrained weights stay as they are, which usually costs accuracy.",
                (TRAINED_PART, HEAD),
                freed_bytes,
            ),
            _ => None,
        }
    }

    /// The largest input size that is smaller by a third, with the activations that it saves.
    fn smaller_input(&self) -> Option<(u32, u64)> {
        let sizes = self.sizes.iter().copied();
        let size = sizes.filter(|size| 3 * size <= 2 * self.input_size).max()?;
        let ratio = f64::from(size) / f64::from(self.input_size);
        let kept_fraction = if self.images { ratio * ratio } else { ratio };
        let activations = self.shortage.activations_bytes as f64;
        Some((size, ((1.0 - kept_fraction) * activations) as u64))
    }

    /// "Saves about 0.9 GB, which is enough, and takes 5 % more time."
    fn saves(&self, freed_bytes: u64, extra_time_fraction: f64) -> String {
        let Shortage {
            missing_bytes,
            micro_batch,
            ..
        } = self.shortage;
        let saves = format!("Saves about {}", format_bytes(freed_bytes));
        let enough = if missing_bytes == 0 {
            format!(" at a micro-batch of {micro_batch}")
        } else if freed_bytes >= missing_bytes {
            ", which is enough".to_owned()
        } else {
            format!(" of the missing {}", format_bytes(missing_bytes))
        };
        let time = if extra_time_fraction > 0.0 {
            let comma = if enough.starts_with(',') { "," } else { "" };
            format!(
                "{comma} and takes {:.0} % more time",
                100.0 * extra_time_fraction
            )
        } else {
            String::new()
        };
        format!("{saves}{enough}{time}.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pressure::{Action, Change, Component, Decision, Phase};
    use runlog::{RunEvent, StopReason};

    const GB: u64 = 1 << 30;

    fn plan() -> Situation {
        Situation {
            shortage: Shortage {
                missing_bytes: GB / 2,
                activations_bytes: GB,
                moments_bytes: GB / 4,
                micro_batch: 1,
                element_bytes: 4,
                ..Shortage::default()
            },
            images: true,
            input_size: 224,
            sizes: IMAGE_SIZES.to_vec(),
            on_gpu: true,
            can_freeze: true,
        }
    }

    fn shown(situation: &Situation) -> Vec<(String, String, String)> {
        let steps = situation.recovery_steps().into_iter();
        let fields = |step: RecoveryView| {
            (
                step.title,
                step.price,
                format!("{}={}", step.setting, step.value),
            )
        };
        steps.map(fields).collect()
    }

    #[test]
    fn each_step_has_its_price_and_its_setting() {
        let expected = [
            (
                "Train at 128 px instead of 224 px",
                "Saves about 690 MB, which is enough. Small details of the images are lost, which may cost accuracy.",
                "resolution=128",
            ),
            (
                "Compute in 16 bits",
                "Saves about 512 MB, which is enough. Activations and gradients are rounded to bf16; the result differs slightly.",
                "precision=bf16",
            ),
            (
                "Store the optimizer's moments in 8 bits",
                "Saves about 189 MB of the missing 512 MB and takes 5 % more time. The moments are rounded; the result differs slightly.",
                "optimizer=adamw8bit",
            ),
            (
                "Train only a new head",
                "Saves about 640 MB, which is enough. The pretrained weights stay as they are, which usually costs accuracy.",
                "trains=head",
            ),
        ];
        let expected = expected.map(|(title, price, setting)| {
            (title.to_owned(), price.to_owned(), setting.to_owned())
        });
        assert_eq!(shown(&plan()), expected);
    }

    #[test]
    fn a_step_that_this_training_cannot_take_is_not_offered() {
        let small = Situation {
            input_size: 32,
            on_gpu: false,
            can_freeze: false,
            shortage: Shortage {
                moments_bytes: 0,
                ..plan().shortage
            },
            ..plan()
        };
        assert!(shown(&small).is_empty());
        let texts = Situation {
            images: false,
            input_size: 128,
            sizes: TOKENS.to_vec(),
            ..small
        };
        let offered = shown(&texts);
        assert_eq!(offered.len(), 1);
        assert_eq!(offered[0].0, "Read 64 tokens instead of 128");
        assert!(
            offered[0]
                .1
                .starts_with("Saves about 512 MB, which is enough.")
        );
    }

    fn decided(action: Action, change: Change) -> RunEvent {
        RunEvent::Decision {
            at_ms: 2000,
            step: 3,
            phase: Phase::Train,
            previous_micro_batch: 4,
            micro_batches: 0,
            decision: Decision {
                action,
                change,
                cause: Component::Headroom,
                ..Decision::default()
            },
            message: "another app took 6.1 GB".into(),
        }
    }

    fn run() -> Run {
        let mut run = Run::default();
        run.apply(&RunEvent::Started(Box::new(Started {
            task: "image-classification".into(),
            input_size: 96,
            parameters: 1_000_000,
            optimizer: "adamw".into(),
            precision: "f32".into(),
            device: "cpu".into(),
            ..Started::default()
        })));
        run.apply(&RunEvent::Prediction {
            at_ms: 1000,
            step: 1,
            phase: Phase::Train,
            micro_batch: 4,
            predicted_peak_bytes: GB,
            measured_peak_bytes: GB + 16_000_000,
            error_fraction: 0.0,
        });
        run
    }

    #[test]
    fn only_a_run_that_lacks_memory_is_offered_steps() {
        let config = RunConfig::default();
        let mut run = run();
        assert!(for_run(&run, &config).is_empty());
        run.apply(&decided(Action::Pause, Change::Pause));
        assert!(for_run(&run, &config).is_empty());
        run.apply(&decided(Action::Suspend, Change::Suspend));
        let offered = for_run(&run, &config);
        let titles: Vec<&str> = offered.iter().map(|step| &*step.title).collect();
        assert_eq!(
            titles,
            [
                "Train at 64 px instead of 96 px",
                "Store the optimizer's moments in 8 bits"
            ]
        );
        assert!(
            offered[0]
                .price
                .starts_with("Saves about 569 MB at a micro-batch of 4. "),
            "{}",
            offered[0].price
        );
        run.apply(&decided(Action::Run, Change::Continue));
        assert!(for_run(&run, &config).is_empty());
    }

    #[test]
    fn a_run_that_ended_for_lack_of_memory_is_offered_steps() {
        let config = RunConfig::default();
        let stopped = |reason| RunEvent::Stopped {
            at_ms: 3000,
            step: 3,
            reason,
            message: String::new(),
        };
        let failed = |code: &str| RunEvent::Failed {
            at_ms: 3000,
            step: 3,
            code: code.into(),
            message: String::new(),
        };
        for (end, expected) in [
            (stopped(StopReason::Memory), 2),
            (stopped(StopReason::Requested), 0),
            (failed("out_of_memory"), 2),
            (failed("diverged"), 0),
        ] {
            let mut run = run();
            run.apply(&end);
            assert_eq!(for_run(&run, &config).len(), expected, "{end:?}");
        }
    }

    #[test]
    fn pretrained_weights_keep_their_input_size() {
        let mut run = run();
        run.apply(&decided(Action::Suspend, Change::Suspend));
        let config = RunConfig {
            from: Some("vit".into()),
            ..RunConfig::default()
        };
        let offered = for_run(&run, &config);
        let settings: Vec<&str> = offered.iter().map(|step| &*step.setting).collect();
        assert_eq!(settings, ["optimizer", "trains"]);
    }
}
