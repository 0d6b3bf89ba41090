//! RandAugment (Cubuk et al. 2020): a few random operations of equal strength on a square of
//! interleaved RGB pixels. Only operations that round alike on every machine are used: angles come
//! from tangents, not from sines.

use super::gray_thousandths;
use crate::rng::Rng;

/// Operations per sample.
const OPERATIONS: usize = 2;
/// Strength of each operation: magnitude 9 of 30.
const MAGNITUDE: f64 = 9.0 / 30.0;
/// Color of pixels beyond the edge.
const BEYOND: u8 = 128;
/// Tangent of half the largest rotation, which is 30 degrees.
const MAX_HALF_TANGENT: f64 = 0.267_949_192_431_122_7;

/// The operations, all equally likely.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Operation {
    Identity,
    AutoContrast,
    Equalize,
    Rotate,
    Solarize,
    Posterize,
    Color,
    Contrast,
    Brightness,
    Sharpness,
    ShearX,
    ShearY,
    ShiftX,
    ShiftY,
}

const ALL: [Operation; 14] = [
    Operation::Identity,
    Operation::AutoContrast,
    Operation::Equalize,
    Operation::Rotate,
    Operation::Solarize,
    Operation::Posterize,
    Operation::Color,
    Operation::Contrast,
    Operation::Brightness,
    Operation::Sharpness,
    Operation::ShearX,
    Operation::ShearY,
    Operation::ShiftX,
    Operation::ShiftY,
];

/// Applies random operations to a square of `size` by `size` pixels.
pub(super) fn apply(rgb: &mut Vec<u8>, size: u32, rng: &mut Rng) {
    for _ in 0..OPERATIONS {
        let operation = ALL[rng.below(ALL.len() as u64) as usize];
        let sign = if rng.uniform() < 0.5 { -1.0 } else { 1.0 };
        apply_operation(operation, rgb, size as usize, sign * MAGNITUDE);
    }
}

/// Applies one operation. `strength` is in -1..=1; operations without a direction use its absolute
/// value.
fn apply_operation(operation: Operation, rgb: &mut Vec<u8>, size: usize, strength: f64) {
    let factor = (1.0 + 0.9 * strength) as f32;
    let (shear, shift) = (strength * 0.3, 0.45 * strength * size as f64);
    match operation {
        Operation::Identity => {}
        Operation::AutoContrast => map_channels(rgb, auto_contrast_table),
        Operation::Equalize => map_channels(rgb, equalize_table),
        Operation::Solarize => {
            let from = (256.0 * (1.0 - strength.abs())) as u32;
            map_values(rgb, |v| if u32::from(v) >= from { 255 - v } else { v });
        }
        Operation::Posterize => {
            let bits = 8 - (4.0 * strength.abs()).round() as u32;
            let mask = (0xFFu32 << (8 - bits)) as u8;
            map_values(rgb, |v| v & mask);
        }
        Operation::Brightness => map_values(rgb, |v| rounded(f32::from(v) * factor)),
        Operation::Contrast => change_contrast(rgb, factor),
        Operation::Color => change_color(rgb, factor),
        Operation::Sharpness => sharpen(rgb, size, factor),
        Operation::Rotate => {
            // With t = tan(angle / 2): cos = (1 - t²) / (1 + t²), sin = 2 t / (1 + t²).
            let t = strength * MAX_HALF_TANGENT;
            let (cos, sin) = ((1.0 - t * t) / (1.0 + t * t), 2.0 * t / (1.0 + t * t));
            *rgb = transform(rgb, size, AffineMap::linear([cos, sin, -sin, cos]));
        }
        Operation::ShearX => *rgb = transform(rgb, size, AffineMap::linear([1.0, shear, 0.0, 1.0])),
        Operation::ShearY => *rgb = transform(rgb, size, AffineMap::linear([1.0, 0.0, shear, 1.0])),
        Operation::ShiftX => *rgb = transform(rgb, size, AffineMap::shift(shift, 0.0)),
        Operation::ShiftY => *rgb = transform(rgb, size, AffineMap::shift(0.0, shift)),
    }
}

