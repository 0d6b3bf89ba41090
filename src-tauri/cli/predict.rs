//! `ebb predict`: predicts the classes of images or texts with a run's best checkpoint.

mod token_compression;
mod tables;

use super::args;
use super::failure::Failure;
use super::output::{out, status};
use super::train::find;
use crate::paths::device_check_path;
use crate::prediction_rows::{
    Answer, InputKind, MAX_TEXT_BYTES, files_in, target_values, to_csv, top_classes,
};
use dataset::Task;
use runlog::format_in_unit;
use serde_json::json;
use std::path::{Path, PathBuf};
use trainer::{DevicePreference, Prediction, TrainedModel};

/// The problem that is reported if a file does not exist.
const NOT_FOUND: &str = "The file was not found. Check its path.";

/// Runs `ebb predict`. If a file cannot be read, it is reported and the exit code is 1.
pub fn run(args: &args::Predict) -> Result<(), Failure> {
    let saved = TrainedModel::load(
        &find(&args.run)?,
        DevicePreference::Auto,
        Some(&device_check_path()),
    )?;
    let kind = match saved.task() {
        Task::ImageClassification => InputKind::Images,
        _ => InputKind::Texts,
    };
    let files = files_in(&args.files, kind);
    if files.is_empty() {
        let sentence = "there is no file to predict in this folder; name files, or a folder of images or texts";
        return Err(Failure::new(sentence.to_owned()));
    }
    let has_baseline = matches!(
        saved.task(),
        Task::TextClassification | Task::ImageClassification
    );
    if args.baseline && !has_baseline {
        return Err(Failure::usage(
            "only runs of images or of texts with labels have a baseline; leave out --baseline",
        ));
    }
    if args.text_column.is_some() && saved.task() != Task::TextClassification {
        return Err(Failure::usage(
            "--text-column is for runs of texts with labels; leave it out",
        ));
    }
    match saved.task() {
        Task::TextClassification => match &args.text_column {
            Some(column) => tables::run(&saved, args, column, &files),
            None => texts(&saved, args, &files),
        },
        Task::TokenCompression => token_compression::run(&saved, args, &files),
        _ => images(&saved, args, &files),
    }
}

fn images(saved: &TrainedModel, args: &args::Predict, files: &[PathBuf]) -> Result<(), Failure> {
    let (mut unread, mut answers) = (0, Vec::new());
    for file in files {
        // One at a time, so that the answers appear while the others are computed.
        let file_alone = std::slice::from_ref(file);
        let outcomes = if args.baseline {
            saved.predict_by_baseline(file_alone)?
        } else {
            saved.predict(file_alone)?
        };
        for outcome in outcomes {
            let outcome = match outcome {
                Err(_) if !file.exists() => Err(NOT_FOUND.to_owned()),
                outcome => outcome,
            };
            unread += usize::from(outcome.is_err());
            let name = file.display().to_string();
            answers.extend(show(saved, args, ("file", name), outcome));
        }
    }
    print_csv(args, &answers)?;
    all_read(unread, files.len())
}

/// Prints the prediction for a file or text; `given` is its kind and name. With `--csv`, prints
/// nothing and returns the row of the CSV table.
fn show(
    saved: &TrainedModel,
    args: &args::Predict,
    given: (&str, String),
    outcome: Result<Prediction, String>,
) -> Option<Answer> {
    let (kind, name) = given;
    if args.csv {
        return Some(Answer::new(saved, name, &outcome, args.top as usize));
    }
    match outcome {
        Ok(prediction) if args.json => {
            out!("{}", line(saved, (kind, &name), &prediction, args.top))
        }
        Ok(prediction) => out!("{name}: {}", words(saved, &prediction, args.top)),
        Err(reason) => {
            if args.json {
                out!("{}", json!({kind: name, "problem": reason}));
            }
            status!("{name}: {reason}");
        }
    }
    None
}

/// Prints the predictions as CSV, if the user asked for CSV.
fn print_csv(args: &args::Predict, answers: &[Answer]) -> Result<(), Failure> {
    if !args.csv {
        return Ok(());
    }
    let table = to_csv(answers).map_err(|error| Failure::new(error.to_string()))?;
    out!("{}", table.trim_end());
    Ok(())
}

