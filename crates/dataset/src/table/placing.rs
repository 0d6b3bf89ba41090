//! From what folders and a table say of photographs to their classes and parts, to groups, and to the numbers that are learnt.
//! Opens nothing.

use super::{Table, TableOptions, TargetColumn};
use crate::groups;
use crate::inspection::{ImageFile, Part};
use crate::layout::{Layout, Place};
use crate::sentences::grouped;
use crate::walk::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// What keeps photographs together that nobody grouped.
pub(crate) const TIMES: &str = "the times in their names";

/// Groups of photographs, in the order these were listed.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// What keeps them together, as the end of "by …".
    pub by: String,
    pub of: Vec<Option<String>>,
}

/// The table tells classes where the folders do not, or where the user names its column. Without any, all photographs that
/// have a row belong to one nameless class. It tells parts where no folder does.
pub(crate) fn place(layout: &mut Layout, table: &Table, options: &TableOptions) {
    let classes: BTreeSet<&str> = layout
        .places
        .iter()
        .flatten()
        .map(|place| place.class.as_str())
        .collect();
    let by_folder = classes.len() >= 2 && options.label_column.is_none();
    let parts_given = !layout.parts.is_empty();
    for (place, row) in layout.places.iter_mut().zip(&table.rows) {
        let part = match place {
            Ok(place) if parts_given => place.part,
            _ => row.as_ref().and_then(|row| row.part),
        };
        if by_folder {
            if let Ok(place) = place {
                place.part = part;
            }
            continue;
        }
        *place = match (row, &table.label) {
            (None, _) => Err(format!(
                "No row of {} names it. Add a row, or remove it.",
                table.file
            )),
            (Some(row), Some(column)) => match &row.label {
                Some(class) => Ok(Place {
                    part,
                    class: class.clone(),
                }),
                None => Err(format!(
                    "Its row in {} has no {column}. Fill it in, or remove the row.",
                    table.file
                )),
            },
            (Some(_), None) => Ok(Place {
                part,
                class: String::new(),
            }),
        };
    }
    if !parts_given {
        let parts = layout
            .places
            .iter()
            .flatten()
            .filter_map(|place| place.part);
        layout.parts = parts.collect();
    }
}

/// What keeps photographs together: a column that the user names, or times in their names.
pub(crate) fn together(table: &Table, images: &[&Entry], options: &TableOptions) -> Option<Groups> {
    if let Some(column) = &table.group {
        let of = |row: &Option<super::Said>| row.as_ref().and_then(|row| row.group.clone());
        return Some(Groups {
            by: column.clone(),
            of: table.rows.iter().map(of).collect(),
        });
    }
    let asked = options.group_by.is_some() || table.targets.is_empty();
    let names = images
        .iter()
        .map(|entry| entry.names.last().map_or("", String::as_str));
    let (of, _) = groups::by_time(names).filter(|_| !asked)?;
    Some(Groups {
        by: TIMES.to_owned(),
        of,
    })
}

/// What is to be said of groups: the rule, and those that the folder's own parts tear apart.
pub(crate) fn words(groups: &Groups, parts: &[(Option<&str>, Part)]) -> (u64, Vec<String>) {
    let mut of: BTreeMap<&str, BTreeSet<Part>> = BTreeMap::new();
    for (group, part) in parts {
        if let Some(group) = group {
            of.entry(group).or_default().insert(*part);
        }
    }
    let alone = parts.iter().filter(|(group, _)| group.is_none()).count();
    let count = (of.len() + alone) as u64;
    let mut notes = vec![format!(
        "{} groups by {} stay whole: no group is both trained on and held out.",
        grouped(count),
        groups.by
    )];
    if groups.by == TIMES {
        notes = vec![format!(
            "The names of the photographs hold times: those at most {} minutes after one another count as one group, {} in all, \
             and no group is both trained on and held out.",
            groups::GAP_SECONDS / 60,
            grouped(count)
        )];
    }
    match of.values().filter(|parts| parts.len() > 1).count() {
        0 => {}
        torn => {
            notes = vec![format!(
                "{torn} of {} groups by {} stand in more than one of the parts that the folder brings: what is held out may be \
                 known from training.",
                grouped(count),
                groups.by
            )];
        }
    }
    (count, notes)
}

/// Statistics of the numbers over the photographs trained on. Columns that do not differ there are dropped, and named.
pub(crate) fn targets(
    names: &[String],
    files: &mut [ImageFile],
) -> (Vec<TargetColumn>, Vec<String>) {
    let (mut kept, mut places, mut dropped) = (Vec::new(), Vec::new(), Vec::new());
    for (place, name) in names.iter().enumerate() {
        let trained: Vec<f64> = files
            .iter()
            .filter(|file| file.part == Part::Train)
            .filter_map(|file| file.numbers.get(place).copied().flatten())
            .collect();
        match TargetColumn::of(name, &trained) {
            Some(column) => {
                kept.push(column);
                places.push(place);
            }
            None => dropped.push(format!(
                "{name} is not learnt: its numbers do not differ among the photographs trained on."
            )),
        }
    }
    for file in files {
        let number = |place: &usize| file.numbers.get(*place).copied().flatten();
        file.numbers = places.iter().map(number).collect();
    }
    (kept, dropped)
}

/// "PersistedState numbers: calories (52 to 1,116, mean 402), …", and how many are missing.
pub(crate) fn sentence(targets: &[TargetColumn], trained: u64) -> Option<String> {
    let one = |target: &TargetColumn| {
        let missing = trained - target.present.min(trained);
        let missing = match missing {
            0 => String::new(),
            n => format!(", missing in {}", grouped(n)),
        };
        let (least, most) = target.range;
        format!(
            "{} ({} to {}, mean {}{missing})",
            target.name,
            short(least),
            short(most),
            short(target.mean)
        )
    };
    let all: Vec<String> = targets.iter().map(one).collect();
    (!all.is_empty()).then(|| format!("Numbers learnt: {}.", all.join(", ")))
}

/// A number with as many digits as a reader wants.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}