/// Scales the distance of each value from the mean gray of the image.
fn change_contrast(rgb: &mut [u8], factor: f32) {
    let pixels = (rgb.len() / 3).max(1) as u64;
    let total: u64 = rgb.chunks_exact(3).map(gray_thousandths).sum();
    let mean = (total as f64 / pixels as f64 / 1000.0) as f32;
    map_values(rgb, |v| rounded(mean + (f32::from(v) - mean) * factor));
}

/// Scales the distance of each value from the gray of its pixel.
fn change_color(rgb: &mut [u8], factor: f32) {
    for pixel in rgb.chunks_exact_mut(3) {
        let gray = gray_thousandths(pixel) as f32 / 1000.0;
        for value in pixel {
            *value = rounded(gray + (f32::from(*value) - gray) * factor);
        }
    }
}

fn rounded(value: f32) -> u8 {
    (value + 0.5).clamp(0.0, 255.0) as u8
}

fn map_values(rgb: &mut [u8], map: impl Fn(u8) -> u8) {
    rgb.iter_mut().for_each(|value| *value = map(*value));
}

/// Maps each channel by a table that is computed from its histogram.
fn map_channels(rgb: &mut [u8], table: fn(&[u32; 256]) -> [u8; 256]) {
    for channel in 0..3 {
        let mut counts = [0u32; 256];
        let values = rgb.iter().skip(channel).step_by(3);
        values.for_each(|v| counts[usize::from(*v)] += 1);
        let table = table(&counts);
        let values = rgb.iter_mut().skip(channel).step_by(3);
        values.for_each(|v| *v = table[usize::from(*v)]);
    }
}

/// Maps the darkest level to black and the brightest to white.
fn auto_contrast_table(counts: &[u32; 256]) -> [u8; 256] {
    let least = counts.iter().position(|n| *n > 0).unwrap_or(0);
    let most = counts.iter().rposition(|n| *n > 0).unwrap_or(255);
    std::array::from_fn(|v| match most - least {
        0 => v as u8,
        span => (v.saturating_sub(least).min(span) * 255 / span) as u8,
    })
}

/// Makes all levels about equally frequent.
fn equalize_table(counts: &[u32; 256]) -> [u8; 256] {
    let total: u32 = counts.iter().sum();
    let last = counts.iter().rev().find(|n| **n > 0).copied().unwrap_or(0);
    let step = (total - last) / 255;
    let mut below = step / 2;
    std::array::from_fn(|v| match step {
        0 => v as u8,
        step => {
            let level = (below / step).min(255) as u8;
            below += counts[v];
            level
        }
    })
}

/// Mixes the image with a blurred copy. A factor above 1 sharpens, one below 1 blurs. The outermost
/// pixels stay unchanged.
fn sharpen(rgb: &mut [u8], size: usize, factor: f32) {
    let before = rgb.to_vec();
    for y in 1..size.saturating_sub(1) {
        for x in 1..size - 1 {
            for channel in 0..3 {
                let at = |dx: usize, dy: usize| {
                    u32::from(before[((y + dy - 1) * size + x + dx - 1) * 3 + channel])
                };
                let all: u32 = (0..3)
                    .flat_map(|dy| (0..3).map(move |dx| (dx, dy)))
                    .map(|(dx, dy)| at(dx, dy))
                    .sum();
                let smooth = (all + 4 * at(1, 1)) as f32 / 13.0;
                let place = (y * size + x) * 3 + channel;
                rgb[place] = rounded(smooth + (f32::from(before[place]) - smooth) * factor);
            }
        }
    }
}

/// Maps a pixel of the result to its position in the source.
#[derive(Clone, Copy)]
struct AffineMap {
    /// Row-major matrix, applied around the center.
    matrix: [f64; 4],
    /// Shift to the right in pixels.
    right: f64,
    /// Shift down in pixels.
    down: f64,
}

impl AffineMap {
    fn linear(matrix: [f64; 4]) -> Self {
        Self {
            matrix,
            right: 0.0,
            down: 0.0,
        }
    }

    fn shift(right: f64, down: f64) -> Self {
        Self {
            matrix: [1.0, 0.0, 0.0, 1.0],
            right,
            down,
        }
    }
}

