//! The commands of the results page. Like those in `commands.rs` they take ids and return views.

use crate::app_state::Shell;
use crate::commands::{Answer, status};
use crate::comparison_view::ComparisonView;
use crate::export_run::{ExportKind, ExportView};
use crate::language::translate;
use crate::results::on_large_stack;
use crate::results_view::{ReportView, ResultSample, ResultsView, folder_report};
use crate::run_commands::show_in_file_manager;
use crate::try_it::{AnswersView, InputView, TryFilesView};
use crate::window_types::{CommandError, Show};
use runlog::TaskChoice;
use std::path::PathBuf;
use std::sync::Arc;
use tauri::ipc::{InvokeBody, Request, Response};
use tauri::{State, WebviewWindow};
use tauri_plugin_dialog::DialogExt;
use trainer::{RunDataset, TrainedModel};

/// The results of a run. From now on, what is dropped on the window is tried on its model.
#[tauri::command]
pub async fn results(shell: State<'_, Arc<Shell>>, run: String) -> Answer<ResultsView> {
    status(shell, move |shell| shell.results_of(&run)).await
}

/// Evaluates a run in the background; `results` reports the progress.
#[tauri::command]
pub async fn evaluate_run(shell: State<'_, Arc<Shell>>, run: String) -> Answer<()> {
    status(shell, move |shell| {
        let folder = shell.runs.folder(&run)?;
        // Two models may not fit into memory.
        shell.chat.leave(&run);
        shell.results.evaluate(&run, folder)
    })
    .await
}

/// The results page of a run was left: frees its model.
#[tauri::command]
pub async fn leave_results(shell: State<'_, Arc<Shell>>, run: String) -> Answer<()> {
    status(shell, move |shell| {
        shell.try_it.leave_page(&run);
        shell.chat.leave(&run);
        shell.results.close(&run);
        Ok(())
    })
    .await
}

/// The samples of one cell of the confusion matrix.
#[tauri::command]
pub async fn result_samples(
    shell: State<'_, Arc<Shell>>,
    run: String,
    class: u32,
    predicted: u32,
) -> Answer<Vec<ResultSample>> {
    status(shell, move |shell| {
        let folder = shell.runs.folder(&run)?;
        shell.results.samples_of(&run, &folder, class, predicted)
    })
    .await
}

/// The results of a run beside those of another one, with their curves over each other, and the
/// settings and samples that differ.
#[tauri::command]
pub async fn compare_results(
    shell: State<'_, Arc<Shell>>,
    run: String,
    other: String,
) -> Answer<ComparisonView> {
    status(shell, move |shell| shell.compare_results(&run, &other)).await
}

/// The thumbnail of an evaluated sample, as the bytes of a JPEG.
#[tauri::command]
pub async fn result_thumbnail(
    shell: State<'_, Arc<Shell>>,
    run: String,
    sample: u32,
) -> Answer<Response> {
    status(shell, move |shell| {
        Ok(Response::new(shell.results.thumbnail(&run, sample)?))
    })
    .await
}

/// Shows the file of an evaluated sample in the file manager.
#[tauri::command]
pub async fn reveal_sample(shell: State<'_, Arc<Shell>>, run: String, sample: u32) -> Answer<()> {
    status(shell, move |shell| {
        show_in_file_manager(&shell.results.file(&run, sample)?)
    })
    .await
}

/// Lets the user show where the dataset of a run is now. Returns false if the user cancelled.
#[tauri::command]
pub async fn locate_data(
    window: WebviewWindow,
    shell: State<'_, Arc<Shell>>,
    run: String,
) -> Answer<bool> {
    let dialog = window.dialog().file().set_parent(&window);
    let dialog = dialog.set_title(translate("Choose the folder that this run was trained on"));
    status(shell, move |shell| {
        let folder = shell.runs.folder(&run)?;
        let Some(chosen) = dialog.blocking_pick_folder() else {
            return Ok(false);
        };
        let chosen = chosen.into_path().map_err(|error| {
            CommandError::new("failed", format!("This folder cannot be used: {error}"))
        })?;
        RunDataset::read(&folder)?.relocate(&chosen)?;
        Ok(true)
    })
    .await
}

/// What can be exported of a run, and what opens each.
#[tauri::command]
pub async fn export_choices(shell: State<'_, Arc<Shell>>, run: String) -> Answer<Vec<ExportView>> {
    status(shell, move |shell| {
        let folder = shell.runs.folder(&run)?;
        let task = shell.runs.started(&run)?.known_task();
        // A run of a later version may have a task that this one does not know.
        let task = task.unwrap_or(TaskChoice::ImageClassification);
        let config = folder.config().unwrap_or_default();
        Ok(crate::export_run::choices(task, &config))
    })
    .await
}

/// Lets the user choose a place and exports there. Returns the name of what was written, or `None`
/// if the user cancelled.
#[tauri::command]
pub async fn export_run(
    window: WebviewWindow,
    shell: State<'_, Arc<Shell>>,
    run: String,
    kind: ExportKind,
) -> Answer<Option<String>> {
    let dialog = window.dialog().file().set_parent(&window);
    status(shell, move |shell| {
        let folder = shell.runs.folder(&run)?;
        let name = shell.runs.name(&run)?;
        let dialog = dialog
            .set_title(translate(kind.title()))
            .set_file_name(kind.file_name(&name));
        let dialog = if kind.endings().is_empty() {
            dialog
        } else {
            dialog.add_filter(translate("Report"), kind.endings())
        };
        let Some(place) = dialog.blocking_save_file() else {
            return Ok(None);
        };
        let place: PathBuf = place.into_path().map_err(|error| {
            CommandError::new("failed", format!("This place cannot be used: {error}"))
        })?;
        let written = on_large_stack(|| crate::export_run::export(&folder, kind, &place))?;
        let written = written.file_name().unwrap_or(written.as_os_str());
        Ok(Some(written.to_string_lossy().into_owned()))
    })
    .await
}

