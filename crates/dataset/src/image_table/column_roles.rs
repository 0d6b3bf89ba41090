//! Decides what the columns of a table beside images are: regression targets, classes, groups or
//! splits. A column that the user names comes first; the others are judged by names and cells.

use super::matched_rows::{MatchedRow, MatchedRows};
use super::numeric_columns::{Cell, is_id_name, is_numeric, parse_cell};
use crate::error::DatasetError;
use crate::options::TableOptions;
use crate::readers::is_label_name;
use crate::types::Split;
use crate::user_messages::listed;
use std::collections::{BTreeMap, BTreeSet};

/// Names of columns that give the split of a row.
const SPLIT_NAMES: [&str; 5] = ["split", "part", "set", "subset", "partition"];

/// The data of a row about its image.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ImageRow {
    /// Value of each target column.
    pub targets: Vec<Option<f64>>,
    /// Its class.
    pub label: Option<String>,
    pub group: Option<String>,
    pub split: Option<Split>,
}

/// The indices of the columns that describe an image.
#[derive(Debug)]
pub(super) struct ColumnRoles {
    pub targets: Vec<usize>,
    /// The class column.
    pub label: Option<usize>,
    pub group: Option<usize>,
    split: Option<usize>,
}

impl ColumnRoles {
    /// Decides the roles of the columns `names`; the column `image` names the images.
    ///
    /// # Errors
    /// A column that the user names does not exist.
    pub(super) fn new(
        names: &[String],
        image: usize,
        rows: &MatchedRows,
        options: &TableOptions,
    ) -> Result<Self, DatasetError> {
        let find = |name: &String| find_column(names, name);
        let group = options.group_column().map(find).transpose()?;
        let named_label = options.label_column.as_ref().map(find).transpose()?;
        let targets = options.targets.as_ref();
        let targets = targets
            .map(|names| names.iter().map(find).collect::<Result<Vec<usize>, _>>())
            .transpose()?;
        let is_free = |column: &usize| *column != image && Some(*column) != group;
        let split = (0..names.len()).filter(is_free).find(|column| {
            let is_split =
                |cell: Option<&str>| cell.is_some_and(|c| Split::from_name(c.trim()).is_some());
            SPLIT_NAMES.contains(&names[*column].to_lowercase().as_str())
                && rows.column(*column).all(is_split)
        });
        let is_free = |column: &usize| is_free(column) && Some(*column) != split;
        let label = named_label.or_else(|| {
            let mut others = (0..names.len()).filter(is_free);
            others.find(|column| is_label_name(&names[*column]) && repeats(rows.column(*column)))
        });
        let targets = targets.unwrap_or_else(|| {
            let others = (0..names.len()).filter(|c| is_free(c) && Some(*c) != label);
            others
                .filter(|c| !is_id_name(&names[*c]) && is_numeric(rows.column(*c)))
                .collect()
        });
        Ok(ColumnRoles {
            targets,
            label,
            group,
            split,
        })
    }

    /// Reads a row by the roles of its columns. Target cells that are not numbers are counted by
    /// column.
    pub(super) fn read_row(
        &self,
        row: &MatchedRow,
        not_numeric: &mut BTreeMap<usize, u64>,
    ) -> ImageRow {
        let text = |column: Option<usize>| {
            let text = row.cells[column?].as_deref()?.trim();
            (!text.is_empty()).then(|| text.to_owned())
        };
        let number = |column: &usize| match parse_cell(row.cells[*column].as_deref()) {
            Cell::Number(number) => Some(number),
            Cell::Missing => None,
            Cell::NotANumber => {
                *not_numeric.entry(*column).or_default() += 1;
                None
            }
        };
        ImageRow {
            targets: self.targets.iter().map(number).collect(),
            label: text(self.label),
            group: text(self.group),
            split: text(self.split).and_then(|text| Split::from_name(&text)),
        }
    }
}

/// The index of a column that the user names, by its name or by its number counted from 1.
fn find_column(names: &[String], name: &str) -> Result<usize, DatasetError> {
    let mut all = names.iter();
    let by_name = all.position(|n| n.eq_ignore_ascii_case(name.trim()));
    let by_number = || {
        let number = name.trim().parse().ok();
        number.filter(|n| (1..=names.len()).contains(n))
    };
    let column = by_name.or_else(|| by_number().map(|n: usize| n - 1));
    column.ok_or_else(|| DatasetError::UnknownColumn {
        column: name.to_owned(),
        columns: listed(names),
    })
}

/// Whether cells look like labels: they repeat, and at least two differ.
fn repeats<'a>(cells: impl Iterator<Item = Option<&'a str>>) -> bool {
    let (mut distinct, mut filled) = (BTreeSet::new(), 0);
    for cell in cells
        .flatten()
        .map(str::trim)
        .filter(|cell| !cell.is_empty())
    {
        distinct.insert(cell);
        filled += 1;
    }
    distinct.len() >= 2 && distinct.len() * 2 <= filled
}
