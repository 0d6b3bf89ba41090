//! The commands that choose the model a plan starts from. Like those in `commands.rs` they take ids
//! and return views.

use crate::app_state::Shell;
use crate::base_models::{BaseModelsView, HubFitView, HubModelView, HubRequest};
use crate::commands::{Answer, config_of_weights, status};
use crate::language::translate;
use crate::opened_dataset_folders::SEED;
use crate::paths::{gguf_path, hub_path};
use crate::plan_page::{self, ALL};
use crate::window_types::{CommandError, EstimateView, PlanView, WeightsView};
use dataset::DetectedDataset;
use runlog::TaskChoice;
use std::path::Path;
use std::sync::Arc;
use tauri::{State, WebviewWindow};
use tauri_plugin_dialog::DialogExt;
use trainer::{ChatModel, dataset_task};

/// Prefix of the trainable part that is estimated if everything does not fit.
const ADAPTERS: &str = "adapter:";

/// The models on this machine that suit a task, the hub that is suggested, and how far the look-up
/// is.
#[tauri::command]
pub async fn base_models(shell: State<'_, Arc<Shell>>, task: String) -> Answer<BaseModelsView> {
    status(shell, move |shell| {
        let task = task.parse::<TaskChoice>().ok().map(dataset_task);
        let (models, weights) = (&shell.base_models, &shell.weights);
        Ok(models.view(task, &hub_path(), weights))
    })
    .await
}

/// Lets the user choose a GGUF file in the system's dialog; `None` if the user cancelled.
#[tauri::command]
pub async fn choose_gguf(
    window: WebviewWindow,
    shell: State<'_, Arc<Shell>>,
) -> Answer<Option<WeightsView>> {
    let dialog = window.dialog().file().set_parent(&window);
    let dialog = dialog
        .set_title(translate("Choose a GGUF file"))
        .add_filter("GGUF", &["gguf"]);
    status(shell, move |shell| {
        let path = dialog.blocking_pick_file();
        let path = path.and_then(|path| path.into_path().ok());
        path.map(|path| open_gguf(shell, &path)).transpose()
    })
    .await
}

fn open_gguf(shell: &Shell, path: &Path) -> Answer<WeightsView> {
    if ChatModel::unpack_gguf(path, &gguf_path())?.is_none() {
        let name = path.file_name().unwrap_or(path.as_os_str());
        let name = name.to_string_lossy();
        let why = format!("{name} is not a GGUF file. Choose a file that ends with .gguf.");
        return Err(CommandError::new("failed", why));
    }
    Ok(shell.weights.open(path))
}

/// Asks a hub for a model. `looked_up_model` reports how far it is.
#[tauri::command]
pub async fn look_up_model(
    shell: State<'_, Arc<Shell>>,
    inspection: String,
    request: HubRequest,
) -> Answer<()> {
    let own = Arc::clone(&shell);
    status(shell, move |shell| {
        let fit = move |preview: &Path| fit(&own, &inspection, preview);
        let models = &shell.base_models;
        models.look_up(request, hub_path(), Box::new(fit))
    })
    .await
}

/// Downloads the model that was looked up, or continues its download.
#[tauri::command]
pub async fn download_model(shell: State<'_, Arc<Shell>>) -> Answer<()> {
    status(shell, |shell| shell.base_models.download(hub_path())).await
}

/// How far the look-up or the download is; `None` without one.
#[tauri::command]
pub async fn looked_up_model(shell: State<'_, Arc<Shell>>) -> Answer<Option<HubModelView>> {
    status(shell, |shell| {
        Ok(shell.base_models.looked_up(&shell.weights))
    })
    .await
}

/// Ends the look-up or the download.
#[tauri::command]
pub async fn stop_model(shell: State<'_, Arc<Shell>>) -> Answer<()> {
    status(shell, |shell| {
        shell.base_models.stop();
        Ok(())
    })
    .await
}

/// Whether a training on a folder fits that starts from the weights in `preview`: of everything, or
/// else of adapters.
fn fit(shell: &Shell, inspection: &str, preview: &Path) -> Answer<HubFitView> {
    let found = shell.inspections.take(inspection, SEED)?;
    let estimate = |trains: &str| estimate(shell, inspection, &found, preview, trains);
    let (plan, everything) = estimate(ALL)?;
    // With everything, all parameters train.
    let parameters = everything.parameters;
    let adapters = plan
        .trains
        .iter()
        .find(|(word, _)| word.starts_with(ADAPTERS));
    if everything.refusal.is_some()
        && let Some((word, label)) = adapters
    {
        let (_, of_adapters) = estimate(word)?;
        return Ok(fit_view(word, label, &of_adapters, parameters));
    }
    let label = plan.trains.iter().find(|(word, _)| word == ALL);
    let label = label.map_or("", |(_, label)| label);
    Ok(fit_view(ALL, label, &everything, parameters))
}

fn estimate(
    shell: &Shell,
    inspection: &str,
    found: &DetectedDataset,
    preview: &Path,
    trains: &str,
) -> Answer<(PlanView, EstimateView)> {
    let (machine, from) = (shell.readings.now(), preview.to_owned());
    let plan = plan_page::begun(found, "", from.clone(), Some(trains), &machine)?;
    let config = config_of_weights(shell, inspection, &plan.settings, found, Some(from))?;
    let estimate = plan_page::estimate(&config, found, &machine)?;
    Ok((plan, estimate))
}

fn fit_view(trains: &str, label: &str, estimate: &EstimateView, parameters: u64) -> HubFitView {
    let refusal = estimate.refusal;
    HubFitView {
        parameters,
        trains: trains.to_owned(),
        trains_label: label.to_owned(),
        needed_bytes: refusal.map_or(estimate.peak_bytes, |refusal| refusal.needed_bytes),
        available_bytes: refusal.map(|refusal| refusal.available_bytes),
    }
}
