//! Describes a folder of texts, as text or JSON.

use super::limited_lists::{CLASSES_LISTED, describe_rest, describe_skipped, describe_split};
use super::output::out;
use dataset::{Task, TextInspection};
use runlog::{format_bytes, format_count};
use serde_json::{Value, json};

/// Prints the contents of a folder and the suitable task.
pub fn describe(found: &TextInspection, task: Task) {
    let samples = found.source_count();
    let classes = match found.classes.len() {
        0 => String::new(),
        1 => " in 1 class".to_owned(),
        n => format!(" in {} classes", format_count(n as u64)),
    };
    out!(
        "{}: {} {}{classes}, {}",
        found.name,
        format_count(samples),
        found.sample_noun(samples),
        format_bytes(found.bytes)
    );
    if samples > 0 {
        out!("Task: {}, because {}", task.label(), found.reason);
    }
    for column in &found.columns {
        out!("{}", column.describe());
    }
    if found.has_label_lines() {
        out!("If the first word of each line is not a label, use --task language-model.");
    } else if is_by_folders(found) {
        out!("If the sub-folders are not classes, use --task language-model.");
    }
    if samples > 0 {
        out!(
            "Characters per {}: median {}, 95th percentile {}, longest {}",
            found.sample_noun(1),
            format_count(u64::from(found.lengths.median_characters)),
            format_count(u64::from(found.lengths.p95_characters)),
            format_count(u64::from(found.lengths.longest_characters))
        );
    }
    describe_classes(found);
    if found.refusal.is_none() {
        describe_split(found.split, &found.describe_split());
    }
    for note in &found.notes {
        out!("{note}");
    }
    describe_skipped_samples(found);
}

/// True if the classes come from sub-folders and not from a column of a table.
fn is_by_folders(found: &TextInspection) -> bool {
    found.columns.is_empty() && found.classes.len() > 1
}

fn describe_classes(found: &TextInspection) {
    let shown = &found.classes[..found.classes.len().min(CLASSES_LISTED)];
    let longest = shown
        .iter()
        .map(|class| class.name.chars().count())
        .max()
        .unwrap_or(0);
    for class in shown {
        let count = format_count(u64::from(class.samples()));
        out!("  {:longest$}  {count:>6}", class.name);
    }
    describe_rest(found.classes.len(), CLASSES_LISTED);
}

fn describe_skipped_samples(found: &TextInspection) {
    describe_skipped(&found.skipped);
    let rows: u64 = found.skipped_rows.iter().map(|skipped| skipped.rows).sum();
    if rows > 0 {
        out!(
            "Skipped {} row{}:",
            format_count(rows),
            if rows == 1 { "" } else { "s" }
        );
    }
    for skipped in &found.skipped_rows {
        out!(
            "  {}, {}: {}",
            skipped.path.display(),
            skipped.describe_lines(),
            skipped.reason
        );
    }
}

/// The inspection as JSON.
pub fn as_json(found: &TextInspection) -> Value {
    let classes: Vec<_> = found
        .classes
        .iter()
        .map(|c| json!({"name": c.name, "train": c.train, "held_out": c.held_out, "test": c.test}))
        .collect();
    let columns: Vec<_> = found
        .columns
        .iter()
        .map(|c| json!({"role": c.role.name(), "name": c.name, "why": c.reason}))
        .collect();
    let encodings: Vec<_> = found
        .encodings
        .iter()
        .map(|e| {
            json!({"name": e.name, "files": e.files, "marked_files": e.marked_files,
                "guessed_bytes": e.guessed_bytes, "replaced_bytes": e.replaced_bytes})
        })
        .collect();
    let skipped: Vec<_> = found
        .skipped
        .iter()
        .map(|s| json!({"file": s.path.to_string_lossy(), "reason": s.reason}))
        .collect();
    let skipped_rows: Vec<_> = found
        .skipped_rows
        .iter()
        .map(|s| json!({"file": s.path.to_string_lossy(), "reason": s.reason, "rows": s.rows, "lines": s.lines}))
        .collect();
    let part = |part| found.count(part);
    json!({
        "task": found.task.name(),
        "why": found.reason,
        "name": found.name,
        "folder": found.folder.to_string_lossy(),
        "files": found.files.iter().map(|f| f.path.to_string_lossy()).collect::<Vec<_>>(),
        "columns": columns,
        "samples": found.source_count(),
        "train": part(dataset::Split::Train),
        "held_out": part(dataset::Split::HeldOut),
        "test": part(dataset::Split::Test),
        "bytes": found.bytes,
        "characters": {
            "median": found.lengths.median_characters,
            "p95": found.lengths.p95_characters,
            "longest": found.lengths.longest_characters,
        },
        "classes": classes,
        "split": found.describe_split(),
        "encodings": encodings,
        "skipped": skipped,
        "skipped_rows": skipped_rows,
        "notes": found.notes,
        "refusal": found.refusal,
    })
}
