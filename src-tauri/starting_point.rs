//! Published weights on this machine that a training could start from.

use crate::hub_download::{FoundModel, found_models};
use crate::paths::hub_path;
use dataset::DetectedDataset;
use runlog::RunConfig;
use trainer::{DatasetRef, Plan, PretrainedFamily, model_task};

/// The model on this machine that Ebb suggests to start from: the smallest one that suits the task
/// and the other settings. `None` if the config already names weights or a network. Reads no
/// values.
pub fn suggested(config: &RunConfig, found: &DetectedDataset) -> Option<FoundModel> {
    if config.from.is_some() || config.model.is_some() {
        return None;
    }
    let task = DatasetRef::from(found).task();
    let suits = |model: &FoundModel| {
        let mut families = PretrainedFamily::for_task(model_task(task));
        families.any(|family| family.name() == model.model_type)
    };
    let mut models: Vec<FoundModel> = found_models(&hub_path())
        .into_iter()
        .filter(suits)
        .collect();
    // A model that Ebb has downloaded was chosen by the user before.
    models.sort_by_key(|model| (!model.is_own, model.bytes));
    models.into_iter().find(|model| {
        let wanted = RunConfig {
            from: Some(model.folder.clone()),
            ..config.clone()
        };
        Plan::resolve(&wanted, found).is_ok()
    })
}

/// A sentence of the window about the suggested model, if there is one.
#[cfg(feature = "desktop")]
pub fn note(found: &DetectedDataset) -> Option<String> {
    let name = suggested(&RunConfig::default(), found)?.name;
    Some(format!(
        "{name} is on this machine. To start from it, choose it at Start from."
    ))
}

/// A line of the terminal about the suggested model, if there is one.
pub fn describe(config: &RunConfig, found: &DetectedDataset) -> Option<String> {
    let name = suggested(config, found)?.name;
    Some(format!(
        "{name} is on this machine; to start from it, add --from {name}"
    ))
}
