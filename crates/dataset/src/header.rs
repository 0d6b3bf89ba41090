//! Judges a file by its first bytes: what it is, how large it would be decoded, and whether it may be decoded at all.
//! Reads headers only, never pixels, so that a few bytes that promise gigabytes cost nothing.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::Path;

/// Pixels of the largest photograph read. Phones reach 50 million; decoding 100 million takes seconds.
const MAX_PIXELS: u64 = 100_000_000;
/// Bytes of the largest photograph once decoded.
const MAX_DECODED_BYTES: u64 = 512 << 20;
/// Longer side over shorter side. Beyond it a crop would hold a handful of pixels.
const MAX_ASPECT: u64 = 50;
/// Bytes of the longest run of garbage between two JPEG segments, and the number of segments, looked through.
const MAX_JPEG_GARBAGE: u64 = 64 << 10;
const MAX_JPEG_SEGMENTS: u32 = 10_000;

/// What a file is by its header.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Verdict {
    /// A JPEG, PNG or WebP within the limits.
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

/// Size promised by a header.
struct Promise {
    width: u32,
    height: u32,
    bytes_per_pixel: u64,
}

type Judged<T> = Result<T, String>;

/// Judges the file of `bytes` on disk.
pub(crate) fn judge(path: &Path, bytes: u64) -> Verdict {
    let refused = |reason: String| Verdict::Refused {
        reason,
        format: None,
    };
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
        [0xFF, 0xD8, 0xFF, ..] => jpeg(&mut reader),
        [0x89, b'P', b'N', b'G', 0x0D, 0x0A, 0x1A, 0x0A, ..] => png(&start),
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
        ] => webp(&start),
        _ => return not_read(&start, claims),
    };
    match promise {
        Ok(p) => {
            let decoded_bytes = u64::from(p.width) * u64::from(p.height) * p.bytes_per_pixel;
            match beyond_limits(p.width, p.height, decoded_bytes) {
                Some(reason) => refused(reason),
                None => Verdict::Image {
                    width: p.width,
                    height: p.height,
                },
            }
        }
        Err(reason) => refused(reason),
    }
}

