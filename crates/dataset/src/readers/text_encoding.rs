//! Decodes the bytes of a file as text: which encoding they are in, how many cannot be decoded, and
//! whether they are text at all. Guesses only if the file itself does not tell.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

/// Fraction of control bytes above which a file counts as binary. Random bytes have a tenth, texts
/// almost none.
const MAX_CONTROL_FRACTION: f64 = 0.02;
/// Fewest non-ASCII bytes from which an encoding is guessed.
const MIN_GUESS_BYTES: usize = 16;
/// Most bytes that the guess of an encoding reads.
const MAX_GUESS_BYTES: usize = 1 << 20;

/// How a file's text was decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TextEncoding {
    /// `UTF-8`, `windows-1252`. Parquet files are always UTF-8.
    pub name: &'static str,
    /// Whether the file starts with a byte-order mark.
    pub has_mark: bool,
    /// Non-ASCII bytes that were decoded by a guessed encoding.
    pub guessed_bytes: u64,
    /// Bytes that are invalid in the encoding. Each was replaced by the character U+FFFD.
    pub replaced_bytes: u64,
}

impl TextEncoding {
    /// Intact UTF-8 without a byte-order mark.
    pub(crate) const UTF_8: Self = Self {
        name: "UTF-8",
        has_mark: false,
        guessed_bytes: 0,
        replaced_bytes: 0,
    };
}

type Decoded = (String, TextEncoding);

/// Decodes a text, without its byte-order mark, or gives the reason why the bytes are not text.
pub(crate) fn decode(bytes: Vec<u8>) -> Result<(String, TextEncoding), String> {
    if bytes.is_empty() {
        return Err("The file is empty. Copy it here again.".to_owned());
    }
    if let Some(reason) = known_binary(&bytes) {
        return Err(reason.to_owned());
    }
    if let Some((encoding, length)) = Encoding::for_bom(&bytes) {
        return decode_marked(bytes, encoding, length);
    }
    if let Some(encoding) = unmarked_utf_16(&bytes) {
        return decode_utf_16(&bytes, encoding, false);
    }
    if is_binary(&bytes) {
        return Err(BINARY.to_owned());
    }
    decode_utf_8(bytes, false)
}

/// Checks the beginning of a file that is too large to be decoded as a whole, and returns the bytes
/// of its byte-order mark.
///
/// # Errors
/// Why the file is not read: it is not text, or not UTF-8.
pub(crate) fn check_first_part(start: &[u8]) -> Result<usize, String> {
    if let Some(reason) = known_binary(start) {
        return Err(reason.to_owned());
    }
    let mark_bytes = match Encoding::for_bom(start) {
        Some((encoding, length)) if encoding == UTF_8 => length,
        None if unmarked_utf_16(start).is_none() => 0,
        _ => return Err(NOT_UTF_8.to_owned()),
    };
    if is_binary(start) {
        return Err(BINARY.to_owned());
    }
    let (mut wide_characters, mut broken_bytes) = (0, 0);
    for chunk in start.utf8_chunks() {
        wide_characters += chunk.valid().chars().filter(|c| !c.is_ascii()).count();
        broken_bytes += chunk.invalid().len();
    }
    // The last character may be cut.
    if broken_bytes > wide_characters.max(3) {
        return Err(NOT_UTF_8.to_owned());
    }
    Ok(mark_bytes)
}

/// A part of a file in UTF-8.
pub(crate) struct Part {
    pub text: String,
    /// Invalid bytes. Each was replaced by the character U+FFFD.
    pub replaced_bytes: u64,
}

impl Part {
    pub(crate) fn decode(bytes: Vec<u8>) -> Self {
        let (text, replaced_bytes) = match String::from_utf8(bytes) {
            Ok(text) => (text, 0),
            Err(error) => {
                let bytes = error.as_bytes();
                let broken = bytes
                    .utf8_chunks()
                    .map(|chunk| chunk.invalid().len() as u64);
                (String::from_utf8_lossy(bytes).into_owned(), broken.sum())
            }
        };
        Part {
            text,
            replaced_bytes,
        }
    }
}

const NOT_UTF_8: &str = "The file is large and not encoded as UTF-8. Save its text as UTF-8.";

const BINARY: &str =
    "The file contains binary data, not text. Remove the file, or save its text as UTF-8.";

