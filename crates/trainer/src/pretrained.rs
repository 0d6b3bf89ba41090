//! Pretrained weights of a run: what connects a run config, a run folder and a dataset's task with
//! [`models::Pretrained`].

use crate::error::{Result, TrainError};
use crate::prompt_choice::copy_in;
use crate::task_conversion::{model_task, network_task};
use dataset::{Task, Tokenizer};
use models::hub_format::TrainedLayers;
use models::pretrained::{FineTuningSettings, verify_run_copy};
use models::{ModelError, Pretrained, PretrainedFamily};
use runlog::{
    AdapterKind, AdapterScaling, BaselineChoice, ClassWeights, LengthBuckets, MixChoice, Quantize,
    RunConfig, RunFolder, TaskChoice, TrainableLayers, format_count,
};
use tape::Bits;

/// Opens the pretrained weights that a config names; `None` if it names none.
pub fn open(config: &RunConfig) -> Result<Option<Pretrained>> {
    Ok(Pretrained::open(&settings(config))?)
}

/// The config with a choice of [`Pretrained::choices`].
///
/// # Errors
/// The word is no choice of any network.
pub fn with_choice(word: &str, config: RunConfig) -> Result<RunConfig> {
    let chosen = FineTuningSettings::default().with_choice(word);
    let train_only = chosen
        .train_only
        .map(|part| part.parse::<TrainableLayers>())
        .transpose();
    let train_only = train_only.map_err(|allowed: String| TrainError::Setting {
        key: "train_only",
        value: word.to_owned(),
        allowed,
    })?;
    Ok(RunConfig {
        train_only,
        adapter_rank: chosen.adapter_rank,
        ..config
    })
}

/// The layers that a network trains, as the user names them in a config.
pub(crate) fn trainable_layers(trained: TrainedLayers) -> TrainableLayers {
    match trained {
        TrainedLayers::Head => TrainableLayers::Head,
        TrainedLayers::Last(last) => TrainableLayers::Last(last),
        TrainedLayers::All => TrainableLayers::All,
    }
}

fn settings(config: &RunConfig) -> FineTuningSettings {
    FineTuningSettings {
        from: config.from.clone(),
        train_only: config.train_only.map(|part| part.to_string()),
        adapter_rank: config.adapter_rank,
        adapter_alpha: config.adapter_alpha,
        is_rank_stabilized: config
            .adapter_scaling
            .map(|scaling| scaling == AdapterScaling::RankStabilized),
        is_weight_decomposed: config.adapter_kind.map(|kind| kind == AdapterKind::Dora),
        adapter_dropout: config.adapter_dropout,
        adapter_targets: config.adapter_targets.clone(),
        quantize: config.quantize.map(bits_of),
        checkpoint_segment: config.checkpoint_segment,
    }
}

/// How frozen weights are stored, as the user names it in a config.
pub(crate) fn bits_of(quantize: Quantize) -> Bits {
    match quantize {
        Quantize::Eight => Bits::Eight,
        Quantize::Four => Bits::Four,
        Quantize::Nf4 => Bits::Nf4,
    }
}

/// The config of a run, whose pretrained weights and prompts are its own copies. The weights are
/// checked.
///
/// # Errors
/// The run has no config, or its copy is damaged.
pub(crate) fn config_of(run: &RunFolder) -> Result<RunConfig> {
    let config = without_unused(run.config()?);
    let config = RunConfig {
        prompts: copy_in(run).or(config.prompts),
        ..config
    };
    if config.from.is_none() {
        return Ok(config);
    }
    Ok(RunConfig {
        from: Some(verify_run_copy(&run.path)?),
        ..config
    })
}

/// Without the settings that have no effect on the run's task, and with the former defaults. New
/// runs are refused with settings that have no effect, but former versions ignored them, and their
/// runs must open.
fn without_unused(config: RunConfig) -> RunConfig {
    // Earlier versions mixed, averaged and weighed classes only if the config contained these
    // settings, only compared the baseline with the network, and put conversations of any lengths
    // into a step.
    let config = RunConfig {
        baseline: config.baseline.or(Some(BaselineChoice::Ngrams)),
        mix: config.mix.or(Some(MixChoice::None)),
        class_weights: config.class_weights.or(Some(ClassWeights::None)),
        ema_decay: config.ema_decay.or(Some(0.0)),
        length_buckets: config
            .length_buckets
            // The config of every run with conversations has this one.
            .or(config.loss_on.map(|_| LengthBuckets::Off)),
        ..config
    };
    match config.task {
        None => config,
        Some(TaskChoice::ImageClassification) => RunConfig {
            text_column: None,
            ..config
        },
        Some(_) => RunConfig {
            targets: None,
            group_by: None,
            augment: None,
            ..config
        },
    }
}

