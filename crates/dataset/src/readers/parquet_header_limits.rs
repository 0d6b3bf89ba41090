//! Checks the headers of a Parquet file (Thrift's compact protocol) before a library reads them:
//! how many elements its lists declare, and how large each page declares to be. Understands no
//! schema.

/// Most elements in all lists of one header.
const MAX_ELEMENTS: u64 = 500_000;
/// Most children of one schema element.
const MAX_CHILDREN: i64 = 10_000;
/// The field of the footer that contains the schema.
const SCHEMA: i64 = 2;
/// The field of a schema element that contains its number of children.
const CHILDREN: i64 = 5;
/// Most nested structures.
const MAX_DEPTH: u32 = 24;

/// A header declares something impossible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Implausible;

/// Fields of a page header that describe a data page, and the field there that counts its values.
const DATA_PAGES: [i64; 2] = [5, 8];
const VALUES: i64 = 1;
/// The field of a page header that says what the page is, and its value for data pages of version
/// 2.
const KIND: i64 = 1;
const KIND_DATA_V2: i64 = 3;
/// The field of a page header that describes a data page of version 2, and the fields there that
/// contain the lengths of the levels.
const DATA_PAGE_V2: i64 = 8;
const LEVEL_BYTES: [i64; 2] = [5, 6];

/// The sizes in a page header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PageHeader {
    /// Bytes of the header itself.
    pub header_bytes: usize,
    pub unpacked_bytes: u64,
    /// Bytes of the page in the file.
    pub packed_bytes: u64,
    /// Values of a data page, those of missing cells included.
    pub values: u64,
    /// Bytes at the beginning of the page that are not compressed: the levels of a page of
    /// version 2.
    pub level_bytes: u64,
}

/// Checks a file's footer.
pub(crate) fn check_footer(bytes: &[u8]) -> Result<(), Implausible> {
    let mut cursor = Cursor::new(bytes);
    let mut wide = false;
    cursor.structure(0, 0, &mut |integer| {
        let Integer { parent, field, .. } = integer;
        wide |= parent == SCHEMA && field == CHILDREN && integer.value > MAX_CHILDREN;
    })?;
    if wide { Err(Implausible) } else { Ok(()) }
}

/// Reads the page header at the start of `bytes`.
pub(crate) fn read_page_header(bytes: &[u8]) -> Result<PageHeader, Implausible> {
    let mut cursor = Cursor::new(bytes);
    let mut found = PageHeader::default();
    let (mut negative, mut kind, mut levels) = (false, 0, [0; 2]);
    cursor.structure(0, 0, &mut |integer| {
        let Integer { parent, field, .. } = integer;
        let value = integer.value.unsigned_abs();
        // Deeper fields are statistics, or unknown.
        if DATA_PAGES.contains(&parent) && integer.depth == 1 && field == VALUES {
            found.values = value;
        }
        if parent == DATA_PAGE_V2 && integer.depth == 1 {
            let place = LEVEL_BYTES.iter().position(|known| *known == field);
            if let Some(place) = place {
                negative |= integer.value < 0;
                levels[place] = value;
            }
        }
        if parent != 0 {
            return;
        }
        negative |= integer.value < 0 && (field == 2 || field == 3);
        match field {
            KIND => kind = integer.value,
            2 => found.unpacked_bytes = value,
            3 => found.packed_bytes = value,
            _ => {}
        }
    })?;
    if kind == KIND_DATA_V2 {
        found.level_bytes = levels.iter().sum();
    }
    found.header_bytes = cursor.at;
    if negative {
        Err(Implausible)
    } else {
        Ok(found)
    }
}

/// An integer in a structure.
#[derive(Clone, Copy)]
struct Integer {
    /// Structures around its own.
    depth: u32,
    /// The field of the outermost structure that it is in; 0 if it is a field of this structure.
    parent: i64,
    /// Its field in its own structure.
    field: i64,
    value: i64,
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    elements: u64,
}

