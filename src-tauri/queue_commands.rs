//! Commands about the runs that wait for their turn, and the start of the next one.

use crate::app_state::Shell;
use crate::commands::{Answer, begin_run, checked_plan, config_of, resume_run, status, valid};
use crate::current_training::Training;
use crate::run_row;
use crate::training_queue::{QueueChange, QueueView, QueuedResume, QueuedRun, TrainingQueue};
use crate::window_types::{CommandError, PlanSettings};
use runlog::{RunConfig, RunStatus};
use std::sync::Arc;
use tauri::State;

/// Adds a plan to the queue. It trains after the running training and the runs before it.
#[tauri::command]
pub async fn enqueue(
    shell: State<'_, Arc<Shell>>,
    inspection: String,
    settings: PlanSettings,
) -> Answer<()> {
    status(shell, move |shell| {
        let found = shell.inspections.take(&inspection, settings.seed)?;
        let config = config_of(shell, &inspection, &settings, &found)?;
        let plan = checked_plan(shell, &config, &found)?;
        let estimated_peak_bytes = shell.active.estimate_of(&inspection, &settings);
        let (classes, targets) = (plan.classes.len(), plan.columns.len());
        shell.queue.add(QueuedRun {
            name: plan.name.clone(),
            what: run_row::describe(plan.task().name(), plan.model.name(), classes, targets),
            config: RunConfig {
                folder: plan.config.folder,
                ..config
            },
            estimated_peak_bytes,
            resume: None,
        })
    })
    .await
}

/// Adds an ended run to the queue. It goes on after the running training and the runs before it,
/// and with `epochs` it ends after this many in all.
#[tauri::command]
pub async fn enqueue_resume(
    shell: State<'_, Arc<Shell>>,
    run: String,
    epochs: Option<u64>,
) -> Answer<()> {
    status(shell, move |shell| {
        valid(&RunConfig {
            epochs,
            ..RunConfig::default()
        })?;
        let name = shell.runs.name(&run)?;
        let what = shell.runs.with_run(&run, |it| {
            it.started().map(|started| {
                let (classes, targets) = (started.classes.len(), started.targets.len());
                run_row::describe(&started.task, &started.model, classes, targets)
            })
        })?;
        shell.queue.add(QueuedRun {
            name,
            what: what.unwrap_or_default(),
            config: RunConfig::default(),
            estimated_peak_bytes: 0,
            resume: Some(QueuedResume { run, epochs }),
        })
    })
    .await
}

/// The runs that wait.
#[tauri::command]
pub async fn queue(shell: State<'_, Arc<Shell>>) -> Answer<QueueView> {
    status(shell, |shell| Ok(shell.queue.view())).await
}

/// Moves or removes a run that waits.
#[tauri::command]
pub async fn change_queue(
    shell: State<'_, Arc<Shell>>,
    id: String,
    change: QueueChange,
) -> Answer<()> {
    status(shell, move |shell| shell.queue.change(&id, change)).await
}

/// Starts the queue after a stop or a restart.
#[tauri::command]
pub async fn start_queue(shell: State<'_, Arc<Shell>>) -> Answer<()> {
    shell.queue.start();
    advance(&shell);
    Ok(())
}

/// What the queue does after a training: it goes on, unless the user or Ebb stopped the run.
pub fn follow_end(queue: &TrainingQueue, ended: &Training) {
    if ended.run().status() == RunStatus::Stopped {
        queue.hold();
    }
}

/// Starts the next run if nothing trains. Returns at once.
pub fn advance(shell: &Arc<Shell>) {
    if shell.active.running().is_some() {
        return;
    }
    let Some((id, run)) = shell.queue.next() else {
        return;
    };
    let shell = Arc::clone(shell);
    tauri::async_runtime::spawn(async move {
        let there = Arc::clone(&shell);
        let begun = tauri::async_runtime::spawn_blocking(move || begin(&there, &run)).await;
        let failed = match begun {
            Ok(begun) => begun.err(),
            Err(error) => {
                let why = format!("An internal error occurred: {error}. Try again.");
                Some(CommandError::new("failed", why))
            }
        };
        shell.queue.began(&id, failed.as_ref());
    });
}

fn begin(shell: &Shell, run: &QueuedRun) -> Result<String, CommandError> {
    if let Some(QueuedResume { run, epochs }) = &run.resume {
        resume_run(shell, run, *epochs)?;
        return Ok(run.clone());
    }
    let config = &run.config;
    let folder = config.folder.as_deref();
    let folder = folder.ok_or_else(|| CommandError::unknown("folder"))?;
    let found = trainer::read_dataset(folder, config, &|_| {})?;
    begin_run(shell, config, found, run.estimated_peak_bytes)
}
