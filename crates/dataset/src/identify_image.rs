//! Classifies a file by its first bytes: whether it is an image, how large it would be decoded, and
//! whether it may be decoded at all. Reads headers only, never pixels, so that a few bytes that
//! declare gigabytes cost nothing.

use crate::decode_image::system_decoder::{self, Decoders, SystemFormat, Unreadable};
use crate::image_header::{self, ImageHeader};
use crate::open_file::open_file;
use crate::user_messages::unreadable;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::Path;

/// First bytes of a file that tell its format.
const START_BYTES: usize = 64;

/// The class of a file, by its header.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ImageFileKind {
    /// A supported image within the size limits.
    Image {
        /// Width in pixels as stored.
        width: u32,
        /// Height in pixels as stored.
        height: u32,
    },
    /// An image, or a file named like one, that cannot be used.
    Refused {
        /// The problem and how to fix it.
        reason: String,
        /// Name of the image format if it is unsupported.
        format: Option<&'static str>,
    },
    /// Neither an image nor named like one.
    Other,
}

/// Classifies a file of `bytes` on disk by its first bytes. `decoders` decode the formats that only
/// the system supports.
pub(crate) fn classify(path: &Path, bytes: u64, decoders: Decoders) -> ImageFileKind {
    let claims = has_image_extension(path);
    if bytes == 0 {
        let reason = "The file is empty. Copy it here again.".to_string();
        return if claims {
            refused(reason)
        } else {
            ImageFileKind::Other
        };
    }
    let (mut reader, start) = match open(path) {
        Ok(opened) => opened,
        Err(_) if !claims => return ImageFileKind::Other,
        Err(source) => return refused(unreadable(&source)),
    };
    let header = match &start[..] {
        [0xFF, 0xD8, 0xFF, ..] => image_header::jpeg(&mut reader),
        [0x89, b'P', b'N', b'G', 0x0D, 0x0A, 0x1A, 0x0A, ..] => image_header::png(&start),
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
        ] => image_header::webp(&start),
        _ => {
            return match system_decoder::detect_format(&start) {
                Some(format) => classify_by_system(decoders, &mut reader, format),
                None => unsupported(&start, claims),
            };
        }
    };
    header.map_or_else(refused, check_limits)
}

/// Classifies a file that only the system can decode.
fn classify_by_system(
    decoders: Decoders,
    reader: &mut BufReader<File>,
    format: SystemFormat,
) -> ImageFileKind {
    match system_decoder::read_header(decoders(format), reader) {
        Ok(header) => check_limits(header),
        Err(error) => ImageFileKind::Refused {
            format: (error == Unreadable::Format).then_some(format.name()),
            reason: error.reason(format.name()),
        },
    }
}

fn check_limits(header: ImageHeader) -> ImageFileKind {
    match header.beyond_limits() {
        Some(reason) => refused(reason),
        None => ImageFileKind::Image {
            width: header.width,
            height: header.height,
        },
    }
}

fn refused(reason: String) -> ImageFileKind {
    ImageFileKind::Refused {
        reason,
        format: None,
    }
}

/// Opens a file. Returns it at its beginning, and its first bytes.
fn open(path: &Path) -> io::Result<(BufReader<File>, Vec<u8>)> {
    let mut reader = BufReader::new(open_file(path)?);
    // One read of the file, which stays in the buffer. Millions of files are opened.
    let buffered = reader.fill_buf()?;
    if let Some(start) = buffered.get(..START_BYTES) {
        let start = start.to_vec();
        return Ok((reader, start));
    }
    // The file is shorter, or the system has not read more of it yet.
    let mut start = Vec::with_capacity(START_BYTES);
    reader
        .by_ref()
        .take(START_BYTES as u64)
        .read_to_end(&mut start)?;
    reader.rewind()?;
    Ok((reader, start))
}

/// Whether a file is named like an image.
pub(crate) fn has_image_extension(path: &Path) -> bool {
    const EXTENSIONS: [&str; 15] = [
        "jpg", "jpeg", "jpe", "jfif", "png", "webp", "gif", "bmp", "tif", "tiff", "heic", "heif",
        "avif", "jxl", "ico",
    ];
    let extension = path.extension().map(|e| e.to_string_lossy().to_lowercase());
    extension.is_some_and(|e| EXTENSIONS.contains(&e.as_str()))
}

/// Classifies a file that is not a supported image: another image format, a web page or Git LFS
/// pointer under an image's name, or another file.
fn unsupported(start: &[u8], claims: bool) -> ImageFileKind {
    let format = match start {
        [b'G', b'I', b'F', b'8', ..] => Some("GIF"),
        [b'I', b'I', 42, 0, ..] | [b'M', b'M', 0, 42, ..] => Some("TIFF or camera raw"),
        [0, 0, 0, 12, b'J', b'X', b'L', b' ', ..] => Some("JPEG XL"),
        [b'B', b'M', ..] if claims => Some("BMP"),
        [0, 0, 1, 0, ..] if claims => Some("ICO"),
        _ => None,
    };
    if let Some(name) = format {
        let reason = Unreadable::Format.reason(name);
        return ImageFileKind::Refused { reason, format };
    }
    if !claims {
        return ImageFileKind::Other;
    }
    let text = String::from_utf8_lossy(start)
        .trim_start_matches('\u{feff}')
        .trim_start()
        .to_lowercase();
    let reason = if text.starts_with("<!doctype html") || text.starts_with("<html") {
        "The file is a web page, although it is named like an image. Download the image again."
    } else if text.starts_with("version https://git-lfs") {
        "The file is a Git LFS pointer, not the image itself. Run git lfs pull."
    } else {
        "The file is not a JPEG, PNG or WebP image. Copy the image here again, or save it in one of these formats."
    };
    refused(reason.to_string())
}
