//! The plan that Ebb suggests for a folder, and the config that the settings of the plan page
//! describe. Every number of a plan was counted or measured.

#[cfg(test)]
mod tests;

use crate::estimate_history::{Correction, EstimateHistory, RunsOn};
use crate::machine_readings::Reported;
use crate::recovery_view::{LONG_TOKENS, Situation, TOKENS};
use crate::setting_location::{SettingOwner, owner};
use crate::task_labels::{asks, capital, learned};
use crate::window_types::{CommandError, DoesNotFitView, EstimateView, PlanSettings, PlanView};
use dataset::{DetectedDataset, Task};
use pressure::{DeviceLimits, MemorySample, ModelNeed, Policy, Processes, Shortage};
use runlog::{CheckpointInterval, PowerPolicyChoice, RunConfig, RunlogError, format_count};
use std::collections::BTreeMap;
use std::path::PathBuf;
use trainer::estimate::{IMAGE_SIZES, Prefetched, Requirement, Target, Variants};
use trainer::{
    DatasetRef, DeviceKind, Estimate, ModelBuilder, ModelId, Plan, PretrainedFamily, TextModel,
    TextSize, model_task, predict_device_kind,
};

/// Time is measured with at most so many samples.
const TIMED_SAMPLES: u32 = 4;
/// The word for training everything.
pub const ALL: &str = "all";

/// The plan that Ebb suggests for this folder, and one for each other task that it suits.
pub fn all(found: &DetectedDataset, machine: &Reported) -> trainer::Result<Vec<PlanView>> {
    let tasks = DatasetRef::from(found).tasks();
    let suggested = |task: Task| {
        let wanted = RunConfig {
            task: task.name().parse().ok(),
            ..RunConfig::default()
        };
        let plan = Plan::resolve(&wanted, found)?;
        let model_sizes = match task {
            Task::ImageClassification => model_sizes(&wanted, found)?,
            _ => Vec::new(),
        };
        let view = view(&plan, None, has_table(found), machine);
        Ok(PlanView {
            model_sizes,
            ..view
        })
    };
    tasks.into_iter().map(suggested).collect()
}

/// Why Ebb suggests these defaults for the folder.
pub fn reasons_of_defaults(found: &DetectedDataset) -> Vec<String> {
    let asked = RunConfig::default();
    let plan = Plan::resolve(&asked, found);
    plan.map_or_else(|_| Vec::new(), |plan| plan.reasons_of_defaults(&asked))
}

/// The image size that Ebb suggests for each network that trains from random weights.
fn model_sizes(wanted: &RunConfig, found: &DetectedDataset) -> trainer::Result<Vec<(String, u32)>> {
    let size = |model: ModelId| {
        let of_model = RunConfig {
            model: Some(model.name().to_owned()),
            ..wanted.clone()
        };
        let plan = Plan::resolve(&of_model, found)?;
        Ok((model.name().to_owned(), plan.input_size))
    };
    ModelId::image_models().map(size).collect()
}

/// The plan that starts from pretrained weights, given by their id and folder. All of them train
/// unless `trains` names a part.
///
/// # Errors
/// The weights are missing or pickled, or do not fit each other or the data.
pub fn begun(
    found: &DetectedDataset,
    id: &str,
    from: PathBuf,
    trains: Option<&str>,
    machine: &Reported,
) -> trainer::Result<PlanView> {
    let wanted = RunConfig {
        from: Some(from),
        ..RunConfig::default()
    };
    let config = trainer::pretrained::with_choice(trains.unwrap_or(ALL), wanted)?;
    let plan = Plan::resolve(&config, found)?;
    // Checks the name and shape of every tensor, but reads none.
    plan.trained_parameters()?;
    Ok(view(&plan, Some(id), has_table(found), machine))
}

fn courtesy(plan: &Plan) -> PowerPolicyChoice {
    plan.config.courtesy.unwrap_or(PowerPolicyChoice::Auto)
}

/// Whether a table beside the images gives their classes or targets.
fn has_table(found: &DetectedDataset) -> bool {
    matches!(found, DetectedDataset::Images(images) if images.table.is_some())
}

