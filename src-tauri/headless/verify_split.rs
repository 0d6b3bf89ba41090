//! `ebb verify-split`: the gradient of one effective batch in several splits, against the unsplit one. Exit code 1 when a
//! difference is more than rounding.

use super::args;
use super::doctor::wanted;
use super::failure::Failure;
use super::say::{aside, out};
use super::train::{find, machine};
use dataset::{DetectedDataset, InspectOptions, TextOptions, detect};
use runlog::{RunFolder, format_count};
use std::path::Path;
use trainer::bench::Workload;
use trainer::receipt::{
    Line, Precision, Question, Receipt, Splits, of_folder, of_run, of_workload,
};

/// The top-level entry point of `ebb verify-split`.
pub fn run(args: &args::VerifySplit) -> Result<(), Failure> {
    let receipt = receipt(args, &question(args)?)?;
    for note in &receipt.notes {
        aside!("{note}");
    }
    if args.json {
        out!("{}", line(&receipt));
    } else {
        describe(&receipt);
    }
    match receipt.holds() {
        true => Ok(()),
        false => Err(Failure::new(receipt.verdict())),
    }
}

fn question(args: &args::VerifySplit) -> Result<Question, Failure> {
    let splits = args.splits.as_deref().map(|text| {
        Splits::parse(text).ok_or_else(|| {
            Failure::usage(format!(
                "--splits {text} is no split; write sizes such as 5+5+5+1,8+8, or how many random ones"
            ))
        })
    });
    Ok(Question {
        effective_batch: args.effective_batch,
        splits: splits.transpose()?.unwrap_or_default(),
        precision: match args.double {
            true => Precision::Double,
            false => Precision::Single,
        },
        device: wanted(args.device.as_deref())?,
    })
}

fn receipt(args: &args::VerifySplit, question: &Question) -> Result<Receipt, Failure> {
    let machine = machine(&args::Script::default());
    let Some(target) = &args.target else {
        let name = args.workload.as_deref().unwrap_or_default();
        let blocks = args.checkpoint_blocks;
        return Ok(of_workload(workload(name)?, blocks, question, &machine)?);
    };
    let path = Path::new(target);
    // A folder of the user's own, not one that a run was kept in.
    if path.exists() && RunFolder::open(path).is_err() {
        return match detect(
            path,
            &InspectOptions::default(),
            &TextOptions::default(),
            &|_| {},
        )? {
            DetectedDataset::Images(found) => Ok(of_folder(&found, question, &machine)?),
            DetectedDataset::Texts(_) => Err(Failure::usage(format!(
                "{target} holds texts; of those a run is looked at: train on them, if only for some steps, and name the run"
            ))),
        };
    }
    Ok(of_run(&find(target)?, question, &machine)?)
}

/// The workload of a name.
pub fn workload(name: &str) -> Result<Workload, Failure> {
    Workload::named(name).ok_or_else(|| {
        let names: Vec<&str> = Workload::ALL.iter().map(|w| w.name()).collect();
        Failure::usage(format!(
            "there is no workload `{name}`; choose one of {}",
            names.join(", ")
        ))
    })
}

/// The receipt with what it is held against.
fn line(receipt: &Receipt) -> serde_json::Value {
    let mut line = serde_json::json!(receipt);
    line["bound"] = receipt.precision.bound().into();
    line["holds"] = receipt.holds().into();
    line["worst"] = serde_json::json!(receipt.compared.worst());
    line
}

fn describe(receipt: &Receipt) {
    let compared = &receipt.compared;
    out!(
        "{}: one effective batch of {} samples in {} on {}, {} splits against the unsplit gradient",
        receipt.subject,
        format_count(compared.samples as u64),
        receipt.precision.name(),
        receipt.device,
        compared.splits.len()
    );
    let mut lines: Vec<&Line> = compared.parameters.iter().collect();
    lines.push(&compared.loss);
    lines.sort_by(|a, b| a.difference.total_cmp(&b.difference));
    let longest = lines.iter().map(|line| line.name.chars().count()).max();
    let longest = longest.unwrap_or(0).max("parameter".len());
    out!(
        "  {:longest$}  {:>11}  {:>9}  {:>10}  worst split",
        "parameter",
        "values",
        "norm",
        "difference"
    );
    for line in lines {
        out!(
            "  {:longest$}  {:>11}  {:>9.2e}  {:>10.1e}  {}",
            line.name,
            format_count(line.values as u64),
            line.norm,
            line.difference,
            line.split
        );
    }
    if receipt.holds() {
        let verdict = receipt.verdict();
        let mut letters = verdict.chars();
        let first = letters.next().map(|c| c.to_uppercase().to_string());
        out!("{}{}.", first.unwrap_or_default(), letters.as_str());
    }
}
