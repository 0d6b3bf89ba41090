//! The bytes of the header of a GGUF file, and no others. A header has no length, so its fields are
//! followed to its end. This also limits how many values candle reads from it: in memory, a value
//! takes up to 32 times its bytes.

use std::io::{self, Read};

/// Most bytes of a header. A vocabulary of 262,144 tokens with its merges takes about 20 million.
const MAX_HEADER_BYTES: usize = 64 << 20;
/// Most values in all lists. The same vocabulary has about 1.3 million.
const MAX_VALUES: u64 = 4 << 20;
/// Says [`MAX_HEADER_BYTES`] and [`MAX_VALUES`].
const TOO_LONG: &str = "64 MB";
const TOO_MANY: &str = "4 million values";
/// Most lists around a value.
const MAX_DEPTH: u32 = 64;
/// Most axes of a tensor.
const MAX_AXES: u32 = 4;

/// How the bytes of a header end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeaderEnd {
    /// With the header.
    Whole,
    /// With the file, or with something that no header has. candle says what.
    Damaged,
    /// At a limit, which is part of a sentence.
    Beyond(&'static str),
}

/// Reads a header to its end.
///
/// # Errors
/// The file cannot be read.
pub(super) fn read_header(file: impl Read) -> io::Result<(Vec<u8>, HeaderEnd)> {
    let mut reader = HeaderReader {
        file,
        bytes: Vec::new(),
        values: 0,
        has_wide_lengths: true,
    };
    let end = match reader.read() {
        Ok(()) => HeaderEnd::Whole,
        Err(Stop::At(end)) => end,
        Err(Stop::Failed(error)) => return Err(error),
    };
    Ok((reader.bytes, end))
}

enum Stop {
    At(HeaderEnd),
    Failed(io::Error),
}

struct HeaderReader<R> {
    file: R,
    /// The bytes that were read.
    bytes: Vec<u8>,
    /// Values of lists that were read.
    values: u64,
    /// Lengths have 8 bytes, not 4 as in version 1.
    has_wide_lengths: bool,
}

impl<R: Read> HeaderReader<R> {
    fn read(&mut self) -> Result<(), Stop> {
        let (_magic, version) = (self.u32()?, self.u32()?);
        self.has_wide_lengths = version != 1;
        let (tensors, entries) = (self.length()?, self.length()?);
        for _ in 0..entries {
            self.text()?;
            let kind = self.u32()?;
            self.value(kind, 0)?;
        }
        for _ in 0..tensors {
            self.text()?;
            let axes = self.u32()?;
            if axes > MAX_AXES {
                return Err(Stop::At(HeaderEnd::Damaged));
            }
            let sides = u64::from(axes) * self.length_bytes();
            // The type and the offset follow.
            self.skip(sides + 4 + 8)?;
        }
        Ok(())
    }

    fn value(&mut self, kind: u32, depth: u32) -> Result<(), Stop> {
        let bytes = match kind {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            10..=12 => 8,
            8 => return self.text(),
            9 if depth <= MAX_DEPTH => return self.list(depth),
            _ => return Err(Stop::At(HeaderEnd::Damaged)),
        };
        self.skip(bytes)
    }

    fn list(&mut self, depth: u32) -> Result<(), Stop> {
        let kind = self.u32()?;
        let count = self.length()?;
        self.values = self.values.saturating_add(count);
        if self.values > MAX_VALUES {
            return Err(Stop::At(HeaderEnd::Beyond(TOO_MANY)));
        }
        for _ in 0..count {
            self.value(kind, depth + 1)?;
        }
        Ok(())
    }

    fn text(&mut self) -> Result<(), Stop> {
        let bytes = self.length()?;
        self.skip(bytes)
    }

    fn length_bytes(&self) -> u64 {
        if self.has_wide_lengths { 8 } else { 4 }
    }

