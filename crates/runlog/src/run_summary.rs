//! What a list of runs shows of a run: small enough to keep thousands of them in one file.

use crate::event::StopReason;
use crate::fold_events::Run;
use crate::metric_text::{best_metric, headline_metric};
use crate::run_view::RunStatus;
use serde::{Deserialize, Serialize};

/// Number of points of the small loss curve.
const SPARK_POINTS: usize = 40;

/// A run in a list.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunSummary {
    /// How it began; `None` before the first event.
    pub started: Option<StartSummary>,
    /// Status.
    pub status: RunStatus,
    /// Why it ended, if it finished or was stopped.
    pub stop_reason: Option<StopReason>,
    /// Completed optimizer steps.
    pub step: u64,
    /// Current epoch, from 1.
    pub epoch: u64,
    /// The run's clock, in milliseconds.
    pub now_ms: u64,
    /// Estimated remaining seconds while it trains.
    pub seconds_left: Option<f64>,
    /// Latest smoothed loss.
    pub smoothed_loss: Option<f64>,
    /// Smoothed loss, at most 40 points.
    pub spark: Vec<f64>,
    /// The best evaluation and what it measures, as [`headline_metric`] returns them.
    pub headline: Option<(String, String)>,
    /// The name of the same result, and the result as a number.
    pub metric: Option<(String, f64)>,
    /// The status line's message.
    pub message: String,
    /// The line of [`Run::summary_line`].
    pub line: String,
}

/// How a run began.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StartSummary {
    /// Name of the dataset.
    pub name: String,
    /// Task, as written after `--task`.
    pub task: String,
    /// Model, as written after `--model`.
    pub model: String,
    /// Number of classes.
    pub classes: usize,
    /// Number of regression targets.
    pub targets: usize,
    /// Planned steps.
    pub steps: u64,
    /// Planned epochs.
    pub epochs: u64,
    /// Steps per epoch.
    pub steps_per_epoch: u64,
    /// Wall clock, milliseconds since 1970.
    pub unix_ms: u64,
}

impl RunSummary {
    /// The summary of a folded run.
    pub fn from_run(run: &Run) -> RunSummary {
        let figures = run.figures();
        let started = run.started().map(|started| StartSummary {
            name: started.name.clone(),
            task: started.task.clone(),
            model: started.model.clone(),
            classes: started.classes.len(),
            targets: started.targets.len(),
            steps: started.steps,
            epochs: started.epochs,
            steps_per_epoch: started.steps_per_epoch,
            unix_ms: started.unix_ms,
        });
        RunSummary {
            started,
            status: run.status(),
            stop_reason: run.stop_reason(),
            step: figures.step,
            epoch: figures.epoch,
            now_ms: run.now_ms(),
            seconds_left: figures.seconds_left,
            smoothed_loss: figures.smoothed_loss,
            spark: run.sparkline(SPARK_POINTS),
            headline: headline_metric(run),
            metric: best_metric(run),
            message: run.status_line().message.clone(),
            line: run.summary_line(),
        }
    }
}
