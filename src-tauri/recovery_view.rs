//! The recovery steps that change the result of a training: what each step saves and costs, and
//! which setting applies it. Ebb never applies them by itself; the user chooses.

use dataset::Task;
use pressure::{LighterTuning, RecoveryOption, RecoveryStep, Shortage, options_needing_consent};
use runlog::{Run, RunConfig, Started, TrainableLayers, format_bytes};
use serde::Serialize;
use trainer::estimate::{IMAGE_SIZES, MemoryEstimate};
use ts_rs::TS;

/// The plan's field for the image size or the length of texts.
pub const INPUT_SIZE: &str = "resolution";
/// The plan's field for the trained part of pretrained weights.
pub const TRAINED_PART: &str = "trains";
/// Lengths of texts that can be chosen, in tokens, beside the suggested one.
pub const TOKENS: [u32; 5] = [32, 64, 128, 256, 512];
/// Further lengths for pretrained language models.
pub const LONG_TOKENS: [u32; 4] = [1024, 2048, 4096, 8192];
/// The word that trains only a new output layer.
const HEAD: &str = "head";
/// The word that trains adapters.
const ADAPTERS: &str = "adapter:8";
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
    /// Another setting that it needs, and its value.
    pub needs: Option<(String, String)>,
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
    /// The word for a smaller part of pretrained weights that could be trained.
    pub smaller_part: Option<String>,
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

/// What follows from the pretrained weights of a run.
struct FromWeights {
    sizes: Vec<u32>,
    smaller_part: Option<String>,
    lighter_tuning: LighterTuning,
}

impl FromWeights {
    fn new(config: &RunConfig, task: Option<Task>, images: bool) -> Self {
        let has_new_head = task.is_some_and(|task| !task.is_on_documents());
        let trains_less =
            config.adapter_rank.is_some() || config.train_only == Some(TrainableLayers::Head);
        let head = || (has_new_head && !trains_less).then(|| HEAD.to_owned());
        // The run has a copy of the weights. Without it, less can be offered.
        let opened = if has_new_head {
            None
        } else {
            trainer::pretrained::open(config).ok().flatten()
        };
        let part = opened.as_ref().and_then(|weights| weights.smaller_part());
        let lighter_tuning = opened.as_ref().and_then(|weights| {
            let optimizer = config.optimizer.unwrap_or(trainer::OptimizerKind::AdamW);
            let precision = config.precision?.into();
            MemoryEstimate::lighter_tuning(weights, optimizer, precision).ok()
        });
        FromWeights {
            // Pretrained weights for images may accept one size alone.
            sizes: if images {
                Vec::new()
            } else {
                [&TOKENS[..], &LONG_TOKENS[..]].concat()
            },
            smaller_part: part.map(|part| part.word).or_else(head),
            lighter_tuning: lighter_tuning.unwrap_or_default(),
        }
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
    let from_weights = match config.from {
        Some(_) => FromWeights::new(config, task, images),
        None => FromWeights {
            sizes: if images {
                IMAGE_SIZES.to_vec()
            } else {
                TOKENS.to_vec()
            },
            smaller_part: None,
            lighter_tuning: LighterTuning::default(),
        },
    };
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
            can_freeze: from_weights.smaller_part.is_some(),
            lighter_tuning: from_weights.lighter_tuning,
            reads_texts: !images,
            ..Shortage::default()
        },
        images,
        input_size: started.input_size,
        sizes: from_weights.sizes,
        on_gpu: !started.device.to_ascii_lowercase().starts_with("cpu"),
        smaller_part: from_weights.smaller_part,
    }
}

/// A step that is offered, without what it saves.
struct Offer {
    title: String,
    cost: &'static str,
    setting: (String, String),
    /// Another setting that it needs.
    needs: Option<(String, String)>,
}

impl Offer {
    fn new(title: &str, cost: &'static str, setting: (&str, &str)) -> Self {
        Offer {
            title: title.to_owned(),
            cost,
            setting: (setting.0.to_owned(), setting.1.to_owned()),
            needs: None,
        }
    }
}

