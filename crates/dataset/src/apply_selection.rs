//! Leaves classes and duplicates out of an inspected dataset, and merges classes. The samples that
//! remain stay in their split.

use crate::class_selection::ClassSelection;
use crate::detected_dataset::DetectedDataset;
use crate::duplicates::Duplicates;
use crate::error::DatasetError;
use crate::image_inspection::ImageInspection;
use crate::image_table;
use crate::inspect_images;
use crate::text::{self, TextInspection};
use crate::types::{Class, Split, SplitKind};
use crate::user_messages;
use std::collections::BTreeSet;

/// The class and split of a sample, before and after.
#[derive(Clone, Copy)]
struct Placed {
    label: u32,
    split: Split,
}

/// The samples that stay.
struct Selected {
    classes: Vec<Class>,
    /// The new class and split of each sample; `None` if it is left out.
    samples: Vec<Option<Placed>>,
}

/// Assigns samples to the renamed classes. A class without a training sample is left out, unless
/// Ebb has made the split: then its first sample is trained on.
fn assign(
    old: &[Class],
    selection: &ClassSelection,
    samples: Vec<Option<Placed>>,
    seeded: bool,
    by_value: bool,
) -> Selected {
    if old.is_empty() {
        let classes = Vec::new();
        return Selected { classes, samples };
    }
    let names: Vec<Option<String>> = old
        .iter()
        .map(|class| selection.renamed(&class.name))
        .collect();
    let name_of = |sample: &Placed| names.get(sample.label as usize)?.as_ref();
    let mut trained: BTreeSet<&String> = BTreeSet::new();
    for sample in samples.iter().flatten() {
        if sample.split == Split::Train {
            trained.extend(name_of(sample));
        }
    }
    let mut moved = samples.clone();
    if seeded {
        for (sample, moved) in samples.iter().zip(&mut moved) {
            let (Some(sample), Some(moved)) = (sample, moved) else {
                continue;
            };
            if let Some(name) = name_of(sample).filter(|_| sample.split == Split::HeldOut)
                && trained.insert(name)
            {
                moved.split = Split::Train;
            }
        }
    }
    let mut classes: Vec<Class> = trained.iter().map(|n| Class::new((*n).clone())).collect();
    let value = |class: &Class| class.name.parse::<i64>().ok();
    if by_value && classes.iter().all(|class| value(class).is_some()) {
        classes.sort_by_key(|class| (value(class), class.name.clone()));
    }
    let place = |name: &String| classes.iter().position(|class| class.name == *name);
    let labels: Vec<Option<usize>> = names
        .iter()
        .map(|name| name.as_ref().and_then(place))
        .collect();
    for sample in &mut moved {
        *sample = sample.and_then(|old| {
            let label = (*labels.get(old.label as usize)?)?;
            classes[label].add(old.split);
            let label = label as u32;
            Some(Placed { label, ..old })
        });
    }
    Selected {
        classes,
        samples: moved,
    }
}

/// Why the selected classes cannot be trained on.
fn too_few_classes(classes: &[Class]) -> Option<String> {
    match classes {
        [] => Some("No class is left. Leave out fewer classes.".to_owned()),
        [only] => Some(format!(
            "Only the class {} is left. Leave out or merge fewer classes.",
            only.name
        )),
        _ => None,
    }
}

/// Replaces the notes about the old classes.
fn replace_notes(notes: &mut Vec<String>, old: &[String], new: Vec<String>) {
    notes.retain(|note| !old.contains(note));
    notes.extend(new);
}

