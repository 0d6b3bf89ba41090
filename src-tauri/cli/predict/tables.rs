//! `ebb predict RUN TABLE --text-column COLUMN`: predicts the class of the text in each row.

use super::{none_unread, print_csv, show};
use crate::cli::args;
use crate::cli::failure::Failure;
use crate::prediction_rows::Answer;
use dataset::read_text_column;
use std::path::PathBuf;
use trainer::{Prediction, TrainedModel};

/// Predicts every row of the tables, in their order, and prints each as soon as it is known.
pub(super) fn run(
    saved: &TrainedModel,
    args: &args::Predict,
    column: &str,
    tables: &[PathBuf],
) -> Result<(), Failure> {
    let mut rows = Rows {
        saved,
        args,
        all: 0,
        unread: 0,
        answers: Vec::new(),
        failure: None,
    };
    for table in tables {
        read_text_column(table, column, &mut |text| rows.answer(text)).map_err(Failure::usage)?;
        if let Some(failure) = rows.failure.take() {
            return Err(failure);
        }
    }
    print_csv(args, &rows.answers)?;
    none_unread(rows.unread, rows.all, "rows")
}

/// The rows so far.
struct Rows<'a> {
    saved: &'a TrainedModel,
    args: &'a args::Predict,
    all: usize,
    unread: usize,
    /// The answers for a CSV table; empty for other formats.
    answers: Vec<Answer>,
    /// Why the model cannot predict.
    failure: Option<Failure>,
}

impl Rows<'_> {
    /// Predicts and prints a row. Returns whether to go on.
    fn answer(&mut self, text: Result<&str, String>) -> bool {
        self.all += 1;
        // An unreadable row has no text that names it.
        let name = match &text {
            Ok(text) => (*text).to_owned(),
            Err(_) => format!("row {}", self.all),
        };
        let outcome = match text {
            Ok(text) => match self.predict(text) {
                Ok(prediction) => Ok(prediction),
                Err(failure) => {
                    self.failure = Some(failure);
                    return false;
                }
            },
            Err(reason) => Err(reason),
        };
        self.unread += usize::from(outcome.is_err());
        let answer = show(self.saved, self.args, ("text", name), outcome);
        self.answers.extend(answer);
        true
    }

    fn predict(&self, text: &str) -> Result<Prediction, Failure> {
        let texts = [text.to_owned()];
        let predictions = if self.args.baseline {
            self.saved.predict_texts_by_baseline(&texts)?
        } else {
            self.saved.predict_texts(&texts)?
        };
        let first = predictions.into_iter().next();
        first.ok_or_else(|| Failure::new("the model predicted nothing".to_owned()))
    }
}
