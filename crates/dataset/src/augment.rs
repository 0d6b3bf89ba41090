//! Cuts a training sample out of a picture, and varies it: crop, mirror, light. Everything random comes from the stream
//! that is given. Only operations that every machine rounds alike are used.

mod mixing;
mod rand_augment;

pub use mixing::Mix;
pub(crate) use mixing::draw;

use crate::decode::{Picture, resample};
use crate::stream::Stream;

/// Share of the picture's area that a random crop keeps at least; where samples are varied more, less.
const MIN_CROP_AREA: f64 = 0.5;
const MIN_CROP_AREA_STRONG: f64 = 0.25;
/// Height over width, or width over height, of a random crop.
const MIN_CROP_RATIO: f64 = 0.75;
/// Crops tried before the largest allowed one is taken from the middle.
const CROP_TRIES: u32 = 10;
/// Brightness, contrast and saturation vary by this much.
const LIGHT: f64 = 0.2;

/// Left, top, width, height in pixels.
type Part = (f64, f64, f64, f64);

/// The largest square from the middle.
pub(crate) fn plain(picture: &Picture, size: u32) -> Vec<u8> {
    let side = f64::from(picture.width.min(picture.height));
    planes(&resample(picture, middle(picture, side, side), size, size).rgb)
}

/// A random crop, mirrored half of the time, in slightly other light.
pub(crate) fn standard(picture: &Picture, size: u32, stream: &mut Stream) -> Vec<u8> {
    let part = random_part(picture, MIN_CROP_AREA, stream);
    let mut rgb = resample(picture, part, size, size).rgb;
    if stream.unit() < 0.5 {
        mirror(&mut rgb, size);
    }
    light(&mut rgb, stream);
    planes(&rgb)
}

/// A random crop, smaller ones among them, mirrored half of the time, in other light and varied by RandAugment.
pub(crate) fn rand_augment(picture: &Picture, size: u32, stream: &mut Stream) -> Vec<u8> {
    let part = random_part(picture, MIN_CROP_AREA_STRONG, stream);
    let mut rgb = resample(picture, part, size, size).rgb;
    if stream.unit() < 0.5 {
        mirror(&mut rgb, size);
    }
    light(&mut rgb, stream);
    rand_augment::vary(&mut rgb, size, stream);
    planes(&rgb)
}

fn middle(picture: &Picture, width: f64, height: f64) -> Part {
    let (w, h) = (f64::from(picture.width), f64::from(picture.height));
    ((w - width) / 2.0, (h - height) / 2.0, width, height)
}

fn random_part(picture: &Picture, least_area: f64, stream: &mut Stream) -> Part {
    let (w, h) = (f64::from(picture.width), f64::from(picture.height));
    for _ in 0..CROP_TRIES {
        let area = w * h * stream.between(least_area, 1.0);
        // Upright and lying alike; a logarithm would round differently from one system's library to another's.
        let slim = stream.between(MIN_CROP_RATIO, 1.0);
        let ratio = if stream.unit() < 0.5 {
            slim
        } else {
            1.0 / slim
        };
        let width = (area * ratio).sqrt().max(1.0);
        let height = (area / ratio).sqrt().max(1.0);
        let (left, top) = (stream.unit(), stream.unit());
        if width <= w && height <= h {
            return ((w - width) * left, (h - height) * top, width, height);
        }
    }
    let width = w.min(h / MIN_CROP_RATIO);
    let height = h.min(w / MIN_CROP_RATIO);
    middle(picture, width, height)
}

fn mirror(rgb: &mut [u8], size: u32) {
    for row in rgb.chunks_exact_mut(size as usize * 3) {
        let mut turned: Vec<u8> = row.rchunks_exact(3).flatten().copied().collect();
        row.swap_with_slice(&mut turned);
    }
}

/// Brightness, then contrast about the mean grey, then saturation about each pixel's grey.
fn light(rgb: &mut [u8], stream: &mut Stream) {
    let mut factor = || stream.between(1.0 - LIGHT, 1.0 + LIGHT) as f32;
    let (brightness, contrast, saturation) = (factor(), factor(), factor());
    let pixels = (rgb.len() / 3).max(1) as u64;
    // Whole numbers: no order of summing can change them.
    let total: u64 = rgb.chunks_exact(3).map(whole_grey).sum();
    let mean = (total as f64 / pixels as f64 / 1000.0) as f32 * brightness;
    for pixel in rgb.chunks_exact_mut(3) {
        let lit = [0, 1, 2].map(|c| (f32::from(pixel[c]) * brightness - mean) * contrast + mean);
        let grey = 0.299 * lit[0] + 0.587 * lit[1] + 0.114 * lit[2];
        for (byte, value) in pixel.iter_mut().zip(lit) {
            *byte = (grey + (value - grey) * saturation + 0.5).clamp(0.0, 255.0) as u8;
        }
    }
}

/// Thousandths of a grey level.
fn whole_grey(pixel: &[u8]) -> u64 {
    299 * u64::from(pixel[0]) + 587 * u64::from(pixel[1]) + 114 * u64::from(pixel[2])
}

/// From pixels of three colours to three planes.
fn planes(rgb: &[u8]) -> Vec<u8> {
    (0..3)
        .flat_map(|colour| rgb.iter().skip(colour).step_by(3).copied())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A picture whose pixels tell their place: red counts columns, green rows.
    fn gradient(width: u32, height: u32) -> Picture {
        let rgb = (0..height)
            .flat_map(|y| (0..width).flat_map(move |x| [x as u8, y as u8, 100]))
            .collect();
        Picture { width, height, rgb }
    }

    #[test]
    fn a_plain_sample_is_the_middle_square_in_planes() {
        let sample = plain(&gradient(20, 10), 10);
        let (red, rest) = sample.split_at(100);
        let (green, blue) = rest.split_at(100);
        assert_eq!(red[..10], [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
        assert_eq!(green[..10], [0; 10]);
        assert_eq!(blue, [100; 100]);
    }

    #[test]
    fn a_random_part_lies_inside_and_keeps_its_bounds() {
        for (w, h) in [(200, 100), (64, 64), (1, 1), (3, 150), (1, 50)] {
            let picture = gradient(w, h);
            for n in 0..500 {
                let (left, top, width, height) =
                    random_part(&picture, MIN_CROP_AREA, &mut Stream::keyed(&[n]));
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
    fn half_of_the_samples_are_mirrored_and_all_differ() {
        let picture = gradient(64, 64);
        let samples: Vec<Vec<u8>> = (0..400)
            .map(|n| standard(&picture, 16, &mut Stream::keyed(&[8, n])))
            .collect();
        let mirrored = samples.iter().filter(|s| s[0] > s[15]).count();
        assert!((160..240).contains(&mirrored), "{mirrored} of 400");
        assert!(samples.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn the_light_stays_near_what_it_was() {
        let picture = Picture {
            width: 8,
            height: 8,
            rgb: vec![120; 192],
        };
        let greys: Vec<u8> = (0..300)
            .map(|n| standard(&picture, 8, &mut Stream::keyed(&[n]))[0])
            .collect();
        let (low, high) = (greys.iter().min(), greys.iter().max());
        assert!(
            low >= Some(&95) && low < Some(&105) && high > Some(&135) && high <= Some(&145),
            "{low:?} {high:?}"
        );
    }
}
