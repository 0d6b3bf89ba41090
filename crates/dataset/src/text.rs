//! Texts: which of a folder's files hold them, what they are for, and the texts themselves as plain arrays. Treats every
//! file as hostile, never reads outside the folder, and never trains.

// Looking: bytes to text, files to rows, rows to a task.
mod encoding;

mod cells;
mod delimited;
mod json;
mod parquet_file;
mod thrift;

mod source;

mod columns;
mod inspection;
mod kind;
mod parts;
mod sheets;

mod assign;
mod gather;
mod words;

// The texts for a training.
mod kept;
mod limit;
mod load;

mod rows;

mod documents;
mod packing;
mod tokens;

mod buckets;

pub use buckets::Buckets;
pub use documents::Documents;
pub use inspection::{
    Column, EncodingFound, Lengths, Role, SkippedRows, Task, TextFile, TextInspection, TextSample,
};
pub use kept::KeptTexts;
pub use packing::{Packing, Window};
pub use rows::TextRows;
pub use tokens::{Tokenizer, Vocabulary};

pub(crate) use cells::Row;
pub(crate) use columns::is_named_label;
pub(crate) use sheets::{Sheet, open as open_tables};
pub(crate) use source::{Claim, Source};

use crate::error::DatasetError;
use crate::inspect::InspectOptions;
use crate::inspection::{Part, SplitKind};
use crate::layout::part_of;
use crate::walk::{Entry, Walk};
use assign::assign;
use gather::gather;
use kind::{Decision, decide};
use std::path::Path;

/// How texts are looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextOptions {
    /// The task, where the user names one.
    pub task: Option<Task>,
    /// The column of texts, by name or by number counted from 1.
    pub text_column: Option<String>,
    /// The column of labels, by name or by number counted from 1.
    pub label_column: Option<String>,
}

/// A file that claims by its name to hold texts.
pub(crate) fn claims_text(path: &Path) -> bool {
    Claim::of(path).is_some()
}

/// A file that claims by its name to be a table. JSON lines are as often a log.
pub(crate) fn claims_table(path: &Path) -> bool {
    let claim = Claim::of(path);
    claim.is_some_and(|claim| matches!(claim, Claim::Csv | Claim::Tsv | Claim::Parquet))
}

/// Looks at the texts among listed files; nothing where there are none. Names of what was left out join `found.skipped`.
pub(crate) fn inspect_texts(
    root: &Path,
    name: &str,
    found: Walk,
    split: &InspectOptions,
    options: &TextOptions,
    seen: &dyn Fn(u64),
) -> Result<Option<TextInspection>, DatasetError> {
    let (mut skipped, mut ignored) = (found.skipped, found.ignored);
    let total = found.files.len();
    let files: Vec<(Entry, Claim)> = found
        .files
        .into_iter()
        .filter_map(|entry| Claim::of_single(&entry.path, total).map(|claim| (entry, claim)))
        .collect();
    if files.is_empty() {
        return Ok(None);
    }
    ignored.other = (total - files.len()) as u64;
    let before = skipped.len();
    let decision = decide(root, &files, options, &mut skipped)?;
    let passed = passed_over(&files, &decision, &skipped[before..]);
    ignored.other += passed.len() as u64;
    let mut gathered = gather(root, &decision.used, &mut skipped, seen);
    let task = decision.task.unwrap_or(Task::LanguageModel);
    let fraction = split.fraction();
    let given = gathered
        .rows
        .iter()
        .any(|raw| raw.part == Some(Part::HeldOut));
    let held_out = (!given).then_some((fraction, split.seed));
    let assigned = assign(root, task, &mut gathered, held_out);
    let mut notes = words::encodings(&gathered.encodings);
    notes.extend(assigned.notes);
    notes.extend(words::classes(task, &assigned.classes, given));
    if !decision.used.is_empty() {
        notes.extend(words::passed_over(&passed));
    }
    notes.extend(gathered.too_many_rows.map(words::too_many_rows));
    let trained = || assigned.samples.iter().filter(|s| s.part == Part::Train);
    let about = words::Found {
        task,
        classes: &assigned.classes,
        trained: trained().count() as u64,
        bytes: assigned
            .samples
            .iter()
            .map(|s| u64::from(s.end - s.start))
            .sum(),
        in_rows: !decision
            .used
            .iter()
            .any(|file| matches!(file.label, kind::Label::Class(_))),
        skipped: skipped.len() as u64 + gathered.skipped_rows.iter().map(|s| s.rows).sum::<u64>(),
    };
    // Of documents as they were found, the one that is cut included.
    let lengths = match task {
        Task::LanguageModel | Task::TokenCompression => {
            gathered.rows.iter().map(|raw| raw.characters).collect()
        }
        _ => assigned.samples.iter().map(|s| s.characters).collect(),
    };
    let lengths = Lengths::of(lengths);
    let refusal = decision.refusal.or_else(|| words::refusal(&about));
    skipped.sort_by(|a, b| a.path.cmp(&b.path));
    gathered
        .skipped_rows
        .sort_by(|a, b| (&a.path, a.lines.first()).cmp(&(&b.path, b.lines.first())));
    Ok(Some(TextInspection {
        folder: root.to_path_buf(),
        name: name.to_owned(),
        task,
        why: decision.why,
        columns: decision.columns,
        lengths,
        bytes: assigned
            .samples
            .iter()
            .map(|s| u64::from(s.end - s.start))
            .sum(),
        classes: assigned.classes,
        samples: assigned.samples,
        split_names: split_names(&decision.used),
        files: gathered.files,
        encodings: gathered.encodings,
        skipped,
        skipped_rows: gathered.skipped_rows,
        ignored,
        refusal,
        notes,
        split: match held_out {
            Some((fraction, seed)) => SplitKind::Seeded { fraction, seed },
            None => SplitKind::Given,
        },
    }))
}

/// Files of texts that the task has no use for.
fn passed_over(
    files: &[(Entry, Claim)],
    decision: &Decision,
    skipped: &[crate::inspection::SkippedFile],
) -> Vec<String> {
    let used = |entry: &Entry| {
        decision
            .used
            .iter()
            .any(|file| file.entry.path == entry.path)
    };
    let named = |entry: &Entry| skipped.iter().any(|file| file.path == entry.path);
    files
        .iter()
        .filter(|(entry, _)| !used(entry) && !named(entry))
        .map(|(entry, _)| entry.path.display().to_string())
        .collect()
}

/// "train.csv, test.csv", or the folders where whole folders are parts.
fn split_names(used: &[kind::Used]) -> Vec<String> {
    let mut names: Vec<(Part, String)> = used
        .iter()
        .filter_map(|file| {
            let folder = || {
                file.entry
                    .names
                    .iter()
                    .find(|name| part_of(name) == file.part)
                    .cloned()
            };
            let name = match &file.label {
                kind::Label::Class(_) => folder()?,
                _ => file.entry.path.display().to_string(),
            };
            Some((file.part?, name))
        })
        .collect();
    names.sort();
    names.dedup();
    names.into_iter().map(|(_, name)| name).collect()
}