/// Transforms the image with bilinear interpolation. Each pixel comes from the position that the
/// map gives.
fn transform(rgb: &[u8], size: usize, map: AffineMap) -> Vec<u8> {
    let [a, b, c, d] = map.matrix;
    let middle = (size as f64 - 1.0) / 2.0;
    let pixel = |x: i64, y: i64, channel: usize| {
        if (0..size as i64).contains(&x) && (0..size as i64).contains(&y) {
            f64::from(rgb[(y as usize * size + x as usize) * 3 + channel])
        } else {
            f64::from(BEYOND)
        }
    };
    let mut out = Vec::with_capacity(rgb.len());
    for y in 0..size {
        for x in 0..size {
            let (dx, dy) = (x as f64 - middle, y as f64 - middle);
            let from_x = a * dx + b * dy + middle + map.right;
            let from_y = c * dx + d * dy + middle + map.down;
            let (left, top) = (from_x.floor(), from_y.floor());
            let (fx, fy) = (from_x - left, from_y - top);
            let (left, top) = (left as i64, top as i64);
            for channel in 0..3 {
                let upper =
                    pixel(left, top, channel) * (1.0 - fx) + pixel(left + 1, top, channel) * fx;
                let lower = pixel(left, top + 1, channel) * (1.0 - fx)
                    + pixel(left + 1, top + 1, channel) * fx;
                out.push(rounded((upper * (1.0 - fy) + lower * fy) as f32));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(size: usize) -> Vec<u8> {
        let pixel = |i: usize| {
            [
                (i * 7 % 200) as u8 + 20,
                (i * 13 % 180) as u8 + 30,
                (i % 90) as u8,
            ]
        };
        (0..size * size).flat_map(pixel).collect()
    }

    #[test]
    fn zero_strength_changes_nothing() {
        for operation in ALL {
            if matches!(operation, Operation::AutoContrast | Operation::Equalize) {
                continue;
            }
            let mut rgb = image(12);
            apply_operation(operation, &mut rgb, 12, 0.0);
            let furthest = rgb.iter().zip(image(12)).map(|(a, b)| a.abs_diff(b)).max();
            assert!(furthest <= Some(1), "{operation:?}: {furthest:?}");
        }
    }

    #[test]
    fn every_operation_changes_pixels_and_keeps_the_size() {
        for operation in &ALL[1..] {
            // Large enough that some level has two pixels.
            let mut rgb = image(24);
            apply_operation(*operation, &mut rgb, 24, 0.6);
            assert_eq!(rgb.len(), 24 * 24 * 3);
            assert!(rgb != image(24), "{operation:?}");
        }
    }

    #[test]
    fn a_shift_moves_pixels_and_a_rotation_rotates_them() {
        let mut rgb = vec![0; 9 * 9 * 3];
        rgb[(4 * 9 + 6) * 3] = 200;
        let right = transform(&rgb, 9, AffineMap::shift(1.0, 0.0));
        assert_eq!(right[(4 * 9 + 5) * 3], 200);
        assert_eq!(right[8 * 3], BEYOND);
        let rotated = transform(&rgb, 9, AffineMap::linear([0.0, 1.0, -1.0, 0.0]));
        let at = rotated
            .iter()
            .position(|v| *v == 200)
            .expect("it is still there");
        assert!(at == (2 * 9 + 4) * 3 || at == (6 * 9 + 4) * 3, "{at}");
    }

    #[test]
    fn auto_contrast_reaches_black_and_white() {
        let mut rgb = image(12);
        apply_operation(Operation::AutoContrast, &mut rgb, 12, 0.3);
        for channel in 0..3 {
            let values = || rgb.iter().skip(channel).step_by(3);
            assert_eq!((values().min(), values().max()), (Some(&0), Some(&255)));
        }
    }

    #[test]
    fn the_same_key_gives_the_same_image() {
        let made = |n| {
            let mut rgb = image(12);
            apply(&mut rgb, 12, &mut Rng::from_key(&[n]));
            rgb
        };
        assert_eq!(made(3), made(3));
        let different = (0..40).filter(|n| made(*n) != made(n + 1)).count();
        assert!(different > 30, "{different}");
    }
}
