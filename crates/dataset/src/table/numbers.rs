//! Which columns of a table are numbers to be learnt, what their cells say, and the statistics that a training standardises
//! them by. Sees cells, no files.

use serde::{Deserialize, Serialize};

/// Names of columns whose numbers name or place a row and tell nothing of the photograph.
const NO_TARGETS: [&str; 20] = [
    "id",
    "index",
    "idx",
    "no",
    "nr",
    "number",
    "row",
    "key",
    "uid",
    "uuid",
    "timestamp",
    "time",
    "date",
    "unix_time",
    "width",
    "height",
    "fold",
    "seed",
    "x",
    "y",
];
/// Words that stand where a number is missing.
const MISSING: [&str; 9] = [
    "nan", "na", "n/a", "null", "none", "nil", "-", "?", "missing",
];
/// Of the filled cells of a column of numbers at least so many in a hundred are numbers.
const MIN_NUMBERS_PERCENT: usize = 75;

/// A number that is learnt from photographs: a column, and what it is standardised by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TargetColumn {
    /// The column's name, which tells its unit: `mass_g`.
    pub name: String,
    /// Mean over the photographs trained on, in the column's unit.
    pub mean: f64,
    /// Standard deviation over them, in the column's unit; above 0.
    pub deviation: f64,
    /// Photographs trained on that have the number.
    pub present: u64,
    /// Smallest and largest number among them.
    pub range: (f64, f64),
}

impl TargetColumn {
    /// The statistics of the numbers trained on; nothing where they do not differ.
    pub(crate) fn of(name: &str, trained: &[f64]) -> Option<Self> {
        let n = trained.len().max(1) as f64;
        let mean = trained.iter().sum::<f64>() / n;
        let variance = trained.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
        let deviation = variance.sqrt();
        let least = trained.iter().copied().fold(f64::INFINITY, f64::min);
        let most = trained.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (deviation > 0.0 && deviation.is_finite()).then(|| TargetColumn {
            name: name.to_owned(),
            mean,
            deviation,
            present: trained.len() as u64,
            range: (least, most),
        })
    }

    /// A number of the column in deviations from its mean.
    pub fn standardised(&self, value: f64) -> f64 {
        (value - self.mean) / self.deviation
    }

    /// The number in the column's unit.
    pub fn in_units(&self, standardised: f64) -> f64 {
        standardised * self.deviation + self.mean
    }
}

/// What a cell of a column of numbers says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Cell {
    Number(f64),
    /// Empty, or a word for it.
    Missing,
    /// Something else: `120 kcal`, `250,5`.
    Words,
}

pub(super) fn cell(text: Option<&str>) -> Cell {
    let text = text.map_or("", str::trim);
    if text.is_empty() || MISSING.contains(&text.to_lowercase().as_str()) {
        return Cell::Missing;
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Cell::Number(number),
        // "inf" and 1e309 are no measurements.
        Ok(_) => Cell::Words,
        Err(_) => Cell::Words,
    }
}

/// The name of a column that places a row.
pub(super) fn names_a_row(name: &str) -> bool {
    let plain = name.trim().to_lowercase();
    plain.is_empty()
        || NO_TARGETS.contains(&plain.as_str())
        || plain.ends_with("_id")
        || plain.starts_with("unnamed")
}

/// Its cells are numbers, but for a few.
pub(super) fn is_numbers<'a>(cells: impl Iterator<Item = Option<&'a str>>) -> bool {
    let (mut numbers, mut filled) = (0, 0);
    for text in cells {
        match cell(text) {
            Cell::Number(_) => (numbers, filled) = (numbers + 1, filled + 1),
            Cell::Words => filled += 1,
            Cell::Missing => {}
        }
    }
    numbers >= 2 && numbers * 100 >= filled * MIN_NUMBERS_PERCENT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_finite_number_is_missing_or_words() {
        for (text, expected) in [
            ("250.5", Cell::Number(250.5)),
            (" -50 ", Cell::Number(-50.0)),
            ("", Cell::Missing),
            ("NaN", Cell::Missing),
            ("n/a", Cell::Missing),
            ("inf", Cell::Words),
            ("1e309", Cell::Words),
            ("250,5", Cell::Words),
            ("120 kcal", Cell::Words),
        ] {
            assert_eq!(cell(Some(text)), expected, "{text}");
        }
        assert_eq!(cell(None), Cell::Missing);
    }

    #[test]
    fn a_column_is_standardised_by_what_is_trained_on() {
        let column = TargetColumn::of("mass_g", &[10.0, 20.0, 30.0]).expect("they differ");
        assert!((column.mean - 20.0).abs() < 1e-12 && column.range == (10.0, 30.0));
        let mean: f64 = [10.0, 20.0, 30.0]
            .iter()
            .map(|v| column.standardised(*v).powi(2))
            .sum();
        assert!((mean / 3.0 - 1.0).abs() < 1e-12);
        assert!((column.in_units(column.standardised(17.0)) - 17.0).abs() < 1e-12);
        assert_eq!(TargetColumn::of("mass_g", &[3.0, 3.0]), None);
        assert_eq!(TargetColumn::of("mass_g", &[]), None);
    }
}
