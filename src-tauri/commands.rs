//! The commands of the start page and the plan page, and those that start, control and show a
//! training. Commands take ids and return views; they never take a path from the page. Each command
//! is a line or two; other modules do the work.

use crate::app_state::Shell;
use crate::compare_estimate::MeasuredFootprint;
use crate::earlier_speed::samples_per_second;
use crate::language::translate;
use crate::lock_mutex::lock;
use crate::opened_dataset_folders::SEED;
use crate::plan_page;
use crate::run_row;
use crate::shown_versions::version_of;
use crate::training_summary;
use crate::window_types::{
    CommandError, DeviceCheckView, DrillRequest, DrillView, EstimateView, InspectionView,
    LimitsView, MachineView, PlanSettings, PlanView, RunList, RunRequest, RunRow, Show,
    WeightsView, Welcome,
};
use dataset::DetectedDataset;
use pressure::Policy;
use runlog::{MemoryLimits, PowerPolicyChoice, Query, RunConfig};
use serde::Deserialize;
use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tauri::ipc::Response;
use tauri::{State, WebviewWindow};
use tauri_plugin_dialog::DialogExt;
use trainer::{Plan, RunContext, RunLength};

/// After this time, a request that waits for a change is answered with nothing, so that it does not
/// outlive its page for long.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// The result of a command.
pub type Answer<T> = Result<T, CommandError>;

/// Checks the values of the settings.
pub fn valid(config: &RunConfig) -> Answer<()> {
    let wrong =
        |error: runlog::RunlogError| CommandError::new("invalid_setting", error.to_string());
    config.validate().map_err(wrong)
}

/// The checked config of a plan: its settings, and what of the folder is used.
pub fn config_of(
    shell: &Shell,
    inspection: &str,
    settings: &PlanSettings,
    found: &DetectedDataset,
) -> Answer<RunConfig> {
    let from = shell.weights.of(settings)?;
    config_of_weights(shell, inspection, settings, found, from)
}

/// As [`config_of`], with the weights in this folder.
pub fn config_of_weights(
    shell: &Shell,
    inspection: &str,
    settings: &PlanSettings,
    found: &DetectedDataset,
    from: Option<PathBuf>,
) -> Answer<RunConfig> {
    let config = plan_page::config(settings, found, from)?;
    let config = shell.inspections.configured(inspection, config)?;
    valid(&config)?;
    Ok(config)
}

/// Runs work that reads disks on a thread that may block.
pub async fn status<T: Send + 'static>(
    shell: State<'_, Arc<Shell>>,
    work: impl FnOnce(&Shell) -> Answer<T> + Send + 'static,
) -> Answer<T> {
    let shell = Arc::clone(&shell);
    // One type for all commands; otherwise the program has a copy of the runtime's code for each.
    let work: Box<dyn FnOnce() -> Box<dyn Any + Send> + Send> =
        Box::new(move || Box::new(work(&shell)));
    let why = match tauri::async_runtime::spawn_blocking(work).await {
        Ok(answer) => match answer.downcast::<Answer<T>>() {
            Ok(answer) => return *answer,
            Err(_) => "the answer has an unexpected type".to_owned(),
        },
        Err(error) => error.to_string(),
    };
    let sentence = format!("An internal error occurred: {why}. Try again.");
    Err(CommandError::new("failed", sentence))
}

/// Looks every `interval` until `look` finds something; `None` after [`LONGEST_WAIT`].
async fn wait_for_change<T: Send + 'static>(
    shell: State<'_, Arc<Shell>>,
    interval: Duration,
    look: impl Fn(&Shell) -> Answer<Option<T>> + Clone + Send + 'static,
) -> Answer<Option<T>> {
    let begun = Instant::now();
    loop {
        let found = status(shell.clone(), look.clone()).await?;
        if found.is_some() || begun.elapsed() >= LONGEST_WAIT {
            return Ok(found);
        }
        tokio::time::sleep(interval).await;
    }
}

/// What the window needs when it starts and after a reload.
#[tauri::command]
pub async fn welcome(shell: State<'_, Arc<Shell>>) -> Answer<Welcome> {
    let own = Arc::clone(&shell);
    status(shell, move |_| Ok(own.welcome())).await
}

/// The numbers of the status bar, as soon as they look different from version `seen`.
#[tauri::command]
pub async fn machine(shell: State<'_, Arc<Shell>>, seen: u64) -> Answer<Option<MachineView>> {
    wait_for_change(shell, Duration::from_secs(1), move |shell| {
        let view = shell.shown_machine.number(machine_now(shell));
        Ok(Some(view).filter(|view| view.version != seen))
    })
    .await
}

