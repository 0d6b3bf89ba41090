//! Decodes one file to 8-bit RGB. Checks its size before decoding, applies its EXIF orientation,
//! and shrinks it to little more than training needs.

pub(crate) mod system_decoder;

use crate::decoded_image::DecodedImage;
use crate::image_header::{beyond_jpeg_limits, beyond_limits, beyond_webp_limits};
use crate::open_file::open_file;
use crate::user_messages::unreadable;
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use system_decoder::Decoders;

/// Decodes a file upright, with a shorter side of at most `short_side` pixels. Smaller images keep
/// their size. Files are hostile: a panic in a decoder costs one file.
pub(crate) fn decode(
    path: &Path,
    short_side: u32,
    decoders: Decoders,
) -> Result<DecodedImage, String> {
    let decode = AssertUnwindSafe(|| decode_unguarded(path, short_side, decoders));
    catch_unwind(decode).unwrap_or_else(|_| {
        Err("The decoder failed on this image. Save the image again, or remove it.".to_owned())
    })
}

fn decode_unguarded(
    path: &Path,
    short_side: u32,
    decoders: Decoders,
) -> Result<DecodedImage, String> {
    let file = open_file(path).map_err(|source| unreadable(&source))?;
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
fn decode_built_in(mut reader: BufReader<File>) -> Result<(DecodedImage, Orientation), String> {
    let refused = beyond_jpeg_limits(&mut reader).map_err(|source| unreadable(&source))?;
    if let Some(reason) = refused {
        return Err(reason);
    }
    let damaged = |error: ImageError| {
        let problem = short_problem(&error);
        format!("The image cannot be decoded ({problem}). Copy the file here again, or remove it.")
    };
    let mut reader = ImageReader::new(reader)
        .with_guessed_format()
        .map_err(|source| unreadable(&source))?;
    if reader.format() == Some(ImageFormat::WebP) {
        let mut file = reader.into_inner();
        let refused = beyond_webp_limits(&mut file).map_err(|source| unreadable(&source))?;
        if let Some(reason) = refused {
            return Err(reason);
        }
        reader = ImageReader::with_format(file, ImageFormat::WebP);
    }
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

/// What is wrong with an image, in a few words. The decoder's own text has checksums and names of
/// chunks, which do not help to get another copy of the file.
fn short_problem(error: &ImageError) -> &'static str {
    match error {
        ImageError::IoError(error) if error.kind() == ErrorKind::UnexpectedEof => {
            "the file ends too early"
        }
        ImageError::Unsupported(_) => "this variant of its format is not supported",
        _ => "its data is damaged",
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_image_has_a_short_reason() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("image.png");
        let colors = |x: u32, y: u32| image::Rgb([x as u8, y as u8, (x * y) as u8]);
        let image = image::RgbImage::from_fn(32, 32, colors);
        image.save(&path).expect("it can be saved");
        let mut bytes = std::fs::read(&path).expect("it can be read");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0xFF;
        std::fs::write(&path, bytes).expect("it can be written");
        let reason = decode(&path, 16, system_decoder::installed).expect_err("it is damaged");
        assert_eq!(
            reason,
            "The image cannot be decoded (its data is damaged). Copy the file here again, or remove it."
        );
    }

    #[test]
    fn a_panic_in_a_decoder_is_an_error_of_the_file() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("photo.heic");
        std::fs::write(&path, b"\0\0\0\x18ftypheic\0\0\0\0mif1heic").expect("it is written");
        let decoded = decode(&path, 16, |_| panic!("a fault in the decoder"));
        let reason = decoded.expect_err("it cannot be decoded");
        assert!(
            reason.starts_with("The decoder failed on this image."),
            "{reason}"
        );
    }
}
