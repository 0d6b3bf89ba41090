//! Joins a table with the folder layout: classes and splits, groups of images, and regression
//! targets. Opens no file.

use super::read_table::ImageTable;
use crate::folder_layout::{Layout, Placement};
use crate::folder_listing::Entry;
use crate::image_groups::{BY_TIME, GAP_SECONDS, group_by_time};
use crate::image_inspection::ImageFile;
use crate::options::TableOptions;
use crate::target_statistics::TargetColumn;
use crate::types::Split;
use format::format_count;
use std::collections::{BTreeMap, BTreeSet};

/// Groups of images.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// The rule that groups the images, as the end of "grouped by …".
    pub by: String,
    /// The group of each image, in the order in which the images were listed.
    pub group_of: Vec<Option<String>>,
}

/// Applies a table to the layout. The table gives classes if the folders do not, or if the user
/// names its class column. Without any classes, all images that have a row belong to one nameless
/// class. The table gives splits if no folder does.
pub(crate) fn apply(layout: &mut Layout, table: &ImageTable, options: &TableOptions) {
    let classes: BTreeSet<&str> = layout
        .placements
        .iter()
        .flatten()
        .map(|placement| &*placement.class)
        .collect();
    let by_folder = classes.len() >= 2 && options.label_column.is_none();
    let splits_given = !layout.splits.is_empty();
    for (placement, row) in layout.placements.iter_mut().zip(&table.rows) {
        let split = match placement {
            Ok(placement) if splits_given => placement.split,
            _ => row.as_ref().and_then(|row| row.split),
        };
        if by_folder {
            if let Ok(placement) = placement {
                placement.split = split;
            }
            continue;
        }
        *placement = match (row, &table.label) {
            (None, _) => Err(format!(
                "No row of the table {} names this image. Add a row, or remove the image.",
                table.file
            )
            .into()),
            (Some(row), Some(column)) => match &row.label {
                Some(class) => Ok(Placement {
                    split,
                    class: class.as_str().into(),
                }),
                None => Err(format!(
                    "The row of this image in {} has no {column}. Fill in the value, or remove the row.",
                    table.file
                )
                .into()),
            },
            (Some(_), None) => Ok(Placement {
                split,
                class: "".into(),
            }),
        };
    }
    if !splits_given {
        let placed = layout.placements.iter().flatten();
        layout.splits = placed.filter_map(|placement| placement.split).collect();
    }
}

/// Groups images by the column that the user names, or by the times in their names.
pub(crate) fn group_images(
    table: &ImageTable,
    images: &[&Entry],
    options: &TableOptions,
) -> Option<Groups> {
    if let Some(column) = &table.group {
        let rows = table.rows.iter().map(Option::as_ref);
        return Some(Groups {
            by: column.clone(),
            group_of: rows
                .map(|row| row.and_then(|row| row.group.clone()))
                .collect(),
        });
    }
    if options.group_by.is_some() || table.targets.is_empty() {
        return None;
    }
    let names = images.iter().map(|entry| entry.name());
    Some(Groups {
        by: BY_TIME.to_owned(),
        group_of: group_by_time(names)?,
    })
}

/// The number of groups, and a sentence about them: how they are kept together, or that the
/// dataset's own split tears some apart. `images` has the group and split of each image.
pub(crate) fn describe_groups(by: &str, images: &[(Option<&str>, Split)]) -> (u64, String) {
    let mut splits_of: BTreeMap<&str, BTreeSet<Split>> = BTreeMap::new();
    for (group, split) in images {
        if let Some(group) = group {
            splits_of.entry(group).or_default().insert(*split);
        }
    }
    let ungrouped = images.iter().filter(|(group, _)| group.is_none()).count();
    let count = (splits_of.len() + ungrouped) as u64;
    let torn = splits_of.values().filter(|splits| splits.len() > 1).count();
    let groups = format_count(count);
    let note = if torn > 0 {
        format!(
            "In the dataset's own split, {torn} of {groups} groups (grouped by {by}) have images in more than one set, \
             so the results may look better than they are."
        )
    } else if by == BY_TIME {
        format!(
            "The image names contain times. Images taken at most {} minutes apart are grouped ({groups} groups), \
             and no group is in both the training and the held-out set.",
            GAP_SECONDS / 60
        )
    } else {
        format!(
            "Images are grouped by {by} ({groups} groups): no group is in both the training and the held-out set."
        )
    };
    (count, note)
}

/// The target columns that are learned, and sentences about those that are not.
#[derive(Debug, Default)]
pub(crate) struct SelectedTargets {
    /// Columns that are learned, with their statistics over the training images.
    pub columns: Vec<TargetColumn>,
    /// One sentence for each column that is not.
    pub notes: Vec<String>,
}

/// Computes the statistics of the targets, and drops the columns whose training values are all
/// equal.
pub(crate) fn select_targets(names: &[String], files: &mut [ImageFile]) -> SelectedTargets {
    let mut selected = SelectedTargets::default();
    let mut used = Vec::new();
    for (column, name) in names.iter().enumerate() {
        let values: Vec<f64> = files
            .iter()
            .filter(|file| file.split == Split::Train)
            .filter_map(|file| file.targets.get(column).copied().flatten())
            .collect();
        match TargetColumn::from_training_values(name, &values) {
            Some(target) => {
                selected.columns.push(target);
                used.push(column);
            }
            None => selected.notes.push(format!(
                "{name} is not learned, because its values are the same for all training images."
            )),
        }
    }
    for file in files {
        let value = |column: &usize| file.targets.get(*column).copied().flatten();
        file.targets = used.iter().map(value).collect();
    }
    selected
}

/// "Regression targets: calories (52.0 to 1116, mean 402, missing in 3), …". `trained` is the
/// number of training images.
pub(crate) fn describe_targets(targets: &[TargetColumn], trained: u64) -> Option<String> {
    let one = |target: &TargetColumn| {
        let missing = match trained - target.present.min(trained) {
            0 => String::new(),
            n => format!(", missing in {}", format_count(n)),
        };
        let (min, max) = target.range;
        format!(
            "{} ({} to {}, mean {}{missing})",
            target.name,
            rounded(min),
            rounded(max),
            rounded(target.mean)
        )
    };
    let all: Vec<String> = targets.iter().map(one).collect();
    (!all.is_empty()).then(|| format!("Regression targets: {}.", all.join(", ")))
}

/// A number with about three significant digits.
fn rounded(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}
