//! JSON as Python writes it, for the filter `tojson` of chat templates: spaces after commas and
//! colons, and no characters escaped that need not be.

use minijinja::Value;
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter};
use std::io::{self, Write};

/// Most spaces of an indentation.
const MAX_INDENT: usize = 16;

/// Writes a value in one line, or indented by `indent` spaces. `None` if it is no JSON.
pub(super) fn to_python_json(value: &Value, indent: Option<usize>) -> Option<String> {
    let mut bytes = Vec::new();
    let written = match indent {
        None => {
            let mut to = serde_json::Serializer::with_formatter(&mut bytes, OneLine);
            value.serialize(&mut to)
        }
        Some(indent) => {
            let spaces = " ".repeat(indent.min(MAX_INDENT));
            let form = PrettyFormatter::with_indent(spaces.as_bytes());
            let mut to = serde_json::Serializer::with_formatter(&mut bytes, form);
            value.serialize(&mut to)
        }
    };
    written.ok()?;
    String::from_utf8(bytes).ok()
}

struct OneLine;

impl Formatter for OneLine {
    fn begin_array_value<W: Write + ?Sized>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        to.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        to.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, to: &mut W) -> io::Result<()> {
        to.write_all(b": ")
    }
}
