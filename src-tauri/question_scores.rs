//! What the answers of language models to a file of questions are counted as, for the terminal and
//! the window.

use dataset::{QuestionFile, QuestionScores};
use runlog::counted;

/// A model and its scores.
pub struct Evaluated {
    /// "before", "after" or "model".
    pub name: &'static str,
    pub scores: QuestionScores,
}

/// `right` of `all`; `None` if there are none.
fn share(right: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| right as f64 / all as f64)
}

/// The measures of the scores, each with its name in the table and in JSON.
pub fn measures(scores: &QuestionScores) -> [(&'static str, &'static str, Option<f64>); 3] {
    let of_choices = |right| share(right, scores.choices);
    [
        ("accuracy", "accuracy", of_choices(scores.right)),
        (
            "accuracy by likelihood per byte",
            "accuracy_per_byte",
            of_choices(scores.right_normalized),
        ),
        (
            "exact match",
            "exact_match",
            share(scores.right_answers, scores.answers),
        ),
    ]
}

/// Questions with choices, and questions with answers, that the model was asked.
pub fn asked(evaluated: &[Evaluated]) -> (u64, u64) {
    evaluated
        .last()
        .map_or((0, 0), |it| (it.scores.choices, it.scores.answers))
}

/// What was asked, and what was skipped, in one line.
pub fn summary(file: &QuestionFile, evaluated: &[Evaluated]) -> String {
    let mut parts = Vec::new();
    let (choices, answers) = asked(evaluated);
    if choices > 0 {
        parts.push(counted(
            choices,
            "question with choices",
            "questions with choices",
        ));
    }
    if answers > 0 {
        parts.push(counted(
            answers,
            "question with answers",
            "questions with answers",
        ));
    }
    let last = evaluated.last().map_or(0, |last| last.scores.skipped);
    let skipped = file.skipped + last;
    if skipped > 0 {
        parts.push(counted(skipped, "row skipped", "rows skipped"));
    }
    parts.join(", ")
}