/// What training only this part is called: `last:N` or `head`.
fn only_part(word: &str) -> String {
    match word.strip_prefix("last:") {
        Some("1") => "Train only the last block".to_owned(),
        Some(blocks) => format!("Train only the last {blocks} blocks"),
        None => "Train only a new head".to_owned(),
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
        let offer = match option.step {
            RecoveryStep::LowerResolution => {
                let (offer, freed_bytes) = self.smaller_input_offer()?;
                return self.view(option, freed_bytes, offer);
            }
            RecoveryStep::HalvePrecision if self.on_gpu => Offer::new(
                "Compute in 16 bits",
                "Activations and gradients are rounded to bf16; the result differs slightly.",
                ("precision", "bf16"),
            ),
            RecoveryStep::ShrinkOptimizerState => Offer::new(
                "Store the optimizer's moments in 8 bits",
                "The moments are rounded; the result differs slightly.",
                ("optimizer", "adamw8bit"),
            ),
            RecoveryStep::TrainAdapters => Offer::new(
                "Train adapters of rank 8 (LoRA)",
                "The pretrained weights stay as they are, and only small matrices beside them are trained.",
                (TRAINED_PART, ADAPTERS),
            ),
            RecoveryStep::QuantizeTo8Bits => self.quantized("in 8 bits", "8"),
            RecoveryStep::QuantizeToNf4 => self.quantized("in 4 bits (NF4)", "nf4"),
            RecoveryStep::FreezeBlocks => {
                let part = self.smaller_part.as_deref()?;
                Offer::new(
                    &only_part(part),
                    "The pretrained weights stay as they are, which usually costs accuracy.",
                    (TRAINED_PART, part),
                )
            }
            _ => return None,
        };
        self.view(option, freed_bytes, offer)
    }

    /// The step as the window shows it; `None` if it frees nothing.
    fn view(
        &self,
        option: &RecoveryOption,
        freed_bytes: u64,
        offer: Offer,
    ) -> Option<RecoveryView> {
        let saves = self.saves(freed_bytes, option.extra_time_fraction);
        let (setting, value) = offer.setting;
        (freed_bytes > 0).then(|| RecoveryView {
            title: offer.title,
            price: format!("{saves} {}", offer.cost),
            setting,
            value,
            needs: offer.needs,
        })
    }

    /// Smaller images or shorter texts, and the activations that they save.
    fn smaller_input_offer(&self) -> Option<(Offer, u64)> {
        let (size, freed_bytes) = self.smaller_input()?;
        let (title, cost) = if self.images {
            (
                format!("Train at {size} px instead of {} px", self.input_size),
                "Small details of the images are lost, which may cost accuracy.",
            )
        } else {
            (
                format!("Read {size} tokens instead of {}", self.input_size),
                "The model no longer sees the ends of longer texts.",
            )
        };
        let size = size.to_string();
        Some((Offer::new(&title, cost, (INPUT_SIZE, &size)), freed_bytes))
    }

    /// Frozen weights in fewer `bits`, the setting `value`. If all weights train, adapters are
    /// trained instead.
    fn quantized(&self, bits: &str, value: &str) -> Offer {
        let trains_all = self.shortage.lighter_tuning.trains_all;
        let title = if trains_all {
            format!("Train adapters of rank 8 on weights {bits}")
        } else {
            format!("Store the frozen weights {bits}")
        };
        let cost = "The frozen weights are rounded; the result differs slightly.";
        let adapters = || (TRAINED_PART.to_owned(), ADAPTERS.to_owned());
        Offer {
            needs: trains_all.then(adapters),
            ..Offer::new(&title, cost, ("quantize", value))
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
                can_freeze: true,
                ..Shortage::default()
            },
            images: true,
            input_size: 224,
            sizes: IMAGE_SIZES.to_vec(),
            on_gpu: true,
            smaller_part: Some(HEAD.to_owned()),
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
            smaller_part: None,
            shortage: Shortage {
                moments_bytes: 0,
                can_freeze: false,
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

    /// A plan that fine-tunes all weights of a language model at 2,048 tokens.
    fn fine_tuning() -> Situation {
        Situation {
            shortage: Shortage {
                missing_bytes: 10 * GB,
                activations_bytes: 2 * GB,
                moments_bytes: 8 * GB,
                lighter_tuning: LighterTuning {
                    adapters_bytes: 9 * GB,
                    eight_bits_bytes: 11 * GB,
                    nf4_bytes: 12 * GB,
                    trains_all: true,
                },
                reads_texts: true,
                ..plan().shortage
            },
            images: false,
            input_size: 2048,
            sizes: [&TOKENS[..], &LONG_TOKENS[..]].concat(),
            on_gpu: false,
            smaller_part: Some("last:4".to_owned()),
        }
    }

    #[test]
    fn a_language_model_is_offered_adapters_and_quantized_weights() {
        let titles: Vec<String> = shown(&fine_tuning())
            .into_iter()
            .map(|(title, ..)| title)
            .collect();
        let expected = [
            "Read 1024 tokens instead of 2048",
            "Store the optimizer's moments in 8 bits",
            "Train adapters of rank 8 (LoRA)",
            "Train adapters of rank 8 on weights in 8 bits",
            "Train adapters of rank 8 on weights in 4 bits (NF4)",
            "Train only the last 4 blocks",
        ];
        assert_eq!(titles, expected);
        let steps = fine_tuning().recovery_steps();
        let adapters = (TRAINED_PART.to_owned(), ADAPTERS.to_owned());
        assert_eq!(steps[2].needs, None);
        assert!(
            steps[2]
                .price
                .starts_with("Saves about 9.0 GB of the missing")
        );
        let eight_bits = &steps[3];
        assert_eq!(
            (&*eight_bits.setting, &*eight_bits.value),
            ("quantize", "8")
        );
        assert_eq!(eight_bits.needs, Some(adapters));
        assert_eq!(
            eight_bits.price,
            "Saves about 11.0 GB, which is enough, and takes 13 % more time. \
             The frozen weights are rounded; the result differs slightly."
        );
    }

    #[test]
    fn adapters_are_offered_only_smaller_frozen_weights() {
        let plan = fine_tuning();
        let with_adapters = Situation {
            shortage: Shortage {
                moments_bytes: 0,
                can_freeze: false,
                lighter_tuning: LighterTuning {
                    adapters_bytes: 0,
                    trains_all: false,
                    ..plan.shortage.lighter_tuning
                },
                ..plan.shortage
            },
            smaller_part: None,
            ..plan
        };
        let steps = with_adapters.recovery_steps();
        let settings: Vec<_> = steps
            .iter()
            .map(|step| (&*step.title, &*step.value, step.needs.is_some()))
            .collect();
        let expected = [
            ("Read 1024 tokens instead of 2048", "1024", false),
            ("Store the frozen weights in 8 bits", "8", false),
            ("Store the frozen weights in 4 bits (NF4)", "nf4", false),
        ];
        assert_eq!(settings, expected);
    }

    #[test]
    fn a_run_from_a_language_model_may_read_shorter_texts_and_train_less() {
        let from = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("crates/models/tests/fixtures/published/chat");
        let config = |adapter_rank| RunConfig {
            from: Some(from.clone()),
            precision: "f32".parse().ok(),
            adapter_rank,
            ..RunConfig::default()
        };
        let mut run = Run::default();
        run.apply(&RunEvent::Started(Box::new(Started {
            task: "language-model".into(),
            input_size: 1024,
            parameters: 100_000,
            optimizer: "adamw".into(),
            precision: "f32".into(),
            device: "cpu".into(),
            estimated_peak_bytes: GB,
            ..Started::default()
        })));
        run.apply(&decided(Action::Suspend, Change::Suspend));
        let settings = |adapter_rank| -> Vec<(String, String)> {
            let offered = for_run(&run, &config(adapter_rank)).into_iter();
            offered.map(|step| (step.setting, step.value)).collect()
        };
        let owned = |all: &[(&str, &str)]| -> Vec<(String, String)> {
            let all = all.iter();
            all.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect()
        };
        let quantized = [("quantize", "8"), ("quantize", "nf4")];
        let shorter = [(INPUT_SIZE, "512"), ("optimizer", "adamw8bit")];
        let mut expected = owned(&shorter);
        let adapters = owned(&quantized);
        expected.extend(adapters.clone());
        assert_eq!(settings(Some(4)), expected);
        let mut expected = owned(&shorter);
        expected.push((TRAINED_PART.to_owned(), ADAPTERS.to_owned()));
        expected.extend(adapters);
        expected.push((TRAINED_PART.to_owned(), "last:1".to_owned()));
        assert_eq!(settings(None), expected);
    }
}
