//! Lists that name the images of each split, in text or JSON files beside the class folders, such
//! as `meta/train.txt` and `meta/test.txt` of Food-101 (Bossard et al. 2014).

use crate::folder_layout::Layout;
use crate::folder_listing::{Entry, Listing};
use crate::open_file::open_file;
use crate::types::Split;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use unicode_normalization::UnicodeNormalization;

/// A larger file is no list.
const MAX_LIST_BYTES: u64 = 64 << 20;
/// The same for JSON, which takes up to 16 times its size in memory.
const MAX_JSON_BYTES: u64 = 16 << 20;
/// Most lines of a list; each is looked up.
const MAX_LINES: usize = 4_000_000;
/// Formats of lists, the preferred one first.
const FORMATS: [&str; 2] = ["txt", "json"];

/// A file that names images of a split.
struct SplitList<'a> {
    entry: &'a Entry,
    split: Split,
    /// Index in [`FORMATS`].
    format: usize,
}

/// The lists that were used.
pub(crate) struct UsedLists {
    /// Number of files.
    pub files: u64,
    /// A sentence about them.
    pub note: String,
}

/// Assigns the images to the splits that lists name, if the folder has no split folders and each
/// list names images of the folder. An image outside the lists loses its place; an image in two
/// lists is not trained on.
pub(crate) fn apply(
    layout: &mut Layout,
    listing: &Listing,
    images: &[&Entry],
) -> Option<UsedLists> {
    if !layout.splits.is_empty() {
        return None;
    }
    let lists = candidates(listing);
    let is_complete = lists.contains_key(&Split::Train) && lists.len() > 1;
    if !is_complete {
        return None;
    }
    let index = index_images(layout, images);
    let mut split_of = vec![None; images.len()];
    // In the order train, held-out, test.
    for list in lists.values() {
        for place in images_of(&listing.root, list, &index)? {
            split_of[place] = Some(list.split);
        }
    }
    for (placement, split) in layout.placements.iter_mut().zip(split_of) {
        if let Ok(placed) = placement {
            match split {
                Some(_) => placed.split = split,
                None => *placement = Err(not_listed(&lists).into()),
            }
        }
    }
    layout.splits = lists.keys().copied().collect();
    layout.split_folders = lists
        .values()
        .map(|list| list.entry.joined_names())
        .collect();
    Some(UsedLists {
        files: lists.len() as u64,
        note: format!("The images of each split are listed in {}.", names(&lists)),
    })
}

/// The list of each split that has one.
fn candidates(listing: &Listing) -> BTreeMap<Split, SplitList<'_>> {
    let mut lists: BTreeMap<Split, SplitList<'_>> = BTreeMap::new();
    for entry in listing.files.iter().filter(|e| e.bytes <= MAX_LIST_BYTES) {
        let Some((stem, ending)) = entry.name().rsplit_once('.') else {
            continue;
        };
        let mut formats = FORMATS.iter();
        let Some(format) = formats.position(|format| format.eq_ignore_ascii_case(ending)) else {
            continue;
        };
        if FORMATS[format] == "json" && entry.bytes > MAX_JSON_BYTES {
            continue;
        }
        let Some(split) = Split::from_name(stem) else {
            continue;
        };
        let known = lists.get(&split);
        if known.is_none_or(|known| format < known.format) {
            let list = SplitList {
                entry,
                split,
                format,
            };
            lists.insert(split, list);
        }
    }
    lists
}

/// The places of the images by `class/name`, with and without the ending of the name.
fn index_images(layout: &Layout, images: &[&Entry]) -> BTreeMap<String, usize> {
    let mut index = BTreeMap::new();
    for (place, (placement, entry)) in layout.placements.iter().zip(images).enumerate() {
        let (Ok(placement), name) = (placement, entry.name()) else {
            continue;
        };
        let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
        index
            .entry(format!("{}/{stem}", placement.class))
            .or_insert(place);
        index.insert(format!("{}/{name}", placement.class), place);
    }
    index
}

