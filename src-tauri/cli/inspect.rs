//! `ebb inspect`: describes a folder, as text or JSON. The exit code is 1 if the folder cannot be
//! trained.

use super::args;
use super::failure::Failure;
use super::limited_lists::{CLASSES_LISTED, describe_rest, describe_skipped, describe_split};
use super::output::out;
use super::preset_choice::{other_data, refusal};
use super::read_folder::{find_duplicates, read_folder};
use super::{conversation_examples, inspect_duplicates, inspect_texts};
use dataset::{DetectedDataset, ImageInspection, Task};
use runlog::{counted, format_bytes, format_count};
use serde_json::json;

/// Runs `ebb inspect`.
pub fn run(args: &args::Inspect) -> Result<(), Failure> {
    let config = &args.settings.config;
    let task = config.task.map(trainer::dataset_task);
    let read = read_folder(&args.folder, config);
    let is_refused = read.as_ref().map_or(true, |found| refusal(found).is_some());
    if let (true, Some(choice)) = (is_refused, config.task)
        && let Some(holds) = other_data(&args.folder, config, choice)
    {
        return Err(Failure::usage(format!(
            "--task {} does not fit this data: {} holds {holds}",
            choice.name(),
            args.folder.display()
        )));
    }
    let found = read?;
    if let Some(task) = task
        && task.detected_as() != found.task()
    {
        return Err(Failure::usage(format!(
            "--task {} does not fit this data: {} is for {}",
            task.name(),
            args.folder.display(),
            found.task().name()
        )));
    }
    let duplicates = if args.find_duplicates {
        find_duplicates(&found)?
    } else {
        None
    };
    let examples = conversation_examples::examples(&found, config)?;
    if args.json {
        let mut line = match &found {
            DetectedDataset::Images(inspection) => as_json(inspection),
            DetectedDataset::Texts(inspection) => inspect_texts::as_json(inspection),
        };
        if let Some(duplicates) = &duplicates {
            line["duplicates"] = inspect_duplicates::as_json(&found, duplicates);
        }
        if !examples.is_empty() {
            line["conversations"] = conversation_examples::as_json(&examples);
        }
        out!("{line}");
    } else {
        match &found {
            DetectedDataset::Images(inspection) => describe(inspection),
            DetectedDataset::Texts(inspection) => {
                inspect_texts::describe(inspection, inspection.task);
            }
        }
        conversation_examples::describe(&examples);
        if let Some(duplicates) = &duplicates {
            inspect_duplicates::describe(&found, duplicates);
        }
    }
    match refusal(&found) {
        Some(refusal) => Err(Failure::new(refusal.clone())),
        None => Ok(()),
    }
}

/// Prints what was found.
pub fn describe(inspection: &ImageInspection) {
    let classes = counted(inspection.classes.len() as u64, "class", "classes");
    let numbers = counted(
        inspection.targets.len() as u64,
        "regression target",
        "regression targets",
    );
    let learned = match (inspection.classes.len(), inspection.targets.len()) {
        (_, 0) => format!("in {classes}"),
        (0, _) => format!("with {numbers} and no classes"),
        (_, _) => format!("in {classes}, with {numbers}"),
    };
    out!(
        "{}: {} {learned}, {}",
        inspection.name,
        counted(inspection.image_count(), "image", "images"),
        format_bytes(inspection.bytes)
    );
    if let Some((width, height)) = inspection.typical_size {
        out!("Typical image: {width} x {height} px");
    }
    describe_classes(inspection);
    if inspection.refusal.is_none() {
        describe_split(inspection.split, &inspection.describe_split());
    }
    for note in &inspection.notes {
        out!("{note}");
    }
    if inspection.is_grouped_by_time() {
        out!(
            "Use --group-by COLUMN to group by a column of the table, or --group-by none for no groups."
        );
    }
    describe_skipped(&inspection.skipped);
    if inspection.ignored.other > 0 {
        out!(
            "Ignored: {}",
            counted(
                inspection.ignored.other,
                "file that is not an image",
                "files that are not images"
            )
        );
    }
}

fn describe_classes(inspection: &ImageInspection) {
    let lengths = inspection.classes.iter().map(|c| c.name.chars().count());
    let longest = lengths.max().unwrap_or(0);
    for class in inspection.classes.iter().take(CLASSES_LISTED) {
        let samples = format_count(u64::from(class.samples()));
        out!("  {:longest$}  {samples:>6}", class.name);
    }
    describe_rest(inspection.classes.len(), CLASSES_LISTED);
}

fn as_json(inspection: &ImageInspection) -> serde_json::Value {
    let classes: Vec<_> = inspection
        .classes
        .iter()
        .map(|c| json!({"name": c.name, "train": c.train, "held_out": c.held_out, "test": c.test}))
        .collect();
    let skipped: Vec<_> = inspection
        .skipped
        .iter()
        .map(|s| json!({"file": s.path.to_string_lossy(), "reason": s.reason}))
        .collect();
    json!({
        "task": Task::ImageClassification.name(),
        "name": inspection.name,
        "folder": inspection.folder.to_string_lossy(),
        "images": inspection.image_count(),
        "bytes": inspection.bytes,
        "typical_size": inspection.typical_size,
        "classes": classes,
        "table": inspection.table,
        "targets": inspection.targets,
        "groups": inspection.groups,
        "split": inspection.describe_split(),
        "skipped": skipped,
        "passed_over": inspection.ignored.other,
        "notes": inspection.notes,
        "refusal": inspection.refusal,
    })
}
