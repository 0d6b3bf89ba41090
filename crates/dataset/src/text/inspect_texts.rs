//! Inspects the texts among listed files: decides the task, scans all rows, and assigns splits.

use super::assign_splits::{Assigned, HoldOut, assign};
use super::decide_task::decide;
use super::refusals_and_notes::{self, TextCounts};
use super::scan_rows::{ScannedRows, scan_rows};
use super::task_decision::{ChosenFile, Decision, LabelSource};
use super::text_inspection::{Lengths, TextInspection};
use crate::error::DatasetError;
use crate::folder_listing::{Entry, Listing};
use crate::options::{InspectOptions, TextOptions};
use crate::readers::{Candidate, FileFormat};
use crate::task::Task;
use crate::types::{Ignored, ReadProgress, SkippedFile, Split, SplitKind};

/// Inspects the texts of a folder; `None` if it has no file that may contain texts. `on_progress`
/// is called while files are read.
///
/// # Errors
/// No table has a column that the user names.
pub(crate) fn inspect_texts(
    listing: Listing,
    options: &InspectOptions,
    texts: &TextOptions,
    on_progress: &dyn Fn(ReadProgress),
) -> Result<Option<TextInspection>, DatasetError> {
    let mut skipped = [listing.skipped, listing.hidden_texts].concat();
    let (total, files) = (listing.files.len(), candidates(&listing.files));
    if files.is_empty() {
        return Ok(None);
    }
    let (listed, goes_on) = (skipped.len(), options.stop.after(on_progress));
    let decision = decide(&listing.root, &files, texts, &mut skipped)?;
    let unused = unused_files(&files, &decision, &skipped[listed..]);
    let mut scanned = scan_rows(&listing.root, &decision.files, &mut skipped, &goes_on)?;
    let task = decision.task.unwrap_or(Task::LanguageModel);
    let hold_out = choose_hold_out(&scanned, options);
    let assigned = assign(&listing.root, task, &mut scanned, hold_out);
    let mut counts = counts(&decision, &assigned, &scanned, skipped.len());
    counts.is_label_column_named = texts.label_column.is_some();
    let refusal = refusals_and_notes::refusal(task, &assigned.classes, &counts);
    let notes = describe(
        task,
        &assigned,
        &scanned,
        &unused,
        &decision,
        hold_out.is_none(),
    );
    skipped.sort_by(|a, b| a.path.cmp(&b.path));
    scanned
        .skipped_rows
        .sort_by(|a, b| (&a.path, a.lines.first()).cmp(&(&b.path, b.lines.first())));
    Ok(Some(TextInspection {
        folder: listing.root,
        name: listing.name,
        task,
        lengths: lengths(task, &assigned, &scanned),
        split_names: split_names(&decision.files),
        reason: decision.reason,
        columns: decision.columns,
        bytes: counts.bytes,
        classes: assigned.classes,
        samples: assigned.samples,
        files: scanned.files,
        encodings: scanned.encodings,
        skipped,
        skipped_rows: scanned.skipped_rows,
        ignored: Ignored {
            other: (total - files.len() + unused.len()) as u64,
            ..listing.ignored
        },
        refusal: decision.refusal.or(refusal),
        notes,
        split: match hold_out {
            Some(HoldOut { fraction, seed }) => SplitKind::Seeded { fraction, seed },
            None => SplitKind::Given,
        },
    }))
}

/// The files that may contain texts.
fn candidates<'a>(files: &'a [Entry]) -> Vec<Candidate<'a>> {
    let candidate = |entry: &'a Entry| {
        let format = FileFormat::from_path_among(&entry.path, files.len())?;
        Some(Candidate { entry, format })
    };
    files.iter().filter_map(candidate).collect()
}

/// What to hold out; `None` if the folder has held-out rows of its own.
fn choose_hold_out(scanned: &ScannedRows, options: &InspectOptions) -> Option<HoldOut> {
    let mut rows = scanned.rows.iter();
    let given = rows.any(|row| row.split == Some(Split::HeldOut));
    (!given).then(|| HoldOut {
        fraction: options.fraction(),
        seed: options.seed,
    })
}

/// Paths of the text files that the task does not use.
fn unused_files(files: &[Candidate], decision: &Decision, skipped: &[SkippedFile]) -> Vec<String> {
    let is_used = |entry: &Entry| decision.files.iter().any(|f| f.entry.path == entry.path);
    let is_skipped = |entry: &Entry| skipped.iter().any(|file| *file.path == *entry.path);
    files
        .iter()
        .filter(|file| !is_used(file.entry) && !is_skipped(file.entry))
        .map(|file| file.entry.path.display().to_string())
        .collect()
}

fn counts(
    decision: &Decision,
    assigned: &Assigned,
    scanned: &ScannedRows,
    skipped: usize,
) -> TextCounts {
    let samples = assigned.samples.iter();
    let has_class_folders = |file: &ChosenFile| matches!(file.label, LabelSource::Class(_));
    TextCounts {
        trained: samples.clone().filter(|s| s.split == Split::Train).count() as u64,
        bytes: samples.map(|s| u64::from(s.end - s.start)).sum(),
        are_conversations: decision.files.iter().any(|file| !file.chat.is_empty()),
        in_rows: !decision.files.iter().any(has_class_folders),
        is_label_column_named: false,
        skipped: skipped as u64 + scanned.skipped_rows.iter().map(|s| s.rows).sum::<u64>(),
    }
}

/// The notes of the inspection.
fn describe(
    task: Task,
    assigned: &Assigned,
    scanned: &ScannedRows,
    unused: &[String],
    decision: &Decision,
    given: bool,
) -> Vec<String> {
    let mut notes = refusals_and_notes::encodings(&scanned.encodings);
    let in_parts = scanned.files.iter().filter(|f| f.dialect.has_parts());
    let in_parts = in_parts.map(|file| file.path.display().to_string());
    notes.extend(refusals_and_notes::files_in_parts(
        &in_parts.collect::<Vec<_>>(),
    ));
    notes.extend(assigned.notes.iter().cloned());
    notes.extend(refusals_and_notes::classes(task, &assigned.classes, given));
    if !decision.files.is_empty() {
        notes.extend(refusals_and_notes::unused_files(unused));
    }
    notes.extend(scanned.too_many_rows.map(refusals_and_notes::too_many_rows));
    notes
}

/// Lengths of the samples. Documents count as they were found, before the only one is cut.
fn lengths(task: Task, assigned: &Assigned, scanned: &ScannedRows) -> Lengths {
    let characters = if task.is_on_documents() {
        scanned.rows.iter().map(|row| row.characters).collect()
    } else {
        assigned.samples.iter().map(|s| s.characters).collect()
    };
    Lengths::new(characters)
}

/// The files that are splits of their own, such as "train.csv", or their folders if the folders are
/// classes.
fn split_names(files: &[ChosenFile]) -> Vec<String> {
    let mut names: Vec<(Split, String)> = files
        .iter()
        .filter_map(|file| {
            let split = file.split?;
            let folder = || {
                let mut names = file.entry.names();
                let name = names.find(|name| Split::from_name(name) == Some(split));
                name.map(str::to_owned)
            };
            let name = match &file.label {
                LabelSource::Class(_) => folder()?,
                _ => file.entry.path.display().to_string(),
            };
            Some((split, name))
        })
        .collect();
    names.sort();
    names.dedup();
    names.into_iter().map(|(_, name)| name).collect()
}
