//! Bytes of a file as text: which encoding they are in, how many could not be read, and when they are no text at all.
//! Guesses only where the file itself does not say. Knows nothing of rows, labels or tokens.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

/// Share of control bytes above which a file is taken for binary. Random bytes have a tenth, texts next to none.
const MAX_CONTROL_FRACTION: f64 = 0.02;
/// Fewer bytes beyond ASCII than this tell no encoding from another.
const MIN_TELLING_BYTES: usize = 16;
/// Bytes that the guess of an encoding looks at.
const GUESSED_BYTES: usize = 1 << 20;

/// A file's text and how it was had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decoded {
    /// Without its byte-order mark.
    pub text: String,
    /// `UTF-8`, `windows-1252`.
    pub encoding: &'static str,
    /// It began with a byte-order mark.
    pub mark: bool,
    /// Bytes beyond ASCII that were read by a guessed encoding.
    pub guessed_bytes: u64,
    /// Bytes that mean nothing in the encoding; each is the character U+FFFD now.
    pub replaced_bytes: u64,
}

/// Reads bytes as text, or says why they are none.
pub(crate) fn decode(bytes: Vec<u8>) -> Result<Decoded, String> {
    if bytes.is_empty() {
        return Err("The file is empty. Copy it here again.".to_owned());
    }
    if let Some(name) = no_text(&bytes) {
        return Err(name.to_owned());
    }
    if let Some((encoding, length)) = Encoding::for_bom(&bytes) {
        return marked(bytes, encoding, length);
    }
    if let Some(encoding) = unmarked_utf_16(&bytes) {
        return wide(&bytes, encoding, false);
    }
    if is_binary(&bytes) {
        return Err(BINARY.to_owned());
    }
    utf_8(bytes, false)
}

const BINARY: &str = "It holds binary data, not text. Remove it, or save its text as UTF-8.";

fn marked(bytes: Vec<u8>, encoding: &'static Encoding, length: usize) -> Result<Decoded, String> {
    let rest = &bytes[length..];
    if rest.is_empty() {
        return Err("The file is empty but for a byte-order mark. Copy it here again.".to_owned());
    }
    if encoding != UTF_8 {
        return wide(rest, encoding, true);
    }
    if is_binary(rest) {
        return Err(BINARY.to_owned());
    }
    utf_8(rest.to_vec(), true)
}

/// UTF-16 of either order.
fn wide(bytes: &[u8], encoding: &'static Encoding, mark: bool) -> Result<Decoded, String> {
    let (text, _) = encoding.decode_without_bom_handling(bytes);
    let broken = text
        .chars()
        .filter(|c| *c == char::REPLACEMENT_CHARACTER)
        .count();
    let control = text.chars().filter(|c| is_control(*c as u32)).count();
    if (broken + control) as f64 > MAX_CONTROL_FRACTION * text.chars().count() as f64 {
        return Err(BINARY.to_owned());
    }
    Ok(Decoded {
        text: text.into_owned(),
        encoding: encoding.name(),
        mark,
        guessed_bytes: 0,
        replaced_bytes: 2 * broken as u64,
    })
}

/// UTF-8 where it is; else the encoding that the bytes look like.
fn utf_8(bytes: Vec<u8>, mark: bool) -> Result<Decoded, String> {
    let bytes = match String::from_utf8(bytes) {
        Ok(text) => {
            return Ok(Decoded {
                text,
                encoding: UTF_8.name(),
                mark,
                guessed_bytes: 0,
                replaced_bytes: 0,
            });
        }
        Err(error) => error.into_bytes(),
    };
    let (mut wide_characters, mut broken_bytes) = (0u64, 0u64);
    for chunk in bytes.utf8_chunks() {
        wide_characters += chunk.valid().chars().filter(|c| !c.is_ascii()).count() as u64;
        broken_bytes += chunk.invalid().len() as u64;
    }
    // Whole characters of several bytes do not come about by chance: it is UTF-8 with damage.
    if mark || wide_characters > broken_bytes {
        return Ok(Decoded {
            text: String::from_utf8_lossy(&bytes).into_owned(),
            encoding: UTF_8.name(),
            mark,
            guessed_bytes: 0,
            replaced_bytes: broken_bytes,
        });
    }
    let encoding = guess(&bytes);
    let (text, _) = encoding.decode_without_bom_handling(&bytes);
    let replaced = text
        .chars()
        .filter(|c| *c == char::REPLACEMENT_CHARACTER)
        .count() as u64;
    let beyond = bytes.iter().filter(|byte| !byte.is_ascii()).count() as u64;
    Ok(Decoded {
        text: text.into_owned(),
        encoding: encoding.name(),
        mark,
        guessed_bytes: beyond - replaced.min(beyond),
        replaced_bytes: replaced,
    })
}