/// `table` tells whether a table beside the images describes them.
fn view(plan: &Plan, from: Option<&str>, table: bool, machine: &Reported) -> PlanView {
    let task = plan.task();
    let (classes, numbers) = (plan.classes.len(), plan.columns.len());
    let everything = || (ALL.to_owned(), "Everything".to_owned());
    PlanView {
        settings: PlanSettings {
            task: task.name().to_owned(),
            from: from.map(str::to_owned),
            trains: plan
                .pretrained
                .as_ref()
                .map_or(ALL.to_owned(), |pretrained| pretrained.current_choice()),
            model: plan.model.name().to_owned(),
            resolution: plan.input_size,
            effective_batch: plan.effective_batch,
            epochs: plan.epochs(),
            learning_rate: plan.learning_rate,
            augment: (task == Task::ImageClassification).then(|| plan.augment.name().to_owned()),
            checkpoint_every: plan.checkpoint_every.to_string(),
            max_system_fraction: plan
                .max_system_fraction
                .unwrap_or(Policy::default().max_system_fraction),
            courtesy: courtesy(plan).name().to_owned(),
            seed: plan.seed,
            other_settings: BTreeMap::new(),
        },
        task: capital(&learned(task.name(), classes, numbers)),
        asks: asks(task, classes, numbers, table).to_owned(),
        sample: task.step_noun().to_owned(),
        models: models(plan),
        model_sizes: Vec::new(),
        can_begin: PretrainedFamily::for_task(model_task(task))
            .next()
            .is_some(),
        trains: match &plan.pretrained {
            None => vec![everything()],
            Some(pretrained) => {
                let choices = pretrained.choices().into_iter();
                choices.map(|choice| (choice.word, choice.label)).collect()
            }
        },
        resolutions: resolutions(plan),
        train_samples: plan.train_samples,
        held_out_samples: plan.held_out_samples,
        machine: machine.view(),
        budget_line_bytes: machine.budget_line_bytes(),
        leave_least_bytes: Policy::default().min_reserve_bytes(machine.sample.total_bytes),
    }
}

/// The networks for the plan's task, as value and label, the suggested one first. With pretrained
/// weights there is only theirs.
fn models(plan: &Plan) -> Vec<(String, String)> {
    let named = |model: ModelId| (model.name().to_owned(), model.label().to_owned());
    match (&plan.pretrained, plan.text_model()) {
        (Some(pretrained), _) => {
            let parameters = format_count(pretrained.folder().count_values());
            let label = format!("{}, {parameters} parameters", plan.model.label());
            vec![(plan.model.name().to_owned(), label)]
        }
        (None, None) => ModelId::image_models().map(named).collect(),
        (None, Some(model)) => {
            let sizes = TextSize::for_task(model_task(plan.task()));
            sizes
                .map(|size| named(ModelId::Text(TextModel { size, ..model })))
                .collect()
        }
    }
}

fn resolutions(plan: &Plan) -> Vec<u32> {
    let usual = match plan.task() {
        Task::ImageClassification => IMAGE_SIZES.to_vec(),
        Task::LanguageModel if plan.pretrained.is_some() => {
            [&TOKENS[..], &LONG_TOKENS[..]].concat()
        }
        _ => TOKENS.to_vec(),
    };
    let reads = |size: &u32| {
        plan.pretrained
            .as_ref()
            .is_none_or(|pretrained| pretrained.accepts_input_size(*size))
    };
    let usual = usual.into_iter().filter(reads);
    let mut all: Vec<u32> = usual.chain([plan.input_size]).collect();
    all.sort_unstable();
    all.dedup();
    all
}

impl EstimateView {
    /// What is known before a micro-batch is chosen.
    fn before_sizes(config: &RunConfig, estimate: &Estimate, correction: &Correction) -> Self {
        let need = estimate.need(&[]);
        EstimateView {
            parameters: estimate.memory.parameters,
            state_bytes: need.state_bytes,
            activations_bytes: 0,
            peak_bytes: need.state_bytes,
            interval: correction.interval(),
            micro_batch: 0,
            accumulation: 0,
            checkpoint_blocks: 0,
            learning_rate: Plan::usual_learning_rate(config),
            cut_texts: 0,
            peaks: Vec::new(),
            refusal: None,
            recovery: Vec::new(),
        }
    }
}