fn machine_now(shell: &Shell) -> MachineView {
    let training = shell.active.running();
    let of_training = training
        .as_ref()
        .and_then(|training| training.device_check());
    let of_process = || {
        let (done, total) = trainer::DeviceCheck::progress()?;
        Some(DeviceCheckView {
            run: None,
            done: done as u32,
            total: total as u32,
        })
    };
    let device_check = of_training.or_else(of_process);
    let active = training.as_deref().and_then(training_summary::for_training);
    let reported = training.and_then(|training| training.newest_sample());
    MachineView {
        device: shell.first_check.device(),
        device_check,
        active,
        queued: shell.queue.len() as u32,
        ..reported.unwrap_or_else(|| shell.readings.now()).view()
    }
}

/// The list of runs, newest first.
#[tauri::command]
pub async fn runs(shell: State<'_, Arc<Shell>>) -> Answer<Vec<RunRow>> {
    status(shell, run_rows).await
}

/// The list of runs, as soon as it differs from version `seen`.
#[tauri::command]
pub async fn run_list(shell: State<'_, Arc<Shell>>, seen: u64) -> Answer<Option<RunList>> {
    wait_for_change(shell, Duration::from_secs(2), move |shell| {
        let rows = run_rows(shell)?;
        let version =
            version_of(&rows).map_err(|error| CommandError::new("failed", error.to_string()))?;
        Ok((version != seen).then_some(RunList { version, rows }))
    })
    .await
}

fn run_rows(shell: &Shell) -> Answer<Vec<RunRow>> {
    shell.runs.rows(|id| {
        let training = shell.active.of(id)?;
        Some(run_row::here(id, &training.folder, &training.run()))
    })
}

/// Lets the user choose a folder in the system's dialog; `None` if the user cancelled.
#[tauri::command]
pub async fn choose_folder(
    window: WebviewWindow,
    shell: State<'_, Arc<Shell>>,
) -> Answer<Option<Show>> {
    let choose = dialog(&window, "Choose a folder of images or texts");
    status(shell, move |shell| {
        Ok(choose().map(|path| shell.open(&path)))
    })
    .await
}

/// The system's dialog for a folder. It blocks until the user has answered.
fn dialog(window: &WebviewWindow, title: &str) -> impl FnOnce() -> Option<PathBuf> + use<> {
    let dialog = window
        .dialog()
        .file()
        .set_parent(window)
        .set_title(translate(title));
    move || dialog.blocking_pick_folder()?.into_path().ok()
}

/// Lets the user choose a folder of pretrained weights in the system's dialog; `None` if the user
/// cancelled.
#[tauri::command]
pub async fn choose_weights(
    window: WebviewWindow,
    shell: State<'_, Arc<Shell>>,
) -> Answer<Option<WeightsView>> {
    let choose = dialog(&window, "Choose a folder of pretrained weights");
    status(shell, move |shell| {
        Ok(choose().map(|path| shell.weights.open(&path)))
    })
    .await
}

/// The plan that Ebb suggests for training from these weights. `trains` is the trainable part; if
/// it is `None`, Ebb chooses.
#[tauri::command]
pub async fn begin_with(
    shell: State<'_, Arc<Shell>>,
    inspection: String,
    weights: String,
    trains: Option<String>,
) -> Answer<PlanView> {
    status(shell, move |shell| {
        let found = shell.inspections.take(&inspection, SEED)?;
        let from = shell.weights.folder(&weights)?;
        let machine = shell.readings.now();
        let trains = trains.as_deref();
        Ok(plan_page::begun(&found, &weights, from, trains, &machine)?)
    })
    .await
}

/// Opens the bundled sample.
#[tauri::command]
pub async fn open_sample(shell: State<'_, Arc<Shell>>) -> Answer<String> {
    status(shell, |shell| match crate::bundled_sample::find() {
        Some(folder) => Ok(shell.inspections.open(&folder)),
        None => {
            let why =
                "The sample dataset that comes with Ebb is missing. Install Ebb again, or drop a folder of your own.";
            Err(CommandError::new("failed", why))
        }
    })
    .await
}

/// The inspection of a folder, as soon as it is newer than version `seen`.
#[tauri::command]
pub async fn inspection(
    shell: State<'_, Arc<Shell>>,
    id: String,
    seen: u64,
) -> Answer<Option<InspectionView>> {
    let interval = Duration::from_millis(250);
    wait_for_change(shell, interval, move |shell| {
        shell.inspections.view(&id, seen)
    })
    .await
}

/// Estimates the memory that these settings need.
#[tauri::command]
pub async fn estimate(
    shell: State<'_, Arc<Shell>>,
    inspection: String,
    settings: PlanSettings,
) -> Answer<EstimateView> {
    status(shell, move |shell| {
        // Memory does not depend on which samples are held out.
        let found = shell.inspections.take(&inspection, SEED)?;
        let config = config_of(shell, &inspection, &settings, &found)?;
        shell.active.finish_ended_run();
        let estimate = plan_page::estimate(&config, &found, &shell.readings.now())?;
        shell
            .active
            .estimated(&inspection, settings, estimate.peak_bytes);
        Ok(estimate)
    })
    .await
}

