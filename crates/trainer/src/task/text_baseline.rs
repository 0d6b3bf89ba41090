//! The baseline of text classification: trained and evaluated on the same texts as the network.

use super::{BaselineInputs, EvaluatedMicroBatch, TaskBaseline};
use crate::data::expect_texts;
use crate::error::Result;
use crate::ngram_classifier::{FitOptions, NAME, NgramModel, fit};
use dataset::{Split, TextDataset};

/// Trains a baseline on the training texts, saves it in the run folder and evaluates it on the
/// held-out texts. `None` if the user has stopped the run.
pub(super) fn train(inputs: &BaselineInputs) -> Result<Option<TaskBaseline>> {
    let found = &*expect_texts(inputs.plan, inputs.found)?;
    let fitted = {
        let texts = TextDataset::open(found, Split::Train)?;
        let rows: Vec<(&str, u32)> = (0..texts.len()).map(|index| texts.row(index)).collect();
        fit(
            &rows,
            &FitOptions {
                classes: &inputs.plan.classes,
                seed: inputs.plan.seed,
                is_stopping: inputs.is_stopping,
            },
        )
    };
    let Some(fitted) = fitted else {
        return Ok(None);
    };
    fitted.model.save(&inputs.run.path)?;
    let held_out = TextDataset::open(found, Split::HeldOut)?;
    Ok(Some(TaskBaseline {
        name: NAME,
        samples: fitted.texts,
        sums: evaluate(&fitted.model, &held_out, |label| label),
    }))
}

/// Evaluates a baseline. `label_in_run` gives the label that the run has for a label of `texts`.
pub(crate) fn evaluate(
    model: &NgramModel,
    texts: &TextDataset,
    label_in_run: impl Fn(u32) -> u32,
) -> EvaluatedMicroBatch {
    let mut sums = EvaluatedMicroBatch {
        samples: texts.len() as u64,
        weight: texts.len() as f64,
        ..EvaluatedMicroBatch::default()
    };
    for index in 0..texts.len() {
        let (text, label) = texts.row(index);
        let (scores, label) = (model.scores(text), label_in_run(label));
        let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = scores.iter().map(|score| (score - highest).exp()).sum();
        sums.loss += highest + total.ln() - scores[label as usize];
        sums.count(index as u32, label, &scores);
    }
    sums
}
