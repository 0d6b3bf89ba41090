//! Reads JSON lines, and JSON files that are a list of objects, as rows. Fields keep the order of
//! the file; numbers and booleans are cells as they are written. Nested values are cells only if
//! they may be parts of a conversation.

use super::rows::{Row, RowVisitor};
use crate::chat::may_be_nested;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

/// Rows that detect the columns.
const DETECTION_ROWS: usize = 500;
/// Most columns of a table.
const MAX_COLUMNS: usize = 200;
/// Most fields of a row. A field takes ten times its bytes in memory.
const MAX_FIELDS: usize = 2_000;
/// Most bytes of a nested value, as JSON.
pub(super) const MAX_NESTED_BYTES: usize = 4 << 20;
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
struct Fields(Vec<(String, CellValue)>);

/// The value of a field: a string, number, boolean or null. `None` is a nested value, which is not
/// kept: in memory it would take many times its bytes.
struct CellValue(Option<Value>);

/// One element of the file: a row, or the reason why it is none, as the end of a sentence.
struct Element(Result<Fields, &'static str>);

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
        while let Some(name) = map.next_key::<String>()? {
            let value = if may_be_nested(&name) {
                let mut json = String::new();
                let is_nested = map.next_value_seed(WriteJson(&mut json))?;
                if json.len() > MAX_NESTED_BYTES {
                    skip_entries(map)?;
                    return Ok(Element(Err(TOO_LONG_NESTED)));
                }
                CellValue::from_json(json, is_nested)
            } else {
                map.next_value()?
            };
            fields.push((name, value));
            if fields.len() > MAX_FIELDS {
                skip_entries(map)?;
                return Ok(Element(Err(TOO_MANY_FIELDS)));
            }
        }
        Ok(Element(Ok(Fields(fields))))
    }

    fn visit_str<E>(self, text: &str) -> Result<Element, E> {
        let text = CellValue(Some(Value::String(text.to_owned())));
        Ok(Element(Ok(Fields(vec![(STRING_COLUMN.to_owned(), text)]))))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, list: S) -> Result<Element, S::Error> {
        skip_elements(list)?;
        Ok(Element(Err(NOT_AN_OBJECT)))
    }

    fn visit_unit<E>(self) -> Result<Element, E> {
        Ok(Element(Err(NOT_AN_OBJECT)))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Element, E> {
        Ok(Element(Err(NOT_AN_OBJECT)))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Element, E> {
        Ok(Element(Err(NOT_AN_OBJECT)))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Element, E> {
        Ok(Element(Err(NOT_AN_OBJECT)))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Element, E> {
        Ok(Element(Err(NOT_AN_OBJECT)))
    }
}

impl<'de> Deserialize<'de> for CellValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(CellShape).map(CellValue)
    }
}

struct CellShape;

impl<'de> Visitor<'de> for CellShape {
    type Value = Option<Value>;

    fn expecting(&self, to: &mut fmt::Formatter) -> fmt::Result {
        to.write_str("a JSON value")
    }

    fn visit_str<E>(self, text: &str) -> Result<Option<Value>, E> {
        Ok(Some(Value::from(text)))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Option<Value>, E> {
        Ok(Some(Value::from(value)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Option<Value>, E> {
        Ok(Some(Value::from(number)))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Option<Value>, E> {
        Ok(Some(Value::from(number)))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Option<Value>, E> {
        Ok(Some(Value::from(number)))
    }

    fn visit_unit<E>(self) -> Result<Option<Value>, E> {
        Ok(Some(Value::Null))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, list: S) -> Result<Option<Value>, S::Error> {
        skip_elements(list)?;
        Ok(None)
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Option<Value>, M::Error> {
        skip_entries(map)?;
        Ok(None)
    }
}

impl CellValue {
    /// A nested value is a cell that holds its JSON. Others are cells as usual.
    fn from_json(json: String, is_nested: bool) -> Self {
        if is_nested {
            return CellValue(Some(Value::String(json)));
        }
        CellValue(serde_json::from_str(&json).ok())
    }
}

/// Writes a value as JSON in one line, with its keys in order, and tells whether it is nested.
/// Writes no more once the JSON is longer than [`MAX_NESTED_BYTES`].
struct WriteJson<'o>(&'o mut String);

impl WriteJson<'_> {
    fn is_full(&self) -> bool {
        self.0.len() > MAX_NESTED_BYTES
    }

    fn push(&mut self, json: &str) {
        if !self.is_full() {
            self.0.push_str(json);
        }
    }

    fn scalar(mut self, value: &Value) -> bool {
        self.push(&value.to_string());
        false
    }
}

impl<'de> DeserializeSeed<'de> for WriteJson<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<bool, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for WriteJson<'_> {
    type Value = bool;

    fn expecting(&self, to: &mut fmt::Formatter) -> fmt::Result {
        to.write_str("a JSON value")
    }

    fn visit_str<E>(self, text: &str) -> Result<bool, E> {
        Ok(self.scalar(&Value::from(text)))
    }

    fn visit_bool<E>(self, value: bool) -> Result<bool, E> {
        Ok(self.scalar(&Value::from(value)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<bool, E> {
        Ok(self.scalar(&Value::from(number)))
    }

    fn visit_u64<E>(self, number: u64) -> Result<bool, E> {
        Ok(self.scalar(&Value::from(number)))
    }

    fn visit_f64<E>(self, number: f64) -> Result<bool, E> {
        Ok(self.scalar(&Value::from(number)))
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(self.scalar(&Value::Null))
    }

    fn visit_seq<S: SeqAccess<'de>>(mut self, mut list: S) -> Result<bool, S::Error> {
        self.push("[");
        let mut is_first = true;
        loop {
            if self.is_full() {
                skip_elements(list)?;
                return Ok(true);
            }
            let before = self.0.len();
            if !is_first {
                self.push(",");
            }
            if list.next_element_seed(WriteJson(self.0))?.is_none() {
                self.0.truncate(before);
                break;
            }
            is_first = false;
        }
        self.push("]");
        Ok(true)
    }

    fn visit_map<M: MapAccess<'de>>(mut self, mut map: M) -> Result<bool, M::Error> {
        self.push("{");
        let mut is_first = true;
        while let Some(key) = map.next_key::<String>()? {
            if self.is_full() {
                map.next_value::<IgnoredAny>()?;
                skip_entries(map)?;
                return Ok(true);
            }
            if !is_first {
                self.push(",");
            }
            is_first = false;
            self.push(&Value::from(key).to_string());
            self.push(":");
            map.next_value_seed(WriteJson(self.0))?;
        }
        self.push("}");
        Ok(true)
    }
}

/// Reads the rest of a list without keeping it.
fn skip_elements<'de, S: SeqAccess<'de>>(mut list: S) -> Result<(), S::Error> {
    while list.next_element::<IgnoredAny>()?.is_some() {}
    Ok(())
}

/// Reads the rest of an object without keeping it.
fn skip_entries<'de, M: MapAccess<'de>>(mut map: M) -> Result<(), M::Error> {
    while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
    Ok(())
}

impl Fields {
    /// The cell of a column. If a name occurs twice, the last one counts, as usual in JSON.
    fn cell(&self, name: &str) -> Option<Cow<'_, str>> {
        let value = self
            .0
            .iter()
            .rev()
            .find(|(key, _)| key == name)
            .and_then(|(_, value)| value.0.as_ref())?;
        match value {
            Value::String(text) => Some(Cow::Borrowed(text)),
            Value::Null => None,
            other => Some(Cow::Owned(other.to_string())),
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
        let is_row = |line| serde_json::from_str::<Element>(line).is_ok_and(|row| row.0.is_ok());
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
                let is_cell = value.0.is_some();
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

    fn each(
        self,
        text: &str,
        visit: &mut dyn FnMut(u64, Result<Fields, Cow<'static, str>>) -> bool,
    ) {
        match self {
            Self::Lines => {
                let lines = text.lines().enumerate();
                for (n, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
                    let row = match serde_json::from_str::<Element>(line) {
                        Ok(element) => element.0.map_err(Cow::Borrowed),
                        Err(_) => Err("it is not JSON".into()),
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
/// Says [`MAX_NESTED_BYTES`].
const TOO_LONG_NESTED: &str = "the messages are longer than 4 MB";
/// Says [`MAX_FIELDS`].
const TOO_MANY_FIELDS: &str = "the row has more than 2,000 fields";

/// Visits the elements of a list one by one. The number of a row is its position in the list.
fn visit_list(text: &str, visit: &mut dyn FnMut(u64, Result<Fields, Cow<'static, str>>) -> bool) {
    struct Elements<'v> {
        visit: &'v mut dyn FnMut(u64, Result<Fields, Cow<'static, str>>) -> bool,
        count: u64,
        is_stopped: bool,
    }
    impl<'de> Visitor<'de> for &mut Elements<'_> {
        type Value = ();
        fn expecting(&self, to: &mut fmt::Formatter) -> fmt::Result {
            to.write_str("a list of objects")
        }
        fn visit_seq<S: SeqAccess<'de>>(self, mut rows: S) -> Result<(), S::Error> {
            // An element of another shape is skipped as a whole; only broken JSON ends the list.
            while let Some(value) = rows.next_element::<Element>()? {
                self.count += 1;
                let row = value.0.map_err(Cow::Borrowed);
                if !(self.visit)(self.count, row) {
                    self.is_stopped = true;
                    // The rest of a large list takes long to read.
                    return Err(serde::de::Error::custom("no more rows are wanted"));
                }
            }
            Ok(())
        }
    }
    let mut elements = Elements {
        visit,
        count: 0,
        is_stopped: false,
    };
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = serde::Deserializer::deserialize_seq(&mut reader, &mut elements);
    if let (Err(error), false) = (read, elements.is_stopped) {
        let (next, line) = (elements.count + 1, error.line());
        let reason = format!(
            "the JSON list is invalid at line {line}; Ebb did not read the rest of the file"
        );
        visit(next, Err(reason.into()));
    }
}