/// The places of the images that a list names; `None` if it names other things.
fn images_of(
    root: &Path,
    list: &SplitList<'_>,
    index: &BTreeMap<String, usize>,
) -> Option<Vec<usize>> {
    // The file may have been replaced since the folder was listed.
    let file = open_file(&root.join(&list.entry.path)).ok()?;
    let mut text = String::new();
    file.take(list.entry.bytes).read_to_string(&mut text).ok()?;
    let text = text.strip_prefix('\u{FEFF}').unwrap_or(&text);
    let (mut found, mut lines) = (Vec::new(), 0);
    let mut add = |line: &str| {
        lines += 1;
        found.extend(place_of(line, index));
    };
    if FORMATS[list.format] == "json" {
        for_each_text(&serde_json::from_str(text).ok()?, &mut add);
    } else if text.lines().count() <= MAX_LINES {
        let filled = text.lines().filter(|line| !line.trim().is_empty());
        filled.for_each(&mut add);
    }
    (!found.is_empty() && 2 * found.len() >= lines).then_some(found)
}

/// Passes on the texts of all arrays, in an array or an object of arrays.
fn for_each_text(value: &Value, add: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => add(text),
        Value::Array(values) => values.iter().for_each(|value| for_each_text(value, add)),
        Value::Object(values) => values.values().for_each(|value| for_each_text(value, add)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The image that a line names by its path, from any folder above the class. A label may follow
/// the path.
fn place_of(line: &str, index: &BTreeMap<String, usize>) -> Option<usize> {
    let line: String = line.trim().replace('\\', "/").nfc().collect();
    let first_word = line.split_whitespace().next()?;
    [line.as_str(), first_word].into_iter().find_map(|path| {
        let below = path.match_indices('/').map(|(at, _)| &path[at + 1..]);
        let mut paths = std::iter::once(path).chain(below);
        paths.find_map(|path| index.get(path).copied())
    })
}

/// Whether the split comes from a list with this name, and not from a folder.
pub(crate) fn is_list(name: &str) -> bool {
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    FORMATS
        .iter()
        .any(|format| format.eq_ignore_ascii_case(ending))
}

fn names(lists: &BTreeMap<Split, SplitList<'_>>) -> String {
    let names = lists.values().map(|list| list.entry.joined_names());
    names.collect::<Vec<_>>().join(" and ")
}

fn not_listed(lists: &BTreeMap<Split, SplitList<'_>>) -> String {
    format!(
        "The image is not in the lists {}. Add the image to a list to use it.",
        names(lists)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_a_limit_of_lines_and_bytes() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let index = BTreeMap::from([("jay/1".to_owned(), 7)]);
        let places = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).expect("it can be written");
            let entry = Entry::for_test(name, text.len() as u64);
            let list = SplitList {
                entry: &entry,
                split: Split::Train,
                format: usize::from(name.ends_with("json")),
            };
            images_of(folder.path(), &list, &index)
        };
        assert_eq!(places("train.txt", "jay/1\n\njay/2\n"), Some(vec![7]));
        assert_eq!(places("train.txt", "jay/1\n\njay/2\njay/3\n"), None);
        assert_eq!(
            places("train.txt", "\u{FEFF}jay/1\r\njay/2\r\n"),
            Some(vec![7])
        );
        assert_eq!(places("train.json", r#"{"a":["jay/1"]}"#), Some(vec![7]));
        let marked = "\u{FEFF}[\"jay/1\"]\r\n";
        assert_eq!(places("train.json", marked), Some(vec![7]));
        let many = "\n".repeat(MAX_LINES);
        assert_eq!(places("train.txt", &format!("jay/1{many}")), Some(vec![7]));
        assert_eq!(places("train.txt", &format!("\njay/1{many}")), None);
    }
}
