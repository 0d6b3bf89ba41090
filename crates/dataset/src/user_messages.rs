//! Sentences about a dataset: refusals and notes. Pure text
//! from counts; reads nothing.

use crate::types::Class;
use format::{counted, format_count, format_io_error};
use std::collections::BTreeMap;
use std::io;

/// Number of names listed before "and N more".
const LISTED_NAMES: usize = 3;

/// The counts that decide whether a folder of images is refused.
pub(crate) struct ImageCounts<'a> {
    /// Classes that have images to train on.
    pub classes: &'a [Class],
    /// Readable images outside any class folder.
    pub strays: u64,
    /// Files and folders that were left out.
    pub skipped: u64,
    /// Files and folders of any kind, including ignored ones.
    pub entries: u64,
    /// The folder's own split folders, as named.
    pub split_folders: &'a [String],
    /// Whether one of them is the train folder.
    pub has_train: bool,
}

/// A note for images that are not mirrored for this reason.
pub(crate) fn not_mirrored(reason: &String) -> String {
    format!("{reason} By default, training does not mirror the images.")
}

/// A sentence about held-out images that are copies of training images; `None` without copies.
pub(crate) fn held_out_copies(copies: u64) -> Option<String> {
    match copies {
        0 => None,
        1 => Some(
            "1 held-out image is a copy of a training image, so the accuracy will be too high. Leave duplicates out (--duplicates leave-out in the terminal)."
                .to_owned(),
        ),
        copies => Some(format!(
            "{} held-out images are copies of training images, so the accuracy will be too high. Leave duplicates out (--duplicates leave-out in the terminal).",
            format_count(copies)
        )),
    }
}

/// Why a folder of images cannot be trained on, and how to fix that.
pub(crate) fn refusal(counts: &ImageCounts) -> Option<String> {
    if !counts.split_folders.is_empty() && !counts.has_train {
        let names = counts.split_folders.join(" and ");
        return Some(format!(
            "This folder has {names} but no train folder. Add a folder named train with one sub-folder per class."
        ));
    }
    let folder = if counts.split_folders.is_empty() {
        "This folder"
    } else {
        "The train folder"
    };
    match counts.classes {
        [] if counts.entries == 0 => {
            Some("This folder is empty. Add one sub-folder of images for each class.".to_owned())
        }
        [] if counts.strays > 0 => Some(format!(
            "{folder} contains {} but no class folders. Put the images of each class into a sub-folder named after the class.",
            counted(counts.strays, "image", "images")
        )),
        [] if counts.skipped > 0 => Some(format!(
            "{folder} has no readable image; {} left out for the listed reasons. Add JPEG, PNG or WebP files.",
            counted(counts.skipped, "file was", "files were")
        )),
        [] => Some(format!(
            "{folder} has no images. Add one sub-folder of JPEG, PNG or WebP files for each class."
        )),
        [only] => Some(format!(
            "{folder} has one class, {}. To train, add a second sub-folder.",
            only.name
        )),
        _ => None,
    }
}

/// Why a folder of archives cannot be trained on; `None` without archives.
pub(crate) fn still_packed(archives: &[String]) -> Option<String> {
    (!archives.is_empty()).then(|| {
        format!(
            "Ebb does not unpack archives or compressed files. Unpack {}, then choose the folder again.",
            listed(archives)
        )
    })
}

/// Classes with fewer than half the samples of the largest class. `noun` names one sample.
pub(crate) fn imbalance(noun: &str, classes: &[Class]) -> Option<String> {
    let largest = classes.iter().max_by_key(|c| c.samples())?;
    let small: Vec<String> = classes
        .iter()
        .filter(|c| u64::from(c.samples()) * 2 < u64::from(largest.samples()))
        .map(|c| format!("\"{}\" with {}", c.name, format_count(c.samples().into())))
        .collect();
    let most = format_count(largest.samples().into());
    match small.as_slice() {
        [] => None,
        [_] => {
            let smallest = classes.iter().min_by_key(|c| c.samples())?;
            let count = u64::from(smallest.samples());
            Some(format!(
                "The class \"{}\" is small: {}. The largest, \"{}\", has {most}.",
                smallest.name,
                counted(count, noun, &format!("{noun}s")),
                largest.name
            ))
        }
        many => Some(format!(
            "{} classes have fewer than half the {noun}s of the largest, \"{}\" with {most}: {}.",
            many.len(),
            largest.name,
            listed(many)
        )),
    }
}