/// Measures how long an epoch takes with these settings, in seconds. Computes two micro-batches. On
/// a GPU, nothing is computed: the time is that of an earlier run, or `None` without one.
#[tauri::command]
pub async fn epoch_seconds(
    shell: State<'_, Arc<Shell>>,
    inspection: String,
    settings: PlanSettings,
    micro_batch: u32,
) -> Answer<Option<f64>> {
    status(shell, move |shell| {
        let found = shell.inspections.take(&inspection, SEED)?;
        let config = config_of(shell, &inspection, &settings, &found)?;
        let total_bytes = shell.readings.now().sample.total_bytes;
        let earlier = |plan: &Plan| samples_per_second(&shell.runs, plan, total_bytes);
        Ok(plan_page::epoch_seconds(
            &config,
            &found,
            micro_batch,
            earlier,
        )?)
    })
    .await
}

/// Starts to train on a folder and returns the run's id.
#[tauri::command]
pub async fn train(
    shell: State<'_, Arc<Shell>>,
    inspection: String,
    settings: PlanSettings,
) -> Answer<String> {
    status(shell, move |shell| {
        shell.is_free()?;
        let found = shell.inspections.take(&inspection, settings.seed)?;
        let config = config_of(shell, &inspection, &settings, &found)?;
        let estimated_peak_bytes = shell.active.estimate_of(&inspection, &settings);
        let id = begin_run(shell, &config, found, estimated_peak_bytes)?;
        shell.inspections.rest(&inspection);
        Ok(id)
    })
    .await
}

/// Checks the plan of a config, and the machine's support for its precision.
pub fn checked_plan(shell: &Shell, config: &RunConfig, found: &DetectedDataset) -> Answer<Plan> {
    let total_bytes = shell.readings.now().sample.total_bytes;
    let plan = Plan::within_cap(config, found, total_bytes, 1)?;
    plan.check_start()?;
    Ok(plan)
}

/// Starts a run in a new folder and returns its id. `estimated_peak_bytes` is 0 without an
/// estimate.
pub fn begin_run(
    shell: &Shell,
    config: &RunConfig,
    found: DetectedDataset,
    estimated_peak_bytes: u64,
) -> Answer<String> {
    let plan = checked_plan(shell, config, &found)?;
    let folder = shell.runs.store().create(&plan.name)?;
    let (id, place) = (folder.id(), folder.path.clone());
    let run = folder.clone();
    let after_run = shell.active.after_run();
    let begun = shell.active.begin(&id, folder, move |context, report| {
        let is_usual = context.machine.script.is_none();
        let context = RunContext {
            estimated_peak_bytes,
            ..context
        };
        let mut measured = MeasuredFootprint::before(&plan, true);
        let outcome = trainer::start(plan.clone(), found, &run, context, &mut |event| {
            measured.receive(event, &plan);
            report(event);
        })?;
        if is_usual {
            // Takes about a second, so the next estimate does it.
            *lock(&after_run) = Some(Box::new(move || drop(measured.compare(&plan))));
        }
        Ok(outcome)
    });
    if begun.is_err() {
        // Nothing was trained, so the run folder is removed. If this fails, the list of runs skips
        // the folder.
        drop(disk::remove_dir_all(&place));
    }
    begun.map(|()| id)
}

/// Resumes a run from its newest checkpoint. If `epochs` is given, the run ends after this many in
/// all.
#[tauri::command]
pub async fn resume(shell: State<'_, Arc<Shell>>, run: String, epochs: Option<u64>) -> Answer<()> {
    status(shell, move |shell| resume_run(shell, &run, epochs)).await
}

/// As [`resume`], on a thread that may block.
pub fn resume_run(shell: &Shell, run: &str, epochs: Option<u64>) -> Answer<()> {
    shell.is_free()?;
    valid(&RunConfig {
        epochs,
        ..RunConfig::default()
    })?;
    let folder = shell.runs.folder(run)?;
    let (there, length) = (folder.clone(), epochs.map(RunLength::Epochs));
    shell.active.begin(run, folder, move |context, report| {
        trainer::resume_to(&there, length, context, report)
    })
}

