//! `ebb runs`, `ebb runs tag` and `ebb report`.

use super::args;
use super::failure::Failure;
use super::output::out;
use super::train::find;
use runlog::{
    ListedRun, RunFolder, RunStore, RunSummary, RunlogError, change_tags, format_count,
    format_duration, format_io_error, parse_tag, report as write_report, same_tag,
};
use serde_json::{Value, json};

/// Number of columns of the list of runs.
const COLUMNS: usize = 7;

/// The headings of the list of runs.
const HEADINGS: [&str; COLUMNS] = ["Run", "Status", "Step", "Result", "Time", "Model", "Tags"];

/// A row of the list of runs.
type TableRow = [String; COLUMNS];

/// Runs `ebb runs`.
pub fn list(args: &args::Runs) -> Result<(), Failure> {
    let store = RunStore::open(RunStore::default_root());
    let tag = args.tag.as_deref().map(parse_tag).transpose()?;
    let (mut listed, all) = (0, store.summaries()?);
    if all.is_empty() && !args.json {
        out!(
            "No runs yet in {}. Start one with `ebb train FOLDER`.",
            store.root().display()
        );
        return Ok(());
    }
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    for ListedRun { folder, summary } in all {
        let tags = folder.notes().tags;
        if let Some(tag) = &tag
            && !tags.iter().any(|own| same_tag(own, tag))
        {
            continue;
        }
        listed += 1;
        // One unreadable run does not hide the others.
        if args.json {
            out!("{}", as_json(&folder, summary.as_ref(), &tags));
        } else {
            rows.push(row(&folder, summary.as_ref(), &tags));
        }
    }
    if listed > 0 && !args.json {
        print_table(&rows);
    }
    if let (Some(tag), 0, false) = (tag, listed, args.json) {
        out!("No run has the tag `{tag}`. Add it with `ebb runs tag RUN +{tag}`.");
    }
    Ok(())
}

/// A run as one line of JSON.
fn as_json(
    folder: &RunFolder,
    summary: Result<&RunSummary, &RunlogError>,
    tags: &[String],
) -> Value {
    let mut fields = json!({
        "run": folder.id(),
        "path": folder.path.to_string_lossy(),
        "tags": tags,
        "summary": match summary {
            Ok(summary) => summary.line.clone(),
            Err(error) => error.to_string(),
        },
    });
    let summary = summary.ok();
    let started = summary.and_then(|summary| summary.started.as_ref());
    let (metric, value) = summary.and_then(|summary| summary.metric.clone()).unzip();
    fields["status"] = json!(summary.map(|summary| summary.status));
    fields["step"] = json!(summary.map(|summary| summary.step));
    fields["steps"] = json!(started.map(|started| started.steps));
    fields["metric"] = json!(metric);
    fields["value"] = json!(value);
    fields["model"] = json!(started.map(|started| &started.model));
    fields["task"] = json!(started.map(|started| &started.task));
    fields["started_unix_ms"] = json!(started.map(|started| started.unix_ms));
    fields
}

/// A run as one row of the table. A run that cannot be read has its error in the last column.
fn row(
    folder: &RunFolder,
    summary: Result<&RunSummary, &RunlogError>,
    tags: &[String],
) -> TableRow {
    let summary = match summary {
        Ok(summary) => summary,
        Err(error) => {
            let mut cells: TableRow = Default::default();
            cells[0] = folder.id();
            cells[COLUMNS - 1] = error.to_string();
            return cells;
        }
    };
    let started = summary.started.as_ref();
    let done = format_count(summary.step);
    let step = match started.map_or(0, |started| started.steps) {
        0 => done,
        steps => format!("{done} of {}", format_count(steps)),
    };
    let loss = || Some(format!("{:.3} loss", summary.smoothed_loss?));
    let headline = summary.headline.as_ref();
    let result = headline.map(|(value, name)| format!("{value} {name}"));
    [
        folder.id(),
        summary.status.label().to_owned(),
        step,
        result.or_else(loss).unwrap_or_default(),
        format_duration(summary.now_ms as f64 / 1000.0),
        started.map_or_else(String::new, |started| started.model.clone()),
        tags.join(", "),
    ]
}

/// Prints rows in columns that are as wide as their longest cell.
fn print_table(rows: &[TableRow]) {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    // The last column may be long, and nothing follows it.
    let widths: Vec<usize> = (0..COLUMNS - 1).map(width).collect();
    for row in rows {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let width = widths.get(column).copied().unwrap_or(0);
            format!("{cell:width$}")
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        out!("{}", line.trim_end());
    }
}

/// Runs `ebb runs tag`: changes the tags of a run and prints them.
pub fn tag(args: &args::Tag) -> Result<(), Failure> {
    let folder = find(&args.run)?;
    let mut notes = folder.notes();
    notes.tags = change_tags(notes.tags, args.changes.iter().map(String::as_str))?;
    if !args.changes.is_empty() {
        folder.write_notes(&notes)?;
    }
    if notes.tags.is_empty() {
        out!("{} has no tags", folder.id());
    } else {
        out!("{}  [{}]", folder.id(), notes.tags.join(", "));
    }
    Ok(())
}

/// Runs `ebb report`.
pub fn report(args: &args::Report) -> Result<(), Failure> {
    let folder = find(&args.run)?;
    let out = args
        .out
        .clone()
        .map_or_else(|| folder.clone(), |path| RunFolder { path });
    ::disk::create_dir_all(&out.path).map_err(|error| {
        Failure::new(format!(
            "{} cannot be created: {}; choose another folder",
            out.path.display(),
            format_io_error(&error)
        ))
    })?;
    for path in write_report(&folder.replay()?, &out)? {
        out!("{}", path.display());
    }
    Ok(())
}
