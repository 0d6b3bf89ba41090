//! `ebb predict`: the classes of images or texts, by a run's best checkpoint.

mod token_compression;

use super::args;
use super::failure::Failure;
use super::output::{out, status};
use super::train::find;
use crate::paths::device_check_path;
use crate::predictions::{Answer, InputKind, files_in, target_values, to_csv, top_classes};
use dataset::Task;
use serde_json::json;
use std::path::{Path, PathBuf};
use trainer::{DevicePreference, Prediction, TrainedModel};

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
    match saved.task() {
        Task::TextClassification => texts(&saved, args, &files),
        Task::TokenCompression => token_compression::run(&saved, args, &files),
        _ => images(&saved, args, &files),
    }
}

fn images(saved: &TrainedModel, args: &args::Predict, files: &[PathBuf]) -> Result<(), Failure> {
    let (mut unread, mut answers) = (0, Vec::new());
    for file in files {
        // One at a time, so that the answers appear while the others are computed.
        for outcome in saved.predict(std::slice::from_ref(file))? {
            unread += usize::from(outcome.is_err());
            if args.csv {
                let name = file.display().to_string();
                answers.push(Answer::new(saved, name, &outcome, args.top as usize));
                continue;
            }
            match outcome {
                Ok(prediction) if args.json => {
                    out!("{}", line(saved, file, &prediction, args.top))
                }
                Ok(prediction) => out!(
                    "{}: {}",
                    file.display(),
                    words(saved, &prediction, args.top)
                ),
                Err(reason) => status!("{}: {reason}", file.display()),
            }
        }
    }
    print_csv(args, &answers)?;
    all_read(unread, files.len())
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

/// An error if any file could not be read.
fn all_read(unread: usize, files: usize) -> Result<(), Failure> {
    match unread {
        0 => Ok(()),
        n => Err(Failure::new(format!(
            "{n} of {files} files could not be read"
        ))),
    }
}

/// The argument itself, or the text in the file that the argument names.
///
/// # Errors
/// The file cannot be read.
fn text(argument: &Path) -> Result<String, String> {
    match argument.is_file() {
        false => Ok(argument.to_string_lossy().into_owned()),
        true => std::fs::read_to_string(argument).map_err(|error| {
            format!(
                "{}: {error}; choose a file of UTF-8 text",
                argument.display()
            )
        }),
    }
}

/// Refuses a table, which contains many texts and their labels.
fn expect_no_table(argument: &Path) -> Result<(), Failure> {
    let tables = ["csv", "tsv", "jsonl", "json", "parquet"];
    let kind = argument.extension().and_then(|kind| kind.to_str());
    if !argument.is_file() || !kind.is_some_and(|kind| tables.contains(&kind)) {
        return Ok(());
    }
    let table = argument.display();
    Err(Failure::usage(format!(
        "{table} is a table, but predict takes single texts or files with one text each; to measure all rows, run `ebb evaluate RUN {table}`"
    )))
}

/// Predicts the classes of each text.
fn texts(saved: &TrainedModel, args: &args::Predict, files: &[PathBuf]) -> Result<(), Failure> {
    let (mut given, mut texts) = (Vec::new(), Vec::new());
    for argument in files {
        expect_no_table(argument)?;
        match text(argument) {
            Ok(text) => {
                given.push(argument.display());
                texts.push(text);
            }
            Err(why) => status!("{why}"),
        }
    }
    let mut answers = Vec::new();
    for (given, prediction) in given.iter().zip(saved.predict_texts(&texts)?) {
        if args.csv {
            let (name, top) = (given.to_string(), args.top as usize);
            answers.push(Answer::new(saved, name, &Ok(prediction), top));
        } else if args.json {
            let classes = classes(saved, &prediction, args.top);
            out!("{}", json!({"text": given.to_string(), "classes": classes}));
        } else {
            out!("{given}: {}", words(saved, &prediction, args.top));
        }
    }
    print_csv(args, &answers)?;
    all_read(files.len() - texts.len(), files.len())
}

fn words(saved: &TrainedModel, prediction: &Prediction, top: u32) -> String {
    let classes = top_classes(saved, prediction, top as usize).into_iter();
    let classes = classes.map(|(name, p)| format!("{name} {:.1} %", 100.0 * p));
    let targets = target_values(saved, prediction).into_iter();
    let targets = targets.map(|(name, value)| {
        let digits = if value.abs() < 10.0 { 2 } else { 1 };
        format!("{name} {value:.digits$}")
    });
    classes.chain(targets).collect::<Vec<_>>().join(", ")
}

fn line(
    saved: &TrainedModel,
    file: &std::path::Path,
    prediction: &Prediction,
    top: u32,
) -> serde_json::Value {
    let mut line =
        json!({"file": file.to_string_lossy(), "classes": classes(saved, prediction, top)});
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