/// Sends a request to the training.
#[tauri::command]
pub fn control(shell: State<'_, Arc<Shell>>, run: String, request: RunRequest) -> Answer<()> {
    let training = shell.active.running().filter(|training| training.id == run);
    valid(&match request {
        RunRequest::Leave {
            max_system_fraction,
        } => RunConfig {
            max_system_fraction: Some(max_system_fraction),
            ..RunConfig::default()
        },
        RunRequest::MemoryCap { bytes } => RunConfig {
            memory_cap_bytes: bytes,
            ..RunConfig::default()
        },
        _ => RunConfig::default(),
    })?;
    match training {
        Some(training) => {
            training.ask(request);
            Ok(())
        }
        None => Err(not_here()),
    }
}

/// Stops the reading of a folder.
#[tauri::command]
pub fn stop_reading(shell: State<'_, Arc<Shell>>, inspection: String) -> Answer<()> {
    shell.inspections.stop_reading(&inspection)
}

/// Stops the check of the GPU that no training waits for.
#[tauri::command]
pub fn stop_device_check() {
    trainer::DeviceCheck::stop();
}

/// The memory limits of the training of this window.
#[tauri::command]
pub async fn memory_limits(shell: State<'_, Arc<Shell>>, run: String) -> Answer<LimitsView> {
    status(shell, move |shell| {
        let training = shell.active.running().filter(|training| training.id == run);
        let training = training.ok_or_else(not_here)?;
        let changed = training.run().changed_limits();
        let total_bytes = shell.readings.now().sample.total_bytes;
        let mut config = training.folder.config()?;
        config.courtesy = training.changed_courtesy().or(config.courtesy);
        Ok(limits_view(changed, &config, total_bytes))
    })
    .await
}

/// The limits that the user set during the training, else those of its config.
fn limits_view(changed: Option<MemoryLimits>, config: &RunConfig, total_bytes: u64) -> LimitsView {
    let policy = Policy {
        memory_cap_bytes: config.memory_cap_bytes,
        memory_cap_fraction: config.memory_cap_fraction,
        ..Policy::default()
    };
    let limits = changed.unwrap_or_else(|| MemoryLimits {
        memory_cap_bytes: policy.cap_bytes(total_bytes),
        max_system_fraction: config
            .max_system_fraction
            .unwrap_or(policy.max_system_fraction),
    });
    LimitsView {
        memory_cap_bytes: limits.memory_cap_bytes,
        max_system_fraction: limits.max_system_fraction,
        total_bytes,
        leave_least_bytes: policy.min_reserve_bytes(total_bytes),
        courtesy: config.courtesy.unwrap_or(PowerPolicyChoice::Auto),
    }
}

fn not_here() -> CommandError {
    let why = "This run is not training in this window. Pause or stop the run in the program that started it.";
    CommandError::new("failed", why)
}

/// Starts, reads or ends the stress test.
#[tauri::command]
pub async fn drill(shell: State<'_, Arc<Shell>>, request: DrillRequest) -> Answer<DrillView> {
    status(shell, move |shell| shell.drill(request)).await
}

/// What the reader chose to see in the charts.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ChartChoices {
    smoothed_steps: Option<f64>,
    rank: Option<u32>,
}

/// A time range of a run as raw bytes; see `PullHeader`.
#[tauri::command(rename_all = "camelCase")]
pub async fn pull(
    shell: State<'_, Arc<Shell>>,
    run: String,
    from_ms: u64,
    to_ms: u64,
    columns: u32,
    seen: u64,
    choices: Option<ChartChoices>,
) -> Answer<Response> {
    let choices = choices.unwrap_or_default();
    let query = Query {
        from_ms: Some(from_ms),
        to_ms: Some(to_ms),
        columns,
        seen,
        smoothed_steps: choices.smoothed_steps,
        rank: choices.rank,
    };
    status(shell, move |shell| {
        let pull = match shell.active.of(&run) {
            Some(training) => training.run().pull(query),
            None => shell.runs.pull(&run, query)?,
        };
        Ok(Response::new(pull.encode()))
    })
    .await
}

/// Prints an error of the page to stderr, for users who started Ebb in a terminal.
#[tauri::command]
pub fn report_error(message: String) {
    let line: String = message
        .chars()
        .filter(|c| !c.is_control())
        .take(2000)
        .collect();
    eprintln!("ebb: error in the window: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_were_changed_replace_those_of_the_config() {
        const GB: u64 = 1 << 30;
        let config = RunConfig {
            memory_cap_bytes: Some(8 * GB),
            memory_cap_fraction: Some(0.25),
            ..RunConfig::default()
        };
        let limits = |changed| {
            let view = limits_view(changed, &config, 16 * GB);
            (view.memory_cap_bytes, view.max_system_fraction)
        };
        assert_eq!(limits(None), (Some(4 * GB), 0.9));
        let changed = MemoryLimits {
            memory_cap_bytes: None,
            max_system_fraction: 0.7,
        };
        assert_eq!(limits(Some(changed)), (None, 0.7));
    }
}
