//! Judges a file by its first bytes: what it is, how large it would be decoded, and whether it may be decoded at all.
//! Reads headers only, never pixels, so that a few bytes that promise gigabytes cost nothing.

use crate::decode::system::{self, Decoders, Format, Unread};
use crate::promise::{self, Promise};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;

/// Pixels of the largest photograph read. Phones reach 50 million; decoding 100 million takes seconds.
const MAX_PIXELS: u64 = 100_000_000;
/// Bytes of the largest photograph once decoded.
const MAX_DECODED_BYTES: u64 = 512 << 20;
/// Longer side over shorter side. Beyond it a crop would hold a handful of pixels.
const MAX_ASPECT: u64 = 50;

/// What a file is by its header.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Verdict {
    /// A JPEG, PNG or WebP, or what the system decodes, within the limits.
    Image {
        /// Pixels as stored.
        width: u32,
        /// Pixels as stored.
        height: u32,
    },
    /// It is or claims to be an image but cannot be used.
    Refused {
        /// What is wrong, and the next move.
        reason: String,
        /// Name of an image format that is not read.
        format: Option<&'static str>,
    },
    /// It neither is nor claims to be an image.
    Other,
}

/// Judges the file of `bytes` on disk, with what decodes the system's formats.
pub(crate) fn judge(path: &Path, bytes: u64, decoders: Decoders) -> Verdict {
    let claims = claims_image(path);
    if bytes == 0 {
        let reason = "The file is empty. Copy it here again.".to_string();
        return if claims {
            refused(reason)
        } else {
            Verdict::Other
        };
    }
    let (mut reader, start) = match open(path) {
        Ok(opened) => opened,
        Err(_) if !claims => return Verdict::Other,
        Err(source) => return refused(lost(&source)),
    };
    let promise = match &start[..] {
        [0xFF, 0xD8, 0xFF, ..] => promise::jpeg(&mut reader),
        [0x89, b'P', b'N', b'G', 0x0D, 0x0A, 0x1A, 0x0A, ..] => promise::png(&start),
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => promise::webp(&start),
        _ => {
            return match system::format(&start) {
                Some(format) => left_to(decoders, &mut reader, format),
                None => not_read(&start, claims),
            };
        }
    };
    promise.map_or_else(refused, within_limits)
}

/// What becomes of a file that only the system may decode.
fn left_to(decoders: Decoders, reader: &mut BufReader<File>, format: Format) -> Verdict {
    match system::judge(decoders(format), reader) {
        Ok(promise) => within_limits(promise),
        Err(unread) => Verdict::Refused {
            format: (unread == Unread::Format).then_some(format.name()),
            reason: unread.reason(format.name()),
        },
    }
}

fn within_limits(promise: Promise) -> Verdict {
    match promise.beyond_limits() {
        Some(reason) => refused(reason),
        None => Verdict::Image {
            width: promise.width,
            height: promise.height,
        },
    }
}

fn refused(reason: String) -> Verdict {
    Verdict::Refused {
        reason,
        format: None,
    }
}

/// Why an image of this size is not decoded; nothing when it may be. Asked again before every decode, since the file
/// may have changed and its parts may disagree.
pub(crate) fn beyond_limits(width: u32, height: u32, decoded_bytes: u64) -> Option<String> {
    let (w, h) = (u64::from(width), u64::from(height));
    if w == 0 || h == 0 {
        Some("Its header gives no size: the file is damaged. Copy it here again.".to_string())
    } else if w * h > MAX_PIXELS {
        Some(format!(
            "{width} x {height} pixels are more than the 100 million that are read. Save it smaller."
        ))
    } else if decoded_bytes > MAX_DECODED_BYTES {
        let megabytes = decoded_bytes >> 20;
        Some(format!(
            "It would take {megabytes} MiB decoded; at most 512 are read. Save it smaller or with 8 bits."
        ))
    } else if w.max(h) > MAX_ASPECT * w.min(h) {
        Some(format!(
            "{width} x {height} is narrower than 1:50. Cut it to what matters."
        ))
    } else {
        None
    }
}

/// Why a file that was there cannot be opened.
pub(crate) fn lost(source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::NotFound => {
            "It is no longer there. Put it back, or read the folder again.".to_string()
        }
        io::ErrorKind::PermissionDenied => {
            "No permission to read it. Allow reading it, then look again.".to_string()
        }
        _ => format!("It cannot be read: {source}. Copy it here again."),
    }
}

fn open(path: &Path) -> io::Result<(BufReader<File>, Vec<u8>)> {
    let mut reader = BufReader::new(File::open(path)?);
    let mut start = Vec::with_capacity(64);
    reader.by_ref().take(64).read_to_end(&mut start)?;
    reader.rewind()?;
    Ok((reader, start))
}

/// Whether a file is named like an image.
pub(crate) fn claims_image(path: &Path) -> bool {
    const NAMES: [&str; 15] = [
        "jpg", "jpeg", "jpe", "jfif", "png", "webp", "gif", "bmp", "tif", "tiff", "heic", "heif",
        "avif", "jxl", "ico",
    ];
    let extension = path.extension().map(|e| e.to_string_lossy().to_lowercase());
    extension.is_some_and(|e| NAMES.contains(&e.as_str()))
}

/// A file that is no JPEG, PNG or WebP: another image format, a page or pointer under an image's name, or no image.
fn not_read(start: &[u8], claims: bool) -> Verdict {
    let format = match start {
        [b'G', b'I', b'F', b'8', ..] => Some("GIF"),
        [b'I', b'I', 42, 0, ..] | [b'M', b'M', 0, 42, ..] => Some("TIFF or camera raw"),
        [0, 0, 0, 12, b'J', b'X', b'L', b' ', ..] => Some("JPEG XL"),
        [b'B', b'M', ..] if claims => Some("BMP"),
        [0, 0, 1, 0, ..] if claims => Some("ICO"),
        _ => None,
    };
    if let Some(name) = format {
        let reason = Unread::Format.reason(name);
        return Verdict::Refused { reason, format };
    }
    if !claims {
        return Verdict::Other;
    }
    let text = String::from_utf8_lossy(start)
        .trim_start_matches('\u{feff}')
        .trim_start()
        .to_lowercase();
    let reason = if text.starts_with("<!doctype html") || text.starts_with("<html") {
        "It is a web page under an image's name. Download the image again."
    } else if text.starts_with("version https://git-lfs") {
        "It is a Git LFS pointer, not the image itself. Run git lfs pull."
    } else {
        "It is not a JPEG, PNG or WebP image. Copy it here again, or save it as one."
    };
    refused(reason.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_stand_where_they_are_said_to() {
        let allowed = |w, h, bytes| beyond_limits(w, h, bytes).is_none();
        assert!(allowed(10_000, 10_000, 300_000_000) && !allowed(10_001, 10_000, 1));
        assert!(allowed(9_000, 7_000, 512 << 20) && !allowed(9_000, 7_000, (512 << 20) + 1));
        assert!(allowed(100, 5_000, 1) && !allowed(100, 5_001, 1) && !allowed(5_001, 100, 1));
        assert!(!allowed(0, 10, 1) && !allowed(10, 0, 1));
        assert!(!allowed(u32::MAX, u32::MAX, u64::MAX), "nothing overflows");
    }
}
