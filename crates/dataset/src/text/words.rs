//! The sentences about a folder of texts: what was found, why it cannot be trained, what is worth knowing.

use super::inspection::{EncodingFound, Task};
use crate::inspection::Class;
use crate::sentences::{self, grouped};
use std::collections::BTreeMap;

/// Names listed before "and N more".
const NAMES_SHOWN: usize = 6;
/// Characters below which there is nothing to learn a language from.
const MIN_CORPUS_BYTES: u64 = 1000;
/// Labels beyond which a column is no label, when most of them stand once.
const MAX_SINGLE_LABELS: usize = 1000;

/// "a, b, c and 4 more".
pub(crate) fn listed(names: &[String]) -> String {
    let shown: Vec<&str> = names.iter().take(NAMES_SHOWN).map(String::as_str).collect();
    let shown = shown.join(", ");
    match names.len().saturating_sub(NAMES_SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(n), if n == 1 { one } else { many })
}

/// What is known when a refusal is worded.
pub(crate) struct Found<'a> {
    pub task: Task,
    pub classes: &'a [Class],
    /// Samples to train on, of every class.
    pub trained: u64,
    /// Bytes of all samples.
    pub bytes: u64,
    /// Labels stand in a column rather than in folders.
    pub in_rows: bool,
    pub skipped: u64,
}

/// Why texts cannot be trained on, with the next move; nothing when they could be.
pub(crate) fn refusal(found: &Found) -> Option<String> {
    let more = match found.in_rows {
        true => "Add rows of a second label to train.",
        false => "Add a second sub-folder to train.",
    };
    if found.trained == 0 {
        let skipped = counted(
            found.skipped,
            "was left out, with its reason",
            "were left out, each with its reason",
        );
        return Some(format!(
            "No {} can be used; {skipped}. Add some.",
            found.task.sample()
        ));
    }
    if found.task == Task::LanguageModel {
        return (found.bytes < MIN_CORPUS_BYTES).then(|| {
            format!(
                "{} too few to learn from; add documents until there are {} at least.",
                counted(found.bytes, "byte of text is", "bytes of text are"),
                grouped(MIN_CORPUS_BYTES)
            )
        });
    }
    match found.classes {
        [only] => Some(format!("All texts have one class, {}. {more}", only.name)),
        many if many.len() > MAX_SINGLE_LABELS && many.len() as u64 * 2 > found.trained => {
            Some(format!(
                "{} classes in {} look like no labels. Call another column label, or name it in the terminal with --label-column.",
                grouped(many.len() as u64),
                counted(found.trained, "text", "texts")
            ))
        }
        _ => None,
    }
}

/// What is said about texts that stand there more than once.
pub(crate) fn repeats(task: Task, again: u64, contradicting: u64, shared: u64) -> Vec<String> {
    let sample = task.sample();
    let mut notes = Vec::new();
    if again > 0 {
        let verb = if again == 1 { "repeats" } else { "repeat" };
        notes.push(format!(
            "{} {verb} an earlier one; equal ones are never held out apart.",
            counted(again, sample, &format!("{sample}s"))
        ));
    }
    if contradicting > 0 && task != Task::LanguageModel {
        let verb = if contradicting == 1 {
            "stands"
        } else {
            "stand"
        };
        notes.push(format!(
            "{} {verb} under another label than before. Look at them: one of the labels is wrong.",
            counted(contradicting, "repeated text", "repeated texts")
        ));
    }
    if shared > 0 {
        let verb = if shared == 1 { "stands" } else { "stand" };
        notes.push(format!(
            "{} {verb} in two parts: what is measured on them flatters. Remove them from one.",
            counted(shared, sample, &format!("{sample}s"))
        ));
    }
    notes
}