/// Why an image of this size is not decoded; nothing when it may be. Asked again before every decode, since the file
/// may have changed and its parts may disagree.
pub(crate) fn beyond_limits(width: u32, height: u32, decoded_bytes: u64) -> Option<String> {
    let (w, h) = (u64::from(width), u64::from(height));
    if w == 0 || h == 0 {
        Some("Its header gives no size: the file is damaged. Copy it here again.".to_string())
    } else if w * h > MAX_PIXELS {
        let millions = (w * h).div_ceil(1_000_000);
        Some(format!(
            "{width} x {height} are {millions} million pixels; at most 100 million are read. Save it smaller."
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

fn claims_image(path: &Path) -> bool {
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
        [_, _, _, _, b'f', b't', b'y', b'p', brand @ ..] => match brand.get(..4) {
            Some(b"avif" | b"avis") => Some("AVIF"),
            Some(b"heic" | b"heix" | b"hevc" | b"hevx" | b"heim" | b"heis" | b"mif1" | b"msf1") => {
                Some("HEIC")
            }
            _ => None,
        },
        [b'G', b'I', b'F', b'8', ..] => Some("GIF"),
        [b'I', b'I', 42, 0, ..] | [b'M', b'M', 0, 42, ..] => Some("TIFF or camera raw"),
        [0, 0, 0, 12, b'J', b'X', b'L', b' ', ..] => Some("JPEG XL"),
        [b'B', b'M', ..] if claims => Some("BMP"),
        [0, 0, 1, 0, ..] if claims => Some("ICO"),
        _ => None,
    };
    if let Some(name) = format {
        let reason = format!("It is a {name} file, which is not read. Save it as JPEG or PNG.");
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
    Verdict::Refused {
        reason: reason.to_string(),
        format: None,
    }
}

fn damaged() -> String {
    "Its header is damaged. Copy it here again.".to_string()
}

fn be32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |n, byte| n << 8 | u32::from(*byte))
}

fn le(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .rev()
        .fold(0, |n, byte| n << 8 | u32::from(*byte))
}

/// IHDR stands first: width, height, bits a channel, colour type.
fn png(start: &[u8]) -> Judged<Promise> {
    if start.len() < 26 || &start[12..16] != b"IHDR" {
        return Err(damaged());
    }
    let channels = match start[25] {
        0 => 1,
        4 => 2,
        // A palette or plain colours may bring a transparent colour, decoded as a fourth channel.
        _ => 4,
    };
    let bytes_per_channel = if start[24] == 16 { 2 } else { 1 };
    Ok(Promise {
        width: be32(&start[16..20]),
        height: be32(&start[20..24]),
        bytes_per_pixel: channels * bytes_per_channel,
    })
}

/// The first chunk tells the canvas, in one of three ways.
fn webp(start: &[u8]) -> Judged<Promise> {
    if start.len() < 30 {
        return Err(damaged());
    }
    let (width, height) = match (&start[12..16], &start[20..]) {
        (b"VP8 ", [_, _, _, 0x9D, 0x01, 0x2A, size @ ..]) => {
            (le(&size[..2]) & 0x3FFF, le(&size[2..4]) & 0x3FFF)
        }
        (b"VP8L", [0x2F, size @ ..]) => {
            let bits = le(&size[..4]);
            ((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
        }
        (b"VP8X", [_, _, _, _, size @ ..]) => (le(&size[..3]) + 1, le(&size[3..6]) + 1),
        _ => return Err(damaged()),
    };
    Ok(Promise {
        width,
        height,
        bytes_per_pixel: 4,
    })
}

/// Walks the segments up to the frame header, stepping over their contents.
fn jpeg(reader: &mut BufReader<File>) -> Judged<Promise> {
    let cut = |_| "It ends before its picture begins. Copy it here again.".to_string();
    reader.seek_relative(2).map_err(cut)?;
    for _ in 0..MAX_JPEG_SEGMENTS {
        let marker = next_marker(reader).map_err(cut)?.ok_or_else(damaged)?;
        match marker {
            // Restart marks and TEM have no contents.
            0x01 | 0xD0..=0xD8 => continue,
            // The picture's end or its data before any frame header.
            0xD9 | 0xDA => return Err(damaged()),
            _ => {}
        }
        let mut length = [0; 2];
        reader.read_exact(&mut length).map_err(cut)?;
        let rest = be32(&length).checked_sub(2).ok_or_else(damaged)?;
        match marker {
            0xC0..=0xC2 if rest >= 6 => {
                let mut frame = [0; 6];
                reader.read_exact(&mut frame).map_err(cut)?;
                if frame[0] != 8 {
                    return Err(
                        "It is a JPEG of more than 8 bits. Save it as an ordinary JPEG or PNG."
                            .to_string(),
                    );
                }
                let (height, width) = (be32(&frame[1..3]), be32(&frame[3..5]));
                return Ok(Promise {
                    width,
                    height,
                    bytes_per_pixel: u64::from(frame[5].max(3)),
                });
            }
            0xC0..=0xC2 => return Err(damaged()),
            0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF => {
                return Err(
                    "It is a lossless or arithmetic JPEG. Save it as an ordinary JPEG or PNG."
                        .to_string(),
                );
            }
            _ => reader.seek_relative(i64::from(rest)).map_err(cut)?,
        }
    }
    Err(damaged())
}

/// The next marker byte; nothing when only garbage follows.
fn next_marker(reader: &mut BufReader<File>) -> io::Result<Option<u8>> {
    let garbage = reader.by_ref().take(MAX_JPEG_GARBAGE).skip_until(0xFF)?;
    if garbage as u64 == MAX_JPEG_GARBAGE {
        return Ok(None);
    }
    let mut byte = [0xFF];
    while byte[0] == 0xFF {
        reader.read_exact(&mut byte)?;
    }
    Ok(Some(byte[0]))
}