/// Refuses weights that were trained for another task, and names families that fit.
///
/// # Errors
/// [`TrainError::Setting`], or the folder of a text network has no tokenizer.
pub(crate) fn check_task(pretrained: &Pretrained, task: Task) -> Result<()> {
    let family = pretrained.family();
    if network_task(family.task()) == task {
        // Checked before the run folder is created.
        if task != Task::ImageClassification {
            pretrained.tokenizer_file()?;
        }
        return Ok(());
    }
    let fitting: Vec<&str> = PretrainedFamily::for_task(model_task(task))
        .map(PretrainedFamily::name)
        .collect();
    let next = if fitting.is_empty() {
        "no pretrained network supports this task; remove --from".to_owned()
    } else {
        format!(
            "choose the weights of one of these networks: {}",
            fitting.join(", ")
        )
    };
    Err(TrainError::Setting {
        key: "from",
        value: pretrained.path().display().to_string(),
        allowed: format!(
            "the pretrained weights of {} are for {}, but this dataset is for {}; {next}",
            family.label(),
            network_task(family.task()).label(),
            task.label()
        ),
    })
}

/// The tokenizer in the folder.
///
/// # Errors
/// The folder has none, or one that is larger than the network's vocabulary.
pub(crate) fn tokenizer(pretrained: &Pretrained) -> Result<Tokenizer> {
    let tokenizer = Tokenizer::load(pretrained.tokenizer_file()?)?;
    let limits = pretrained.text_limits();
    let rows = limits.map_or(0, |limits| limits.vocabulary as usize);
    if tokenizer.text_id_limit() > rows {
        let error = ModelError::HubFolder {
            path: pretrained.path().to_owned(),
            reason: format!(
                "tokenizer.json has {} tokens, but the weights have embeddings for {} tokens; download both files from the same model",
                format_count(tokenizer.text_id_limit().max(tokenizer.vocabulary()) as u64),
                format_count(rows as u64)
            ),
        };
        return Err(error.into());
    }
    Ok(tokenizer)
}

/// "Starts from the weights of models/minilm (BERT, 22,713,216 parameters). Trains a new head (770
/// parameters).".
pub fn describe(pretrained: &Pretrained, trained_parameters: u64) -> String {
    let bits = pretrained.tuning().bits;
    let bits = bits.map_or_else(String::new, |bits| match bits {
        Bits::Nf4 => " The other weights are kept in NF4.".to_owned(),
        Bits::Eight | Bits::Four => format!(" The other weights are kept in {bits} bits."),
    });
    format!(
        "Starts from the weights of {} ({}, {} parameters). Trains {} ({} parameters).{bits}",
        pretrained.path().display(),
        pretrained.family().label(),
        format_count(pretrained.folder().count_values()),
        pretrained.trained_in_words(),
        format_count(trained_parameters),
    )
}

impl From<ModelError> for TrainError {
    fn from(error: ModelError) -> Self {
        match error {
            // The window marks the field of a setting, and the controller retries after memory
            // errors.
            ModelError::Setting {
                key,
                value,
                allowed,
            } => TrainError::Setting {
                key,
                value,
                allowed,
            },
            ModelError::NotExportable(sentence) => TrainError::NotTrainable { message: sentence },
            ModelError::Tape(error) => TrainError::Tape(error),
            error => TrainError::Model(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runlog::LossOn;

    #[test]
    fn a_run_of_a_former_version_opens_without_the_settings_that_it_ignored() {
        let config = |task| RunConfig {
            task: Some(task),
            text_column: Some("text".into()),
            targets: Some("mass".into()),
            group_by: Some("day".into()),
            epochs: Some(3),
            ..RunConfig::default()
        };
        let images = without_unused(config(TaskChoice::ImageClassification));
        assert_eq!((images.text_column, images.epochs), (None, Some(3)));
        assert!(images.targets.is_some() && images.group_by.is_some());
        let texts = without_unused(config(TaskChoice::TextClassification));
        assert_eq!((texts.targets, texts.group_by), (None, None));
        assert_eq!(texts.text_column.as_deref(), Some("text"));
    }

    #[test]
    fn a_run_of_a_former_version_keeps_the_order_of_its_conversations() {
        let config = |loss_on, length_buckets| RunConfig {
            task: Some(TaskChoice::LanguageModel),
            loss_on,
            length_buckets,
            ..RunConfig::default()
        };
        let order = |config| without_unused(config).length_buckets;
        let (answers, off) = (Some(LossOn::Completions), Some(LengthBuckets::Off));
        assert_eq!(order(config(answers, None)), off);
        let on = Some(LengthBuckets::On);
        assert_eq!(order(config(answers, on)), on);
        assert_eq!(
            order(config(None, None)),
            None,
            "documents have no such order"
        );
    }
}
