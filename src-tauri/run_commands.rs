//! Commands about one run of the list: its menu, notes, folder, and a new plan like its own.

use crate::app_state::Shell;
use crate::commands::{Answer, status};
use crate::data_choices::DataChoices;
use crate::lock::lock;
use crate::window_types::{ChangedSettings, CommandError, RepeatView, Show};
use crate::{actions, desktop_calls};
use runlog::{RunFolder, RunNotes, Started};
use std::path::PathBuf;
use std::sync::Arc;
use tauri::{State, WebviewWindow};

/// Longest name of a run, in characters.
const MAX_NAME_CHARS: usize = 200;

/// Shows the context menu of a run at the pointer. `enabled` are the actions that it offers.
#[tauri::command]
pub async fn run_menu(
    window: WebviewWindow,
    shell: State<'_, Arc<Shell>>,
    run: String,
    enabled: Vec<String>,
) -> Answer<()> {
    shell.runs.folder(&run)?;
    *lock(&shell.menu_run) = Some(run);
    let popup = || {
        let menu = actions::row_menu(tauri::Manager::app_handle(&window), &enabled)?;
        window.popup_menu(&menu)
    };
    popup().map_err(|error: tauri::Error| {
        CommandError::new("failed", format!("The menu cannot be shown: {error}."))
    })
}

/// Saves the name and the note of a run. An empty name restores the dataset's.
#[tauri::command]
pub async fn edit_run(
    shell: State<'_, Arc<Shell>>,
    run: String,
    name: String,
    note: String,
) -> Answer<()> {
    status(shell, move |shell| {
        let folder = shell.runs.folder(&run)?;
        let name = name.trim().chars().take(MAX_NAME_CHARS).collect();
        let text = note.trim().to_owned();
        Ok(folder.write_notes(&RunNotes { name, text })?)
    })
    .await
}

/// What a new plan takes over from a run.
#[tauri::command]
pub async fn repeat_run(shell: State<'_, Arc<Shell>>, run: String) -> Answer<RepeatView> {
    status(shell, move |shell| {
        let folder = shell.runs.folder(&run)?;
        let started = shell.runs.started(&run)?;
        repeat(shell, &folder, &started)
    })
    .await
}

fn repeat(shell: &Shell, folder: &RunFolder, started: &Started) -> Answer<RepeatView> {
    let config = folder.config()?;
    let Some(data) = config.folder.clone() else {
        let why = "This run has no record of the folder that it was trained on. Open that folder to train on it again.";
        return Err(CommandError::new("failed", why));
    };
    // The run has a copy of the weights that it started from.
    let copy = folder.path.join("published");
    let from = config.from.clone();
    let from: Option<PathBuf> = from.map(|from| if copy.is_dir() { copy } else { from });
    let trains = from.is_some().then(|| match config.adapter_rank {
        Some(rank) => format!("adapter:{rank}"),
        None => config.train_only.clone().unwrap_or_else(|| "all".into()),
    });
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
            checkpoint_every: config.checkpoint_every,
            max_system_fraction: config.max_system_fraction,
            courtesy: config.courtesy.map(|courtesy| courtesy.name().to_owned()),
        },
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
        desktop_calls::reveal(&path).map_err(|error| {
            let name = desktop_calls::FILE_MANAGER;
            let why = format!("{} cannot be shown in {name}: {error}.", path.display());
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
        if folder.is_alive() {
            let why = "This run is training. Stop it first, then move it to the trash.";
            return Err(CommandError::new("busy", why));
        }
        desktop_calls::move_to_trash(&folder.path).map_err(|error| {
            let why = format!("{run} cannot be moved to the trash: {error}.");
            CommandError::new("failed", why)
        })?;
        shell.runs.forget(&run);
        Ok(())
    })
    .await
}
