//! `ebb verify-split`: compares the gradient of one effective batch in several splits with the
//! unsplit gradient. The exit code is 1 if a difference is larger than rounding errors can be.

use super::args;
use super::doctor::wanted;
use super::failure::Failure;
use super::output::{out, status};
use super::train::{find, machine};
use bench::Workload;
use bench::split_equivalence::{
    Difference, ElementType, SplitCheck, SplitCheckOptions, SplitSelection, rounding_bound,
};
use dataset::{DetectedDataset, InspectOptions, TextOptions, detect};
use runlog::{RunFolder, format_count};
use std::path::Path;
use trainer::BatchSettings;

/// Runs `ebb verify-split`.
pub fn run(args: &args::VerifySplit) -> Result<(), Failure> {
    let check = check(args, &question(args)?)?;
    for note in &check.notes {
        status!("{note}");
    }
    if args.json {
        out!("{}", json(&check));
    } else {
        print(&check);
    }
    if check.passed() {
        Ok(())
    } else {
        Err(Failure::new(check.summary()))
    }
}

fn question(args: &args::VerifySplit) -> Result<SplitCheckOptions, Failure> {
    let splits = args.splits.as_deref().map(|text| {
        SplitSelection::parse(text).ok_or_else(|| {
            Failure::usage(format!(
                "--splits {text} is not valid; join the sizes of a split with + and separate splits with commas, as in 5+5+5+1,8+8, or write a number of random splits"
            ))
        })
    });
    let element_type = if args.double {
        ElementType::Double
    } else {
        ElementType::Single
    };
    Ok(SplitCheckOptions {
        batch: BatchSettings {
            effective_batch: args.effective_batch,
            element_type,
            device: wanted(args.device.as_deref())?,
        },
        splits: splits.transpose()?.unwrap_or_default(),
    })
}

fn check(args: &args::VerifySplit, question: &SplitCheckOptions) -> Result<SplitCheck, Failure> {
    let machine = machine(&args::Script::default());
    let Some(target) = &args.target else {
        let workload = workload(args.workload.as_deref().unwrap_or_default())?;
        let blocks = args.checkpoint_blocks;
        return Ok(SplitCheck::for_workload(
            workload, blocks, question, &machine,
        )?);
    };
    let path = Path::new(target);
    // A folder of data, not of a run.
    if path.exists() && RunFolder::open(path).is_err() {
        return match detect(
            path,
            &InspectOptions::default(),
            &TextOptions::default(),
            &|_| {},
        )? {
            DetectedDataset::Images(found) => {
                Ok(SplitCheck::for_folder(&found, question, &machine)?)
            }
            DetectedDataset::Texts(_) => Err(Failure::usage(format!(
                "{target} contains texts, but this command checks only folders of images; train on the texts for a few steps, then name that run instead of the folder"
            ))),
        };
    }
    Ok(SplitCheck::for_run(&find(target)?, question, &machine)?)
}

pub fn workload(name: &str) -> Result<Workload, Failure> {
    Workload::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = Workload::ALL.iter().map(|w| w.name()).collect();
        Failure::usage(format!(
            "there is no workload `{name}`; choose one of {}",
            names.join(", ")
        ))
    })
}

/// The check as JSON, with the bound on rounding errors and the largest difference.
fn json(check: &SplitCheck) -> serde_json::Value {
    let mut line = serde_json::json!(check);
    line["bound"] = rounding_bound(check.precision).into();
    line["holds"] = check.passed().into();
    line["worst"] = serde_json::json!(check.comparison.worst());
    line
}

fn print(check: &SplitCheck) {
    let comparison = &check.comparison;
    out!(
        "{}: one effective batch of {} samples in {} on {}; {} splits are compared with the unsplit gradient",
        check.subject,
        format_count(comparison.samples as u64),
        check.precision.name(),
        check.device,
        comparison.splits.len()
    );
    let mut lines: Vec<&Difference> = comparison.parameters.iter().collect();
    lines.push(&comparison.loss);
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
    if check.passed() {
        let summary = check.summary();
        let mut letters = summary.chars();
        let first = letters.next().map(|c| c.to_uppercase().to_string());
        out!("{}{}.", first.unwrap_or_default(), letters.as_str());
    }
}
