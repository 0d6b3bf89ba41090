//! The commands of the results page. Like those in `commands.rs` they take ids and return views.

use crate::app_state::Shell;
use crate::commands::{Answer, status};
use crate::exports::{ExportKind, ExportView};
use crate::results::on_large_stack;
use crate::results_view::{ComparisonView, ReportView, ResultSample, ResultsView, folder_report};
use crate::try_it::{AnswerView, InputView};
use crate::window_types::{CommandError, Show};
use std::path::PathBuf;
use std::sync::Arc;
use tauri::ipc::{InvokeBody, Request, Response};
use tauri::{State, WebviewWindow};
use tauri_plugin_dialog::DialogExt;

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
        shell.results.evaluate(&run, folder)
    })
    .await
}

/// The results page of a run was left: frees its model.
#[tauri::command]
pub async fn leave_results(shell: State<'_, Arc<Shell>>, run: String) -> Answer<()> {
    status(shell, move |shell| {
        shell.try_it.leave_page(&run);
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

/// The results of a run beside those of another one.
#[tauri::command]
pub async fn compare_results(
    shell: State<'_, Arc<Shell>>,
    run: String,
    other: String,
) -> Answer<ComparisonView> {
    status(shell, move |shell| {
        let other = shell.runs.folder(&other)?;
        shell.results.compare(&run, &other)
    })
    .await
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

/// Lets the user show where the dataset of a run is now. Returns false if the user cancelled.
#[tauri::command]
pub async fn locate_data(
    window: WebviewWindow,
    shell: State<'_, Arc<Shell>>,
    run: String,
) -> Answer<bool> {
    let dialog = window.dialog().file().set_parent(&window);
    let dialog = dialog.set_title("Choose the folder that this run was trained on");
    status(shell, move |shell| {
        let folder = shell.runs.folder(&run)?;
        let Some(chosen) = dialog.blocking_pick_folder() else {
            return Ok(false);
        };
        let chosen = chosen.into_path().map_err(|error| {
            CommandError::new("failed", format!("This folder cannot be used: {error}"))
        })?;
        trainer::relocate_dataset(&folder, &chosen)?;
        Ok(true)
    })
    .await
}

/// What can be exported of a run, and what opens each.
#[tauri::command]
pub async fn export_choices(shell: State<'_, Arc<Shell>>, run: String) -> Answer<Vec<ExportView>> {
    status(shell, move |shell| {
        shell.runs.folder(&run)?;
        Ok(crate::exports::choices())
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
        let name = shell.run_name(&run)?;
        let dialog = dialog
            .set_title(kind.title())
            .set_file_name(kind.file_name(&name));
        let Some(place) = dialog.blocking_save_file() else {
            return Ok(None);
        };
        let place: PathBuf = place.into_path().map_err(|error| {
            CommandError::new("failed", format!("This place cannot be used: {error}"))
        })?;
        let written = on_large_stack(|| crate::exports::export(&folder, kind, &place))?;
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
    let dialog = dialog.set_title("Choose files to try");
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

/// What the model of a run makes of these inputs.
#[tauri::command]
pub async fn try_answers(
    shell: State<'_, Arc<Shell>>,
    run: String,
    inputs: Vec<u32>,
) -> Answer<Vec<AnswerView>> {
    status(shell, move |shell| {
        let folder = shell.runs.folder(&run)?;
        on_large_stack(|| {
            let model = shell.results.model(&run, &folder)?;
            shell.try_it.answers(&model, &inputs)
        })
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
        on_large_stack(|| {
            let model = shell.results.model(&run, &folder)?;
            Ok(Response::new(shell.try_it.saliency(&model, input)?))
        })
    })
    .await
}

/// Saves the latest answers as CSV. Returns the name of the file, or `None` if the user cancelled.
#[tauri::command]
pub async fn try_save(
    window: WebviewWindow,
    shell: State<'_, Arc<Shell>>,
) -> Answer<Option<String>> {
    let dialog = window.dialog().file().set_parent(&window);
    let dialog = dialog
        .set_title("Save the answers")
        .set_file_name("predictions.csv");
    status(shell, move |shell| {
        let text = shell.try_it.csv()?;
        let Some(place) = dialog
            .blocking_save_file()
            .and_then(|place| place.into_path().ok())
        else {
            return Ok(None);
        };
        crate::exports::write(&place, text.as_bytes())?;
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
        on_large_stack(|| {
            let model = shell.results.model(&run, &folder)?;
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
