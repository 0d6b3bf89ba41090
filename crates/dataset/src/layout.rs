//! Decides by names alone which folders are splits, which are classes, and which photographs stand outside. Sees the
//! names of readable photographs, never files.

use crate::inspection::Part;
use std::collections::{BTreeMap, BTreeSet};

/// What the folders mean.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Layout {
    /// Split folders as named, in the order train, held out, test.
    pub split_folders: Vec<String>,
    /// The parts that split folders stand for.
    pub parts: BTreeSet<Part>,
    /// For each photograph in the order given: its part, where a split folder tells, and its class; or why it has none.
    pub places: Vec<Result<Place, String>>,
}

/// Where a photograph belongs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Place {
    /// Told by a split folder.
    pub part: Option<Part>,
    /// Folder path below the split folder.
    pub class: String,
}

/// Photographs directly in a folder, and in folders below it.
#[derive(Default, Clone, Copy)]
struct Held {
    direct: u64,
    below: u64,
}

impl Held {
    /// A folder of photographs rather than a folder of folders.
    fn is_class(self) -> bool {
        self.direct > 0 && self.direct >= self.below
    }
}

/// Reads the folders of photographs given by their names from the dropped folder down.
pub(crate) fn lay_out(photographs: &[&[String]]) -> Layout {
    let root = wrappers(photographs);
    let inner: Vec<&[String]> = photographs
        .iter()
        .map(|names| names.get(root..).unwrap_or(&[]))
        .collect();
    let tops: BTreeSet<&String> = inner
        .iter()
        .filter(|n| n.len() > 1)
        .map(|n| &n[0])
        .collect();
    let is_split = is_split(&tops);
    let parts: Vec<Option<Part>> = inner
        .iter()
        .map(|names| {
            if is_split && names.len() > 1 {
                part_of(&names[0])
            } else {
                None
            }
        })
        .collect();
    let folders: Vec<&[String]> = inner
        .iter()
        .zip(&parts)
        .map(|(names, part)| {
            names
                .get(usize::from(part.is_some())..names.len().saturating_sub(1))
                .unwrap_or(&[])
        })
        .collect();
    let held = held(&folders);
    let place = |i: usize| {
        if is_split && parts[i].is_none() {
            return Err(
                "It stands beside the split folders. Move it into one of them.".to_string(),
            );
        }
        match class_of(folders[i], &held) {
            Some(class) => Ok(Place {
                part: parts[i],
                class,
            }),
            None => Err("It stands outside any class folder. Move it into one.".to_string()),
        }
    };
    let mut named: Vec<(Part, String)> = match is_split {
        true => tops
            .iter()
            .filter_map(|name| Some((part_of(name)?, (*name).clone())))
            .collect(),
        false => Vec::new(),
    };
    named.sort();
    Layout {
        parts: named.iter().map(|(part, _)| *part).collect(),
        split_folders: named.into_iter().map(|(_, name)| name).collect(),
        places: (0..photographs.len()).map(place).collect(),
    }
}

/// How many single folders wrap the real one, as an unpacked archive does: `photos/photos/{ant,bee}`.
fn wrappers(photographs: &[&[String]]) -> usize {
    let mut depth = 0;
    loop {
        let below = |level: usize| photographs.iter().filter(move |n| n.len() > level + 1);
        let tops: BTreeSet<&String> = below(depth).map(|n| &n[depth]).collect();
        let Some(only) = tops.first() else {
            return depth;
        };
        let deeper = below(depth + 1).count();
        let direct = below(depth).count() - deeper;
        if tops.len() > 1 || part_of(only).is_some() || direct >= deeper {
            return depth;
        }
        depth += 1;
    }
}

/// Splits are meant when a train folder has a companion of that kind, or when every folder is one.
fn is_split(tops: &BTreeSet<&String>) -> bool {
    let split = tops.iter().filter(|name| part_of(name).is_some()).count();
    let train = tops.iter().any(|name| part_of(name) == Some(Part::Train));
    split > 0 && (split == tops.len() || train && split > 1)
}