impl<'a> Cursor<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            elements: 0,
        }
    }

    fn byte(&mut self) -> Result<u8, Implausible> {
        let byte = self.bytes.get(self.at).copied().ok_or(Implausible)?;
        self.at += 1;
        Ok(byte)
    }

    fn varint(&mut self) -> Result<u64, Implausible> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Implausible)
    }

    fn signed(&mut self) -> Result<i64, Implausible> {
        let raw = self.varint()?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    fn skip(&mut self, count: u64) -> Result<(), Implausible> {
        let left = (self.bytes.len() - self.at) as u64;
        if count > left {
            return Err(Implausible);
        }
        self.at += count as usize;
        Ok(())
    }

    /// Checks the declared number of elements of a list. Each takes at least one byte.
    fn check_elements(&mut self, count: u64) -> Result<(), Implausible> {
        self.elements = self.elements.saturating_add(count);
        let left = (self.bytes.len() - self.at) as u64;
        if self.elements > MAX_ELEMENTS || count > left {
            return Err(Implausible);
        }
        Ok(())
    }

    /// Reads one structure, which is in the field `parent` of the outermost one. Reports each
    /// integer.
    fn structure(
        &mut self,
        depth: u32,
        parent: i64,
        report: &mut dyn FnMut(Integer),
    ) -> Result<(), Implausible> {
        let mut field = 0i64;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Ok(());
            }
            field = match head >> 4 {
                0 => self.signed()?,
                step => field + i64::from(step),
            };
            match head & 0x0F {
                // A boolean field is its own type.
                1 | 2 => {}
                4..=6 => report(Integer {
                    depth,
                    parent,
                    field,
                    value: self.signed()?,
                }),
                kind => {
                    let parent = if depth == 0 { field } else { parent };
                    self.value(kind, depth, parent, report)?;
                }
            }
        }
    }

    fn value(
        &mut self,
        kind: u8,
        depth: u32,
        parent: i64,
        report: &mut dyn FnMut(Integer),
    ) -> Result<(), Implausible> {
        if depth > MAX_DEPTH {
            return Err(Implausible);
        }
        match kind {
            1..=3 => self.skip(1),
            4..=6 => self.varint().map(|_| ()),
            7 => self.skip(8),
            8 => {
                let length = self.varint()?;
                self.skip(length)
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = match head >> 4 {
                    15 => self.varint()?,
                    few => u64::from(few),
                };
                self.check_elements(count)?;
                for _ in 0..count {
                    self.value(head & 0x0F, depth + 1, parent, report)?;
                }
                Ok(())
            }
            11 => {
                let count = self.varint()?;
                if count == 0 {
                    return Ok(());
                }
                self.check_elements(count)?;
                let kinds = self.byte()?;
                for _ in 0..count {
                    self.value(kinds >> 4, depth + 1, parent, report)?;
                    self.value(kinds & 0x0F, depth + 1, parent, report)?;
                }
                Ok(())
            }
            12 => self.structure(depth + 1, parent, report),
            _ => Err(Implausible),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_header_has_its_sizes() {
        // type = 0, unpacked = 300, packed = 150, then a structure with one integer.
        let bytes = [
            0x15, 0x00, 0x15, 0xD8, 0x04, 0x15, 0xAC, 0x02, 0x2C, 0x15, 0x14, 0x00, 0x00, 0xFF,
        ];
        let expected = PageHeader {
            header_bytes: 13,
            unpacked_bytes: 300,
            packed_bytes: 150,
            values: 10,
            level_bytes: 0,
        };
        assert_eq!(read_page_header(&bytes), Ok(expected));
    }

    #[test]
    fn the_levels_of_a_page_of_version_2_are_not_compressed() {
        // type = 3, unpacked = 300, packed = 150, then the structure of field 8: 10 values, levels
        // of 3 and 4 bytes, and a structure inside with integers in the same fields.
        let bytes = |kind: u8| {
            let mut bytes = vec![0x15, kind << 1, 0x15, 0xD8, 0x04, 0x15, 0xAC, 0x02, 0x5C];
            bytes.extend([0x15, 0x14, 0x45, 0x06, 0x15, 0x08]);
            bytes.extend([0x2C, 0x15, 0x7E, 0x45, 0x7E, 0x15, 0x7E, 0x00, 0x00, 0x00]);
            bytes
        };
        let found = read_page_header(&bytes(3)).expect("it is a page header");
        assert_eq!((found.values, found.level_bytes), (10, 7));
        let found = read_page_header(&bytes(0)).expect("it is a page header");
        assert_eq!(
            found.level_bytes, 0,
            "pages of version 1 are compressed as a whole"
        );
    }

    #[test]
    fn impossible_declarations_are_refused() {
        // A list of two billion structures; a string longer than the file; endless nesting; a
        // negative size.
        let list = [0x19, 0xFC, 0x80, 0x80, 0x80, 0x80, 0x07, 0x00];
        assert_eq!(check_footer(&list), Err(Implausible));
        assert_eq!(check_footer(&[0x18, 0xFF, 0x7F, 0x00]), Err(Implausible));
        assert_eq!(check_footer(&[0x1C; 1000]), Err(Implausible));
        assert_eq!(read_page_header(&[0x25, 0x01, 0x00]), Err(Implausible));
        // A schema element that declares a billion children.
        let schema = |children: &[u8]| {
            let mut bytes = vec![0x29, 0x1C, 0x55];
            bytes.extend(children);
            bytes.extend([0, 0]);
            bytes
        };
        assert_eq!(
            check_footer(&schema(&[0xFE, 0xFF, 0xFF, 0xFF, 0x0F])),
            Err(Implausible)
        );
        assert_eq!(check_footer(&schema(&[0x04])), Ok(()));
        assert_eq!(check_footer(&[0x00]), Ok(()));
    }
}
