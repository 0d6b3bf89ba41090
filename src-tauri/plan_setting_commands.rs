//! Commands of the sheet of all settings. Settings are text by key, as typed on the command line.

use crate::app_state::Shell;
use crate::commands::{Answer, config_of, status};
use crate::data_choices::DataChoices;
use crate::opened_dataset_folders::SEED;
use crate::plan_page;
use crate::setting_location::{DATA, SettingOwner, owner};
use crate::task_labels::capital;
use crate::window_types::{CommandError, PlanSettings};
use dataset::DetectedDataset;
use runlog::{RunConfig, setting};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use tauri::State;
use trainer::Plan;
use ts_rs::TS;

/// Settings as text, by key.
type Typed = BTreeMap<String, String>;

/// Result of `setting_values`.
#[derive(Debug, Clone, Serialize, TS)]
pub struct SettingValues {
    /// The settings that change how the folder is read, if they are set.
    pub data: Typed,
    /// What Ebb chooses for this plan, for every setting that it chooses.
    pub defaults: Typed,
    /// Why these settings do not work together; empty if they do.
    pub problem: String,
}

/// What Ebb chooses where a plan sets nothing, and what of the folder is used.
#[tauri::command]
pub async fn setting_values(
    shell: State<'_, Arc<Shell>>,
    inspection: String,
    settings: PlanSettings,
) -> Answer<SettingValues> {
    status(shell, move |shell| values(shell, &inspection, &settings)).await
}

fn values(shell: &Shell, inspection: &str, settings: &PlanSettings) -> Answer<SettingValues> {
    let found = shell.inspections.take(inspection, SEED)?;
    let usual = chosen(shell, inspection, &found, settings, Typed::new())?;
    let others = settings.other_settings.clone();
    let mut defaults = usual.config.typed();
    // The learning rate depends on another setting, the optimizer.
    let problem = match chosen(shell, inspection, &found, settings, others) {
        Ok(plan) => {
            defaults.extend(plan.config.typed().remove_entry("learning_rate"));
            String::new()
        }
        Err(error) => error.message,
    };
    let used = shell
        .inspections
        .configured(inspection, RunConfig::default())?;
    Ok(SettingValues {
        data: used.typed(),
        defaults,
        problem,
    })
}

/// The plan of these settings, with the learning rate that Ebb chooses.
fn chosen(
    shell: &Shell,
    inspection: &str,
    found: &DetectedDataset,
    settings: &PlanSettings,
    other_settings: Typed,
) -> Answer<Plan> {
    let settings = PlanSettings {
        other_settings,
        ..settings.clone()
    };
    let config = RunConfig {
        learning_rate: None,
        ..config_of(shell, inspection, &settings, found)?
    };
    Ok(Plan::resolve(&config, found)?)
}

/// Of the other settings of a plan, those that differ from what Ebb chooses.
#[tauri::command]
pub async fn changed_settings(
    shell: State<'_, Arc<Shell>>,
    inspection: String,
    settings: PlanSettings,
) -> Answer<Typed> {
    status(shell, move |shell| {
        let defaults = values(shell, &inspection, &settings)?.defaults;
        let mut others = settings.other_settings;
        others.retain(|key, text| defaults.get(key) != Some(text));
        Ok(others)
    })
    .await
}

/// What is wrong with the text of each setting; those that are allowed are absent.
#[tauri::command]
pub fn check_settings(typed: Typed) -> Typed {
    let wrong = typed.into_iter().filter_map(|(key, text)| {
        let why = match setting(&key) {
            Some(setting) => setting.parse(&text).err()?,
            None => "is not a setting".to_owned(),
        };
        Some((key, format!("{}.", capital(&why.replace('`', "")))))
    });
    wrong.collect()
}

/// Sets or, if the text is empty, resets a setting that changes how the folder is read. The folder
/// is read again.
#[tauri::command]
pub async fn set_data_setting(
    shell: State<'_, Arc<Shell>>,
    inspection: String,
    key: String,
    text: String,
) -> Answer<()> {
    status(shell, move |shell| {
        let used = shell
            .inspections
            .configured(&inspection, RunConfig::default())?;
        shell
            .inspections
            .choose(&inspection, with_data_setting(used, &key, &text)?)
    })
    .await
}

fn with_data_setting(used: RunConfig, key: &str, text: &str) -> Answer<DataChoices> {
    if !DATA.contains(&key) {
        let why = format!("{key} does not change how a folder is read.");
        return Err(CommandError::new("invalid_setting", why));
    }
    let mut typed = used.typed();
    typed.remove(key);
    if !text.is_empty() {
        typed.insert(key.to_owned(), text.to_owned());
    }
    let config = plan_page::with_typed(RunConfig::default(), &typed)?;
    // A list that cannot be read is refused here.
    trainer::inspect_options(&config)?;
    Ok(DataChoices::from_config(&config))
}

/// Of the settings of a run, those that a plan keeps beside its own.
pub fn sheet_settings(config: &RunConfig) -> Typed {
    let mut typed = config.typed();
    typed.retain(|key, _| owner(key) == SettingOwner::Sheet);
    typed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window_types::tests::current_types;

    fn typed(key: &str, text: &str) -> Typed {
        Typed::from([(key.to_owned(), text.to_owned())])
    }

    #[test]
    fn the_sheets_types_are_current() {
        current_types(SettingValues::export_all);
    }

    #[test]
    fn a_wrong_text_is_reported_by_the_rule_of_its_setting() {
        let why = |key: &str, text: &str| check_settings(typed(key, text)).remove(key);
        assert_eq!(
            why("weight_decay", "11").as_deref(),
            Some("Must be a number from 0 to 10.")
        );
        assert_eq!(
            why("checkpoint_blocks", "some").as_deref(),
            Some("Must be a number of blocks, or all.")
        );
        assert_eq!(why("weight_decay", "0.1"), None);
        assert_eq!(why("weight", "1").as_deref(), Some("Is not a setting."));
    }

    #[test]
    fn a_data_setting_changes_what_is_read_and_an_empty_text_resets_it() {
        let used = DataChoices {
            leave_out_classes: vec!["owl".to_owned()],
            ..DataChoices::default()
        };
        let set = with_data_setting(used.apply(RunConfig::default()), "held_out_fraction", "0.3");
        let set = set.expect("it is allowed");
        assert_eq!(set.held_out_fraction, Some(0.3));
        assert_eq!(set.leave_out_classes, ["owl"]);
        let reset = with_data_setting(set.apply(RunConfig::default()), "leave_out_classes", "");
        let reset = reset.expect("it is allowed");
        assert_eq!(
            (reset.leave_out_classes.len(), reset.held_out_fraction),
            (0, Some(0.3))
        );
        for (key, text) in [("held_out_fraction", "2"), ("epochs", "3")] {
            let refused = with_data_setting(RunConfig::default(), key, text);
            assert_eq!(
                refused.map_err(|error| error.code),
                Err("invalid_setting".to_owned())
            );
        }
    }

    #[test]
    fn a_plan_keeps_the_settings_of_a_run_that_have_no_other_place() {
        let config = RunConfig {
            folder: Some("birds".into()),
            epochs: Some(3),
            group_by: Some("patient".into()),
            weight_decay: Some(0.1),
            ..RunConfig::default()
        };
        assert_eq!(sheet_settings(&config), typed("weight_decay", "0.1"));
    }
}