/// Returns an error if any file could not be read.
fn all_read(unread: usize, files: usize) -> Result<(), Failure> {
    none_unread(unread, files, "files")
}

/// Returns an error if any of all `noun` could not be read.
fn none_unread(unread: usize, all: usize, noun: &str) -> Result<(), Failure> {
    match unread {
        0 => Ok(()),
        n => Err(Failure::new(format!(
            "{n} of {all} {noun} could not be read"
        ))),
    }
}

/// The argument itself, or the text in the file that the argument names.
///
/// # Errors
/// The file cannot be read, or the text is empty.
fn text(argument: &Path) -> Result<String, String> {
    let text = if argument.is_file() {
        disk::read_text_limited(argument, MAX_TEXT_BYTES)
            .map(|text| dataset::normalized_text(&text).into_owned())
            .map_err(|error| format!("{error}; choose a file of UTF-8 text"))?
    } else {
        argument.to_string_lossy().into_owned()
    };
    if text.trim().is_empty() {
        return Err("The text is empty.".to_owned());
    }
    Ok(text)
}

/// Returns an error if the argument is a table, because a table contains many texts.
fn expect_no_table(argument: &Path) -> Result<(), Failure> {
    if !argument.is_file() || !dataset::is_table_file(argument) {
        return Ok(());
    }
    let table = argument.display();
    Err(Failure::usage(format!(
        "{table} is a table, but predict takes single texts or files with one text each; to predict each row, add --text-column COLUMN; to measure all rows, run `ebb evaluate RUN {table}`"
    )))
}

/// Predicts the classes of each text.
fn texts(saved: &TrainedModel, args: &args::Predict, files: &[PathBuf]) -> Result<(), Failure> {
    let mut read = Vec::new();
    for argument in files {
        expect_no_table(argument)?;
        read.push(text(argument));
    }
    let texts: Vec<String> = read.iter().flatten().cloned().collect();
    let predictions = if args.baseline {
        saved.predict_texts_by_baseline(&texts)?
    } else {
        saved.predict_texts(&texts)?
    };
    let mut predictions = predictions.into_iter();
    let mut answers = Vec::new();
    for (argument, text) in files.iter().zip(read) {
        let outcome = match text {
            // There is a prediction for each text that was read.
            Ok(_) => predictions.next().ok_or_else(String::new),
            Err(reason) => Err(reason),
        };
        let name = if argument.as_os_str().is_empty() {
            "\"\"".to_owned()
        } else {
            argument.display().to_string()
        };
        answers.extend(show(saved, args, ("text", name), outcome));
    }
    print_csv(args, &answers)?;
    all_read(files.len() - texts.len(), files.len())
}

fn words(saved: &TrainedModel, prediction: &Prediction, top: u32) -> String {
    let classes = top_classes(saved, prediction, top as usize).into_iter();
    let classes = classes.map(|(name, p)| format!("{name} {:.1} %", 100.0 * p));
    let targets = target_values(saved, prediction).into_iter();
    let targets = targets.map(|(name, value)| format!("{name} {}", format_in_unit(value)));
    classes.chain(targets).collect::<Vec<_>>().join(", ")
}

fn line(
    saved: &TrainedModel,
    given: (&str, &str),
    prediction: &Prediction,
    top: u32,
) -> serde_json::Value {
    let (kind, name) = given;
    let mut line = json!({kind: name, "classes": classes(saved, prediction, top)});
    if !saved.columns().is_empty() {
        line["numbers"] = target_values(saved, prediction)
            .into_iter()
            .map(|(name, value)| (name, json!(value)))
            .collect::<serde_json::Map<_, _>>()
            .into();
    }
    line
}

fn classes(saved: &TrainedModel, prediction: &Prediction, top: u32) -> Vec<serde_json::Value> {
    let best = top_classes(saved, prediction, top as usize).into_iter();
    best.map(|(name, p)| json!({"class": name, "probability": p}))
        .collect()
}
