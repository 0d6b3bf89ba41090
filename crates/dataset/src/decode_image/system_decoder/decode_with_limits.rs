//! Reads a file with a system's decoder, without trusting either: limits are checked before
//! decoding, incomplete files are refused, and the drawn pixels are checked.

use super::decoder_types::{
    Alpha, ImageProperties, RenderedImage, SystemDecoder, SystemFormat, Unreadable, damaged,
};
use crate::decoded_image::DecodedImage;
use crate::image_header::ImageHeader;
use crate::user_messages::unreadable;
use format::format_bytes;
use image::metadata::Orientation;
use std::io::Read;
use std::panic::catch_unwind;

/// Most bytes of a file. An image of 100 million pixels takes about 60 MB.
const MAX_FILE_BYTES: u64 = 128 << 20;

/// Detects a format that only a system decodes, by the brand in a file's first bytes.
pub(crate) fn detect_format(start: &[u8]) -> Option<SystemFormat> {
    let [_, _, _, _, b'f', b't', b'y', b'p', brand @ ..] = start else {
        return None;
    };
    match brand.get(..4)? {
        b"avif" | b"avis" => Some(SystemFormat::Avif),
        b"heic" | b"heix" | b"hevc" | b"hevx" | b"heim" | b"heis" | b"mif1" | b"msf1" => {
            Some(SystemFormat::Heic)
        }
        _ => None,
    }
}

/// Reads the size that a file declares, if it may be decoded.
pub(crate) fn read_header(
    decoder: Option<SystemDecoder>,
    file: &mut impl Read,
) -> Result<ImageHeader, Unreadable> {
    let decoder = decoder.ok_or(Unreadable::Format)?;
    let bytes = read_file(file)?;
    // The decoder is the system's and the file is hostile: a panic costs one file, not the
    // inspection.
    let properties = catch_unwind(|| describe(decoder, &bytes));
    properties
        .unwrap_or_else(|_| Err(damaged("its decoder failed")))
        .map(|found| found.header)
}

/// Decodes a file as stored, and reads its orientation.
pub(crate) fn decode(
    decoder: Option<SystemDecoder>,
    file: &mut impl Read,
) -> Result<(DecodedImage, Orientation), Unreadable> {
    let decoder = decoder.ok_or(Unreadable::Format)?;
    let bytes = read_file(file)?;
    let properties = describe(decoder, &bytes)?;
    let rgb = over_white((decoder.draw)(&bytes, &properties)?)?;
    let (width, height) = (properties.header.width, properties.header.height);
    if rgb.len() as u64 != u64::from(width) * u64::from(height) * 3 {
        return Err(damaged(
            "its decoded size differs from the size in its header",
        ));
    }
    let image = DecodedImage { width, height, rgb };
    Ok((image, properties.orientation()))
}

/// Checks that a file is complete and within the limits, before any of it is decoded.
fn describe(decoder: SystemDecoder, bytes: &[u8]) -> Result<ImageProperties, Unreadable> {
    if ends_early(bytes) {
        let reason = "The file ends before its image data is complete. Copy the file here again.";
        return Err(Unreadable::File(reason.to_owned()));
    }
    let properties = (decoder.describe)(bytes)?;
    match properties.header.beyond_limits() {
        Some(reason) => Err(Unreadable::File(reason)),
        None => Ok(properties),
    }
}

/// Reads a whole file, unless it is too large.
fn read_file(file: &mut impl Read) -> Result<Vec<u8>, Unreadable> {
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|source| Unreadable::File(unreadable(&source)))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(Unreadable::File(format!(
            "The file is larger than {}, the limit for this format. Resize the image.",
            format_bytes(MAX_FILE_BYTES)
        )));
    }
    Ok(bytes)
}

/// Whether a box that holds the image or its description reaches beyond the end of the file, or no
/// description is there. A system may draw as much as it has of such a file. Each box starts with
/// its length and name (ISO/IEC 14496-12, 4.2); data that cameras append after the boxes is
/// ignored.
pub(crate) fn ends_early(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    let mut described = false;
    while let Some((header, after)) = rest.split_first_chunk::<8>() {
        let [a, b, c, d, name @ ..] = *header;
        let length = match u32::from_be_bytes([a, b, c, d]) {
            // To the end of the file.
            0 => rest.len() as u64,
            1 => match after.first_chunk() {
                Some(long) => u64::from_be_bytes(*long),
                None => return true,
            },
            short => u64::from(short),
        };
        let is_needed = matches!(&name, b"ftyp" | b"meta" | b"mdat" | b"moov");
        if length < 8 || length > rest.len() as u64 {
            return is_needed || !described;
        }
        described |= matches!(&name, b"meta" | b"moov");
        rest = &rest[length as usize..];
    }
    !described
}

/// Converts premultiplied RGBA to RGB on white. The result equals that of a PNG with the same
/// pixels.
fn over_white(drawn: RenderedImage) -> Result<Vec<u8>, Unreadable> {
    let (pixels, _) = drawn.rgba.as_chunks::<4>();
    if drawn.alpha == Alpha::Opaque && pixels.iter().any(|[.., alpha]| *alpha != 255) {
        return Err(damaged("parts of it are missing"));
    }
    let white = |[r, g, b, a]: &[u8; 4]| [r, g, b].map(|color| color.saturating_add(255 - a));
    Ok(pixels.iter().flat_map(white).collect())
}
