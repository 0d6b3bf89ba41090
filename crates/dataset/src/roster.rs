//! From photographs and what their folders mean to the list of classes and files: who is trained on, who is held out, and
//! which label each class has. Reads no file.

use crate::groups;
use crate::inspection::{Class, ImageFile, Part, SkippedFile};
use crate::layout::Layout;
use crate::split;
use crate::table::Table;
use crate::table::placing::Groups;
use crate::walk::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// A photograph with its class and part, before classes have labels.
pub(crate) struct Placed {
    entry: Entry,
    size: (u32, u32),
    class: String,
    part: Part,
    numbers: Vec<Option<f64>>,
    group: Option<String>,
}

/// What is known of photographs beside their names.
#[derive(Clone, Copy)]
pub(crate) struct Said<'a> {
    pub table: Option<&'a Table>,
    pub groups: Option<&'a Groups>,
}

/// Group and part of each photograph.
pub(crate) fn parts(placed: &[Placed]) -> Vec<(Option<&str>, Part)> {
    placed
        .iter()
        .map(|p| (p.group.as_deref(), p.part))
        .collect()
}

/// Gives photographs their class; names those that stand outside any.
pub(crate) fn place(
    images: Vec<(Entry, (u32, u32))>,
    layout: &Layout,
    said: Said,
    skipped: &mut Vec<SkippedFile>,
) -> Vec<Placed> {
    let mut placed = Vec::with_capacity(images.len());
    for (i, ((entry, size), place)) in images.into_iter().zip(&layout.places).enumerate() {
        let row = said.table.and_then(|table| table.rows[i].as_ref());
        match place {
            Ok(place) => placed.push(Placed {
                entry,
                size,
                class: place.class.clone(),
                part: place.part.unwrap_or(Part::Train),
                numbers: match (row, said.table) {
                    (Some(row), _) => row.numbers.clone(),
                    (None, Some(table)) => vec![None; table.targets.len()],
                    (None, None) => Vec::new(),
                },
                group: said.groups.and_then(|groups| groups.of[i].clone()),
            }),
            Err(reason) => skipped.push(SkippedFile {
                path: entry.path,
                reason: reason.clone(),
            }),
        }
    }
    placed
}

/// Moves a share of each class from training to held out, in whole groups where there are any.
pub(crate) fn hold_out(placed: &mut [Placed], in_groups: bool, fraction: f64, seed: u64) {
    if in_groups {
        return hold_out_groups(placed, fraction, seed);
    }
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

fn hold_out_groups(placed: &mut [Placed], fraction: f64, seed: u64) {
    // A photograph without a group is one of its own, named by its path: no column's cell can have a line end.
    let own = |p: &Placed| format!("\n{}", p.entry.names.join("/"));
    let trained: Vec<usize> = (0..placed.len())
        .filter(|&i| placed[i].part == Part::Train)
        .collect();
    let named: Vec<(String, String)> = trained
        .iter()
        .map(|&i| &placed[i])
        .map(|p| (p.class.clone(), p.group.clone().unwrap_or_else(|| own(p))))
        .collect();
    let views: Vec<(&str, &str)> = named
        .iter()
        .map(|(c, g)| (c.as_str(), g.as_str()))
        .collect();
    for (i, held) in trained
        .into_iter()
        .zip(groups::held_out(seed, &views, fraction))
    {
        if held {
            placed[i].part = Part::HeldOut;
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
        .filter(|p| p.part == Part::Train && !p.class.is_empty())
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
        let label = classes.binary_search_by(|c| c.name.cmp(&p.class));
        // Photographs of which numbers alone are learnt have no class.
        let Ok(label) = label.or(if p.class.is_empty() { Ok(0) } else { Err(()) }) else {
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
        if let Some(class) = classes.get_mut(label) {
            match p.part {
                Part::Train => class.train += 1,
                Part::HeldOut => class.held_out += 1,
                Part::Test => class.test += 1,
            }
        }
        files.push(ImageFile {
            path: p.entry.path,
            label: label as u32,
            part: p.part,
            width: p.size.0,
            height: p.size.1,
            bytes: p.entry.bytes,
            numbers: p.numbers,
        });
    }
    (classes, files)
}
