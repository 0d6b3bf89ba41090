//! Nested columns of a Parquet file that may be parts of a conversation. Their cells are JSON.

use super::json::MAX_NESTED_BYTES;
use crate::chat::may_be_nested;
use parquet::basic::Repetition;
use parquet::file::reader::RowGroupReader;
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row};
use parquet::schema::types::{SchemaDescriptor, Type};
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

/// Most levels of nesting.
const MAX_LEVELS: usize = 16;

/// A nested column.
pub(super) struct NestedColumn {
    pub name: String,
    /// Its leaf columns, by index.
    pub leaves: Vec<usize>,
    /// The schema of this column alone.
    projection: Type,
}

/// The nested columns of a file that may be parts of a conversation.
pub(super) fn nested_columns(schema: &SchemaDescriptor) -> Vec<NestedColumn> {
    let root = schema.root_schema();
    let fields = root.get_fields().iter().filter(|field| {
        let about = field.get_basic_info();
        let repeats = about.has_repetition() && about.repetition() == Repetition::REPEATED;
        let is_nested = field.is_group() || repeats;
        is_nested && may_be_nested(field.name())
    });
    let column = |field: &Arc<Type>| {
        let leaves = (0..schema.num_columns()).filter(|leaf| {
            let path = schema.column(*leaf);
            path.path()
                .parts()
                .first()
                .is_some_and(|name| name == field.name())
        });
        let leaves: Vec<usize> = leaves.collect();
        let is_deep = |leaf: &usize| schema.column(*leaf).path().parts().len() > MAX_LEVELS;
        if leaves.iter().any(is_deep) {
            return None;
        }
        let projection = Type::group_type_builder(root.name())
            .with_fields(vec![Arc::clone(field)])
            .build();
        Some(NestedColumn {
            name: field.name().to_owned(),
            leaves,
            projection: projection.ok()?,
        })
    };
    fields.filter_map(column).collect()
}

impl NestedColumn {
    /// The rows of this column in a row group.
    pub fn rows<'g>(&self, group: &'g dyn RowGroupReader) -> Result<RowIter<'g>, String> {
        let rows = RowIter::from_row_group(Some(self.projection.clone()), group);
        rows.map_err(|error| error.to_string())
    }
}

/// The next cells of a nested column.
pub(super) fn nested_cells<'n>(
    rows: &mut RowIter,
    count: usize,
) -> Result<Vec<Option<Cow<'n, str>>>, String> {
    let mut cells = Vec::with_capacity(count);
    for row in rows.take(count) {
        let row = row.map_err(|error| error.to_string())?;
        let field = row.get_column_iter().next().map(|(_, field)| field);
        cells.push(match field {
            None | Some(Field::Null) => None,
            Some(field) => {
                let mut json = String::new();
                write(field, &mut json);
                Some(Cow::Owned(json))
            }
        });
    }
    Ok(cells)
}

/// Writes a value as JSON. Writes no more once the JSON is too long, which is no JSON then.
fn write(field: &Field, json: &mut String) {
    if json.len() > MAX_NESTED_BYTES {
        return;
    }
    match field {
        Field::Group(row) => write_row(row, json),
        Field::ListInternal(list) => {
            json.push('[');
            for (n, element) in list.elements().iter().enumerate() {
                if n > 0 {
                    json.push(',');
                }
                write(element, json);
            }
            json.push(']');
        }
        Field::MapInternal(map) => {
            json.push('{');
            for (n, (key, value)) in map.entries().iter().enumerate() {
                if n > 0 {
                    json.push(',');
                }
                let key = match key {
                    Field::Str(key) => key.clone(),
                    other => other.to_string(),
                };
                json.push_str(&Value::from(key).to_string());
                json.push(':');
                write(value, json);
            }
            json.push('}');
        }
        Field::Null => json.push_str("null"),
        Field::Bool(value) => json.push_str(if *value { "true" } else { "false" }),
        Field::Str(text) => json.push_str(&Value::from(text.as_str()).to_string()),
        Field::Float(value) => json.push_str(&Value::from(*value).to_string()),
        Field::Double(value) => json.push_str(&Value::from(*value).to_string()),
        Field::Byte(_)
        | Field::Short(_)
        | Field::Int(_)
        | Field::Long(_)
        | Field::UByte(_)
        | Field::UShort(_)
        | Field::UInt(_)
        | Field::ULong(_) => json.push_str(&field.to_string()),
        other => json.push_str(&Value::from(other.to_string()).to_string()),
    }
}

fn write_row(row: &Row, json: &mut String) {
    json.push('{');
    for (n, (name, field)) in row.get_column_iter().enumerate() {
        if n > 0 {
            json.push(',');
        }
        json.push_str(&Value::from(name.as_str()).to_string());
        json.push(':');
        write(field, json);
    }
    json.push('}');
}
