//! `ebb predict`: what photographs show or texts are, by a run's best checkpoint.

mod compressed;

use super::args;
use super::failure::Failure;
use super::say::{aside, out};
use super::train::{certificate_path, find};
use dataset::Task;
use serde_json::json;
use std::path::PathBuf;
use trainer::{Prediction, SavedRun, Wanted};

/// The top-level entry point of `ebb predict`. A file that cannot be read is said and makes the exit code 1.
pub fn run(args: &args::Predict) -> Result<(), Failure> {
    let saved = SavedRun::load(&find(&args.run)?, Wanted::Auto, Some(&certificate_path()))?;
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
                aside!("{}: {reason}", file.display());
            }
        }
    }
    match unread {
        0 => Ok(()),
        n => Err(Failure::new(format!(
            "{n} of {} files could not be read",
            args.files.len()
        ))),
    }
}

/// The text itself, or the whole of a plain file of that name.
fn text(given: &PathBuf) -> Result<String, Failure> {
    if !given.is_file() {
        return Ok(given.to_string_lossy().into_owned());
    }
    let plain = given
        .extension()
        .is_some_and(|kind| kind == "txt" || kind == "md");
    let shown = given.display();
    if !plain {
        return Err(Failure::usage(format!(
            "{shown} is a file of many texts: ebb evaluate RUN {shown} measures all of them; predict takes texts, and .txt or .md files"
        )));
    }
    let bytes = std::fs::read(given)
        .map_err(|error| Failure::new(format!("{shown} cannot be read: {error}")))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What each text is.
fn texts(saved: &SavedRun, args: &args::Predict) -> Result<(), Failure> {
    let texts: Vec<String> = args.files.iter().map(text).collect::<Result<_, _>>()?;
    for (given, prediction) in args.files.iter().zip(saved.predict_texts(&texts)?) {
        let given = given.display();
        match args.json {
            true => {
                let classes = classes(saved, &prediction, args.top);
                out!("{}", json!({"text": given.to_string(), "classes": classes}));
            }
            false => out!("{given}: {}", words(saved, &prediction, args.top)),
        }
    }
    Ok(())
}

fn best<'a>(
    saved: &'a SavedRun,
    prediction: &'a Prediction,
    top: usize,
) -> impl Iterator<Item = (&'a str, f64)> {
    prediction
        .classes
        .iter()
        .take(top.max(1))
        .map(|&(label, p)| (saved.classes()[label as usize].as_str(), p))
}

/// Numbers by their columns, in the columns' units.
fn numbers<'a>(
    saved: &'a SavedRun,
    prediction: &'a Prediction,
) -> impl Iterator<Item = (&'a str, f64)> {
    let columns = saved.columns().iter().zip(&prediction.numbers);
    columns.map(|(column, value)| (column.name.as_str(), column.in_units(*value)))
}

fn words(saved: &SavedRun, prediction: &Prediction, top: usize) -> String {
    let classes =
        best(saved, prediction, top).map(|(name, p)| format!("{name} {:.1} %", 100.0 * p));
    let numbers = numbers(saved, prediction).map(|(name, value)| {
        let digits = if value.abs() < 10.0 { 2 } else { 1 };
        format!("{name} {value:.digits$}")
    });
    classes.chain(numbers).collect::<Vec<_>>().join(", ")
}

fn line(
    saved: &SavedRun,
    file: &std::path::Path,
    prediction: &Prediction,
    top: usize,
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

fn classes(saved: &SavedRun, prediction: &Prediction, top: usize) -> Vec<serde_json::Value> {
    let best = best(saved, prediction, top);
    best.map(|(name, p)| json!({"class": name, "probability": p}))
        .collect()
}
