//! The baseline of text classification: trained and evaluated on the same texts as the network.

use super::{BaselineInputs, EvaluatedMicroBatch, TaskBaseline};
use crate::data::expect_texts;
use crate::error::Result;
use crate::ngram_classifier::{FitOptions, NAME, NgramModel, NgramScores, fit};
use crate::plan::Plan;
use dataset::{Split, TextDataset};
use runlog::BaselineChoice;

/// Most bytes of class scores that a run holds. With more, the baseline is only compared.
const MAX_SCORE_BYTES: usize = 64 << 20;

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
        scores: scores(inputs.plan, &fitted.model, &held_out),
    }))
}

/// The scores of the baseline that the run folder holds, for the held-out texts. `None` if there is
/// none, or if it has no part in the predictions.
pub(super) fn scores_of_saved(inputs: &BaselineInputs) -> Result<Option<NgramScores>> {
    if !is_combined(inputs.plan) || !NgramModel::path_in(&inputs.run.path).exists() {
        return Ok(None);
    }
    let model = NgramModel::load(&inputs.run.path)?;
    if model.classes != inputs.plan.classes {
        return Ok(None);
    }
    let found = &*expect_texts(inputs.plan, inputs.found)?;
    let held_out = TextDataset::open(found, Split::HeldOut)?;
    Ok(scores(inputs.plan, &model, &held_out))
}

fn scores(plan: &Plan, model: &NgramModel, texts: &TextDataset) -> Option<NgramScores> {
    let fits = NgramScores::bytes(texts.len(), model.classes.len()) <= MAX_SCORE_BYTES;
    (is_combined(plan) && fits).then(|| NgramScores::from_texts(model, texts))
}

/// Whether the predictions of a run combine its network and its baseline.
fn is_combined(plan: &Plan) -> bool {
    let choice = plan.config.baseline.unwrap_or(BaselineChoice::Combined);
    choice == BaselineChoice::Combined
}

/// Evaluates a baseline. `label_in_run` gives the label that the run has for a label of `texts`.
pub(crate) fn evaluate(
    model: &NgramModel,
    texts: &TextDataset,
    label_in_run: impl Fn(u32) -> u32,
) -> EvaluatedMicroBatch {
    let mut sums = EvaluatedMicroBatch::default();
    for index in 0..texts.len() {
        let (text, label) = texts.row(index);
        sums.add_sample(index as u32, label_in_run(label), &model.scores(text));
    }
    sums
}
