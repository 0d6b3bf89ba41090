//! Decodes one file to 8-bit RGB. Checks its size before decoding, applies its EXIF orientation,
//! and shrinks it to little more than training needs.

pub(crate) mod system_decoder;

use crate::decoded_image::DecodedImage;
use crate::image_header::beyond_limits;
use crate::user_messages::unreadable;
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageReader};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use system_decoder::Decoders;

/// Decodes a file upright, with a shorter side of at most `short_side` pixels. Smaller images keep
/// their size.
pub(crate) fn decode(
    path: &Path,
    short_side: u32,
    decoders: Decoders,
) -> Result<DecodedImage, String> {
    let file = File::open(path).map_err(|source| unreadable(&source))?;
    let mut reader = BufReader::new(file);
    let start = reader.fill_buf().map_err(|source| unreadable(&source))?;
    let (image, orientation) = match system_decoder::detect_format(start) {
        Some(format) => system_decoder::decode(decoders(format), &mut reader)
            .map_err(|error| error.reason(format.name()))?,
        None => decode_built_in(reader)?,
    };
    Ok(image.shrink(short_side).apply_orientation(orientation))
}

/// Decodes a JPEG, PNG or WebP as stored, and reads its orientation.
fn decode_built_in(reader: BufReader<File>) -> Result<(DecodedImage, Orientation), String> {
    let damaged = |error: image::ImageError| {
        format!("The image cannot be decoded ({error}). Copy the file here again, or remove it.")
    };
    let reader = ImageReader::new(reader)
        .with_guessed_format()
        .map_err(|source| unreadable(&source))?;
    let mut decoder = reader.into_decoder().map_err(damaged)?;
    // `from_decoder` allocates as much as the header declares, and a failed allocation aborts the
    // process, so the size is checked first.
    let (width, height) = decoder.dimensions();
    if let Some(reason) = beyond_limits(width, height, decoder.total_bytes()) {
        return Err(reason);
    }
    let orientation = read_orientation(&mut decoder);
    let image = DynamicImage::from_decoder(decoder).map_err(damaged)?;
    Ok((DecodedImage::from_dynamic(image), orientation))
}

/// Reads the EXIF orientation. Some WebP files prefix their EXIF chunk with `Exif\0\0`, which only
/// belongs into a JPEG; the prefix is removed.
fn read_orientation(decoder: &mut impl ImageDecoder) -> Orientation {
    let plain = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let chunk = match plain {
        Orientation::NoTransforms => decoder.exif_metadata().ok().flatten(),
        _ => None,
    };
    let exif = chunk.as_deref().and_then(|c| c.strip_prefix(b"Exif\0\0"));
    exif.and_then(Orientation::from_exif_chunk).unwrap_or(plain)
}