pub(crate) fn part_of(name: &str) -> Option<Part> {
    match name.to_lowercase().as_str() {
        "train" => Some(Part::Train),
        "val" | "valid" | "validation" => Some(Part::HeldOut),
        "test" => Some(Part::Test),
        _ => None,
    }
}

/// What each folder holds, over all split folders together, so that a class is the same in each.
fn held<'a>(folders: &[&'a [String]]) -> BTreeMap<&'a [String], Held> {
    let mut held: BTreeMap<&[String], Held> = BTreeMap::new();
    for folder in folders {
        for depth in 1..folder.len() {
            held.entry(&folder[..depth]).or_default().below += 1;
        }
        held.entry(folder).or_default().direct += 1;
    }
    held
}

/// The topmost folder on the way that is a class takes everything below it.
fn class_of(folder: &[String], held: &BTreeMap<&[String], Held>) -> Option<String> {
    (1..=folder.len())
        .map(|depth| &folder[..depth])
        .find(|path| held.get(path).is_some_and(|h| h.is_class()))
        .map(|path| path.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lays out paths; shows each as `part:class`, `class` or `-`.
    fn check(paths: &[&str], expected: &[&str]) {
        let names: Vec<Vec<String>> = paths
            .iter()
            .map(|p| p.split('/').map(str::to_string).collect())
            .collect();
        let views: Vec<&[String]> = names.iter().map(Vec::as_slice).collect();
        let shown: Vec<String> = lay_out(&views)
            .places
            .iter()
            .map(|place| match place {
                Ok(Place {
                    part: Some(part),
                    class,
                }) => format!("{part:?}:{class}"),
                Ok(Place { part: None, class }) => class.clone(),
                Err(_) => "-".to_string(),
            })
            .collect();
        assert_eq!(shown, expected, "{paths:?}");
    }

    #[test]
    fn sub_folders_are_classes() {
        check(
            &["ant/1.jpg", "bee/1.jpg", "stray.jpg"],
            &["ant", "bee", "-"],
        );
    }

    #[test]
    fn split_folders_are_not_classes() {
        check(
            &[
                "Train/ant/1.jpg",
                "validation/ant/2.jpg",
                "test/bee/3.jpg",
                "stray.jpg",
                "extra/x/1.jpg",
            ],
            &["Train:ant", "HeldOut:ant", "Test:bee", "-", "-"],
        );
    }

    #[test]
    fn classes_of_differing_depth_are_named_by_their_path() {
        check(
            &[
                "train/Fruit/Kiwi/1.jpg",
                "train/Fruit/Apple/Pink/1.jpg",
                "val/Fruit/Apple/Pink/2.jpg",
            ],
            &[
                "Train:Fruit/Kiwi",
                "Train:Fruit/Apple/Pink",
                "HeldOut:Fruit/Apple/Pink",
            ],
        );
    }

    #[test]
    fn a_class_called_train_beside_other_classes_is_a_class() {
        check(
            &["train/1.jpg", "bus/1.jpg", "tram/1.jpg"],
            &["train", "bus", "tram"],
        );
    }

    #[test]
    fn split_folders_without_class_folders_give_no_class() {
        check(&["train/1.jpg", "test/2.jpg"], &["-", "-"]);
    }

    #[test]
    fn wrapping_folders_are_gone_through() {
        check(
            &["set/data/ant/1.jpg", "set/data/bee/1.jpg"],
            &["ant", "bee"],
        );
        check(
            &["set/train/ant/1.jpg", "set/test/ant/1.jpg"],
            &["Train:ant", "Test:ant"],
        );
        check(&["set/ant/1.jpg"], &["ant"]);
    }

    #[test]
    fn a_folder_in_a_class_belongs_to_it_and_a_stray_among_classes_does_not_make_one() {
        check(
            &["ant/1.jpg", "ant/2.jpg", "ant/more/3.jpg", "bee/1.jpg"],
            &["ant", "ant", "ant", "bee"],
        );
        check(
            &[
                "Fruit/kiwi/1.jpg",
                "Fruit/lime/1.jpg",
                "Fruit/stray.jpg",
                "Roots/beet/1.jpg",
            ],
            &["Fruit/kiwi", "Fruit/lime", "-", "Roots/beet"],
        );
    }
}
