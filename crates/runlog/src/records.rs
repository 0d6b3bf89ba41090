//! Records of a run: its baseline, evaluations, checkpoints and predictions. Plain values.

use crate::event::{PromptAnswer, RunEvent};
use serde::Serialize;
use std::collections::BTreeMap;

/// A simple model that was trained before the first step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BaselineRecord {
    /// The model: "word and character n-grams".
    pub name: String,
    /// Training samples that it was trained on.
    pub samples: u64,
    /// Seconds for training and evaluating it.
    pub seconds: f64,
    /// Mean held-out loss.
    pub loss: f64,
    /// Held-out accuracy as a fraction.
    pub accuracy: Option<f64>,
    /// All metrics beside the loss, by name.
    pub metrics: BTreeMap<String, f64>,
}

/// One evaluation of the held-out samples.
#[derive(Debug, Clone, PartialEq)]
pub struct EvaluationRecord {
    /// Milliseconds on the run's clock.
    pub at_ms: u64,
    /// Completed optimizer steps.
    pub step: u64,
    /// Epochs begun.
    pub epoch: u64,
    /// Mean held-out loss.
    pub loss: f64,
    /// Held-out accuracy as a fraction, if the task has one.
    pub accuracy: Option<f64>,
    /// All metrics beside the loss, by name.
    pub metrics: BTreeMap<String, f64>,
}

/// The answers to the prompts of a run after one evaluation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AnswersRecord {
    /// Completed optimizer steps.
    pub step: u64,
    /// The prompts with their answers.
    pub answers: Vec<PromptAnswer>,
}

/// One checkpoint. It may have been removed from the disk since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointRecord {
    /// Milliseconds on the run's clock.
    pub at_ms: u64,
    /// Completed optimizer steps.
    pub step: u64,
    /// Folder inside the run folder.
    pub path: String,
}

/// A predicted peak footprint beside the measured one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PredictionRecord {
    /// Milliseconds on the run's clock.
    pub at_ms: u64,
    /// Samples of the micro-batch.
    pub micro_batch: u32,
    /// The predicted peak footprint.
    pub predicted_peak_bytes: u64,
    /// The measured peak footprint.
    pub measured_peak_bytes: u64,
    /// `predicted / measured - 1`.
    pub error_fraction: f64,
}

impl BaselineRecord {
    /// The record of a `RunEvent::Baseline`; `None` for other events.
    pub(crate) fn from_event(event: &RunEvent) -> Option<Self> {
        let RunEvent::Baseline {
            name,
            samples,
            seconds,
            loss,
            metrics,
            ..
        } = event
        else {
            return None;
        };
        Some(BaselineRecord {
            name: name.clone(),
            samples: *samples,
            seconds: *seconds,
            loss: *loss,
            accuracy: accuracy(metrics),
            metrics: metrics.clone(),
        })
    }
}

impl EvaluationRecord {
    /// The record of a `RunEvent::Evaluation`; `None` for other events.
    pub(crate) fn from_event(event: &RunEvent) -> Option<Self> {
        let RunEvent::Evaluation {
            at_ms,
            step,
            epoch,
            loss,
            metrics,
            ..
        } = event
        else {
            return None;
        };
        Some(EvaluationRecord {
            at_ms: *at_ms,
            step: *step,
            epoch: *epoch,
            loss: *loss,
            accuracy: accuracy(metrics),
            metrics: metrics.clone(),
        })
    }
}

impl PredictionRecord {
    /// The record of a `RunEvent::Prediction`; `None` for other events.
    pub(crate) fn from_event(event: &RunEvent) -> Option<Self> {
        let RunEvent::Prediction {
            at_ms,
            micro_batch,
            predicted_peak_bytes,
            measured_peak_bytes,
            error_fraction,
            ..
        } = event
        else {
            return None;
        };
        Some(PredictionRecord {
            at_ms: *at_ms,
            micro_batch: *micro_batch,
            predicted_peak_bytes: *predicted_peak_bytes,
            measured_peak_bytes: *measured_peak_bytes,
            error_fraction: *error_fraction,
        })
    }
}

/// The accuracy among the metrics of an event, if it is a finite number.
fn accuracy(metrics: &BTreeMap<String, f64>) -> Option<f64> {
    let accuracy = metrics.get("accuracy").copied();
    accuracy.filter(|accuracy| accuracy.is_finite())
}

/// The evaluation with the highest accuracy, or with the lowest loss if there is no accuracy. Of
/// two equal evaluations the earlier one wins.
pub(crate) fn best_evaluation(evaluations: &[EvaluationRecord]) -> Option<&EvaluationRecord> {
    let is_better = |a: &EvaluationRecord, b: &EvaluationRecord| match (a.accuracy, b.accuracy) {
        (Some(a), Some(b)) => a > b,
        (Some(_), None) => true,
        (None, Some(_)) => false,
        (None, None) => a.loss < b.loss,
    };
    evaluations
        .iter()
        .reduce(|best, next| if is_better(next, best) { next } else { best })
}
