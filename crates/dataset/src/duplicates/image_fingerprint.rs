//! A small fingerprint of an image: a hash of its pixels, and a thumbnail of 16 by 16 pixels that
//! survives other sizes and other compression, but not cropping, rotating or mirroring.

use crate::augment::gray_thousandths;
use crate::decode_image::{decode, system_decoder};
use crate::decoded_image::{DecodedImage, Region};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

/// Side of the thumbnail of the luma, in pixels.
const LUMA_SIDE: u32 = 16;
/// Side of the thumbnail of the colors, in pixels.
const COLOR_SIDE: u32 = 4;
/// Values of both thumbnails.
const VALUES: usize = (LUMA_SIDE * LUMA_SIDE + 3 * COLOR_SIDE * COLOR_SIDE) as usize;
/// Largest mean squared difference of two thumbnails, in squared levels of 256 …
const NOISE: f32 = 1.0;
/// … plus this fraction of the variance: images with little contrast differ by little.
const VARIANCE_FRACTION: f32 = 0.004;
/// Largest difference of two ratios of width to height, as a fraction.
const RATIO_TOLERANCE: f32 = 0.05;

#[derive(Debug, Clone)]
pub(super) struct ImageFingerprint {
    /// Hash of the size and all pixels.
    pub pixels: u64,
    /// Mean of the thumbnail.
    pub brightness: f32,
    /// Largest mean squared difference to an image that is nearly the same.
    limit: f32,
    /// Width divided by height.
    ratio: f32,
    thumbnail: [u8; VALUES],
}

impl ImageFingerprint {
    /// The fingerprint of a file, or the reason why it cannot be decoded.
    pub(super) fn from_file(path: &Path) -> Result<Self, String> {
        Ok(Self::from_image(&decode(
            path,
            u32::MAX,
            system_decoder::installed,
        )?))
    }

    fn from_image(image: &DecodedImage) -> Self {
        let mut hasher = DefaultHasher::new();
        (image.width, image.height, &image.rgb).hash(&mut hasher);
        let whole = Region {
            left: 0.0,
            top: 0.0,
            width: f64::from(image.width),
            height: f64::from(image.height),
        };
        let luma = image.resample(whole, LUMA_SIDE, LUMA_SIDE).rgb;
        let luma = luma.chunks_exact(3);
        let luma = luma.map(|pixel| ((gray_thousandths(pixel) + 500) / 1000) as u8);
        let colors = image.resample(whole, COLOR_SIDE, COLOR_SIDE).rgb;
        let mut thumbnail = [0; VALUES];
        for (place, value) in thumbnail.iter_mut().zip(luma.chain(colors)) {
            *place = value;
        }
        let mean = |values: &mut dyn Iterator<Item = f32>| values.sum::<f32>() / VALUES as f32;
        let brightness = mean(&mut thumbnail.iter().map(|value| f32::from(*value)));
        let variance = mean(
            &mut thumbnail
                .iter()
                .map(|value| (f32::from(*value) - brightness).powi(2)),
        );
        ImageFingerprint {
            pixels: hasher.finish(),
            brightness,
            limit: NOISE + VARIANCE_FRACTION * variance,
            ratio: image.width as f32 / image.height as f32,
            thumbnail,
        }
    }

    /// The brightness of every image that is nearly the same: a difference of the means is at most
    /// the root of the mean squared difference.
    pub(super) fn brightness_range(&self) -> (f32, f32) {
        let reach = self.limit.sqrt() + 0.01;
        (self.brightness - reach, self.brightness + reach)
    }

    /// Whether the other image is nearly the same.
    pub(super) fn is_near(&self, other: &Self) -> bool {
        if (self.ratio - other.ratio).abs() > RATIO_TOLERANCE * self.ratio {
            return false;
        }
        let squares = self.thumbnail.iter().zip(&other.thumbnail);
        let sum: u32 = squares.map(|(a, b)| u32::from(a.abs_diff(*b)).pow(2)).sum();
        sum as f32 <= self.limit * VALUES as f32
    }
}