/// What is said about the classes: imbalance, and classes missing in a part.
pub(crate) fn classes(task: Task, classes: &[Class], given: bool) -> Vec<String> {
    let noun = task.sample();
    let held_out = match given {
        true => sentences::missing_in("the held-out part", noun, classes, |c| c.held_out),
        false => sentences::alone(noun, classes),
    };
    let test = sentences::missing_in("the test part", noun, classes, |c| c.test);
    let tested = classes.iter().any(|class| class.test > 0);
    [
        alike(classes),
        sentences::imbalance(noun, classes),
        held_out,
        test.filter(|_| tested),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Classes that differ in capitals only are most likely one.
fn alike(classes: &[Class]) -> Option<String> {
    let mut by_name: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for class in classes {
        let same = by_name.entry(class.name.to_lowercase()).or_default();
        same.push(class.name.clone());
    }
    let alike: Vec<String> = by_name
        .into_values()
        .filter(|names| names.len() > 1)
        .flatten()
        .collect();
    (!alike.is_empty()).then(|| {
        format!(
            "Some classes differ in capitals only: {}. Write them alike if they are the same.",
            listed(&alike)
        )
    })
}

/// Labels that are evaluated but never trained on.
pub(crate) fn unlearnt(labels: &[String]) -> Option<String> {
    let verb = if labels.len() == 1 {
        "has no text to train on and is"
    } else {
        "have no text to train on and are"
    };
    let count = counted(labels.len() as u64, "class", "classes");
    (!labels.is_empty()).then(|| format!("{count} {verb} left out: {}.", listed(labels)))
}

/// Files of texts that the task has no use for.
pub(crate) fn passed_over(files: &[String]) -> Option<String> {
    let verb = if files.len() == 1 { "is" } else { "are" };
    (!files.is_empty()).then(|| {
        format!(
            "{} {verb} passed over: the samples stand elsewhere.",
            listed(files)
        )
    })
}

/// What is said where there are more rows than are read.
pub(crate) fn too_many_rows(limit: u64) -> String {
    format!(
        "Only the first {} rows were read. Take a part of them.",
        grouped(limit)
    )
}

/// What is said about bytes that were not plain UTF-8.
pub(crate) fn encodings(found: &[EncodingFound]) -> Vec<String> {
    let mut notes = Vec::new();
    for one in found {
        let files = counted(one.files, "file is", "files are");
        let replaced = match one.replaced_bytes {
            0 => String::new(),
            n => format!(
                "{} could not be read and {} replaced",
                counted(n, "byte", "bytes"),
                if n == 1 { "was" } else { "were" }
            ),
        };
        if one.guessed_bytes > 0 {
            let read = counted(one.guessed_bytes, "byte", "bytes");
            let none = "none had to be replaced".to_owned();
            let replaced = if replaced.is_empty() { none } else { replaced };
            notes.push(format!(
                "{files} not UTF-8, read as {}: {read} beyond ASCII, {replaced}.",
                one.name
            ));
        } else if one.name != "UTF-8" {
            let replaced = if replaced.is_empty() {
                String::new()
            } else {
                format!(": {replaced}")
            };
            notes.push(format!("{files} {}{replaced}.", one.name));
        } else if !replaced.is_empty() {
            notes.push(format!("UTF-8 is damaged: {replaced}."));
        }
    }
    let marked: u64 = found.iter().map(|one| one.marked_files).sum();
    if marked > 0 {
        let begin = if marked == 1 { "begins" } else { "begin" };
        notes.push(format!(
            "{} {begin} with a byte-order mark, which is not part of the text.",
            counted(marked, "file", "files")
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_were_replaced_are_counted_in_sight() {
        let found = EncodingFound {
            name: "windows-1252",
            files: 12,
            marked_files: 0,
            guessed_bytes: 31,
            replaced_bytes: 0,
        };
        let damaged = EncodingFound {
            name: "UTF-8",
            files: 3,
            marked_files: 1,
            guessed_bytes: 0,
            replaced_bytes: 2,
        };
        assert_eq!(
            encodings(&[found, damaged]),
            [
                "12 files are not UTF-8, read as windows-1252: 31 bytes beyond ASCII, none had to be replaced.",
                "UTF-8 is damaged: 2 bytes could not be read and were replaced.",
                "1 file begins with a byte-order mark, which is not part of the text.",
            ]
        );
    }

    #[test]
    fn one_class_is_refused_with_the_next_move() {
        let class = Class {
            name: "ham".to_owned(),
            train: 8,
            held_out: 2,
            test: 0,
        };
        let found = Found {
            task: Task::TextClassification,
            classes: &[class],
            trained: 8,
            bytes: 900,
            in_rows: true,
            skipped: 0,
        };
        let text = refusal(&found).unwrap_or_default();
        assert_eq!(
            text,
            "All texts have one class, ham. Add rows of a second label to train."
        );
    }
}
