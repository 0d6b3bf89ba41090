//! The baseline of text classification: trained and evaluated on the same texts as the network, or
//! trained on a selection of very many texts.

use super::{BaselineInputs, EvaluatedMicroBatch, SampleOutputs, TaskBaseline};
use crate::baseline_file;
use crate::data::{BaselineScores, expect_texts};
use crate::error::Result;
use crate::ngram_classifier::{FitOptions, NAME, NgramModel, fit};
use dataset::{DatasetError, Split, TextDataset, TextInspection, read_samples};

/// Bytes of training texts that a baseline reads at most. It learns from fewer n-grams than these
/// texts have.
const MAX_BYTES: u64 = 64 << 20;

/// Trains a baseline on the training texts, saves it in the run folder and evaluates it on the
/// held-out texts. `None` if the user has stopped the run.
pub(super) fn train(inputs: &BaselineInputs) -> Result<Option<TaskBaseline>> {
    let found = &*expect_texts(inputs.plan, inputs.found)?;
    let goes_on = || !(inputs.is_stopping)();
    let fitted = {
        let seed = inputs.plan.seed;
        let read = TextDataset::open_selection(found, Split::Train, seed, MAX_BYTES, &goes_on);
        let Some(texts) = unless_stopped(read)? else {
            return Ok(None);
        };
        let rows: Vec<(&str, u32)> = (0..texts.len()).map(|index| texts.row(index)).collect();
        fit(
            &rows,
            &FitOptions {
                classes: &inputs.plan.classes,
                seed,
                is_stopping: inputs.is_stopping,
            },
        )
    };
    let Some(fitted) = fitted else {
        return Ok(None);
    };
    fitted.model.save(&inputs.run.path)?;
    let mut scores = has_part(inputs, found, &fitted.model).then(Vec::new);
    let mut sums = EvaluatedMicroBatch::default();
    let evaluated = for_each_text(&fitted.model, found, Split::HeldOut, &mut |text| {
        sums.add_sample(&SampleOutputs::from_scores(
            text.index,
            text.label,
            text.scores,
        ));
        if let Some(scores) = &mut scores {
            scores.extend(text.scores.iter().map(|score| *score as f32));
        }
        goes_on()
    });
    if unless_stopped(evaluated)?.is_none() {
        return Ok(None);
    }
    Ok(Some(TaskBaseline {
        name: NAME,
        samples: fitted.texts,
        sums,
        scores: scores.map(|scores| BaselineScores::new(fitted.model.classes.len(), scores)),
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
    if !has_part(inputs, found, &model) {
        return Ok(None);
    }
    scores_of_texts(&model, found, Split::HeldOut).map(Some)
}

/// Whether a baseline has a part in the predictions of the run: whether the user wants that, and
/// its scores fit in memory.
fn has_part(inputs: &BaselineInputs, found: &TextInspection, model: &NgramModel) -> bool {
    let texts = found.count(Split::HeldOut) as usize;
    inputs.is_combined() && BaselineScores::fit_in_memory(texts, model.classes.len())
}

/// The class scores of a baseline for all texts of a split.
///
/// # Errors
/// A file is missing or has changed since the inspection.
pub(crate) fn scores_of_texts(
    model: &NgramModel,
    found: &TextInspection,
    part: Split,
) -> Result<BaselineScores> {
    let mut scores = Vec::new();
    for_each_text(model, found, part, &mut |text| {
        scores.extend(text.scores.iter().map(|score| *score as f32));
        true
    })?;
    Ok(BaselineScores::new(model.classes.len(), scores))
}

/// Evaluates a baseline on a split. `label_in_run` gives the label that the run has for a label of
/// `found`.
///
/// # Errors
/// A file is missing or has changed since the inspection.
pub(crate) fn evaluate(
    model: &NgramModel,
    found: &TextInspection,
    part: Split,
    label_in_run: impl Fn(u32) -> u32,
) -> Result<EvaluatedMicroBatch> {
    let mut sums = EvaluatedMicroBatch::default();
    for_each_text(model, found, part, &mut |text| {
        let label = label_in_run(text.label);
        sums.add_sample(&SampleOutputs::from_scores(text.index, label, text.scores));
        true
    })?;
    Ok(sums)
}

/// A text with the class scores of a baseline.
struct ScoredText<'a> {
    /// Its position in the split.
    index: u32,
    label: u32,
    scores: &'a [f64],
}

/// Passes each text of a split to `take`, which returns whether to go on. The texts are read one
/// after the other, because all of them may not fit in memory.
fn for_each_text(
    model: &NgramModel,
    found: &TextInspection,
    part: Split,
    take: &mut dyn FnMut(ScoredText) -> bool,
) -> std::result::Result<(), DatasetError> {
    let mut index = 0;
    read_samples(found, part, &mut |sample, text| {
        let goes_on = take(ScoredText {
            index,
            label: sample.label,
            scores: &model.scores(text),
        });
        index += 1;
        if goes_on {
            Ok(())
        } else {
            Err(DatasetError::Stopped)
        }
    })
}

/// What was read; `None` if the user has stopped the run.
fn unless_stopped<T>(read: std::result::Result<T, DatasetError>) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(DatasetError::Stopped) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
