//! Reads JSON lines, and JSON files that are a list of objects, as rows. Fields keep the order of
//! the file; numbers and booleans are cells as they are written. Nested values are not cells.

use super::rows::{Row, RowVisitor};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

/// Rows that detect the columns.
const DETECTION_ROWS: usize = 500;
/// Most columns of a table.
const MAX_COLUMNS: usize = 200;
/// Name of the only column if rows are strings rather than objects.
const STRING_COLUMN: &str = "text";

/// The shape of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub(crate) enum Json {
    /// One value per line.
    Lines,
    List,
}

/// The fields of a row in order; a string has one.
struct Fields(Vec<(String, Value)>);

/// One element of the file: a row, or `None` for a value of another kind.
struct Element(Option<Fields>);

impl<'de> Deserialize<'de> for Element {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Shape)
    }
}

struct Shape;

impl<'de> Visitor<'de> for Shape {
    type Value = Element;

    fn expecting(&self, to: &mut fmt::Formatter) -> fmt::Result {
        to.write_str("a JSON value")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Element, M::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Element(Some(Fields(fields))))
    }

    fn visit_str<E>(self, text: &str) -> Result<Element, E> {
        let text = Value::String(text.to_owned());
        Ok(Element(Some(Fields(vec![(
            STRING_COLUMN.to_owned(),
            text,
        )]))))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Element, S::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Element(None))
    }

    fn visit_unit<E>(self) -> Result<Element, E> {
        Ok(Element(None))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Element, E> {
        Ok(Element(None))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Element, E> {
        Ok(Element(None))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Element, E> {
        Ok(Element(None))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Element, E> {
        Ok(Element(None))
    }
}

impl Fields {
    /// The cell of a column. If a name occurs twice, the last one counts, as usual in JSON.
    fn cell(&self, name: &str) -> Option<Cow<'_, str>> {
        let value = self
            .0
            .iter()
            .rev()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value)?;
        match value {
            Value::String(text) => Some(Cow::Borrowed(text)),
            Value::Number(number) => Some(Cow::Owned(number.to_string())),
            Value::Bool(value) => Some(Cow::Owned(value.to_string())),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

impl Json {
    /// Detects the shape of a `.json` file.
    pub(crate) fn detect(text: &str) -> Result<Self, String> {
        if text.trim_start().starts_with('[') {
            return Ok(Self::List);
        }
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        let is_row = |line| serde_json::from_str::<Element>(line).is_ok_and(|row| row.0.is_some());
        if lines.next().is_some_and(is_row) && lines.next().is_some() {
            return Ok(Self::Lines);
        }
        Err(
            "The file is not a list of JSON objects. Save one object per line, or one list of objects."
                .to_owned(),
        )
    }

    /// Names of the fields, in the order in which they first occur.
    pub(crate) fn columns(self, text: &str) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        let mut rows = 0;
        self.each(text, &mut |_, row| {
            let known = row.map(|fields| fields.0).unwrap_or_default();
            for (name, value) in known {
                let is_cell = !matches!(value, Value::Array(_) | Value::Object(_));
                if is_cell && names.len() < MAX_COLUMNS && !names.contains(&name) {
                    names.push(name);
                }
            }
            rows += 1;
            rows < DETECTION_ROWS
        });
        names
    }

    /// Visits the rows. A value that is not an object is a fault.
    pub(crate) fn visit(
        self,
        text: &str,
        columns: &[String],
        wanted: &[usize],
        visit: &mut RowVisitor,
    ) {
        self.each(text, &mut |line, row| match row {
            Ok(fields) => {
                let cell = |i: &usize| fields.cell(columns.get(*i)?);
                let cells: Vec<Option<Cow<str>>> = wanted.iter().map(cell).collect();
                visit(line, Row::Cells(&cells))
            }
            Err(reason) => visit(line, Row::Fault(reason)),
        });
    }

    fn each(self, text: &str, visit: &mut dyn FnMut(u64, Result<Fields, String>) -> bool) {
        match self {
            Self::Lines => {
                let lines = text.lines().enumerate();
                for (n, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
                    let row = match serde_json::from_str::<Element>(line) {
                        Ok(element) => element.0.ok_or_else(|| NOT_AN_OBJECT.to_owned()),
                        Err(_) => Err("it is not JSON".to_owned()),
                    };
                    if !visit(n as u64 + 1, row) {
                        return;
                    }
                }
            }
            Self::List => visit_list(text, visit),
        }
    }
}

const NOT_AN_OBJECT: &str = "it is not a JSON object";

/// Visits the elements of a list one by one. The number of a row is its position in the list.
fn visit_list(text: &str, visit: &mut dyn FnMut(u64, Result<Fields, String>) -> bool) {
    struct Elements<'v>(&'v mut dyn FnMut(u64, Result<Fields, String>) -> bool, u64);
    impl<'de> Visitor<'de> for &mut Elements<'_> {
        type Value = ();
        fn expecting(&self, to: &mut fmt::Formatter) -> fmt::Result {
            to.write_str("a list of objects")
        }
        fn visit_seq<S: SeqAccess<'de>>(self, mut rows: S) -> Result<(), S::Error> {
            // An element of another shape is skipped as a whole; only broken JSON ends the list.
            while let Some(value) = rows.next_element::<Element>()? {
                self.1 += 1;
                let row = value.0.ok_or_else(|| NOT_AN_OBJECT.to_owned());
                if !(self.0)(self.1, row) {
                    while rows.next_element::<IgnoredAny>()?.is_some() {}
                }
            }
            Ok(())
        }
    }
    let mut elements = Elements(visit, 0);
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = serde::Deserializer::deserialize_seq(&mut reader, &mut elements);
    if let Err(error) = read {
        let (next, line) = (elements.1 + 1, error.line());
        let reason = format!("the list is broken at line {line}; nothing after this line was read");
        visit(next, Err(reason));
    }
}
