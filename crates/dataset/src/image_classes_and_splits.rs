//! Assigns images to classes, labels and splits. Reads no file.

use crate::folder_layout::Layout;
use crate::folder_listing::Entry;
use crate::image_groups;
use crate::image_inspection::ImageFile;
use crate::image_table::{Groups, ImageTable};
use crate::seeded_selection;
use crate::types::{Class, SkippedFile, Split};
use std::collections::{BTreeMap, BTreeSet};

/// Images and their metadata. All lists are in the same order.
#[derive(Clone, Copy)]
pub(crate) struct ImagePlacements<'a, 'e> {
    /// The images.
    pub entries: &'a [&'e Entry],
    /// Width and height of each, in pixels as stored.
    pub sizes: &'a [(u32, u32)],
    /// The class and split of each.
    pub layout: &'a Layout,
    /// The table beside the images.
    pub table: Option<&'a ImageTable>,
    pub groups: Option<&'a Groups>,
}

/// An image with its class and split, before classes have labels.
pub(crate) struct PlacedImage<'a> {
    entry: &'a Entry,
    size: (u32, u32),
    class: String,
    split: Split,
    targets: Vec<Option<f64>>,
    group: Option<String>,
}

pub(crate) fn groups_and_splits<'a>(placed: &'a [PlacedImage]) -> Vec<(Option<&'a str>, Split)> {
    placed
        .iter()
        .map(|p| (p.group.as_deref(), p.split))
        .collect()
}

/// Gives images their class. Images outside any class are added to `skipped`.
pub(crate) fn place<'e>(
    images: ImagePlacements<'_, 'e>,
    skipped: &mut Vec<SkippedFile>,
) -> Vec<PlacedImage<'e>> {
    let mut placed = Vec::with_capacity(images.entries.len());
    for (i, placement) in images.layout.placements.iter().enumerate() {
        let entry = images.entries[i];
        let row = images.table.and_then(|table| table.rows[i].as_ref());
        match placement {
            Ok(placement) => placed.push(PlacedImage {
                entry,
                size: images.sizes[i],
                class: placement.class.clone(),
                split: placement.split.unwrap_or(Split::Train),
                targets: match (row, images.table) {
                    (Some(row), _) => row.targets.clone(),
                    (None, Some(table)) => vec![None; table.targets.len()],
                    (None, None) => Vec::new(),
                },
                group: images.groups.and_then(|groups| groups.group_of[i].clone()),
            }),
            Err(reason) => skipped.push(entry.skip(reason.clone())),
        }
    }
    placed
}

/// Moves a fraction of each class from training to held-out, in whole groups if there are any.
pub(crate) fn hold_out(placed: &mut [PlacedImage], in_groups: bool, fraction: f64, seed: u64) {
    if in_groups {
        return hold_out_groups(placed, fraction, seed);
    }
    let mut by_class: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (i, p) in placed
        .iter()
        .enumerate()
        .filter(|(_, p)| p.split == Split::Train)
    {
        by_class.entry(p.class.clone()).or_default().push(i);
    }
    for (class, members) in by_class {
        let paths: Vec<String> = members
            .iter()
            .map(|i| placed[*i].entry.names.join("/"))
            .collect();
        let views: Vec<&str> = paths.iter().map(String::as_str).collect();
        let held_out = seeded_selection::choose_held_out(seed, &class, &views, fraction);
        for (i, held) in members.into_iter().zip(held_out) {
            if held {
                placed[i].split = Split::HeldOut;
            }
        }
    }
}

fn hold_out_groups(placed: &mut [PlacedImage], fraction: f64, seed: u64) {
    // An image without a group is a group of its own, named by its path. The line end keeps the
    // name apart from those of a column.
    let own = |p: &PlacedImage| format!("\n{}", p.entry.names.join("/"));
    let trained: Vec<usize> = (0..placed.len())
        .filter(|&i| placed[i].split == Split::Train)
        .collect();
    let named: Vec<(String, String)> = trained
        .iter()
        .map(|&i| &placed[i])
        .map(|p| (p.class.clone(), p.group.clone().unwrap_or_else(|| own(p))))
        .collect();
    let members: Vec<image_groups::Member> = named
        .iter()
        .map(|(class, group)| image_groups::Member { class, group })
        .collect();
    let held_out = image_groups::choose_held_out(seed, &members, fraction);
    for (i, held) in trained.into_iter().zip(held_out) {
        if held {
            placed[i].split = Split::HeldOut;
        }
    }
}

/// Gives a label to every class that has images to train on. Images of other classes cannot be
/// learned and are added to `skipped`.
pub(crate) fn label(
    placed: Vec<PlacedImage>,
    skipped: &mut Vec<SkippedFile>,
) -> (Vec<Class>, Vec<ImageFile>) {
    let trained: BTreeSet<String> = placed
        .iter()
        .filter(|p| p.split == Split::Train && !p.class.is_empty())
        .map(|p| p.class.clone())
        .collect();
    let mut classes: Vec<Class> = trained.into_iter().map(Class::new).collect();
    let mut files = Vec::with_capacity(placed.len());
    for p in placed {
        let label = classes.binary_search_by(|c| c.name.cmp(&p.class));
        // Images that only have regression targets have no class.
        let Ok(label) = label.or(if p.class.is_empty() { Ok(0) } else { Err(()) }) else {
            skipped.push(p.entry.skip(format!(
                "The class of this image, {}, has no training images. Add training images to this class.",
                p.class
            )));
            continue;
        };
        if let Some(class) = classes.get_mut(label) {
            class.add(p.split);
        }
        files.push(ImageFile {
            path: p.entry.path.clone(),
            label: label as u32,
            split: p.split,
            width: p.size.0,
            height: p.size.1,
            bytes: p.entry.bytes,
            targets: p.targets,
        });
    }
    (classes, files)
}
