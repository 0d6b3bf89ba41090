//! The words of an inspection: why a folder cannot be trained, and what is worth knowing. Pure text from counts; reads
//! nothing.

use crate::inspection::Class;
use std::collections::BTreeMap;

/// Names listed before "and N more".
const NAMES_SHOWN: usize = 3;

/// What is known about a folder when its refusal is worded.
pub(crate) struct Situation<'a> {
    /// Classes that have photographs to train on.
    pub classes: &'a [Class],
    /// Readable photographs that stand outside any class folder.
    pub strays: u64,
    /// Files and folders left out.
    pub skipped: u64,
    /// Entries of any kind, junk included.
    pub entries: u64,
    /// Split folders found, as named.
    pub split_folders: &'a [String],
    /// One of them is the one to train on.
    pub has_train: bool,
}

/// Why the folder cannot be trained, with the next move; nothing when it can.
pub(crate) fn refusal(s: &Situation) -> Option<String> {
    if !s.split_folders.is_empty() && !s.has_train {
        let names = s.split_folders.join(" and ");
        return Some(format!(
            "This folder has {names} but no train folder. Add a folder named train with one sub-folder per class."
        ));
    }
    let place = match s.split_folders {
        [] => "This folder".to_string(),
        _ => "The train folder".to_string(),
    };
    match s.classes {
        [] if s.entries == 0 => Some(
            "This folder is empty. Add one sub-folder of photographs for each class.".to_string(),
        ),
        [] if s.strays > 0 => Some(format!(
            "{place} holds {} but no class folders. Put the photographs of each class into a sub-folder named after it.",
            count(s.strays, "photograph")
        )),
        [] if s.skipped > 0 => Some(format!(
            "{place} has no photograph that can be read; {} left out, each with its reason. Add JPEG, PNG or WebP files.",
            if s.skipped == 1 {
                "one file was".to_string()
            } else {
                format!("{} files were", grouped(s.skipped))
            }
        )),
        [] => Some(format!(
            "{place} has no photographs. Add one sub-folder of JPEG, PNG or WebP files for each class."
        )),
        [only] => Some(format!(
            "{place} has one class, {}. Add a second sub-folder to train.",
            only.name
        )),
        _ => None,
    }
}

/// Classes with fewer than half the samples, called `noun`, of the largest.
pub(crate) fn imbalance(noun: &str, classes: &[Class]) -> Option<String> {
    let largest = classes.iter().max_by_key(|c| c.samples())?;
    let small: Vec<String> = classes
        .iter()
        .filter(|c| u64::from(c.samples()) * 2 < u64::from(largest.samples()))
        .map(|c| format!("{} {}", c.name, c.samples()))
        .collect();
    let verb = if small.len() == 1 { "has" } else { "have" };
    (!small.is_empty()).then(|| {
        format!(
            "{} {verb} fewer than half the {noun}s of the largest ({} {}): {}.",
            count_of(small.len(), "class", "classes"),
            largest.name,
            largest.samples(),
            listed(&small)
        )
    })
}

/// Classes without a photograph in one part.
pub(crate) fn missing_in(
    part: &str,
    noun: &str,
    classes: &[Class],
    has: fn(&Class) -> u32,
) -> Option<String> {
    let missing: Vec<String> = classes
        .iter()
        .filter(|c| has(c) == 0)
        .map(|c| c.name.clone())
        .collect();
    let verb = if missing.len() == 1 { "has" } else { "have" };
    (!missing.is_empty() && missing.len() < classes.len()).then(|| {
        let n = count_of(missing.len(), "class", "classes");
        format!("{n} {verb} no {noun} in {part}: {}.", listed(&missing))
    })
}

/// Classes whose only photograph is trained on.
pub(crate) fn alone(noun: &str, classes: &[Class]) -> Option<String> {
    let alone: Vec<String> = classes
        .iter()
        .filter(|c| c.train == 1 && c.held_out == 0)
        .map(|c| c.name.clone())
        .collect();
    match alone.as_slice() {
        [] => None,
        [one] => Some(format!(
            "{one} has one {noun}: it is trained on, and nothing of this class is held out."
        )),
        many => Some(format!(
            "{} classes have one {noun} each: it is trained on, and nothing of them is held out: {}.",
            many.len(),
            listed(many)
        )),
    }
}

/// Image formats that are named but not read, with their counts.
pub(crate) fn formats(counts: &BTreeMap<&'static str, u64>) -> Option<String> {
    let parts: Vec<String> = counts
        .iter()
        .map(|(name, n)| format!("{} {name}", grouped(*n)))
        .collect();
    (!parts.is_empty()).then(|| {
        let list = parts.join(", ");
        format!(
            "Formats that are not read were left out: {list}. Save them as JPEG or PNG to use them."
        )
    })
}

/// Folders that hold nothing to train on.
pub(crate) fn barren(folders: &[String]) -> Option<String> {
    match folders {
        [] => None,
        [one] => Some(format!("{one} holds no photograph and is left out.")),
        many => Some(format!(
            "{} folders hold no photograph and are left out: {}.",
            many.len(),
            listed(many)
        )),
    }
}

/// "a, b, c and 4 more".
pub(crate) fn listed(names: &[String]) -> String {
    let shown = names
        .iter()
        .take(NAMES_SHOWN)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    match names.len().saturating_sub(NAMES_SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn count(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(n), if n == 1 { "" } else { "s" })
}

fn count_of(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// "12,345".
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(name: &str, train: u32, held_out: u32) -> Class {
        Class {
            name: name.to_string(),
            train,
            held_out,
            test: 0,
        }
    }

    #[test]
    fn one_class_is_refused_by_its_name() {
        let classes = [class("butterfly", 40, 10)];
        let s = Situation {
            classes: &classes,
            strays: 0,
            skipped: 0,
            entries: 50,
            split_folders: &[],
            has_train: true,
        };
        let expected = "This folder has one class, butterfly. Add a second sub-folder to train.";
        assert_eq!(refusal(&s).as_deref(), Some(expected));
    }

    #[test]
    fn exactly_half_is_not_yet_imbalance() {
        assert_eq!(
            imbalance("photograph", &[class("ant", 50, 10), class("bee", 30, 0)]),
            None
        );
        let text = imbalance("photograph", &[class("ant", 50, 10), class("bee", 29, 0)])
            .unwrap_or_default();
        assert!(text.contains("ant 60") && text.contains("bee 29"), "{text}");
    }

    #[test]
    fn long_lists_are_cut_and_numbers_grouped() {
        let classes: Vec<Class> = "abcde"
            .chars()
            .map(|c| class(&c.to_string(), 9, 0))
            .collect();
        let mut with = classes.clone();
        with.push(class("z", 9, 1));
        let text = missing_in("val", "photograph", &with, |c| c.held_out).unwrap_or_default();
        assert_eq!(
            text,
            "5 classes have no photograph in val: a, b, c and 2 more."
        );
        assert_eq!(
            missing_in("val", "photograph", &classes, |c| c.held_out),
            None,
            "no such part at all"
        );
        assert_eq!(
            [grouped(7), grouped(1234), grouped(1_234_567)],
            ["7", "1,234", "1,234,567"]
        );
    }
}
