//! From rows to samples: who is trained on and who is held out, which label each class has, and where a single document is
//! cut. Equal texts never stand on both sides of a split that Ebb makes. Opens a file only to cut the one document.

use super::cells::Row;
use super::gather::{Gathered, Raw, text_of};
use super::inspection::{SkippedRows, Task, TextFile, TextSample};
use super::source::Source;
use super::words;
use crate::inspection::{Class, Part};
use crate::split;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

/// Samples, their classes, and what there is to say about them.
#[derive(Debug, Default)]
pub(crate) struct Assigned {
    pub classes: Vec<Class>,
    pub samples: Vec<TextSample>,
    pub notes: Vec<String>,
}

/// Deals the rows out. `held_out` is the fraction and the seed where the folder brings no held-out part.
pub(crate) fn assign(
    root: &Path,
    task: Task,
    gathered: &mut Gathered,
    held_out: Option<(f64, u64)>,
) -> Assigned {
    let notes = repeats(task, gathered);
    let parts = deal(task, gathered, held_out);
    let (classes, labels) = match task {
        Task::LanguageModel | Task::TokenCompression => {
            (Vec::new(), vec![Some(0); gathered.labels.len()])
        }
        _ => label(gathered, &parts),
    };
    let mut assigned = Assigned {
        classes,
        samples: Vec::with_capacity(gathered.rows.len()),
        notes,
    };
    let mut unlearnt: BTreeMap<u32, SkippedRows> = BTreeMap::new();
    let mut unlearnt_labels: BTreeSet<u32> = BTreeSet::new();
    for (raw, part) in gathered.rows.iter().zip(parts) {
        let Some(label) = labels[raw.label as usize] else {
            leave(&mut unlearnt, raw, &gathered.files);
            unlearnt_labels.insert(raw.label);
            continue;
        };
        if let Some(class) = assigned.classes.get_mut(label as usize) {
            match part {
                Part::Train => class.train += 1,
                Part::HeldOut => class.held_out += 1,
                Part::Test => class.test += 1,
            }
        }
        assigned.samples.push(TextSample {
            file: raw.file,
            row: raw.row,
            label,
            part,
            start: 0,
            end: raw.bytes,
            characters: raw.characters,
            key: raw.key,
        });
    }
    gathered.skipped_rows.extend(unlearnt.into_values());
    let names = unlearnt_labels
        .iter()
        .map(|label| gathered.labels[*label as usize].clone());
    assigned
        .notes
        .extend(words::unlearnt(&names.collect::<Vec<_>>()));
    if let (Task::LanguageModel, Some((fraction, _))) = (task, held_out) {
        cut_only_document(root, &gathered.files, &mut assigned.samples, fraction);
    }
    assigned
}

/// A class that is evaluated but never trained on cannot be learnt.
fn leave(left: &mut BTreeMap<u32, SkippedRows>, raw: &Raw, files: &[TextFile]) {
    let kept = left.entry(raw.file).or_insert_with(|| SkippedRows {
        path: files[raw.file as usize].path.clone(),
        reason: "its label has no text to train on".to_owned(),
        rows: 0,
        lines: Vec::new(),
    });
    kept.rows += 1;
    if kept.lines.len() < 3 {
        kept.lines.push(raw.line);
    }
}

/// What is said about texts that stand there more than once.
fn repeats(task: Task, gathered: &Gathered) -> Vec<String> {
    let mut first: HashMap<u64, (u32, Option<Part>)> = HashMap::with_capacity(gathered.rows.len());
    let (mut again, mut contradicting, mut shared) = (0u64, 0u64, 0u64);
    for raw in &gathered.rows {
        match first.get(&raw.key) {
            None => {
                first.insert(raw.key, (raw.label, raw.part));
            }
            Some((label, part)) => {
                again += u64::from(*part == raw.part);
                contradicting += u64::from(*label != raw.label);
                shared += u64::from(*part != raw.part);
            }
        }
    }
    words::repeats(task, again, contradicting, shared)
}

