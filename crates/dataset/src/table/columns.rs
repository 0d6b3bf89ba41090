//! What the columns of a table beside photographs are: numbers to be learnt, classes, groups, parts. The user's word comes
//! first; what is not named is judged by names and cells. Opens no file.

use super::numbers::{Cell, cell, is_numbers, names_a_row};
use super::rows::{Matched, Rows};
use super::{Said, TableOptions};
use crate::error::DatasetError;
use crate::layout::part_of;
use crate::sentences::listed;
use crate::text::is_named_label;
use std::collections::{BTreeMap, BTreeSet};

/// Names of columns that say what a row serves for.
const PART_NAMES: [&str; 5] = ["split", "part", "set", "subset", "partition"];

/// The places of the columns that say something of a photograph.
#[derive(Debug)]
pub(super) struct Columns {
    pub targets: Vec<usize>,
    pub label: Option<usize>,
    pub group: Option<usize>,
    part: Option<usize>,
}

impl Columns {
    /// Of a table with these names, whose column `image` names the photographs.
    ///
    /// # Errors
    /// A column that the user names is not there.
    pub(super) fn of(
        names: &[String],
        image: usize,
        rows: &Rows,
        options: &TableOptions,
    ) -> Result<Self, DatasetError> {
        let wanted = |name: &String| place_of(names, name);
        let group = options.group_by.as_ref().filter(|name| *name != "none");
        let group = group.map(wanted).transpose()?;
        let named_label = options.label_column.as_ref().map(wanted).transpose()?;
        let targets = options.targets.as_ref();
        let targets = targets
            .map(|names| names.iter().map(wanted).collect::<Result<Vec<usize>, _>>())
            .transpose()?;
        let free = |place: &usize| *place != image && Some(*place) != group;
        let part = (0..names.len()).filter(free).find(|place| {
            let named = PART_NAMES.contains(&names[*place].to_lowercase().as_str());
            let is_part =
                |cell: Option<&str>| cell.is_some_and(|cell| part_of(cell.trim()).is_some());
            named && rows.column(*place).all(is_part)
        });
        let free = |place: &usize| free(place) && Some(*place) != part;
        let label = named_label.or_else(|| {
            let mut others = (0..names.len()).filter(free);
            others.find(|place| is_named_label(&names[*place]) && repeats(rows.column(*place)))
        });
        let targets = targets.unwrap_or_else(|| {
            let others = (0..names.len()).filter(|place| free(place) && Some(*place) != label);
            others
                .filter(|place| !names_a_row(&names[*place]) && is_numbers(rows.column(*place)))
                .collect()
        });
        Ok(Columns {
            targets,
            label,
            group,
            part,
        })
    }

    /// What a row says of its photograph. Cells of words in a column of numbers are counted by its place.
    pub(super) fn said(&self, row: &Matched, words: &mut BTreeMap<usize, u64>) -> Said {
        let text = |place: Option<usize>| {
            let text = row.cells[place?].as_deref()?.trim();
            (!text.is_empty()).then(|| text.to_owned())
        };
        let number = |place: &usize| match cell(row.cells[*place].as_deref()) {
            Cell::Number(number) => Some(number),
            Cell::Missing => None,
            Cell::Words => {
                *words.entry(*place).or_default() += 1;
                None
            }
        };
        Said {
            numbers: self.targets.iter().map(number).collect(),
            label: text(self.label),
            group: text(self.group),
            part: text(self.part).and_then(|text| part_of(&text)),
        }
    }
}

/// The place of a column that the user names, by name or by number counted from 1.
fn place_of(names: &[String], name: &str) -> Result<usize, DatasetError> {
    let mut all = names.iter();
    let place = all.position(|n| n.eq_ignore_ascii_case(name.trim()));
    let number = || {
        let number = name.trim().parse().ok();
        number.filter(|n| (1..=names.len()).contains(n))
    };
    let place = place.or_else(|| number().map(|n: usize| n - 1));
    place.ok_or_else(|| DatasetError::NoColumn {
        column: name.to_owned(),
        columns: listed(names),
    })
}

/// Labels repeat, and there are two at least.
fn repeats<'a>(cells: impl Iterator<Item = Option<&'a str>>) -> bool {
    let (mut kinds, mut filled) = (BTreeSet::new(), 0);
    for cell in cells
        .flatten()
        .map(str::trim)
        .filter(|cell| !cell.is_empty())
    {
        kinds.insert(cell);
        filled += 1;
    }
    kinds.len() >= 2 && kinds.len() * 2 <= filled
}
