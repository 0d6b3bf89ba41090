//! A system's decoder is believed once it has read a photograph that Ebb brings along: upright, of the right size, in the
//! right colours. Where it does not, its format counts as not read.

use super::{Format, SystemDecoder, picture};
use crate::decode::{Picture, turn};
use std::panic::catch_unwind;

/// Quarters of the photograph once it is upright: above left and right, below left and right.
const QUARTERS: [[u8; 3]; 4] = [[220, 30, 30], [30, 200, 30], [30, 30, 220], [240, 240, 240]];
/// Its upright size in pixels; it is stored a quarter turn away from that.
const SIZE: (u32, u32) = (64, 48);
/// What compression, and sums of another order, may do to a colour.
const APART: u8 = 24;

/// Four quarters, turned, as `make_turned.py` wrote them.
pub(super) fn specimen(format: Format) -> &'static [u8] {
    match format {
        Format::Heic => include_bytes!("turned.heic"),
        Format::Avif => include_bytes!("turned.avif"),
    }
}

/// Whether a decoder makes of the specimen what it shows.
pub(super) fn reads(decoder: SystemDecoder, mut specimen: &[u8]) -> bool {
    let upright = catch_unwind(move || {
        let (picture, orientation) = picture(Some(decoder), &mut specimen).ok()?;
        Some(turn(picture, orientation))
    });
    matches!(upright, Ok(Some(picture)) if shows_the_quarters(&picture))
}

fn shows_the_quarters(picture: &Picture) -> bool {
    let (width, height) = SIZE;
    let middles = [(1, 1), (3, 1), (1, 3), (3, 3)];
    let near = |((x, y), colour): ((u32, u32), [u8; 3])| {
        let at = 3 * (y * height / 4 * width + x * width / 4) as usize;
        let pixel = picture.rgb.get(at..at + 3).unwrap_or_default();
        pixel.len() == 3
            && pixel
                .iter()
                .zip(colour)
                .all(|(a, b)| a.abs_diff(b) <= APART)
    };
    (picture.width, picture.height) == SIZE && middles.into_iter().zip(QUARTERS).all(near)
}

#[cfg(test)]
mod tests {
    use super::super::pretended::{DECODER, Plain};
    use super::super::{Unread, ends_early, format};
    use super::*;

    /// The specimen as it would be drawn, stored with an orientation that makes it upright where that is 6.
    fn plain(orientation: u8) -> Plain {
        let (width, height) = (SIZE.1, SIZE.0);
        // Turned to the right, the stored left column from below becomes the upper row.
        let quarter = move |x: u32, y: u32| {
            let (right, below) = (y * 2 < height, x * 2 >= width);
            QUARTERS[usize::from(right) + 2 * usize::from(below)]
        };
        Plain {
            orientation,
            ..Plain::new(width, height, quarter)
        }
    }

    #[test]
    fn a_decoder_is_believed_when_it_reads_what_is_brought_along() {
        assert!(reads(DECODER, &plain(6).bytes()));
        for orientation in [1, 3, 5, 7, 8] {
            let file = plain(orientation).bytes();
            assert!(!reads(DECODER, &file), "turned wrongly, as {orientation}");
        }
        let mut swapped = plain(6);
        swapped.pixels.iter_mut().for_each(|pixel| pixel.reverse());
        assert!(!reads(DECODER, &swapped.bytes()), "blue for red");
        let mut dark = plain(6);
        let darker = |pixel: &mut [u8; 3]| *pixel = pixel.map(|c| c.saturating_sub(APART + 1));
        dark.pixels.iter_mut().for_each(darker);
        assert!(!reads(DECODER, &dark.bytes()), "in other colours");
        let failing = SystemDecoder {
            describe: |_| panic!("the system's decoder fails"),
            ..DECODER
        };
        assert!(!reads(failing, &plain(6).bytes()));
        let none = SystemDecoder {
            describe: |_| Err(Unread::Format),
            ..DECODER
        };
        assert!(!reads(none, &plain(6).bytes()));
    }

    #[test]
    fn what_is_brought_along_is_whole_and_of_its_format() {
        for expected in [Format::Heic, Format::Avif] {
            let bytes = specimen(expected);
            assert_eq!(format(bytes), Some(expected));
            assert!(!ends_early(bytes) && ends_early(&bytes[..bytes.len() - 1]));
        }
    }
}
