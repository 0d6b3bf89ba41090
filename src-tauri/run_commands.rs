//! Commands about one run of the list: its menu, notes, folder, and a new plan like its own.

use crate::app_state::Shell;
use crate::commands::{Answer, status};
use crate::data_choices::DataChoices;
use crate::import_run::ImportedView;
use crate::language::translate;
use crate::lock_mutex::lock;
use crate::move_to_trash::{NotMoved, move_to_trash};
use crate::plan_setting_commands::sheet_settings;
use crate::recovery_view::{self, INPUT_SIZE, RecoveryView, TRAINED_PART};
use crate::run_names::{is_taken, shortened};
use crate::window_types::{ChangedSettings, CommandError, RepeatView, Show};
use crate::{context_menu, import_run, menu_actions, os_integration};
use runlog::{
    CheckpointBlocks, RunConfig, RunFolder, RunNotes, Started, TrainableLayers, parse_tags,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tauri::{LogicalPosition, State, WebviewWindow};
use tauri_plugin_dialog::DialogExt;
use trainer::RunDataset;

/// Shows a context menu at a place of the page, or at the pointer: that of a run, or the one of the
/// part of the page that `on` names. `enabled` are the actions that it offers.
#[tauri::command]
pub async fn context_menu(
    window: WebviewWindow,
    shell: State<'_, Arc<Shell>>,
    on: String,
    run: Option<String>,
    enabled: Vec<String>,
    at: Option<LogicalPosition<f64>>,
) -> Answer<()> {
    status(shell, move |shell| {
        if let Some(run) = &run {
            shell.runs.folder(run)?;
        }
        *lock(&shell.menu_run) = run;
        Ok(())
    })
    .await?;
    let menu = menu_actions::context_menu(tauri::Manager::app_handle(&window), &on, &enabled);
    let shown = menu.and_then(|menu| context_menu::show(window, menu, at));
    shown
        .map_err(|error| CommandError::new("failed", format!("The menu cannot be shown: {error}.")))
}

/// Lets the user choose a file that *Export run* wrote, and adds its run to the list; `None` if the
/// user cancelled.
#[tauri::command]
pub async fn import_run(
    window: WebviewWindow,
    shell: State<'_, Arc<Shell>>,
) -> Answer<Option<ImportedView>> {
    let dialog = window.dialog().file().set_parent(&window);
    let dialog = dialog
        .set_title(translate("Import a run"))
        .add_filter(translate("Exported run"), &[import_run::ENDING]);
    let app = tauri::Manager::app_handle(&window).clone();
    status(shell, move |shell| {
        let Some(archive) = dialog
            .blocking_pick_file()
            .and_then(|place| place.into_path().ok())
        else {
            return Ok(None);
        };
        shell.notify_page(&app, &import_run::announce(&archive));
        import_run::import(shell.runs.store(), &archive).map(Some)
    })
    .await
}

/// Saves the name, the note and the tags of a run. An empty name restores the dataset's.
#[tauri::command]
pub async fn edit_run(
    shell: State<'_, Arc<Shell>>,
    run: String,
    name: String,
    note: String,
    tags: Vec<String>,
) -> Answer<()> {
    status(shell, move |shell| {
        let folder = shell.runs.folder(&run)?;
        let name = shortened(&name);
        refuse_taken_name(shell, &run, &name)?;
        let text = note.trim().to_owned();
        let tags = parse_tags(tags.iter().map(String::as_str))?;
        Ok(folder.write_notes(&RunNotes { name, text, tags })?)
    })
    .await
}

/// Refuses to rename a run to the name of another one.
fn refuse_taken_name(shell: &Shell, run: &str, name: &str) -> Answer<()> {
    let rows = shell.runs.rows(|_| None)?;
    let names = rows.iter().map(|row| (&*row.id, &*row.name));
    if !is_taken(run, name, names) {
        return Ok(());
    }
    let why = format!("Another run is called {name}. Choose another name.");
    Err(CommandError::new("name_taken", why))
}

/// What a new plan takes over from a run. `changes` are the settings and values of a recovery step
/// that the user chose.
#[tauri::command]
pub async fn repeat_run(
    shell: State<'_, Arc<Shell>>,
    run: String,
    changes: Option<Vec<(String, String)>>,
) -> Answer<RepeatView> {
    status(shell, move |shell| {
        let folder = shell.runs.folder(&run)?;
        let started = shell.runs.started(&run)?;
        let view = repeat(shell, &folder, &started)?;
        let mut changes = changes.unwrap_or_default().into_iter();
        changes.try_fold(view, |view, (setting, value)| {
            with_change(view, &setting, value)
        })
    })
    .await
}

/// What a plan takes over, with the setting of a recovery step.
fn with_change(mut view: RepeatView, setting: &str, value: String) -> Answer<RepeatView> {
    match setting {
        INPUT_SIZE => {
            let wrong = |_| {
                let why = format!("{value} is not an input size.");
                CommandError::new("invalid_setting", why)
            };
            view.settings.resolution = value.parse().map_err(wrong)?;
        }
        TRAINED_PART => view.trains = Some(value),
        key => drop(view.settings.other_settings.insert(key.to_owned(), value)),
    }
    Ok(view)
}

/// The recovery steps of a run that lacks memory, if they change the result.
#[tauri::command]
pub async fn recovery_options(
    shell: State<'_, Arc<Shell>>,
    run: String,
) -> Answer<Vec<RecoveryView>> {
    status(shell, move |shell| {
        // Without a readable config, the events of the run suffice.
        let config = shell.runs.folder(&run)?.config().unwrap_or_default();
        match shell.active.of(&run) {
            Some(training) => Ok(recovery_view::for_run(&training.run(), &config)),
            None => shell
                .runs
                .with_run(&run, |run| recovery_view::for_run(run, &config)),
        }
    })
    .await
}

fn repeat(shell: &Shell, folder: &RunFolder, started: &Started) -> Answer<RepeatView> {
    let config = folder.config()?;
    let Some(recorded) = config.folder.clone() else {
        let why = "This run has no record of the folder that it was trained on. Open that folder to train on it again.";
        return Err(CommandError::new("failed", why));
    };
    let data = current_dataset(folder, recorded);
    // The run has a copy of the weights that it started from.
    let copy = folder.path.join("published");
    let from = config.from.clone();
    let from: Option<PathBuf> = from.map(|from| if copy.is_dir() { copy } else { from });
    let trains = from.is_some().then(|| match config.adapter_rank {
        Some(rank) => format!("adapter:{rank}"),
        None => config
            .train_only
            .unwrap_or(TrainableLayers::All)
            .to_string(),
    });
    let other_settings = other_settings(&config, started);
    Ok(RepeatView {
        inspection: shell
            .inspections
            .open_with(&data, DataChoices::from_config(&config)),
        weights: from.map(|from| shell.weights.open(&from)),
        trains,
        settings: ChangedSettings {
            task: started.task.clone(),
            model: started.model.clone(),
            resolution: started.input_size,
            effective_batch: started.effective_batch,
            epochs: started.epochs,
            learning_rate: started.learning_rate,
            seed: started.seed,
            augment: config.augment.map(|augment| augment.name().to_owned()),
            checkpoint_every: config.checkpoint_every.map(|every| every.to_string()),
            max_system_fraction: config.max_system_fraction,
            courtesy: config.courtesy.map(|courtesy| courtesy.name().to_owned()),
            other_settings,
        },
    })
}

/// The folder or file that a run was trained on, or where the user has located it since.
fn current_dataset(run: &RunFolder, recorded: PathBuf) -> PathBuf {
    if recorded.exists() {
        return recorded;
    }
    match RunDataset::read(run) {
        Ok(dataset) if dataset.missing().is_none() => dataset.path(),
        _ => recorded,
    }
}

/// What to tell the user if the dataset of a run was moved or deleted; `None` if it is there.
#[tauri::command]
pub async fn missing_data(shell: State<'_, Arc<Shell>>, run: String) -> Answer<Option<String>> {
    status(shell, move |shell| {
        let folder = shell.runs.folder(&run)?;
        let missing = RunDataset::read(&folder)?.missing();
        Ok(missing.map(|path| describe_missing(&path)))
    })
    .await
}

fn describe_missing(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    format!(
        "The data of this run, {}, was moved or deleted. Put it back, or locate its new folder.",
        name.to_string_lossy()
    )
}

/// The settings of a run that only the sheet of all settings has, without those that follow from
/// others: a plan computes these again.
fn other_settings(config: &RunConfig, started: &Started) -> BTreeMap<String, String> {
    let steps = started.epochs * started.steps_per_epoch;
    let blocks = CheckpointBlocks::Count(0);
    sheet_settings(&RunConfig {
        steps: config.steps.filter(|asked| *asked != steps),
        checkpoint_blocks: config.checkpoint_blocks.filter(|asked| *asked != blocks),
        ..config.clone()
    })
}

/// Shows the folder of a run or an inspection in the file manager.
#[tauri::command]
pub async fn reveal(shell: State<'_, Arc<Shell>>, show: Show) -> Answer<()> {
    status(shell, move |shell| {
        let path = match show {
            Show::Run { id } => shell.runs.folder(&id)?.path,
            Show::Inspection { id, .. } => shell.inspections.path(&id)?,
        };
        show_in_file_manager(&path)
    })
    .await
}

/// Shows a file or folder in the file manager.
pub fn show_in_file_manager(path: &Path) -> Answer<()> {
    os_integration::reveal(path).map_err(|error| {
        let name = os_integration::FILE_MANAGER;
        let why = format!("{} cannot be shown in {name}: {error}.", path.display());
        CommandError::new("failed", why)
    })
}

/// The path of a run's folder, for a row that is dragged to another app.
#[tauri::command]
pub async fn run_location(shell: State<'_, Arc<Shell>>, run: String) -> Answer<String> {
    status(shell, move |shell| {
        let path = shell.runs.folder(&run)?.path;
        let path = std::path::absolute(&path).unwrap_or(path);
        path.into_os_string().into_string().map_err(|path| {
            let why = format!("Other apps cannot read the name {}.", path.display());
            CommandError::new("failed", why)
        })
    })
    .await
}

/// Moves a run to the trash, unless a process trains it.
#[tauri::command]
pub async fn trash_run(shell: State<'_, Arc<Shell>>, run: String) -> Answer<()> {
    status(shell, move |shell| {
        let folder = shell.runs.folder(&run)?;
        move_to_trash(&folder).map_err(|reason| match reason {
            NotMoved::Training => {
                let why = "This run is training. Stop the run first, then move it to the trash.";
                CommandError::new("busy", why)
            }
            NotMoved::Refused(reason) => {
                let why = format!("{} cannot be moved to the trash: {reason}.", folder.id());
                CommandError::new("failed", why)
            }
        })?;
        shell.runs.forget(&run);
        Ok(())
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repeated() -> RepeatView {
        RepeatView {
            inspection: "inspection-1".into(),
            weights: None,
            trains: Some("all".into()),
            settings: ChangedSettings {
                task: "image-classification".into(),
                model: "vit_tiny".into(),
                resolution: 224,
                effective_batch: 64,
                epochs: 3,
                learning_rate: 0.001,
                seed: 7,
                augment: None,
                checkpoint_every: None,
                max_system_fraction: None,
                courtesy: None,
                other_settings: BTreeMap::from([("optimizer".to_owned(), "adamw".to_owned())]),
            },
        }
    }

    #[test]
    fn a_recovery_step_changes_one_setting_of_the_plan() {
        let changed = |setting: &str, value: &str| {
            let view = with_change(repeated(), setting, value.to_owned());
            let view = view.expect("it is allowed");
            let optimizer = view.settings.other_settings["optimizer"].clone();
            (view.settings.resolution, view.trains, optimizer)
        };
        let all = || Some("all".to_owned());
        let expected = (128, all(), "adamw".to_owned());
        assert_eq!(changed(INPUT_SIZE, "128"), expected);
        let expected = (224, Some("head".to_owned()), "adamw".to_owned());
        assert_eq!(changed(TRAINED_PART, "head"), expected);
        let expected = (224, all(), "adamw8bit".to_owned());
        assert_eq!(changed("optimizer", "adamw8bit"), expected);
        let refused = with_change(repeated(), INPUT_SIZE, "small".to_owned());
        let code = refused.map(|_| ()).map_err(|error| error.code);
        assert_eq!(code, Err("invalid_setting".to_owned()));
    }
}
