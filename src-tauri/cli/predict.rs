//! `ebb predict`: the classes of images or texts, by a run's best checkpoint.

mod compressed;

use super::args;
use super::failure::Failure;
use super::output::{out, status};
use super::train::{device_check_path, find};
use dataset::Task;
use serde_json::json;
use std::path::Path;
use trainer::{DevicePreference, Prediction, TrainedModel};

/// Runs `ebb predict`. If a file cannot be read, it is reported and the exit code is 1.
pub fn run(args: &args::Predict) -> Result<(), Failure> {
    let saved = TrainedModel::load(
        &find(&args.run)?,
        DevicePreference::Auto,
        Some(&device_check_path()),
    )?;
    if saved.task() == Task::TextClassification {
        return texts(&saved, args);
    }
    if saved.task() == Task::TokenCompression {
        return compressed::run(&saved, args);
    }
    let mut unread = 0;
    for (file, outcome) in args.files.iter().zip(saved.predict(&args.files)?) {
        match outcome {
            Ok(prediction) if args.json => {
                out!("{}", line(&saved, file, &prediction, args.top))
            }
            Ok(prediction) => out!(
                "{}: {}",
                file.display(),
                words(&saved, &prediction, args.top)
            ),
            Err(reason) => {
                unread += 1;
                status!("{}: {reason}", file.display());
            }
        }
    }
    all_read(unread, args)
}

/// An error if any file could not be read.
fn all_read(unread: usize, args: &args::Predict) -> Result<(), Failure> {
    match unread {
        0 => Ok(()),
        n => Err(Failure::new(format!(
            "{n} of {} files could not be read",
            args.files.len()
        ))),
    }
}

/// The argument itself, or the content of the file that it names.
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
fn texts(saved: &TrainedModel, args: &args::Predict) -> Result<(), Failure> {
    let (mut given, mut texts) = (Vec::new(), Vec::new());
    for argument in &args.files {
        expect_no_table(argument)?;
        match text(argument) {
            Ok(text) => {
                given.push(argument.display());
                texts.push(text);
            }
            Err(why) => status!("{why}"),
        }
    }
    for (given, prediction) in given.iter().zip(saved.predict_texts(&texts)?) {
        match args.json {
            true => {
                let classes = classes(saved, &prediction, args.top);
                out!("{}", json!({"text": given.to_string(), "classes": classes}));
            }
            false => out!("{given}: {}", words(saved, &prediction, args.top)),
        }
    }
    all_read(args.files.len() - texts.len(), args)
}

fn best<'a>(
    saved: &'a TrainedModel,
    prediction: &'a Prediction,
    top: u32,
) -> impl Iterator<Item = (&'a str, f64)> {
    prediction
        .classes
        .iter()
        .take(top as usize)
        .map(|&(label, p)| (saved.classes()[label as usize].as_str(), p))
}

/// Predicted targets, by column and in the column's unit.
fn numbers<'a>(
    saved: &'a TrainedModel,
    prediction: &'a Prediction,
) -> impl Iterator<Item = (&'a str, f64)> {
    let columns = saved.columns().iter().zip(&prediction.targets);
    columns.map(|(column, value)| (column.name.as_str(), column.unstandardize(*value)))
}

fn words(saved: &TrainedModel, prediction: &Prediction, top: u32) -> String {
    let classes =
        best(saved, prediction, top).map(|(name, p)| format!("{name} {:.1} %", 100.0 * p));
    let numbers = numbers(saved, prediction).map(|(name, value)| {
        let digits = if value.abs() < 10.0 { 2 } else { 1 };
        format!("{name} {value:.digits$}")
    });
    classes.chain(numbers).collect::<Vec<_>>().join(", ")
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
        line["numbers"] = numbers(saved, prediction)
            .map(|(name, value)| (name.to_owned(), json!(value)))
            .collect::<serde_json::Map<_, _>>()
            .into();
    }
    line
}

fn classes(saved: &TrainedModel, prediction: &Prediction, top: u32) -> Vec<serde_json::Value> {
    let best = best(saved, prediction, top);
    best.map(|(name, p)| json!({"class": name, "probability": p}))
        .collect()
}
