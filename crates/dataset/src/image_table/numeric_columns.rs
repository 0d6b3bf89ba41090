//! Decides which columns of a table are regression targets, and reads their cells.

/// Names of numeric columns that identify a row and describe nothing in the image.
const ID_NAMES: [&str; 20] = [
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
/// Words for a missing number.
const MISSING: [&str; 9] = [
    "nan", "na", "n/a", "null", "none", "nil", "-", "?", "missing",
];
/// Fewest percent of the filled cells of a numeric column that are numbers.
const MIN_NUMBERS_PERCENT: usize = 75;

/// A cell of a numeric column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Cell {
    /// A finite number.
    Number(f64),
    /// Empty, or a word for a missing number.
    Missing,
    /// Anything else: `120 kcal`, `250,5`.
    NotANumber,
}

/// Reads a cell of a numeric column.
pub(super) fn parse_cell(text: Option<&str>) -> Cell {
    let text = text.map_or("", str::trim);
    if text.is_empty() || MISSING.contains(&text.to_lowercase().as_str()) {
        return Cell::Missing;
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Cell::Number(number),
        // "inf" and 1e309 are not measurements.
        Ok(_) | Err(_) => Cell::NotANumber,
    }
}

/// Whether a column of this name identifies rows.
pub(super) fn is_id_name(name: &str) -> bool {
    let plain = name.trim().to_lowercase();
    plain.is_empty()
        || ID_NAMES.contains(&plain.as_str())
        || plain.ends_with("_id")
        || plain.starts_with("unnamed")
}

/// Whether most cells of a column are numbers.
pub(super) fn is_numeric<'a>(cells: impl Iterator<Item = Option<&'a str>>) -> bool {
    let (mut numbers, mut filled) = (0, 0);
    for text in cells {
        match parse_cell(text) {
            Cell::Number(_) => (numbers, filled) = (numbers + 1, filled + 1),
            Cell::NotANumber => filled += 1,
            Cell::Missing => {}
        }
    }
    numbers >= 2 && numbers * 100 >= filled * MIN_NUMBERS_PERCENT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_numbers_missing_or_not_numbers() {
        for (text, expected) in [
            ("250.5", Cell::Number(250.5)),
            (" -50 ", Cell::Number(-50.0)),
            ("", Cell::Missing),
            ("NaN", Cell::Missing),
            ("n/a", Cell::Missing),
            ("inf", Cell::NotANumber),
            ("1e309", Cell::NotANumber),
            ("250,5", Cell::NotANumber),
            ("120 kcal", Cell::NotANumber),
        ] {
            assert_eq!(parse_cell(Some(text)), expected, "{text}");
        }
        assert_eq!(parse_cell(None), Cell::Missing);
    }
}
