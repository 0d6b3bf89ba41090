//! Cuts a sample out of an image and augments it: crop or distortion, mirroring, light. All
//! randomness comes from the given generator. Only operations that round alike on every machine are
//! used.

mod distort;
mod gray_level;
mod mixing;
mod rand_augment;

pub(crate) use gray_level::gray_thousandths;
pub use mixing::Mix;
pub(crate) use mixing::draw;

use crate::decoded_image::{DecodedImage, Region};
use crate::rng::Rng;

/// Smallest area of a random crop, as a fraction of the image.
const MIN_CROP_AREA: f64 = 0.5;
/// Smallest area of a random crop with light augmentation.
const MIN_CROP_AREA_LIGHT: f64 = 0.8;
/// Smallest area of a random crop with RandAugment.
const MIN_CROP_AREA_STRONG: f64 = 0.25;
/// Smallest ratio of the sides of a random crop.
const MIN_CROP_RATIO: f64 = 0.75;
/// Random crops that are tried before the largest allowed crop in the center is used.
const MAX_CROP_TRIES: u32 = 10;
/// Largest relative change of brightness, contrast and saturation.
const LIGHT: f64 = 0.2;

/// The largest square in the center, as planes.
pub(crate) fn center(image: &DecodedImage, size: u32) -> Vec<u8> {
    let side = f64::from(image.width.min(image.height));
    to_planes(&image.resample(centered(image, side, side), size, size).rgb)
}

/// A random crop, mirrored half of the time, with a slight change of light; as planes.
pub(crate) fn standard(image: &DecodedImage, size: u32, rng: &mut Rng) -> Vec<u8> {
    mirrored_crop(image, size, MIN_CROP_AREA, rng)
}

/// Like `standard`, but a crop shows more of the image.
pub(crate) fn light(image: &DecodedImage, size: u32, rng: &mut Rng) -> Vec<u8> {
    mirrored_crop(image, size, MIN_CROP_AREA_LIGHT, rng)
}

fn mirrored_crop(image: &DecodedImage, size: u32, min_area: f64, rng: &mut Rng) -> Vec<u8> {
    let region = random_region(image, min_area, rng);
    let mut rgb = image.resample(region, size, size).rgb;
    if rng.uniform() < 0.5 {
        mirror(&mut rgb, size);
    }
    change_light(&mut rgb, rng);
    to_planes(&rgb)
}

/// The largest square in the center, slightly distorted like handwriting instead of cropped and
/// mirrored, with a slight change of light; as planes.
pub(crate) fn no_mirror(image: &DecodedImage, size: u32, rng: &mut Rng) -> Vec<u8> {
    let mut rgb = if (image.width, image.height) == (size, size) {
        distort::distort(&image.rgb, size as usize, rng)
    } else {
        let side = f64::from(image.width.min(image.height));
        let square = image.resample(centered(image, side, side), size, size);
        distort::distort(&square.rgb, size as usize, rng)
    };
    change_light(&mut rgb, rng);
    to_planes(&rgb)
}

/// Like `standard`, but a crop may show less of the image, followed by RandAugment.
pub(crate) fn rand_augment(image: &DecodedImage, size: u32, rng: &mut Rng) -> Vec<u8> {
    let region = random_region(image, MIN_CROP_AREA_STRONG, rng);
    let mut rgb = image.resample(region, size, size).rgb;
    if rng.uniform() < 0.5 {
        mirror(&mut rgb, size);
    }
    change_light(&mut rgb, rng);
    rand_augment::apply(&mut rgb, size, rng);
    to_planes(&rgb)
}

fn centered(image: &DecodedImage, width: f64, height: f64) -> Region {
    Region {
        left: (f64::from(image.width) - width) / 2.0,
        top: (f64::from(image.height) - height) / 2.0,
        width,
        height,
    }
}

fn random_region(image: &DecodedImage, min_area: f64, rng: &mut Rng) -> Region {
    let (w, h) = (f64::from(image.width), f64::from(image.height));
    for _ in 0..MAX_CROP_TRIES {
        let area = w * h * rng.range(min_area, 1.0);
        // Portrait and landscape are equally likely. A logarithmic ratio would round differently
        // from one system library to another.
        let narrow = rng.range(MIN_CROP_RATIO, 1.0);
        let ratio = if rng.uniform() < 0.5 {
            narrow
        } else {
            1.0 / narrow
        };
        let width = (area * ratio).sqrt().max(1.0);
        let height = (area / ratio).sqrt().max(1.0);
        let (left, top) = (rng.uniform(), rng.uniform());
        if width <= w && height <= h {
            return Region {
                left: (w - width) * left,
                top: (h - height) * top,
                width,
                height,
            };
        }
    }
    let width = w.min(h / MIN_CROP_RATIO);
    let height = h.min(w / MIN_CROP_RATIO);
    centered(image, width, height)
}

fn mirror(rgb: &mut [u8], size: u32) {
    for row in rgb.chunks_exact_mut(size as usize * 3) {
        let mut mirrored: Vec<u8> = row.rchunks_exact(3).flatten().copied().collect();
        row.swap_with_slice(&mut mirrored);
    }
}

