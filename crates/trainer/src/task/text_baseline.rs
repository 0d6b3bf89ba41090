//! The baseline of text classification: trained and evaluated on the same texts as the network.

use super::{BaselineInputs, EvaluatedMicroBatch, SampleOutputs, TaskBaseline};
use crate::baseline_file;
use crate::data::{BaselineScores, expect_texts};
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
        scores: scores(inputs, &fitted.model, &held_out),
        warning: None,
    }))
}

/// The scores of the baseline that the run folder holds, for the held-out texts. `None` if there is
/// none, or if it has no part in the predictions.
pub(super) fn scores_of_saved(inputs: &BaselineInputs) -> Result<Option<BaselineScores>> {
    if !inputs.is_combined() || !baseline_file::path_in(&inputs.run.path).exists() {
        return Ok(None);
    }
    let model = NgramModel::load(&inputs.run.path)?;
    if model.classes != inputs.plan.classes {
        return Ok(None);
    }
    let found = &*expect_texts(inputs.plan, inputs.found)?;
    let held_out = TextDataset::open(found, Split::HeldOut)?;
    Ok(scores(inputs, &model, &held_out))
}

fn scores(
    inputs: &BaselineInputs,
    model: &NgramModel,
    texts: &TextDataset,
) -> Option<BaselineScores> {
    let fits = BaselineScores::fit_in_memory(texts.len(), model.classes.len());
    (inputs.is_combined() && fits).then(|| scores_of_texts(model, texts))
}

/// The class scores of a baseline for all texts of a split.
pub(crate) fn scores_of_texts(model: &NgramModel, texts: &TextDataset) -> BaselineScores {
    let scores = texts.texts().flat_map(|text| model.scores(text));
    let scores = scores.map(|score| score as f32).collect();
    BaselineScores::new(model.classes.len(), scores)
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
        let scores = model.scores(text);
        let label = label_in_run(label);
        sums.add_sample(&SampleOutputs::from_scores(index as u32, label, &scores));
    }
    sums
}