/// The part of each row: the folder's own, else held out by seed, class by class.
fn deal(task: Task, gathered: &Gathered, held_out: Option<(f64, u64)>) -> Vec<Part> {
    let mut parts: Vec<Part> = gathered
        .rows
        .iter()
        .map(|raw| raw.part.unwrap_or(Part::Train))
        .collect();
    let Some((fraction, seed)) = held_out else {
        return parts;
    };
    // Each text once, under its first label: its repeats go where it goes.
    let mut of_label: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    let mut chosen: HashMap<u64, bool> = HashMap::new();
    for (raw, part) in gathered.rows.iter().zip(&parts) {
        if *part == Part::Train && chosen.insert(raw.key, false).is_none() {
            of_label.entry(raw.label).or_default().push(raw.key);
        }
    }
    for (label, keys) in of_label {
        let class = match task {
            Task::LanguageModel | Task::TokenCompression => "",
            _ => gathered.labels[label as usize].as_str(),
        };
        let names: Vec<String> = keys.iter().map(|key| format!("{key:016x}")).collect();
        let views: Vec<&str> = names.iter().map(String::as_str).collect();
        for (key, held) in keys
            .iter()
            .zip(split::held_out(seed, class, &views, fraction))
        {
            chosen.insert(*key, held);
        }
    }
    for (raw, part) in gathered.rows.iter().zip(&mut parts) {
        if *part == Part::Train && chosen.get(&raw.key) == Some(&true) {
            *part = Part::HeldOut;
        }
    }
    parts
}

/// Classes that have texts to train on, in order, and the class of each label.
fn label(gathered: &Gathered, parts: &[Part]) -> (Vec<Class>, Vec<Option<u32>>) {
    let mut trained = vec![false; gathered.labels.len()];
    for (raw, part) in gathered.rows.iter().zip(parts) {
        trained[raw.label as usize] |= *part == Part::Train;
    }
    let mut order: Vec<usize> = (0..trained.len()).filter(|i| trained[*i]).collect();
    let number = |i: &usize| gathered.labels[*i].parse::<i64>().ok();
    match order.iter().all(|i| number(i).is_some()) {
        true => order.sort_by_key(|i| (number(i), gathered.labels[*i].clone())),
        false => order.sort_by(|a, b| gathered.labels[*a].cmp(&gathered.labels[*b])),
    }
    let mut places = vec![None; trained.len()];
    let class = |(place, i): (usize, &usize)| {
        places[*i] = Some(place as u32);
        Class {
            name: gathered.labels[*i].clone(),
            train: 0,
            held_out: 0,
            test: 0,
        }
    };
    let classes = order.iter().enumerate().map(class).collect();
    (classes, places)
}

/// One document has no other to be held out: its end is.
fn cut_only_document(
    root: &Path,
    files: &[TextFile],
    samples: &mut Vec<TextSample>,
    fraction: f64,
) {
    let mut trained = samples
        .iter()
        .enumerate()
        .filter(|(_, s)| s.part == Part::Train);
    let (Some((at, only)), None) = (trained.next(), trained.next()) else {
        return;
    };
    let only = *only;
    if fraction <= 0.0 || samples.iter().any(|s| s.part == Part::HeldOut) {
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
    let part = |text: &str, start: usize, part| TextSample {
        part,
        start: start as u32,
        end: (start + text.len()) as u32,
        characters: text.chars().count() as u32,
        ..only
    };
    samples[at] = part(head, 0, Part::Train);
    samples.insert(at + 1, part(tail, place, Part::HeldOut));
}

/// The text of one row of a file, as it was read.
fn text_at(root: &Path, file: &TextFile, wanted: u32) -> Option<String> {
    let source = Source::open(&root.join(&file.path), file.format).ok()?;
    let (mut row, mut text) = (0u32, None);
    source.visit(&file.texts, &mut |_, found| {
        if let (true, Row::Cells(cells)) = (row == wanted, found) {
            text = text_of(cells, file.format).map(|text| text.into_owned());
        }
        row += 1;
        row <= wanted
    });
    text
}
