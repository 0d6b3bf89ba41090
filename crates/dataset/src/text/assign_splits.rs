//! Assigns rows to splits and classes, and cuts a single document in two. Equal texts, and
//! conversations with equal prompts, are never on both sides of a split that Ebb makes. Opens a
//! file only to cut the only document.

use super::line_ends::LineEnds;
use super::refusals_and_notes;
use super::scan_rows::{ScannedRow, ScannedRows, row_text};
use super::text_inspection::{SkippedRows, TextFile, TextSample};
use crate::readers::{OpenFile, Row};
use crate::seeded_selection;
use crate::task::Task;
use crate::types::{Class, Split};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;

/// Lines listed for each file whose rows have a class without training texts.
const LISTED_LINES: usize = 3;

/// How Ebb chooses held-out samples.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HoldOut {
    /// Fraction of each class.
    pub fraction: f64,
    /// Seed of the choice.
    pub seed: u64,
}

/// Samples, their classes, and notes about them.
#[derive(Debug, Default)]
pub(crate) struct Assigned {
    pub classes: Vec<Class>,
    pub samples: Vec<TextSample>,
    pub notes: Vec<String>,
}

/// Assigns all rows. `hold_out` is `None` if the dataset brings its own held-out samples.
pub(crate) fn assign(
    root: &Path,
    task: Task,
    scanned: &mut ScannedRows,
    hold_out: Option<HoldOut>,
) -> Assigned {
    let mut notes = describe_repeats(task, scanned);
    let splits = assign_rows(task, scanned, hold_out);
    let (mut classes, labels) = if task.is_on_documents() {
        (Vec::new(), vec![Some(0); scanned.labels.len()])
    } else {
        assign_labels(scanned, &splits)
    };
    let mut samples = Vec::with_capacity(scanned.rows.len());
    let mut untrained: BTreeMap<u32, SkippedRows> = BTreeMap::new();
    let mut untrained_labels: BTreeSet<u32> = BTreeSet::new();
    for (row, split) in scanned.rows.iter().zip(splits) {
        let Some(label) = labels[row.label as usize] else {
            leave_out(&mut untrained, row, &scanned.files);
            untrained_labels.insert(row.label);
            continue;
        };
        if let Some(class) = classes.get_mut(label as usize) {
            class.add(split);
        }
        samples.push(TextSample {
            file: row.file,
            row: row.row,
            label,
            split,
            start: 0,
            end: row.bytes,
            characters: row.characters,
            hash: row.hash,
        });
    }
    scanned.skipped_rows.extend(untrained.into_values());
    let names = untrained_labels
        .iter()
        .map(|label| scanned.labels[*label as usize].clone());
    notes.extend(refusals_and_notes::untrained_classes(
        &names.collect::<Vec<_>>(),
    ));
    // A conversation is never cut.
    let can_cut = scanned.files.iter().all(|file| file.chat.is_empty());
    if let (Task::LanguageModel, Some(HoldOut { fraction, .. }), true) = (task, hold_out, can_cut) {
        cut_only_document(root, &scanned.files, &mut samples, fraction);
    }
    Assigned {
        classes,
        samples,
        notes,
    }
}

/// Leaves out a row whose class has no training texts, since the class cannot be learned.
fn leave_out(left: &mut BTreeMap<u32, SkippedRows>, row: &ScannedRow, files: &[TextFile]) {
    let rows = left.entry(row.file).or_insert_with(|| SkippedRows {
        path: files[row.file as usize].path.clone(),
        reason: "no training text has this label".to_owned(),
        rows: 0,
        lines: Vec::new(),
    });
    rows.rows += 1;
    if rows.lines.len() < LISTED_LINES {
        rows.lines.push(row.line);
    }
}

/// Notes about texts that occur more than once.
fn describe_repeats(task: Task, scanned: &ScannedRows) -> Vec<String> {
    let mut first: HashMap<u64, (u32, Option<Split>)> = HashMap::with_capacity(scanned.rows.len());
    let mut repeats = refusals_and_notes::Repeats::default();
    for row in &scanned.rows {
        match first.get(&row.hash) {
            None => {
                first.insert(row.hash, (row.label, row.split));
            }
            Some((label, split)) => {
                repeats.in_split += u64::from(*split == row.split);
                repeats.contradicting += u64::from(*label != row.label);
                repeats.across_splits += u64::from(*split != row.split);
            }
        }
    }
    let are_conversations = scanned.files.iter().any(|file| !file.chat.is_empty());
    refusals_and_notes::repeats(task, are_conversations, &repeats)
}

