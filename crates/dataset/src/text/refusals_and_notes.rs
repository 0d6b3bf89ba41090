//! Sentences about a folder of texts: refusals and notes.

use super::text_inspection::DetectedEncoding;
use crate::task::Task;
use crate::types::Class;
use crate::user_messages::{imbalance, listed_up_to, missing_in, single_samples};
use format::{counted, format_count};
use std::collections::BTreeMap;

/// Number of names listed before "and N more".
const LISTED_NAMES: usize = 6;
/// Fewest bytes of text from which a language model can learn.
const MIN_CORPUS_BYTES: u64 = 1000;
/// Most classes if most of them have one text. More suggest that the column is not a label.
const MAX_SINGLE_LABELS: usize = 1000;

/// "a, b, c and 4 more".
pub(crate) fn listed(names: &[String]) -> String {
    listed_up_to(LISTED_NAMES, names)
}

/// The counts that decide whether texts are refused.
pub(crate) struct TextCounts {
    /// Training samples of all classes.
    pub trained: u64,
    /// Bytes of all samples.
    pub bytes: u64,
    /// Whether the samples are conversations.
    pub are_conversations: bool,
    /// Whether labels are in columns or lines rather than in folders.
    pub in_rows: bool,
    /// Whether the user has named the column of the labels.
    pub is_label_column_named: bool,
    /// Files and rows that were left out.
    pub skipped: u64,
}

/// Why texts cannot be trained on, and how to fix that.
pub(crate) fn refusal(task: Task, classes: &[Class], counts: &TextCounts) -> Option<String> {
    if counts.trained == 0 {
        let skipped = counted(
            counts.skipped,
            "file or row was left out for the reason listed",
            "files or rows were left out for the reasons listed",
        );
        let noun = noun(task, counts.are_conversations);
        return Some(format!("No {noun} can be used; {skipped}. Add {noun}s."));
    }
    if task == Task::LanguageModel {
        return (counts.bytes < MIN_CORPUS_BYTES).then(|| {
            format!(
                "{} too few to learn from. Add {}s until there are at least {}.",
                counted(counts.bytes, "byte of text is", "bytes of text are"),
                noun(task, counts.are_conversations),
                format_count(MIN_CORPUS_BYTES)
            )
        });
    }
    match classes {
        [only] => {
            let more = if counts.in_rows {
                "To train, add rows with a second label."
            } else {
                "To train, add a second sub-folder."
            };
            Some(format!(
                "All texts have the same class, {}. {more}",
                only.name
            ))
        }
        many if many.len() > MAX_SINGLE_LABELS
            && many.len() as u64 * 2 > counts.trained
            && !counts.is_label_column_named =>
        {
            Some(format!(
                "{} different values in {} do not look like labels. If another column holds the labels, rename it to label, or choose the column (--label-column in the terminal).",
                format_count(many.len() as u64),
                counted(counts.trained, "text", "texts")
            ))
        }
        _ => None,
    }
}

/// The note about large files of which each part is a document.
pub(crate) fn files_in_parts(files: &[String]) -> Option<String> {
    let (are, their) = match files {
        [] => return None,
        [_] => ("is larger than 64 MB", "it"),
        _ => ("are larger than 64 MB", "them"),
    };
    Some(format!(
        "{} {are}, so Ebb reads {their} in parts of about 16 MB, and each part is a document.",
        listed(files)
    ))
}

/// Counts of texts that occur more than once.
#[derive(Default)]
pub(crate) struct Repeats {
    /// Texts that repeat an earlier one of the same split.
    pub in_split: u64,
    /// Texts that repeat an earlier one with another label.
    pub contradicting: u64,
    /// Texts that repeat an earlier one of another split.
    pub across_splits: u64,
}

/// The noun for one sample.
fn noun(task: Task, are_conversations: bool) -> &'static str {
    if are_conversations {
        "conversation"
    } else {
        task.sample_noun()
    }
}

/// Notes about texts that occur more than once.
pub(crate) fn repeats(task: Task, are_conversations: bool, repeats: &Repeats) -> Vec<String> {
    let one = noun(task, are_conversations);
    let many = format!("{one}s");
    let mut notes = Vec::new();
    if repeats.in_split > 0 {
        notes.push(format!(
            "{}. Ebb never divides identical {many} between the training and the held-out set.",
            counted(
                repeats.in_split,
                &format!("{one} repeats an earlier one"),
                &format!("{many} repeat an earlier one")
            )
        ));
    }
    if repeats.contradicting > 0 && task != Task::LanguageModel {
        notes.push(format!(
            "{} a different label from the first occurrence of the same text. Check these texts, because one of the labels is wrong.",
            counted(
                repeats.contradicting,
                "repeated text has",
                "repeated texts have"
            )
        ));
    }
    if repeats.across_splits > 0 {
        notes.push(format!(
            "{} in two sets, so the results look better than they are. Remove the repeated {many} from one set.",
            counted(
                repeats.across_splits,
                &format!("{one} is"),
                &format!("{many} are")
            )
        ));
    }
    notes
}