impl DetectedDataset {
    /// The dataset with the selected classes and, of each group of `duplicates`, one sample.
    /// `duplicates` are those of this dataset.
    ///
    /// # Errors
    /// There is no class of a name that is given.
    pub fn select(
        self,
        selection: &ClassSelection,
        duplicates: Option<&Duplicates>,
    ) -> Result<Self, DatasetError> {
        if selection.is_all() && duplicates.is_none() {
            return Ok(self);
        }
        let mut notes = Vec::new();
        let left_out = duplicates.map_or_else(BTreeSet::new, |duplicates| {
            notes.extend(duplicates.describe(&self));
            duplicates.left_out(&self)
        });
        match self {
            DetectedDataset::Images(found) => {
                selection.check(&found.classes)?;
                notes.extend(selection.describe(&found.classes, "image"));
                let mut found = select_images(found, selection, &left_out);
                if duplicates.is_some() {
                    let copies = user_messages::held_out_copies(found.held_out_copies);
                    replace_notes(&mut found.notes, copies.as_slice(), Vec::new());
                    found.held_out_copies = 0;
                }
                found.notes.extend(notes);
                Ok(DetectedDataset::Images(found))
            }
            DetectedDataset::Texts(found) => {
                selection.check(&found.classes)?;
                notes.extend(selection.describe(&found.classes, found.task.sample_noun()));
                let mut found = select_texts(found, selection, &left_out);
                found.notes.extend(notes);
                Ok(DetectedDataset::Texts(found))
            }
        }
    }
}

fn select_images(
    mut found: ImageInspection,
    selection: &ClassSelection,
    left_out: &BTreeSet<u32>,
) -> ImageInspection {
    let placed = found.files.iter().enumerate().map(|(index, file)| {
        let (label, split) = (file.label, file.split);
        (!left_out.contains(&(index as u32))).then_some(Placed { label, split })
    });
    let seeded = matches!(found.split, SplitKind::Seeded { .. });
    let selected = assign(&found.classes, selection, placed.collect(), seeded, false);
    let old_notes = inspect_images::class_notes(&found.classes, found.split);
    let new_notes = inspect_images::class_notes(&selected.classes, found.split);
    replace_notes(&mut found.notes, &old_notes, new_notes);
    let had_classes = !found.classes.is_empty();
    let mut samples = selected.samples.into_iter();
    found.files.retain_mut(|file| {
        let Some(placed) = samples.next().flatten() else {
            return false;
        };
        (file.label, file.split) = (placed.label, placed.split);
        true
    });
    if !found.targets.is_empty() {
        // The statistics are those of the images that are trained on.
        let names: Vec<String> = found.targets.iter().map(|t| t.name.clone()).collect();
        let targets = image_table::select_targets(&names, &mut found.files);
        found.targets = targets.columns;
        found.notes.extend(targets.notes);
    }
    found.classes = selected.classes;
    if found.refusal.is_none() && had_classes && found.targets.is_empty() {
        found.refusal = too_few_classes(&found.classes);
    }
    found.typical_size = inspect_images::typical_size(&found.files);
    found.bytes = found.files.iter().map(|file| file.bytes).sum();
    found
}

fn select_texts(
    mut found: TextInspection,
    selection: &ClassSelection,
    left_out: &BTreeSet<u32>,
) -> TextInspection {
    let placed = found.samples.iter().enumerate().map(|(index, sample)| {
        let (label, split) = (sample.label, sample.split);
        (!left_out.contains(&(index as u32))).then_some(Placed { label, split })
    });
    let seeded = matches!(found.split, SplitKind::Seeded { .. });
    let selected = assign(&found.classes, selection, placed.collect(), seeded, true);
    let had_classes = !found.classes.is_empty();
    let class_notes = |classes| text::class_notes(found.task, classes, !seeded);
    let old_notes = class_notes(&found.classes);
    let new_notes = class_notes(&selected.classes);
    replace_notes(&mut found.notes, &old_notes, new_notes);
    let mut samples = selected.samples.into_iter();
    found.samples.retain_mut(|sample| {
        let Some(placed) = samples.next().flatten() else {
            return false;
        };
        (sample.label, sample.split) = (placed.label, placed.split);
        true
    });
    found.classes = selected.classes;
    if found.refusal.is_none() && had_classes {
        found.refusal = too_few_classes(&found.classes);
    }
    found.measure();
    found
}

#[cfg(test)]
mod tests;