/// The split of each row: the dataset's own, or else by seed, class by class.
fn assign_rows(task: Task, scanned: &ScannedRows, hold_out: Option<HoldOut>) -> Vec<Split> {
    let mut splits: Vec<Split> = scanned
        .rows
        .iter()
        .map(|row| row.split.unwrap_or(Split::Train))
        .collect();
    let Some(HoldOut { fraction, seed }) = hold_out else {
        return splits;
    };
    let group = grouping(&scanned.rows);
    // Each group counts once, with its first label. The other rows of the group join it.
    let mut of_label: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    let mut chosen: HashMap<u64, bool> = HashMap::new();
    for (row, split) in scanned.rows.iter().zip(&splits) {
        if *split == Split::Train && chosen.insert(group(row), false).is_none() {
            of_label.entry(row.label).or_default().push(group(row));
        }
    }
    for (label, hashes) in of_label {
        let class = if task.is_on_documents() {
            ""
        } else {
            scanned.labels[label as usize].as_str()
        };
        let names: Vec<String> = hashes.iter().map(|hash| format!("{hash:016x}")).collect();
        let views: Vec<&str> = names.iter().map(String::as_str).collect();
        let held_out = seeded_selection::choose_held_out(seed, class, &views, fraction);
        chosen.extend(hashes.into_iter().zip(held_out));
    }
    for (row, split) in scanned.rows.iter().zip(&mut splits) {
        if *split == Split::Train && chosen.get(&group(row)) == Some(&true) {
            *split = Split::HeldOut;
        }
    }
    splits
}

/// The group of a row, which is never divided: rows with the same prompt. If no prompt has several
/// answers, or more than half of the rows have one prompt, such as the same instruction for every
/// row, rows with the same text.
fn grouping(rows: &[ScannedRow]) -> fn(&ScannedRow) -> u64 {
    let mut counts: HashMap<u64, usize> = HashMap::new();
    for row in rows {
        *counts.entry(row.prompt_hash).or_default() += 1;
    }
    let texts: HashSet<u64> = rows.iter().map(|row| row.hash).collect();
    let has_repeats = counts.len() < texts.len();
    let largest = counts.into_values().max().unwrap_or(0);
    if !has_repeats || 2 * largest > rows.len() {
        return |row| row.hash;
    }
    |row| row.prompt_hash
}

/// The classes that have training texts, in label order, and the class of each label.
fn assign_labels(scanned: &ScannedRows, splits: &[Split]) -> (Vec<Class>, Vec<Option<u32>>) {
    let mut trained = vec![false; scanned.labels.len()];
    for (row, split) in scanned.rows.iter().zip(splits) {
        trained[row.label as usize] |= *split == Split::Train;
    }
    let mut order: Vec<usize> = (0..trained.len()).filter(|i| trained[*i]).collect();
    let number = |i: &usize| scanned.labels[*i].parse::<i64>().ok();
    if order.iter().all(|i| number(i).is_some()) {
        order.sort_by_key(|i| (number(i), scanned.labels[*i].clone()));
    } else {
        order.sort_by(|a, b| scanned.labels[*a].cmp(&scanned.labels[*b]));
    }
    let mut class_of = vec![None; trained.len()];
    let mut classes = Vec::with_capacity(order.len());
    for i in order {
        class_of[i] = Some(classes.len() as u32);
        classes.push(Class::new(scanned.labels[i].clone()));
    }
    (classes, class_of)
}

/// If there is only one document, holds out its end.
fn cut_only_document(
    root: &Path,
    files: &[TextFile],
    samples: &mut Vec<TextSample>,
    fraction: f64,
) {
    let mut trained = samples
        .iter()
        .enumerate()
        .filter(|(_, s)| s.split == Split::Train);
    let (Some((at, only)), None) = (trained.next(), trained.next()) else {
        return;
    };
    let only = *only;
    if fraction <= 0.0 || samples.iter().any(|s| s.split == Split::HeldOut) {
        return;
    }
    let Some(text) = text_at(root, &files[only.file as usize], only.row) else {
        return;
    };
    let target = (text.len() as f64 * (1.0 - fraction)) as usize;
    let line_end = text
        .as_bytes()
        .iter()
        .skip(target)
        .position(|byte| *byte == b'\n');
    let line_end = line_end.map(|more| target + more + 1);
    let mut place = line_end
        .filter(|place| *place < text.len())
        .unwrap_or(target);
    while !text.is_char_boundary(place) {
        place += 1;
    }
    if place == 0 || place >= text.len() {
        return;
    }
    let (head, tail) = text.split_at(place);
    let part = |text: &str, start: usize, split| TextSample {
        split,
        start: start as u32,
        end: (start + text.len()) as u32,
        characters: text.chars().count() as u32,
        ..only
    };
    samples[at] = part(head, 0, Split::Train);
    samples.insert(at + 1, part(tail, place, Split::HeldOut));
}

/// The text of one row of a file.
fn text_at(root: &Path, file: &TextFile, wanted: u32) -> Option<String> {
    let opened = OpenFile::reopen(&root.join(&file.path), file.dialect).ok()?;
    let (mut row, mut text) = (0u32, None);
    opened.visit(&file.text_columns, &mut |_, found| {
        if row == wanted
            && let Row::Cells(cells) = found
        {
            let found = row_text(cells, file.dialect, &file.chat, LineEnds::LineFeeds);
            text = found.ok().map(|text| text.into_owned());
        }
        row += 1;
        row <= wanted
    });
    text
}