    fn length(&mut self) -> Result<u64, Stop> {
        if !self.has_wide_lengths {
            return self.u32().map(u64::from);
        }
        let start = self.bytes.len();
        self.skip(8)?;
        let mut length = [0; 8];
        length.copy_from_slice(&self.bytes[start..]);
        Ok(u64::from_le_bytes(length))
    }

    fn u32(&mut self) -> Result<u32, Stop> {
        let start = self.bytes.len();
        self.skip(4)?;
        let mut number = [0; 4];
        number.copy_from_slice(&self.bytes[start..]);
        Ok(u32::from_le_bytes(number))
    }

    /// Reads this many bytes.
    fn skip(&mut self, count: u64) -> Result<(), Stop> {
        if count > (MAX_HEADER_BYTES - self.bytes.len()) as u64 {
            return Err(Stop::At(HeaderEnd::Beyond(TOO_LONG)));
        }
        let mut part = self.file.by_ref().take(count);
        match part.read_to_end(&mut self.bytes) {
            Ok(read) if read as u64 == count => Ok(()),
            Ok(_) => Err(Stop::At(HeaderEnd::Damaged)),
            Err(error) => Err(Stop::Failed(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Version 3, no tensors, and an entry `a` with this value.
    fn header(kind: u32, value: &[u8]) -> Vec<u8> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3u32.to_le_bytes());
        bytes.extend(0u64.to_le_bytes());
        bytes.extend(1u64.to_le_bytes());
        bytes.extend(1u64.to_le_bytes());
        bytes.push(b'a');
        bytes.extend(kind.to_le_bytes());
        bytes.extend(value);
        bytes
    }

    fn list(kind: u32, count: u64, values: &[u8]) -> Vec<u8> {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend(count.to_le_bytes());
        bytes.extend(values);
        bytes
    }

    fn end(bytes: &[u8]) -> (usize, HeaderEnd) {
        let (read, end) = read_header(bytes).expect("memory can be read");
        assert!(bytes.starts_with(&read));
        (read.len(), end)
    }

    #[test]
    fn the_bytes_end_with_the_header() {
        for (kind, value) in [
            (0, vec![7]),
            (3, vec![7; 2]),
            (6, vec![7; 4]),
            (12, vec![7; 8]),
            (9, list(2, 3, &[7; 6])),
            (9, list(9, 1, &list(7, 2, &[1; 2]))),
        ] {
            let mut bytes = header(kind, &value);
            let length = bytes.len();
            bytes.extend([1; 100]);
            assert_eq!(end(&bytes), (length, HeaderEnd::Whole), "{kind}");
            let cut = &bytes[..length - 1];
            assert_eq!(end(cut).1, HeaderEnd::Damaged, "{kind}");
        }
        assert_eq!(end(b"no such file").1, HeaderEnd::Damaged);
        assert_eq!(end(&header(99, &[])).1, HeaderEnd::Damaged);
    }

    #[test]
    fn a_header_of_more_than_16_mb_is_read_up_to_its_limits() {
        let mut value = 30_000_000u64.to_le_bytes().to_vec();
        value.resize(8 + 30_000_000, b'a');
        let bytes = header(8, &value);
        assert_eq!(end(&bytes), (bytes.len(), HeaderEnd::Whole));
        let text = header(8, &70_000_000u64.to_le_bytes());
        assert_eq!(end(&text).1, HeaderEnd::Beyond("64 MB"));
        let values = header(9, &list(0, 5_000_000, &[]));
        assert_eq!(end(&values).1, HeaderEnd::Beyond("4 million values"));
        let nested = header(9, &list(9, u64::MAX, &[]));
        assert_eq!(end(&nested).1, HeaderEnd::Beyond("4 million values"));
    }

    #[test]
    fn lists_in_lists_have_a_limit() {
        let one = list(9, 1, &[]);
        let bytes = header(9, &one.repeat(100_000));
        assert_eq!(end(&bytes).1, HeaderEnd::Damaged);
    }
}