/// What the bytes look like; Windows-1252, the usual one of the West, where they tell too little.
fn guess(bytes: &[u8]) -> &'static Encoding {
    let looked_at = &bytes[..bytes.len().min(GUESSED_BYTES)];
    if looked_at.iter().filter(|byte| !byte.is_ascii()).count() < MIN_TELLING_BYTES {
        return WINDOWS_1252;
    }
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(looked_at, true);
    detector.guess(None, Utf8Detection::Deny)
}

/// UTF-16 shows as a zero in every second byte of ordinary text.
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

/// Control characters that no text holds: all but tab, line ends, form feed and escape.
fn is_control(code: u32) -> bool {
    code < 0x20 && !matches!(code, 0x09 | 0x0A | 0x0D | 0x0C | 0x1B) || code == 0x7F
}

/// What a file is by its first bytes, where that is no text.
fn no_text(bytes: &[u8]) -> Option<&'static str> {
    const KINDS: [(&[u8], &str); 15] = [
        (
            b"\xFF\xFE\0\0",
            "It is UTF-32, which is not read. Save it as UTF-8.",
        ),
        (
            b"\0\0\xFE\xFF",
            "It is UTF-32, which is not read. Save it as UTF-8.",
        ),
        (b"\x89PNG", "It is a PNG image, not text. Remove it."),
        (b"\xFF\xD8\xFF", "It is a JPEG image, not text. Remove it."),
        (b"GIF8", "It is a GIF image, not text. Remove it."),
        (b"%PDF", "It is a PDF. Save its text as a .txt file."),
        (
            b"PK\x03\x04",
            "It is a ZIP archive or an office document. Unpack it, or save its text as a .txt file.",
        ),
        (b"\x1F\x8B", "It is compressed (gzip). Unpack it."),
        (b"BZh", "It is compressed (bzip2). Unpack it."),
        (b"\xFD7zXZ", "It is compressed (xz). Unpack it."),
        (b"\x28\xB5\x2F\xFD", "It is compressed (zstd). Unpack it."),
        (b"\x7FELF", "It is a program, not text. Remove it."),
        (
            b"SQLite format 3",
            "It is a database. Save its table as CSV.",
        ),
        (
            b"PAR1",
            "It is a Parquet file under another name. Rename it to end in .parquet.",
        ),
        (
            b"version https://git-lfs",
            "It is a Git LFS pointer, not the file itself. Fetch it with `git lfs pull`.",
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
        let found = decode(bytes.to_vec()).expect("it is text");
        assert_eq!(
            (
                found.text.as_str(),
                found.encoding,
                found.guessed_bytes,
                found.replaced_bytes
            ),
            (text, encoding, guessed, replaced)
        );
    }

    #[test]
    fn marks_are_read_and_taken_off() {
        check(b"\xEF\xBB\xBFtext,label", "text,label", "UTF-8", 0, 0);
        check(b"\xFF\xFEh\0i\0", "hi", "UTF-16LE", 0, 0);
        check(b"\xFE\xFF\0h\0i", "hi", "UTF-16BE", 0, 0);
        check(b"p\0l\0a\0i\0n\0 \0t\0", "plain t", "UTF-16LE", 0, 0);
        let marked = decode(b"\xEF\xBB\xBFx".to_vec()).expect("it is text");
        assert!(marked.mark);
    }

    #[test]
    fn what_is_not_utf_8_is_read_and_counted() {
        check(b"caf\xE9 \x93so\x94", "café “so”", "windows-1252", 3, 0);
        // The last character was cut.
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
        // Windows-1252 has no meaning for 0x81, but the standard keeps it as a control character.
        check(b"a\xE9b", "aéb", "windows-1252", 1, 0);
        let (shift_jis, _, _) =
            encoding_rs::SHIFT_JIS.encode("日本語のテキストです。長い文章なら当てられる。");
        let found = decode(shift_jis.into_owned()).expect("it is text");
        assert_eq!(found.encoding, "Shift_JIS");
        assert!(found.text.starts_with("日本語") && found.guessed_bytes > 20);
    }

    #[test]
    fn what_is_no_text_is_named() {
        let check = |bytes: &[u8], part: &str| {
            let reason = decode(bytes.to_vec()).expect_err("it is no text");
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
        let mut stream = crate::stream::Stream::keyed(&[1]);
        let junk: Vec<u8> = (0..4000).map(|_| stream.bits() as u8).collect();
        check(&junk, "binary data");
    }
}
