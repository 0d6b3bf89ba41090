//! Tests a system's decoder on an image that Ebb brings along. It must come out upright, in the
//! right size and the right colors; otherwise its format counts as unsupported.

use super::decode_with_limits::decode;
use super::decoder_types::{SystemDecoder, SystemFormat};
use crate::decoded_image::DecodedImage;
use std::panic::catch_unwind;

/// Colors of the quarters of the upright image: top left and right, bottom left and right.
const QUARTERS: [[u8; 3]; 4] = [[220, 30, 30], [30, 200, 30], [30, 30, 220], [240, 240, 240]];
/// Size of the upright image in pixels. It is stored rotated by a quarter turn.
const SIZE: (u32, u32) = (64, 48);
/// Largest difference of a color channel that compression and rounding may cause.
const TOLERANCE: u8 = 24;

/// The test image in a format, as written by `make_rotated.py`.
pub(super) fn test_image(format: SystemFormat) -> &'static [u8] {
    match format {
        SystemFormat::Heic => include_bytes!("rotated.heic"),
        SystemFormat::Avif => include_bytes!("rotated.avif"),
    }
}

/// Whether a decoder reads the test image correctly.
pub(super) fn passes(decoder: SystemDecoder, mut test_image: &[u8]) -> bool {
    let upright = catch_unwind(move || {
        let (image, orientation) = decode(Some(decoder), &mut test_image).ok()?;
        Some(image.apply_orientation(orientation))
    });
    matches!(upright, Ok(Some(image)) if has_the_quarters(&image))
}

fn has_the_quarters(image: &DecodedImage) -> bool {
    let (width, height) = SIZE;
    let middles = [(1, 1), (3, 1), (1, 3), (3, 3)];
    let near = |((x, y), color): ((u32, u32), [u8; 3])| {
        let at = 3 * (y * height / 4 * width + x * width / 4) as usize;
        let pixel = image.rgb.get(at..at + 3).unwrap_or_default();
        pixel.len() == 3
            && pixel
                .iter()
                .zip(color)
                .all(|(a, b)| a.abs_diff(b) <= TOLERANCE)
    };
    (image.width, image.height) == SIZE && middles.into_iter().zip(QUARTERS).all(near)
}

#[cfg(test)]
mod tests {
    use super::super::decode_with_limits::{detect_format, ends_early};
    use super::super::decoder_types::Unreadable;
    use super::super::fake_decoder::{DECODER, FakeImage};
    use super::*;

    /// The test image as the fake decoder reads it. It is upright if `orientation` is 6.
    fn plain(orientation: u8) -> FakeImage {
        let (width, height) = (SIZE.1, SIZE.0);
        // Rotated to the right, the stored left column, from the bottom up, becomes the top row.
        let quarter = move |x: u32, y: u32| {
            let (right, below) = (y * 2 < height, x * 2 >= width);
            QUARTERS[usize::from(right) + 2 * usize::from(below)]
        };
        FakeImage {
            orientation,
            ..FakeImage::new(width, height, quarter)
        }
    }

    #[test]
    fn a_decoder_passes_only_if_it_reads_the_test_image() {
        assert!(passes(DECODER, &plain(6).bytes()));
        for orientation in [1, 3, 5, 7, 8] {
            let file = plain(orientation).bytes();
            assert!(
                !passes(DECODER, &file),
                "orientation {orientation} is wrong"
            );
        }
        let mut swapped = plain(6);
        swapped.pixels.iter_mut().for_each(|pixel| pixel.reverse());
        assert!(
            !passes(DECODER, &swapped.bytes()),
            "blue and red are swapped"
        );
        let mut dark = plain(6);
        let darker = |pixel: &mut [u8; 3]| *pixel = pixel.map(|c| c.saturating_sub(TOLERANCE + 1));
        dark.pixels.iter_mut().for_each(darker);
        assert!(!passes(DECODER, &dark.bytes()), "the colors differ");
        let failing = SystemDecoder {
            describe: |_| panic!("the system's decoder fails"),
            ..DECODER
        };
        assert!(!passes(failing, &plain(6).bytes()));
        let none = SystemDecoder {
            describe: |_| Err(Unreadable::Format),
            ..DECODER
        };
        assert!(!passes(none, &plain(6).bytes()));
    }

    #[test]
    fn the_test_images_are_complete_and_of_their_format() {
        for expected in [SystemFormat::Heic, SystemFormat::Avif] {
            let bytes = test_image(expected);
            assert_eq!(detect_format(bytes), Some(expected));
            assert!(!ends_early(bytes) && ends_early(&bytes[..bytes.len() - 1]));
        }
    }
}
