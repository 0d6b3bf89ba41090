//! From photographs and what their folders mean to the list of classes and files: who is trained on, who is held out, and
//! which label each class has. Reads no file.

use crate::inspection::{Class, ImageFile, Part, SkippedFile};
use crate::layout::Layout;
use crate::split;
use crate::walk::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// A photograph with its class and part, before classes have labels.
pub(crate) struct Placed {
    entry: Entry,
    size: (u32, u32),
    class: String,
    part: Part,
}

/// Gives photographs their class; names those that stand outside any.
pub(crate) fn place(
    images: Vec<(Entry, (u32, u32))>,
    layout: &Layout,
    skipped: &mut Vec<SkippedFile>,
) -> Vec<Placed> {
    let mut placed = Vec::with_capacity(images.len());
    for ((entry, size), place) in images.into_iter().zip(&layout.places) {
        match place {
            Ok(place) => placed.push(Placed {
                entry,
                size,
                class: place.class.clone(),
                part: place.part.unwrap_or(Part::Train),
            }),
            Err(reason) => skipped.push(SkippedFile {
                path: entry.path,
                reason: reason.clone(),
            }),
        }
    }
    placed
}

/// Moves a share of each class from training to held out.
pub(crate) fn hold_out(placed: &mut [Placed], fraction: f64, seed: u64) {
    let mut by_class: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (i, p) in placed
        .iter()
        .enumerate()
        .filter(|(_, p)| p.part == Part::Train)
    {
        by_class.entry(p.class.clone()).or_default().push(i);
    }
    for (class, members) in by_class {
        let paths: Vec<String> = members
            .iter()
            .map(|i| placed[*i].entry.names.join("/"))
            .collect();
        let views: Vec<&str> = paths.iter().map(String::as_str).collect();
        for (i, held) in members
            .into_iter()
            .zip(split::held_out(seed, &class, &views, fraction))
        {
            if held {
                placed[i].part = Part::HeldOut;
            }
        }
    }
}

/// Gives every class that can be trained its label; a class that is only evaluated cannot be learnt and is left out.
pub(crate) fn label(
    placed: Vec<Placed>,
    skipped: &mut Vec<SkippedFile>,
) -> (Vec<Class>, Vec<ImageFile>) {
    let trained: BTreeSet<String> = placed
        .iter()
        .filter(|p| p.part == Part::Train)
        .map(|p| p.class.clone())
        .collect();
    let mut classes: Vec<Class> = trained
        .into_iter()
        .map(|name| Class {
            name,
            train: 0,
            held_out: 0,
            test: 0,
        })
        .collect();
    let mut files = Vec::with_capacity(placed.len());
    for p in placed {
        let Ok(label) = classes.binary_search_by(|c| c.name.cmp(&p.class)) else {
            let reason = format!(
                "Its class, {}, has no photograph to train on. Add some to train.",
                p.class
            );
            skipped.push(SkippedFile {
                path: p.entry.path,
                reason,
            });
            continue;
        };
        match p.part {
            Part::Train => classes[label].train += 1,
            Part::HeldOut => classes[label].held_out += 1,
            Part::Test => classes[label].test += 1,
        }
        files.push(ImageFile {
            path: p.entry.path,
            label: label as u32,
            part: p.part,
            width: p.size.0,
            height: p.size.1,
            bytes: p.entry.bytes,
        });
    }
    (classes, files)
}