/// Changes brightness, then contrast around the mean gray, then saturation around each pixel's
/// gray.
fn change_light(rgb: &mut [u8], rng: &mut Rng) {
    let mut factor = || rng.range(1.0 - LIGHT, 1.0 + LIGHT) as f32;
    let (brightness, contrast, saturation) = (factor(), factor(), factor());
    let pixels = (rgb.len() / 3).max(1) as u64;
    // Integers, so that the sum does not depend on its order.
    let total: u64 = rgb.chunks_exact(3).map(gray_thousandths).sum();
    let mean = (total as f64 / pixels as f64 / 1000.0) as f32 * brightness;
    for pixel in rgb.chunks_exact_mut(3) {
        let lit = [0, 1, 2].map(|c| (f32::from(pixel[c]) * brightness - mean) * contrast + mean);
        let gray = 0.299 * lit[0] + 0.587 * lit[1] + 0.114 * lit[2];
        for (byte, value) in pixel.iter_mut().zip(lit) {
            *byte = (gray + (value - gray) * saturation + 0.5).clamp(0.0, 255.0) as u8;
        }
    }
}

/// Converts interleaved pixels to three planes.
fn to_planes(rgb: &[u8]) -> Vec<u8> {
    (0..3)
        .flat_map(|color| rgb.iter().skip(color).step_by(3).copied())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image whose pixels encode their position: red is the column, green the row.
    fn gradient(width: u32, height: u32) -> DecodedImage {
        let rgb = (0..height)
            .flat_map(|y| (0..width).flat_map(move |x| [x as u8, y as u8, 100]))
            .collect();
        DecodedImage { width, height, rgb }
    }

    #[test]
    fn a_center_sample_is_the_middle_square_in_planes() {
        let sample = center(&gradient(20, 10), 10);
        let (red, rest) = sample.split_at(100);
        let (green, blue) = rest.split_at(100);
        assert_eq!(red[..10], [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
        assert_eq!(green[..10], [0; 10]);
        assert_eq!(blue, [100; 100]);
    }

    #[test]
    fn a_random_region_is_inside_and_within_its_bounds() {
        for (w, h) in [(200, 100), (64, 64), (1, 1), (3, 150), (1, 50)] {
            let image = gradient(w, h);
            for n in 0..500 {
                let Region {
                    left,
                    top,
                    width,
                    height,
                } = random_region(&image, MIN_CROP_AREA, &mut Rng::from_key(&[n]));
                let (w, h) = (f64::from(w), f64::from(h));
                assert!(
                    left >= 0.0
                        && top >= 0.0
                        && left + width <= w + 1e-9
                        && top + height <= h + 1e-9
                );
                if w == h && w > 1.0 {
                    assert!(
                        width * height >= 0.5 * w * h - 1e-6
                            && (0.74..1.34).contains(&(width / height))
                    );
                }
            }
        }
    }

    #[test]
    fn light_augmentation_shows_more_of_the_image() {
        let image = gradient(64, 64);
        // The difference between the columns at both ends of a sample.
        let width = |sample: Vec<u8>| u64::from(sample[0].abs_diff(sample[15]));
        let key = |n: u64| Rng::from_key(&[8, n]);
        let lights = (0..400).map(|n| width(light(&image, 16, &mut key(n))));
        let standards = (0..400).map(|n| width(standard(&image, 16, &mut key(n))));
        let (light, standard) = (lights.sum::<u64>(), standards.sum::<u64>());
        assert!(100 * light > 105 * standard, "{light} and {standard}");
    }

    #[test]
    fn half_of_the_samples_are_mirrored_and_all_differ() {
        let image = gradient(64, 64);
        let samples: Vec<Vec<u8>> = (0..400)
            .map(|n| standard(&image, 16, &mut Rng::from_key(&[8, n])))
            .collect();
        let mirrored = samples.iter().filter(|s| s[0] > s[15]).count();
        assert!((160..240).contains(&mirrored), "{mirrored} of 400");
        assert!(samples.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn images_that_are_not_mirrored_are_distorted_at_any_size() {
        for (width, height) in [(16, 16), (64, 64), (80, 40)] {
            let image = gradient(width, height);
            let samples: Vec<Vec<u8>> = (0..100)
                .map(|n| no_mirror(&image, 16, &mut Rng::from_key(&[8, n])))
                .collect();
            let middle = |sample: &[u8]| (sample[16 * 8], sample[16 * 8 + 15]);
            assert!(
                samples
                    .iter()
                    .map(|s| middle(s))
                    .all(|(left, right)| left < right)
            );
            assert!(samples.windows(2).all(|pair| pair[0] != pair[1]));
        }
    }

    #[test]
    fn the_light_changes_only_slightly() {
        let image = DecodedImage {
            width: 8,
            height: 8,
            rgb: vec![120; 192],
        };
        let grays: Vec<u8> = (0..300)
            .map(|n| standard(&image, 8, &mut Rng::from_key(&[n]))[0])
            .collect();
        let (low, high) = (grays.iter().min(), grays.iter().max());
        assert!(
            low >= Some(&95) && low < Some(&105) && high > Some(&135) && high <= Some(&145),
            "{low:?} {high:?}"
        );
    }
}