/// Classes without a sample in one set, such as "the test folder". `count` gives a class's samples
/// there.
pub(crate) fn missing_in(
    set: &str,
    noun: &str,
    classes: &[Class],
    count: fn(&Class) -> u32,
) -> Option<String> {
    let missing: Vec<String> = classes
        .iter()
        .filter(|c| count(c) == 0)
        .map(|c| c.name.clone())
        .collect();
    (!missing.is_empty() && missing.len() < classes.len()).then(|| {
        let classes = counted(missing.len() as u64, "class has", "classes have");
        format!("{classes} no {noun} in {set}: {}.", listed(&missing))
    })
}

/// Classes whose only sample is used for training.
pub(crate) fn single_samples(noun: &str, classes: &[Class]) -> Option<String> {
    let single: Vec<String> = classes
        .iter()
        .filter(|c| c.train == 1 && c.held_out == 0)
        .map(|c| c.name.clone())
        .collect();
    match single.as_slice() {
        [] => None,
        [one] => Some(format!(
            "The class {one} has one {noun}, which is used for training. No {noun} of this class is held out."
        )),
        many => Some(format!(
            "{} classes have one {noun} each, which is used for training. No {noun} of these classes is held out: {}.",
            format_count(many.len() as u64),
            listed(many)
        )),
    }
}

pub(crate) fn unsupported_formats(counts: &BTreeMap<&'static str, u64>) -> Option<String> {
    let formats: Vec<String> = counts
        .iter()
        .map(|(name, n)| format!("{} {name}", format_count(*n)))
        .collect();
    (!formats.is_empty()).then(|| {
        let list = formats.join(", ");
        format!(
            "Files in unsupported formats were left out: {list}. Save these files as JPEG or PNG to use them."
        )
    })
}

/// Folders without a readable image.
pub(crate) fn folders_without_images(folders: &[String]) -> Option<String> {
    match folders {
        [] => None,
        [one] => Some(format!(
            "The folder {one} contains no image and is left out."
        )),
        many => Some(format!(
            "{} folders contain no image and are left out: {}.",
            many.len(),
            listed(many)
        )),
    }
}

/// Why a file that was listed cannot be opened.
pub(crate) fn unreadable(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "The file is no longer there. Put the file back, or start a new run.".to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "Ebb has no permission to read this file. Allow access in the file's permissions and, on a Mac, in System Settings > Privacy & Security > Files and Folders. Then read the folder again."
                .to_owned()
        }
        _ => {
            let problem = format_io_error(error);
            format!("The file cannot be read: {problem}. Copy the file here again.")
        }
    }
}

/// "a, b and c".
pub(crate) fn joined(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// "a, b, c and 4 more".
pub(crate) fn listed(names: &[String]) -> String {
    listed_up_to(LISTED_NAMES, names)
}

/// "a, b and 4 more", with at most `limit` names.
pub(crate) fn listed_up_to(limit: usize, names: &[String]) -> String {
    let shown = names[..names.len().min(limit)].join(", ");
    match names.len().saturating_sub(limit) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
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
    fn a_single_class_is_refused_by_name() {
        let classes = [class("butterfly", 40, 10)];
        let counts = ImageCounts {
            classes: &classes,
            strays: 0,
            skipped: 0,
            entries: 50,
            split_folders: &[],
            has_train: true,
        };
        let expected = "This folder has one class, butterfly. To train, add a second sub-folder.";
        assert_eq!(refusal(&counts).as_deref(), Some(expected));
    }

    #[test]
    fn exactly_half_the_samples_is_not_an_imbalance() {
        assert_eq!(
            imbalance("image", &[class("ant", 50, 10), class("bee", 30, 0)]),
            None
        );
        assert_eq!(
            imbalance("text", &[class("1", 1500, 40), class("2", 60, 0)]).as_deref(),
            Some("The class \"2\" is small: 60 texts. The largest, \"1\", has 1,540.")
        );
        let three = [
            class("ant", 50, 10),
            class("bee", 29, 0),
            class("wasp", 1, 0),
        ];
        assert_eq!(
            imbalance("image", &three).as_deref(),
            Some(
                "2 classes have fewer than half the images of the largest, \"ant\" with 60: \"bee\" with 29, \"wasp\" with 1."
            )
        );
    }

    #[test]
    fn long_lists_are_cut_and_numbers_have_commas() {
        let classes: Vec<Class> = "abcde"
            .chars()
            .map(|c| class(&c.to_string(), 9, 0))
            .collect();
        let mut with = classes.clone();
        with.push(class("z", 9, 1));
        let text = missing_in("val", "image", &with, |c| c.held_out).unwrap_or_default();
        assert_eq!(text, "5 classes have no image in val: a, b, c and 2 more.");
        assert_eq!(
            missing_in("val", "image", &classes, |c| c.held_out),
            None,
            "the set is empty"
        );
    }
}
