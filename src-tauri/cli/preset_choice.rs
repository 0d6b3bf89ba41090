//! The preset that the user names: returns its settings, and refuses a folder whose data does not
//! fit the preset.

use super::failure::Failure;
use super::output::status;
use super::read_folder::read_folder;
use dataset::DetectedDataset;
use runlog::{RunConfig, TaskChoice, preset, preset_measurement, preset_name, preset_names};
use std::path::Path;
use trainer::{dataset_task, read_dataset};

/// The settings of a preset. Prints what the preset reached, if that was measured, and the new name
/// of a renamed preset.
///
/// # Errors
/// There is no such preset.
pub fn preset_settings(name: &str) -> Result<RunConfig, Failure> {
    let (Some(settings), Some(now)) = (preset(name), preset_name(name)) else {
        let names: Vec<&str> = preset_names().collect();
        return Err(Failure::usage(format!(
            "there is no preset `{name}`; choose one of {}",
            names.join(", ")
        )));
    };
    if now != name {
        status!("--preset: `{name}` is now called `{now}`");
    }
    if let Some(measured) = preset_measurement(now) {
        status!("Preset {now}: measured {measured}");
    }
    Ok(settings)
}

/// Inspects a folder with the settings of a config.
///
/// # Errors
/// The folder cannot be read, or it holds another kind of data than the preset `name` is for.
pub fn read_for_preset(
    folder: &Path,
    config: &RunConfig,
    name: Option<&str>,
) -> Result<DetectedDataset, Failure> {
    let found = read_folder(folder, config);
    let is_usable = found.as_ref().is_ok_and(|found| refusal(found).is_none());
    let task = name.and_then(preset).and_then(|preset| preset.task);
    if let (false, Some(name), Some(task)) = (is_usable, name, task)
        && config.task == Some(task)
        && let Some(holds) = other_data(folder, config, task)
    {
        let needed = data_for(task);
        return Err(Failure::usage(format!(
            "the preset {name} is for {needed}, but {} holds {holds}; choose another preset",
            folder.display()
        )));
    }
    Ok(found?)
}

/// The kind of data in a folder, if the data suits another task than `task`; otherwise `None`.
pub fn other_data(folder: &Path, config: &RunConfig, task: TaskChoice) -> Option<&'static str> {
    let config = RunConfig {
        task: None,
        ..config.clone()
    };
    let found = read_dataset(folder, &config, &|_| {}).ok()?;
    let is_other = found.task() != dataset_task(task).detected_as() && refusal(&found).is_none();
    is_other.then_some(match found {
        DetectedDataset::Images(_) => "images",
        DetectedDataset::Texts(_) => "texts",
    })
}

fn data_for(task: TaskChoice) -> &'static str {
    match task {
        TaskChoice::ImageClassification => "images",
        TaskChoice::TextClassification
        | TaskChoice::LanguageModel
        | TaskChoice::TokenCompression => "texts",
    }
}

/// The reason why a dataset cannot be trained on; `None` if it can.
pub fn refusal(found: &DetectedDataset) -> Option<&String> {
    match found {
        DetectedDataset::Images(found) => found.refusal.as_ref(),
        DetectedDataset::Texts(found) => found.refusal.as_ref(),
    }
}
