//! Small pictures of single files, for the window.

use crate::augment;
use crate::decode_image::{decode, system_decoder};
use image::ExtendedColorType;
use image::codecs::jpeg::JpegEncoder;
use std::path::Path;

/// Quality of the JPEG, from 1 to 100.
const QUALITY: u8 = 85;

/// The largest square in the center of an image, which is what a network sees of it, as a JPEG of
/// `side` pixels.
///
/// # Errors
/// The file cannot be read or decoded; the text says why.
pub fn thumbnail(path: &Path, side: u32) -> Result<Vec<u8>, String> {
    let side = side.max(1);
    let image = decode(path, side.saturating_mul(2), system_decoder::installed)?;
    encode_jpeg(&augment::center(&image, side), side)
}

/// Encodes three planes of `side * side` bytes, as samples have them, as a JPEG.
///
/// # Errors
/// The encoder fails; the text says why.
pub fn encode_jpeg(planes: &[u8], side: u32) -> Result<Vec<u8>, String> {
    let plane = (side * side) as usize;
    let rgb: Vec<u8> = (0..plane)
        .flat_map(|pixel| [0, 1, 2].map(|channel| planes[channel * plane + pixel]))
        .collect();
    let mut jpeg = Vec::new();
    JpegEncoder::new_with_quality(&mut jpeg, QUALITY)
        .encode(&rgb, side, side, ExtendedColorType::Rgb8)
        .map_err(|error| format!("The thumbnail of this image cannot be made ({error})."))?;
    Ok(jpeg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_center_of_an_image_is_shown_upright() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("wide.png");
        // Red at the left edge, green in the center.
        let wide = image::RgbImage::from_fn(90, 30, |x, _| match x {
            0..30 => image::Rgb([255, 0, 0]),
            _ => image::Rgb([0, 255, 0]),
        });
        wide.save(&path).expect("it can be written");
        let jpeg = thumbnail(&path, 16).expect("it can be decoded");
        let small = image::load_from_memory(&jpeg)
            .expect("it is a JPEG")
            .into_rgb8();
        assert_eq!(small.dimensions(), (16, 16));
        let [red, green, _] = small.get_pixel(8, 8).0;
        assert!(green > 240 && red < 15, "{red} {green}");
    }

    #[test]
    fn a_file_that_is_no_image_is_refused_in_words() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("notes.jpg");
        std::fs::write(&path, "no image").expect("it can be written");
        let reason = thumbnail(&path, 16).expect_err("it is no image");
        assert!(
            reason.starts_with("The image cannot be decoded"),
            "{reason}"
        );
        let missing = thumbnail(&folder.path().join("missing.jpg"), 16);
        assert!(missing.is_err());
    }
}