/// Notes about the classes: imbalance, and classes without held-out or test samples. `given` tells
/// whether the dataset brings its own split.
pub(crate) fn classes(task: Task, classes: &[Class], given: bool) -> Vec<String> {
    let noun = task.sample_noun();
    let held_out = if given {
        missing_in("the held-out set", noun, classes, |c| c.held_out)
    } else {
        single_samples(noun, classes)
    };
    let test = missing_in("the test set", noun, classes, |c| c.test);
    let tested = classes.iter().any(|class| class.test > 0);
    [
        alike(classes),
        imbalance(noun, classes),
        held_out,
        test.filter(|_| tested),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Classes that differ only in capital letters are most likely the same.
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
            "Some class names differ only in capital letters: {}. If two names mean the same class, spell them alike.",
            listed(&alike)
        )
    })
}

/// A note about classes without training texts.
pub(crate) fn untrained_classes(labels: &[String]) -> Option<String> {
    let classes = counted(
        labels.len() as u64,
        "class has no text to train on and is",
        "classes have no text to train on and are",
    );
    (!labels.is_empty()).then(|| format!("{classes} left out: {}.", listed(labels)))
}

/// A note about text files that the task does not use.
pub(crate) fn unused_files(files: &[String]) -> Option<String> {
    let verb = if files.len() == 1 { "is" } else { "are" };
    (!files.is_empty()).then(|| {
        format!(
            "{} {verb} not used, because the samples are in other files.",
            listed(files)
        )
    })
}

/// A note that there are more rows than Ebb reads.
pub(crate) fn too_many_rows(limit: u64) -> String {
    format!(
        "Ebb reads at most {} rows and left out all later rows. To use other rows, split the file.",
        format_count(limit)
    )
}

/// Notes about bytes that are not plain UTF-8.
pub(crate) fn encodings(found: &[DetectedEncoding]) -> Vec<String> {
    let mut notes = Vec::new();
    for one in found {
        let files = counted(one.files, "file is", "files are");
        let (them, place) = match one.files {
            1 => ("it", "In this file"),
            _ => ("them", "In these files"),
        };
        let replaced = match one.replaced_bytes {
            0 => String::new(),
            n => format!(
                "{} could not be read and {} replaced",
                counted(n, "byte", "bytes"),
                if n == 1 { "was" } else { "were" }
            ),
        };
        if one.guessed_bytes > 0 {
            let guessed = counted(one.guessed_bytes, "byte is", "bytes are");
            let none = "everything could be read".to_owned();
            let replaced = if replaced.is_empty() { none } else { replaced };
            notes.push(format!(
                "{files} not UTF-8, so Ebb read {them} as {}. {place}, {guessed} not ASCII, and {replaced}.",
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
            notes.push(format!("Some UTF-8 text is damaged: {replaced}."));
        }
    }
    let marked: u64 = found.iter().map(|one| one.marked_files).sum();
    if marked > 0 {
        notes.push(format!(
            "{} with a byte-order mark, which is not part of the text.",
            counted(marked, "file starts", "files start")
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_count_the_bytes_that_were_replaced() {
        let found = DetectedEncoding {
            name: "windows-1252",
            files: 12,
            marked_files: 0,
            guessed_bytes: 31,
            replaced_bytes: 0,
        };
        let damaged = DetectedEncoding {
            name: "UTF-8",
            files: 3,
            marked_files: 1,
            guessed_bytes: 0,
            replaced_bytes: 2,
        };
        assert_eq!(
            encodings(&[found, damaged]),
            [
                "12 files are not UTF-8, so Ebb read them as windows-1252. In these files, 31 bytes are not ASCII, and everything could be read.",
                "Some UTF-8 text is damaged: 2 bytes could not be read and were replaced.",
                "1 file starts with a byte-order mark, which is not part of the text.",
            ]
        );
    }

    #[test]
    fn a_single_class_is_refused_with_a_next_step() {
        let class = Class {
            name: "ham".to_owned(),
            train: 8,
            held_out: 2,
            test: 0,
        };
        let counts = TextCounts {
            trained: 8,
            bytes: 900,
            are_conversations: false,
            in_rows: true,
            is_label_column_named: false,
            skipped: 0,
        };
        let text = refusal(Task::TextClassification, &[class], &counts).unwrap_or_default();
        assert_eq!(
            text,
            "All texts have the same class, ham. To train, add rows with a second label."
        );
    }

    #[test]
    fn a_column_that_the_user_names_may_have_many_labels() {
        let class = |n: u64| Class {
            name: format!("intent {n}"),
            train: 1,
            held_out: 1,
            test: 0,
        };
        let classes: Vec<Class> = (0..10_000).map(class).collect();
        let counts = |is_label_column_named| TextCounts {
            trained: 10_000,
            bytes: 400_000,
            are_conversations: false,
            in_rows: true,
            is_label_column_named,
            skipped: 0,
        };
        let refused = refusal(Task::TextClassification, &classes, &counts(false));
        let refused = refused.unwrap_or_default();
        assert!(
            refused.starts_with("10,000 different values in 10,000 texts do not look like labels."),
            "{refused}"
        );
        let named = refusal(Task::TextClassification, &classes, &counts(true));
        assert_eq!(named, None);
    }
}
