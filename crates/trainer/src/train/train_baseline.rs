//! Trains the baseline of a new run before its first step: a simple model that shows how good the
//! network has to be.

use super::stop_run::emit_failed;
use crate::data::EvalLoader;
use crate::error::Result;
use crate::session::Session;
use crate::task::{BaselineInputs, MetricInputs, Task, TaskBaseline};
use dataset::DetectedDataset;
use runlog::{BaselineChoice, RunEvent};
use std::time::Instant;

/// Trains the baseline, if the task has one and the settings ask for it, and emits its result. A
/// baseline that fails is a warning. It shares no random numbers with the network.
///
/// # Errors
/// The event cannot be written.
pub(super) fn train_baseline<T: Task>(
    session: &mut Session<'_, T>,
    found: &DetectedDataset,
) -> Result<()> {
    let is_disabled = session.plan.config.baseline == Some(BaselineChoice::None);
    if is_disabled || session.loaders.held_out.len() == 0 {
        return Ok(());
    }
    let started = Instant::now();
    let control = session.control.clone();
    let trained = T::train_baseline(&BaselineInputs {
        plan: session.plan,
        found,
        run: &session.run,
        is_stopping: &|| control.is_stopping(),
    });
    let emitted = match trained {
        Ok(None) => return Ok(()),
        Ok(Some(mut baseline)) => {
            if let Some(scores) = baseline.scores.take() {
                session.loaders.held_out.set_baseline(scores);
            }
            let seconds = started.elapsed().as_secs_f64();
            emit(session, &baseline, seconds).and_then(|()| match baseline.warning {
                Some(warning) => session.log.warn("images_all_alike", warning),
                None => Ok(()),
            })
        }
        Err(error) => session.log.warn(
            "baseline_failed",
            format!("the baseline could not be trained: {error}"),
        ),
    };
    // The estimate of the run's memory does not include that of the baseline.
    let released = emitted.and_then(|()| session.controller.release());
    session.timer.restart();
    released.inspect_err(|error| emit_failed(session, error))
}

/// Combines the network of a resumed run with the saved baseline again, as before. If that fails,
/// the network is evaluated alone, and a warning says so.
///
/// # Errors
/// The warning cannot be written.
pub(super) fn restore_baseline<T: Task>(
    session: &mut Session<'_, T>,
    found: &DetectedDataset,
) -> Result<()> {
    let control = session.control.clone();
    let scores = T::baseline_scores(&BaselineInputs {
        plan: session.plan,
        found,
        run: &session.run,
        is_stopping: &|| control.is_stopping(),
    });
    match scores {
        Ok(scores) => {
            if let Some(scores) = scores {
                session.loaders.held_out.set_baseline(scores);
            }
            Ok(())
        }
        Err(error) => {
            let message =
                format!("from now on, the network is evaluated without the baseline: {error}");
            let warned = session.log.warn("baseline_not_restored", message);
            warned.inspect_err(|error| emit_failed(session, error))
        }
    }
}

fn emit<T: Task>(
    session: &mut Session<'_, T>,
    baseline: &TaskBaseline,
    seconds: f64,
) -> Result<()> {
    let inputs = MetricInputs {
        held_out_bytes: session.held_out_bytes,
        heads: session.plan.heads(),
        columns: &session.plan.columns,
    };
    let metrics = T::metrics(&baseline.sums, &inputs);
    let at_ms = session.log.now_ms();
    session.log.emit(RunEvent::Baseline {
        at_ms,
        name: baseline.name.to_owned(),
        samples: baseline.samples,
        seconds,
        loss: metrics.loss,
        metrics: metrics.by_name,
    })
}