/// Decodes a text with a byte-order mark of `length` bytes.
fn decode_marked(
    bytes: Vec<u8>,
    encoding: &'static Encoding,
    length: usize,
) -> Result<Decoded, String> {
    let rest = &bytes[length..];
    if rest.is_empty() {
        return Err(
            "The file is empty except for a byte-order mark. Copy the file here again.".to_owned(),
        );
    }
    if encoding != UTF_8 {
        return decode_utf_16(rest, encoding, true);
    }
    if is_binary(rest) {
        return Err(BINARY.to_owned());
    }
    decode_utf_8(rest.to_vec(), true)
}

/// Decodes UTF-16 of either byte order.
fn decode_utf_16(
    bytes: &[u8],
    encoding: &'static Encoding,
    has_mark: bool,
) -> Result<Decoded, String> {
    let (text, _) = encoding.decode_without_bom_handling(bytes);
    let broken = text
        .chars()
        .filter(|c| *c == char::REPLACEMENT_CHARACTER)
        .count();
    let control = text.chars().filter(|c| is_control(*c as u32)).count();
    if (broken + control) as f64 > MAX_CONTROL_FRACTION * text.chars().count() as f64 {
        return Err(BINARY.to_owned());
    }
    let encoding = TextEncoding {
        name: encoding.name(),
        has_mark,
        guessed_bytes: 0,
        replaced_bytes: 2 * broken as u64,
    };
    Ok((text.into_owned(), encoding))
}

/// Decodes UTF-8, or else the encoding that the bytes look like.
fn decode_utf_8(bytes: Vec<u8>, has_mark: bool) -> Result<Decoded, String> {
    let bytes = match String::from_utf8(bytes) {
        Ok(text) => {
            let encoding = TextEncoding {
                has_mark,
                ..TextEncoding::UTF_8
            };
            return Ok((text, encoding));
        }
        Err(error) => error.into_bytes(),
    };
    let (mut wide_characters, mut broken_bytes) = (0u64, 0u64);
    for chunk in bytes.utf8_chunks() {
        wide_characters += chunk.valid().chars().filter(|c| !c.is_ascii()).count() as u64;
        broken_bytes += chunk.invalid().len() as u64;
    }
    // Valid characters of several bytes do not occur by chance, so this is damaged UTF-8.
    if has_mark || wide_characters > broken_bytes {
        let encoding = TextEncoding {
            has_mark,
            replaced_bytes: broken_bytes,
            ..TextEncoding::UTF_8
        };
        return Ok((String::from_utf8_lossy(&bytes).into_owned(), encoding));
    }
    let encoding = guess(&bytes);
    let (text, _) = encoding.decode_without_bom_handling(&bytes);
    let replaced = text
        .chars()
        .filter(|c| *c == char::REPLACEMENT_CHARACTER)
        .count() as u64;
    let beyond = bytes.iter().filter(|byte| !byte.is_ascii()).count() as u64;
    let encoding = TextEncoding {
        name: encoding.name(),
        has_mark,
        guessed_bytes: beyond - replaced.min(beyond),
        replaced_bytes: replaced,
    };
    Ok((text.into_owned(), encoding))
}

/// Guesses an encoding. With too few non-ASCII bytes it is Windows-1252, the usual one in the West.
fn guess(bytes: &[u8]) -> &'static Encoding {
    let start = &bytes[..bytes.len().min(MAX_GUESS_BYTES)];
    if start.iter().filter(|byte| !byte.is_ascii()).count() < MIN_GUESS_BYTES {
        return WINDOWS_1252;
    }
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(start, true);
    detector.guess(None, Utf8Detection::Deny)
}

/// Detects UTF-16 without a byte-order mark: every second byte of ordinary text is zero.
fn unmarked_utf_16(bytes: &[u8]) -> Option<&'static Encoding> {
    let start = &bytes[..bytes.len().min(4096)];
    let zeros = |first: usize| {
        start
            .iter()
            .skip(first)
            .step_by(2)
            .filter(|b| **b == 0)
            .count()
    };
    let (even, odd) = (zeros(0), zeros(1));
    let half = start.len() / 2;
    if half >= 4 && odd * 10 > half * 6 && even * 10 < half {
        return Some(UTF_16LE);
    }
    (half >= 4 && even * 10 > half * 6 && odd * 10 < half).then_some(UTF_16BE)
}

fn is_binary(bytes: &[u8]) -> bool {
    let control = bytes
        .iter()
        .filter(|byte| is_control(u32::from(**byte)))
        .count();
    control as f64 > MAX_CONTROL_FRACTION * bytes.len() as f64
}

/// Whether this is a control character other than tab, line ends, form feed and escape.
fn is_control(code: u32) -> bool {
    code < 0x20 && !matches!(code, 0x09 | 0x0A | 0x0D | 0x0C | 0x1B) || code == 0x7F
}

