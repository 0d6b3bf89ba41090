//! Decides by names alone which folders are splits, which are classes, and which images are outside
//! of any class. Only names are used; no file is opened.

use crate::types::Split;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The reason for an image outside the split folders.
const OUTSIDE_SPLITS: &str =
    "The file is outside the split folders. Move the file into a split folder.";
/// The reason for an image outside the class folders.
const OUTSIDE_CLASSES: &str =
    "The file is outside any class folder. Move the file into a class folder.";

/// The meaning of the folders.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Layout {
    /// Split folders as named, in the order train, held-out, test.
    pub split_folders: Vec<String>,
    /// The splits that have a folder.
    pub splits: BTreeSet<Split>,
    /// The class and split of each image in the order given, or the reason why it has none.
    pub placements: Vec<Result<Placement, Arc<str>>>,
}

/// The class and split of an image.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Placement {
    /// The split of its split folder, if it is in one.
    pub split: Option<Split>,
    /// Its class: the folder path below the split folder. Images of a folder share it.
    pub class: Arc<str>,
}

/// Number of images directly in a folder, and in folders below it.
#[derive(Default, Clone, Copy)]
struct ImageCounts {
    direct: u64,
    below: u64,
}

impl ImageCounts {
    /// Whether it is a folder of images rather than a folder of folders.
    fn is_class(self) -> bool {
        self.direct > 0 && self.direct >= self.below
    }
}

/// Decides the layout of images, each given by the names of its folders from the dataset's folder
/// down.
pub(crate) fn lay_out(images: &[&[String]]) -> Layout {
    let root = wrapper_depth(images);
    let inner: Vec<&[String]> = images
        .iter()
        .map(|folders| folders.get(root..).unwrap_or(&[]))
        .collect();
    let tops: BTreeSet<&String> = inner.iter().filter_map(|folders| folders.first()).collect();
    let is_split = are_splits(&tops);
    let mut named: Vec<(Split, String)> = tops
        .iter()
        .filter(|_| is_split)
        .filter_map(|name| Some((Split::from_name(name)?, (*name).clone())))
        .collect();
    named.sort();
    Layout {
        splits: named.iter().map(|(split, _)| *split).collect(),
        split_folders: named.into_iter().map(|(_, name)| name).collect(),
        placements: place(&inner, is_split),
    }
}

/// The class and split of each image, given by its folders. If the topmost folders are splits
/// (`is_split`), they are no classes.
fn place(images: &[&[String]], is_split: bool) -> Vec<Result<Placement, Arc<str>>> {
    let split_of = |folders: &[String]| {
        let top = folders.first().filter(|_| is_split)?;
        Split::from_name(top)
    };
    let counts = count_images(images.iter().map(|folders| {
        let split = split_of(folders);
        &folders[usize::from(split.is_some())..]
    }));
    let (outside_splits, outside_classes) = (OUTSIDE_SPLITS.into(), OUTSIDE_CLASSES.into());
    // Images share the names of their classes: there may be millions.
    let mut classes: BTreeMap<&[String], Option<Arc<str>>> = BTreeMap::new();
    let places = images.iter().map(|folders| {
        let split = split_of(folders);
        if is_split && split.is_none() {
            return Err(Arc::clone(&outside_splits));
        }
        let folder = &folders[usize::from(split.is_some())..];
        let class = classes.entry(folder);
        let class = class.or_insert_with(|| class_of(folder, &counts)).clone();
        let class = class.ok_or_else(|| Arc::clone(&outside_classes))?;
        Ok(Placement { split, class })
    });
    places.collect()
}

/// Number of single folders around the real one, as in an unpacked archive:
/// `photos/photos/{ant,bee}`.
fn wrapper_depth(images: &[&[String]]) -> usize {
    let mut depth = 0;
    loop {
        let below = |level: usize| images.iter().filter(move |folders| folders.len() > level);
        let tops: BTreeSet<&String> = below(depth).map(|n| &n[depth]).collect();
        let Some(only) = tops.first() else {
            return depth;
        };
        let deeper = below(depth + 1).count();
        let direct = below(depth).count() - deeper;
        if tops.len() > 1 || Split::from_name(only).is_some() || direct >= deeper {
            return depth;
        }
        depth += 1;
    }
}

/// Whether the topmost folders are splits: a train folder and another split folder, or split
/// folders only.
fn are_splits(tops: &BTreeSet<&String>) -> bool {
    let split = tops
        .iter()
        .filter(|name| Split::from_name(name).is_some())
        .count();
    let train = tops
        .iter()
        .any(|name| Split::from_name(name) == Some(Split::Train));
    split > 0 && (split == tops.len() || train && split > 1)
}

/// Counts the images of each folder over all splits, so that a class is the same in each of them.
fn count_images<'a>(
    folders: impl Iterator<Item = &'a [String]>,
) -> BTreeMap<&'a [String], ImageCounts> {
    let mut counts: BTreeMap<&[String], ImageCounts> = BTreeMap::new();
    for folder in folders {
        for depth in 1..folder.len() {
            counts.entry(&folder[..depth]).or_default().below += 1;
        }
        counts.entry(folder).or_default().direct += 1;
    }
    counts
}

/// The topmost class folder on the path to a folder. It contains everything below it.
fn class_of(folder: &[String], counts: &BTreeMap<&[String], ImageCounts>) -> Option<Arc<str>> {
    (1..=folder.len())
        .map(|depth| &folder[..depth])
        .find(|path| counts.get(path).is_some_and(|c| c.is_class()))
        .map(|path| path.join("/").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the layout of paths, each shown as `split:class`, `class` or `-`.
    fn check(paths: &[&str], expected: &[&str]) {
        let names: Vec<Vec<String>> = paths
            .iter()
            .map(|p| p.split('/').map(str::to_string).collect())
            .collect();
        let views: Vec<&[String]> = names.iter().map(|all| &all[..all.len() - 1]).collect();
        let shown: Vec<String> = lay_out(&views)
            .placements
            .iter()
            .map(|place| match place {
                Ok(Placement {
                    split: Some(split),
                    class,
                }) => format!("{split:?}:{class}"),
                Ok(Placement { split: None, class }) => class.to_string(),
                Err(_) => "-".to_owned(),
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
    fn classes_at_different_depths_are_named_by_path() {
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
    fn a_folder_named_train_among_classes_is_a_class() {
        check(
            &["train/1.jpg", "bus/1.jpg", "tram/1.jpg"],
            &["train", "bus", "tram"],
        );
    }

    #[test]
    fn split_folders_need_class_folders() {
        check(&["train/1.jpg", "test/2.jpg"], &["-", "-"]);
    }

    #[test]
    fn folders_around_the_real_one_are_skipped() {
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
    fn folders_in_a_class_belong_to_it_and_strays_make_no_class() {
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
