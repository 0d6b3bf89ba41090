//! JSON as Python writes it, for the filter `tojson` of chat templates: spaces after commas and
//! colons, and no characters escaped that need not be.

use minijinja::Value;
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter};
use std::io::{self, Write};

/// Most spaces of an indentation.
const MAX_INDENT: usize = 16;

/// Writes a value in one line, or indented by `indent` spaces. `None` if it is no JSON, or if it
/// takes more than `max_bytes`.
pub(super) fn to_python_json(
    value: &Value,
    indent: Option<usize>,
    max_bytes: usize,
) -> Option<String> {
    let mut bytes = Limited {
        bytes: Vec::new(),
        max_bytes,
    };
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
    String::from_utf8(bytes.bytes).ok()
}

/// Bytes up to a limit.
struct Limited {
    bytes: Vec<u8>,
    max_bytes: usize,
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.max_bytes {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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