/// Lets the user choose files to try; an empty list if the user cancelled.
#[tauri::command]
pub async fn try_choose(
    window: WebviewWindow,
    shell: State<'_, Arc<Shell>>,
) -> Answer<Vec<InputView>> {
    let dialog = window.dialog().file().set_parent(&window);
    let dialog = dialog.set_title(translate("Choose files to try"));
    status(shell, move |shell| {
        let chosen = dialog.blocking_pick_files().unwrap_or_default();
        let paths = chosen.into_iter().filter_map(|path| path.into_path().ok());
        Ok(shell.try_it.add_files(&paths.collect::<Vec<_>>()))
    })
    .await
}

/// Takes a picture from the clipboard; the body of the request is its file.
#[tauri::command]
pub async fn try_picture(shell: State<'_, Arc<Shell>>, request: Request<'_>) -> Answer<InputView> {
    let InvokeBody::Raw(bytes) = request.body() else {
        let why = "The clipboard holds no picture.";
        return Err(CommandError::new("failed", why));
    };
    let bytes = bytes.clone();
    status(shell, move |shell| shell.try_it.add_picture(&bytes)).await
}

/// Takes a text that was typed or pasted.
#[tauri::command]
pub async fn try_text(shell: State<'_, Arc<Shell>>, text: String) -> Answer<InputView> {
    status(shell, move |shell| Ok(shell.try_it.add_text(text))).await
}

/// The inputs that the model of a run is tried on; a folder stands for the files in it.
#[tauri::command]
pub async fn try_files(
    shell: State<'_, Arc<Shell>>,
    run: String,
    inputs: Vec<u32>,
) -> Answer<TryFilesView> {
    status(shell, move |shell| {
        let task = shell.runs.started(&run)?.task;
        shell.try_it.files(&task, &inputs)
    })
    .await
}

/// What the model of a run makes of these inputs. They are saved together with the earlier answers
/// of the same request.
#[tauri::command]
pub async fn try_answers(
    shell: State<'_, Arc<Shell>>,
    run: String,
    inputs: Vec<u32>,
    request: u32,
) -> Answer<AnswersView> {
    status(shell, move |shell| {
        let folder = shell.runs.folder(&run)?;
        let try_it = Arc::clone(&shell.try_it);
        // Now, so that an earlier request ends before its next input.
        try_it.replace_earlier(request)?;
        // Two models may not fit into memory.
        shell.chat.leave(&run);
        let answer = move |model: &TrainedModel| try_it.answers(model, &inputs, request);
        shell.results.ask(&run, folder, answer)
    })
    .await
}

/// The picture of an input, as the bytes of a JPEG.
#[tauri::command]
pub async fn try_thumbnail(shell: State<'_, Arc<Shell>>, input: u32) -> Answer<Response> {
    status(shell, move |shell| {
        Ok(Response::new(shell.try_it.picture(input)?))
    })
    .await
}

/// Where the model looked: a byte for each pixel of a square.
#[tauri::command]
pub async fn try_saliency(
    shell: State<'_, Arc<Shell>>,
    run: String,
    input: u32,
) -> Answer<Response> {
    status(shell, move |shell| {
        let folder = shell.runs.folder(&run)?;
        let try_it = Arc::clone(&shell.try_it);
        let look = move |model: &TrainedModel| try_it.saliency(model, input);
        Ok(Response::new(shell.results.ask(&run, folder, look)?))
    })
    .await
}

/// Saves the answers of a request as CSV. Returns the name of the file, or `None` if the user
/// cancelled.
#[tauri::command]
pub async fn try_save(
    window: WebviewWindow,
    shell: State<'_, Arc<Shell>>,
    request: u32,
) -> Answer<Option<String>> {
    let dialog = window.dialog().file().set_parent(&window);
    let dialog = dialog
        .set_title(translate("Save the answers"))
        .set_file_name("predictions.csv");
    status(shell, move |shell| {
        let text = shell.try_it.csv(request)?;
        let Some(place) = dialog
            .blocking_save_file()
            .and_then(|place| place.into_path().ok())
        else {
            return Ok(None);
        };
        crate::export_run::write(&place, text.as_bytes())?;
        let written = place.file_name().unwrap_or(place.as_os_str());
        Ok(Some(written.to_string_lossy().into_owned()))
    })
    .await
}

/// Evaluates the model of a run on a dropped folder.
#[tauri::command]
pub async fn evaluate_input(
    shell: State<'_, Arc<Shell>>,
    run: String,
    input: u32,
) -> Answer<ReportView> {
    status(shell, move |shell| {
        let folder = shell.runs.folder(&run)?;
        let path = shell.try_it.path(input)?;
        shell.chat.leave(&run);
        shell.results.ask(&run, folder, move |model| {
            let found = model.inspect(&path)?;
            Ok(folder_report(&model.evaluate(&found)?.results))
        })
    })
    .await
}

/// Opens a dropped folder as a dataset or run instead of trying it.
#[tauri::command]
pub async fn open_input(shell: State<'_, Arc<Shell>>, input: u32) -> Answer<Show> {
    status(shell, move |shell| {
        let path = shell.try_it.path(input)?;
        Ok(shell.open(&path))
    })
    .await
}
