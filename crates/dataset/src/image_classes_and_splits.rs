//! Assigns images to classes, labels and splits. Reads no file.

use crate::folder_layout::Layout;
use crate::folder_listing::Entry;
use crate::image_groups;
use crate::image_inspection::ImageFile;
use crate::image_table::{Groups, ImageTable};
use crate::seeded_selection;
use crate::types::{Class, SkippedFile, Split};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Images and their metadata. All lists are in the same order.
#[derive(Clone, Copy)]
pub(crate) struct ListedImages<'a, 'e> {
    /// The images.
    pub entries: &'a [&'e Entry],
    /// Width and height of each, in pixels as stored.
    pub sizes: &'a [(u32, u32)],
    /// The table beside the images.
    pub table: Option<&'a ImageTable>,
    pub groups: Option<&'a Groups>,
}

impl<'a> ListedImages<'a, '_> {
    fn entry(&self, image: &PlacedImage) -> &'a Entry {
        self.entries[image.index as usize]
    }

    fn group(&self, image: &PlacedImage) -> Option<&'a str> {
        self.groups?.group_of[image.index as usize].as_deref()
    }

    fn targets(&self, image: &PlacedImage) -> Vec<Option<f64>> {
        let Some(table) = self.table else {
            return Vec::new();
        };
        match &table.rows[image.index as usize] {
            Some(row) => row.targets.clone(),
            None => vec![None; table.targets.len()],
        }
    }

    /// The group and split of each image.
    pub(crate) fn groups_and_splits(
        &self,
        placed: &[PlacedImage],
    ) -> Vec<(Option<&'a str>, Split)> {
        placed.iter().map(|p| (self.group(p), p.split)).collect()
    }
}

/// An image with its class and split, before classes have labels. There may be millions.
pub(crate) struct PlacedImage {
    /// Index in the list of images.
    index: u32,
    class: Arc<str>,
    split: Split,
}

/// Gives images their class. Images outside any class are added to `skipped`.
pub(crate) fn place(
    images: &ListedImages,
    layout: &Layout,
    skipped: &mut Vec<SkippedFile>,
) -> Vec<PlacedImage> {
    let mut placed = Vec::with_capacity(images.entries.len());
    for (i, placement) in layout.placements.iter().enumerate() {
        match placement {
            Ok(placement) => placed.push(PlacedImage {
                index: i as u32,
                class: Arc::clone(&placement.class),
                split: placement.split.unwrap_or(Split::Train),
            }),
            Err(reason) => skipped.push(images.entries[i].skip(reason.to_string())),
        }
    }
    placed
}

/// Moves a fraction of each class from training to held-out, in whole groups if there are any.
pub(crate) fn hold_out(
    images: &ListedImages,
    placed: &mut [PlacedImage],
    fraction: f64,
    seed: u64,
) {
    if images.groups.is_some() {
        return hold_out_groups(images, placed, fraction, seed);
    }
    let mut by_class: BTreeMap<Arc<str>, Vec<u32>> = BTreeMap::new();
    for (i, p) in (0u32..).zip(&*placed) {
        if p.split == Split::Train {
            by_class.entry(Arc::clone(&p.class)).or_default().push(i);
        }
    }
    for (class, members) in by_class {
        let paths: Vec<String> = members
            .iter()
            .map(|i| images.entry(&placed[*i as usize]).joined_names())
            .collect();
        let views: Vec<&str> = paths.iter().map(String::as_str).collect();
        let held_out = seeded_selection::choose_held_out(seed, &class, &views, fraction);
        for (i, held) in members.into_iter().zip(held_out) {
            if held {
                placed[i as usize].split = Split::HeldOut;
            }
        }
    }
}

fn hold_out_groups(images: &ListedImages, placed: &mut [PlacedImage], fraction: f64, seed: u64) {
    // An image without a group is a group of its own, named by its path. The line end keeps the
    // name apart from those of a column.
    let own = |p: &PlacedImage| format!("\n{}", images.entry(p).joined_names());
    let trained: Vec<usize> = (0..placed.len())
        .filter(|&i| placed[i].split == Split::Train)
        .collect();
    let named: Vec<(Arc<str>, String)> = trained
        .iter()
        .map(|&i| &placed[i])
        .map(|p| {
            let group = images.group(p).map(str::to_owned);
            (Arc::clone(&p.class), group.unwrap_or_else(|| own(p)))
        })
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
    images: &ListedImages,
    placed: Vec<PlacedImage>,
    skipped: &mut Vec<SkippedFile>,
) -> (Vec<Class>, Vec<ImageFile>) {
    let trained: BTreeSet<&str> = placed
        .iter()
        .filter(|p| p.split == Split::Train && !p.class.is_empty())
        .map(|p| &*p.class)
        .collect();
    let trained = trained.into_iter().map(str::to_owned);
    let mut classes: Vec<Class> = trained.map(Class::new).collect();
    let mut files = Vec::with_capacity(placed.len());
    for p in placed {
        let label = classes.binary_search_by(|c| c.name.as_str().cmp(&p.class));
        // Images that only have regression targets have no class.
        let Ok(label) = label.or(if p.class.is_empty() { Ok(0) } else { Err(()) }) else {
            skipped.push(images.entry(&p).skip(format!(
                "The class of this image, {}, has no training images. Add training images to this class.",
                p.class
            )));
            continue;
        };
        if let Some(class) = classes.get_mut(label) {
            class.add(p.split);
        }
        files.push(ImageFile {
            path: images.entry(&p).path.to_path_buf(),
            label: label as u32,
            split: p.split,
            width: images.sizes[p.index as usize].0,
            height: images.sizes[p.index as usize].1,
            bytes: images.entry(&p).bytes,
            targets: images.targets(&p),
        });
    }
    (classes, files)
}