/// Estimates the memory that a config needs on this machine now. Takes about a second, because it
/// runs micro-batches dry.
pub fn estimate(
    config: &RunConfig,
    found: &DetectedDataset,
    machine: &Reported,
) -> trainer::Result<EstimateView> {
    let builder = ModelBuilder::from_config(config, found)?;
    let plan = builder.plan();
    let sample = &machine.sample;
    let device = device_limits(config, sample);
    let others_bytes = sample.system_bytes + sample.others_bytes();
    let kind = predict_device_kind(plan.device);
    // Memory that an earlier estimate left with the allocator is not part of the program.
    crate::allocator::purge();
    let target = Target::new(kind, plan.threads as usize, sample.total_bytes);
    let processes = Processes { others_bytes };
    let forms = Variants::MinCheckpointing(Requirement {
        budget_bytes: device.budget_bytes(&processes),
        micro_batch: 1,
        effective_batch: plan.effective_batch,
        prefetched: Prefetched::Included,
    });
    let correction = EstimateHistory::saved_correction(RunsOn {
        device: kind,
        in_window: true,
    });
    let estimate = builder
        .estimate(target, forms)?
        .corrected(correction.factor);
    let (need, memory) = (estimate.need(&[]), &estimate.memory);
    let suggested = estimate.suggest_config(&device, &processes, 1);
    let view = EstimateView {
        cut_texts: match found {
            DetectedDataset::Texts(texts) => Plan::estimate_cut_texts(texts, plan.input_size),
            DetectedDataset::Images(_) => 0,
        },
        ..EstimateView::before_sizes(config, &estimate, &correction)
    };
    Ok(match suggested {
        Ok(fits) => EstimateView {
            activations_bytes: fits.predicted_peak_bytes.saturating_sub(need.state_bytes),
            peak_bytes: fits.predicted_peak_bytes,
            micro_batch: fits.micro_batch,
            accumulation: fits.accumulation,
            checkpoint_blocks: fits.checkpoint_blocks,
            peaks: peaks(&need, fits.checkpoint_blocks),
            ..view
        },
        Err(no) => EstimateView {
            peaks: peaks(&need, no.least.1),
            refusal: Some(DoesNotFitView {
                needed_bytes: no.enough_bytes,
                available_bytes: no.budget_bytes,
            }),
            recovery: situation(plan, memory.stuck(&no), kind != DeviceKind::Cpu).recovery_steps(),
            ..view
        },
    })
}

/// What the steps depend on that would make a plan fit.
fn situation(plan: &Plan, shortage: Shortage, on_gpu: bool) -> Situation {
    Situation {
        shortage,
        images: plan.task() == Task::ImageClassification,
        input_size: plan.input_size,
        sizes: resolutions(plan),
        on_gpu,
        smaller_part: plan
            .pretrained
            .as_ref()
            .and_then(|pretrained| pretrained.smaller_part())
            .map(|part| part.word),
    }
}

fn device_limits(config: &RunConfig, sample: &MemorySample) -> DeviceLimits {
    let caps = Policy {
        memory_cap_bytes: config.memory_cap_bytes,
        memory_cap_fraction: config.memory_cap_fraction,
        ..Policy::default()
    };
    DeviceLimits {
        total_bytes: sample.total_bytes,
        limit_bytes: sample.device_limit_bytes,
        memory_cap_bytes: caps.cap_bytes(sample.total_bytes),
        max_system_fraction: config
            .max_system_fraction
            .unwrap_or(Policy::default().max_system_fraction),
    }
}