/// Why a file is not text, if its first bytes are those of a known binary format.
fn known_binary(bytes: &[u8]) -> Option<&'static str> {
    // tidy: table
    #[rustfmt::skip]
    const KINDS: [(&[u8], &str); 15] = [
        (b"\xFF\xFE\0\0", "The text is encoded as UTF-32, which is not supported. Save the text as UTF-8."),
        (b"\0\0\xFE\xFF", "The text is encoded as UTF-32, which is not supported. Save the text as UTF-8."),
        (b"\x89PNG", "The file is a PNG image, not text. Remove the file."),
        (b"\xFF\xD8\xFF", "The file is a JPEG image, not text. Remove the file."),
        (b"GIF8", "The file is a GIF image, not text. Remove the file."),
        (b"%PDF", "The file is a PDF. Save the text as a .txt file."),
        (b"PK\x03\x04", "The file is a ZIP archive or an office document. Unpack the archive, or save the text as a .txt file."),
        (b"\x1F\x8B", "The file is compressed (gzip). Unpack the file."),
        (b"BZh", "The file is compressed (bzip2). Unpack the file."),
        (b"\xFD7zXZ", "The file is compressed (xz). Unpack the file."),
        (b"\x28\xB5\x2F\xFD", "The file is compressed (zstd). Unpack the file."),
        (b"\x7FELF", "The file is a program, not text. Remove the file."),
        (b"SQLite format 3", "The file is a database. Save the table of texts as CSV."),
        (b"PAR1", "This is a Parquet file, but its name does not end in .parquet. Rename the file to end in .parquet."),
        (
            b"version https://git-lfs",
            "This is a Git LFS pointer, not the file itself. Fetch the file with `git lfs pull`.",
        ),
    ];
    KINDS
        .iter()
        .find(|(start, _)| bytes.starts_with(start))
        .map(|(_, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], text: &str, encoding: &str, guessed: u64, replaced: u64) {
        let (found, how) = decode(bytes.to_vec()).expect("it is text");
        assert_eq!(
            (
                found.as_str(),
                how.name,
                how.guessed_bytes,
                how.replaced_bytes
            ),
            (text, encoding, guessed, replaced)
        );
    }

    #[test]
    fn byte_order_marks_are_read_and_removed() {
        check(b"\xEF\xBB\xBFtext,label", "text,label", "UTF-8", 0, 0);
        check(b"\xFF\xFEh\0i\0", "hi", "UTF-16LE", 0, 0);
        check(b"\xFE\xFF\0h\0i", "hi", "UTF-16BE", 0, 0);
        check(b"p\0l\0a\0i\0n\0 \0t\0", "plain t", "UTF-16LE", 0, 0);
        let (_, encoding) = decode(b"\xEF\xBB\xBFx".to_vec()).expect("it is text");
        assert!(encoding.has_mark);
    }

    #[test]
    fn other_encodings_are_decoded_and_counted() {
        check(b"caf\xE9 \x93so\x94", "café “so”", "windows-1252", 3, 0);
        // The last character is cut.
        check(
            "größer, schön é"
                .as_bytes()
                .split_last()
                .expect("it is long")
                .1,
            "größer, schön \u{FFFD}",
            "UTF-8",
            0,
            1,
        );
        check(b"a\xE9b", "aéb", "windows-1252", 1, 0);
        let (shift_jis, _, _) =
            encoding_rs::SHIFT_JIS.encode("日本語のテキストです。長い文章なら当てられる。");
        let (text, encoding) = decode(shift_jis.into_owned()).expect("it is text");
        assert_eq!(encoding.name, "Shift_JIS");
        assert!(text.starts_with("日本語") && encoding.guessed_bytes > 20);
    }

    #[test]
    fn files_that_are_not_text_are_refused_by_kind() {
        let check = |bytes: &[u8], part: &str| {
            let reason = decode(bytes.to_vec()).expect_err("it is not text");
            assert!(reason.contains(part) && reason.ends_with('.'), "{reason}");
        };
        check(b"", "empty");
        check(b"\xEF\xBB\xBF", "byte-order mark");
        check(b"\x89PNG\r\n\x1a\n", "PNG");
        check(b"\xFF\xFE\0\0x\0\0\0", "UTF-32");
        check(
            b"version https://git-lfs.github.com/spec/v1",
            "git lfs pull",
        );
        let mut rng = crate::rng::Rng::from_key(&[1]);
        let junk: Vec<u8> = (0..4000).map(|_| rng.next_u64() as u8).collect();
        check(&junk, "binary data");
    }
}