/// Seconds per epoch, from a measured micro-batch of at most `micro_batch` samples. On a GPU, it
/// follows from the samples per second that `earlier` knows of such a run; `None` if it knows none.
pub fn epoch_seconds(
    config: &RunConfig,
    found: &DetectedDataset,
    micro_batch: u32,
    earlier: impl FnOnce(&Plan) -> trainer::Result<Option<f64>>,
) -> trainer::Result<Option<f64>> {
    let plan = Plan::resolve(config, found)?;
    if predict_device_kind(plan.device) != DeviceKind::Cpu {
        let per_second = earlier(&plan)?;
        return Ok(per_second.map(|speed| plan.train_samples as f64 / speed));
    }
    let samples = micro_batch.clamp(1, TIMED_SAMPLES) as usize;
    let per_sample = plan.seconds_per_sample(samples, 0);
    crate::allocator::purge();
    Ok(Some(per_sample? * plan.train_samples as f64))
}

/// The peak of each micro-batch with this many checkpointed blocks, smallest first.
fn peaks(need: &ModelNeed, checkpoint_blocks: u32) -> Vec<(u32, u64)> {
    let form = need
        .variants
        .iter()
        .find(|form| form.checkpoint_blocks == checkpoint_blocks);
    let peaks = form.into_iter().flat_map(|form| &form.peaks);
    let mut peaks: Vec<_> = peaks
        .map(|peak| (peak.micro_batch, peak.peak_bytes))
        .collect();
    peaks.sort_unstable();
    peaks
}

/// The config of these settings. It starts from the weights in `from`, if there are any. Ebb
/// chooses the settings that are not set.
///
/// # Errors
/// Another setting is unknown, out of range, or one that has a place of its own.
pub fn config(
    settings: &PlanSettings,
    found: &DetectedDataset,
    from: Option<PathBuf>,
) -> Result<RunConfig, CommandError> {
    let others = &settings.other_settings;
    if let Some(key) = others.keys().find(|key| owner(key) != SettingOwner::Sheet) {
        let why =
            format!("{key} already has its own field on the plan page. Change the value there.");
        return Err(CommandError::new("invalid_setting", why));
    }
    with_typed(page_config(settings, found, from)?, others)
}

/// A config with further settings, as typed on the command line.
///
/// # Errors
/// A setting is unknown or out of range.
pub fn with_typed(
    config: RunConfig,
    typed: &BTreeMap<String, String>,
) -> Result<RunConfig, CommandError> {
    let wrong = |error: RunlogError| CommandError::new("invalid_setting", error.to_string());
    config.with_typed(typed, "All settings").map_err(wrong)
}

/// The config of the settings that the plan page shows.
///
/// # Errors
/// The part of the network that trains, or the interval between checkpoints, is unknown.
fn page_config(
    settings: &PlanSettings,
    found: &DetectedDataset,
    from: Option<PathBuf>,
) -> trainer::Result<RunConfig> {
    let (side, tokens) = match found.task() {
        Task::ImageClassification => (Some(settings.resolution), None),
        _ => (None, Some(settings.resolution)),
    };
    let checkpoint_every = settings.checkpoint_every.parse::<CheckpointInterval>()?;
    let config = RunConfig {
        task: settings.task.parse().ok(),
        model: Some(settings.model.clone()),
        image_size: side,
        tokens,
        effective_batch: Some(settings.effective_batch),
        epochs: Some(settings.epochs),
        learning_rate: Some(settings.learning_rate),
        augment: settings
            .augment
            .as_deref()
            .and_then(|augment| augment.parse().ok()),
        checkpoint_every: Some(checkpoint_every),
        max_system_fraction: Some(settings.max_system_fraction),
        courtesy: settings.courtesy.parse().ok(),
        seed: Some(settings.seed),
        from,
        ..RunConfig::default()
    };
    let config = match config.from {
        Some(_) => trainer::pretrained::with_choice(&settings.trains, config)?,
        None => config,
    };
    with_default_length(config, found)
}

/// The config without its number of epochs if that is the default. The default length of a language
/// model may be a part of an epoch.
fn with_default_length(config: RunConfig, found: &DetectedDataset) -> trainer::Result<RunConfig> {
    if !found.task().is_on_documents() {
        return Ok(config);
    }
    let open = RunConfig {
        epochs: None,
        ..config.clone()
    };
    let usual = Plan::resolve(&open, found)?.epochs();
    Ok(if config.epochs == Some(usual) {
        open
    } else {
        config
    })
}
