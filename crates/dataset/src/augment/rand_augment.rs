//! RandAugment (Cubuk et al. 2020): a few operations drawn at random, each as strong as the others. Works on a square of rows of
//! red, green, blue. Only operations that every machine rounds alike are used: angles come from tangents, not from sines.

use super::whole_grey;
use crate::stream::Stream;

/// Operations a sample.
const OPERATIONS: usize = 2;
/// How strong each may be, of 30.
const MAGNITUDE: f64 = 9.0 / 30.0;
/// What lies beyond the edge.
const BEYOND: u8 = 128;
/// The strongest turn: tangent of half of 30 degrees.
const MOST_HALF_TANGENT: f64 = 0.267_949_192_431_122_7;

/// The operations, of which each is as likely as any other.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Operation {
    Identity,
    AutoContrast,
    Equalize,
    Rotate,
    Solarize,
    Posterize,
    Colour,
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
    Operation::Colour,
    Operation::Contrast,
    Operation::Brightness,
    Operation::Sharpness,
    Operation::ShearX,
    Operation::ShearY,
    Operation::ShiftX,
    Operation::ShiftY,
];

/// Draws operations and carries them out on a square of `size` pixels.
pub(super) fn vary(rgb: &mut Vec<u8>, size: u32, stream: &mut Stream) {
    for _ in 0..OPERATIONS {
        let operation = ALL[stream.below(ALL.len() as u64) as usize];
        let sign = if stream.unit() < 0.5 { -1.0 } else { 1.0 };
        carry_out(operation, rgb, size as usize, sign * MAGNITUDE);
    }
}

/// `strength` is from -1 to 1; operations without a direction take its size.
fn carry_out(operation: Operation, rgb: &mut Vec<u8>, size: usize, strength: f64) {
    let factor = (1.0 + 0.9 * strength) as f32;
    let around = |strength: f64| strength * 0.3;
    match operation {
        Operation::Identity => {}
        Operation::AutoContrast => by_channel(rgb, stretched),
        Operation::Equalize => by_channel(rgb, equalized),
        Operation::Solarize => {
            let from = (256.0 * (1.0 - strength.abs())) as u32;
            each(rgb, |v| if u32::from(v) >= from { 255 - v } else { v });
        }
        Operation::Posterize => {
            let kept = 8 - (4.0 * strength.abs()).round() as u32;
            let mask = (0xFFu32 << (8 - kept)) as u8;
            each(rgb, |v| v & mask);
        }
        Operation::Brightness => each(rgb, |v| rounded(f32::from(v) * factor)),
        Operation::Contrast => {
            let pixels = (rgb.len() / 3).max(1) as u64;
            let total: u64 = rgb.chunks_exact(3).map(whole_grey).sum();
            let mean = (total as f64 / pixels as f64 / 1000.0) as f32;
            each(rgb, |v| rounded(mean + (f32::from(v) - mean) * factor));
        }
        Operation::Colour => {
            for pixel in rgb.chunks_exact_mut(3) {
                let grey = whole_grey(pixel) as f32 / 1000.0;
                for value in pixel {
                    *value = rounded(grey + (f32::from(*value) - grey) * factor);
                }
            }
        }
        Operation::Sharpness => sharpen(rgb, size, factor),
        Operation::Rotate => {
            // With t = tan(angle / 2): cos = (1 - t²) / (1 + t²), sin = 2 t / (1 + t²).
            let t = strength * MOST_HALF_TANGENT;
            let (cos, sin) = ((1.0 - t * t) / (1.0 + t * t), 2.0 * t / (1.0 + t * t));
            *rgb = moved(rgb, size, [cos, sin, -sin, cos], (0.0, 0.0));
        }
        Operation::ShearX => *rgb = moved(rgb, size, [1.0, around(strength), 0.0, 1.0], (0.0, 0.0)),
        Operation::ShearY => *rgb = moved(rgb, size, [1.0, 0.0, around(strength), 1.0], (0.0, 0.0)),
        Operation::ShiftX | Operation::ShiftY => {
            let by = 0.45 * strength * size as f64;
            let shift = match operation {
                Operation::ShiftX => (by, 0.0),
                _ => (0.0, by),
            };
            *rgb = moved(rgb, size, [1.0, 0.0, 0.0, 1.0], shift);
        }
    }
}

fn rounded(value: f32) -> u8 {
    (value + 0.5).clamp(0.0, 255.0) as u8
}

fn each(rgb: &mut [u8], of: impl Fn(u8) -> u8) {
    rgb.iter_mut().for_each(|value| *value = of(*value));
}

/// Maps each channel by a table that its histogram gives.
fn by_channel(rgb: &mut [u8], table: fn(&[u32; 256]) -> [u8; 256]) {
    for channel in 0..3 {
        let mut counts = [0u32; 256];
        let values = rgb.iter().skip(channel).step_by(3);
        values.for_each(|v| counts[usize::from(*v)] += 1);
        let table = table(&counts);
        let values = rgb.iter_mut().skip(channel).step_by(3);
        values.for_each(|v| *v = table[usize::from(*v)]);
    }
}

/// The darkest to black, the brightest to white.
fn stretched(counts: &[u32; 256]) -> [u8; 256] {
    let least = counts.iter().position(|n| *n > 0).unwrap_or(0);
    let most = counts.iter().rposition(|n| *n > 0).unwrap_or(255);
    std::array::from_fn(|v| match most - least {
        0 => v as u8,
        span => (v.saturating_sub(least).min(span) * 255 / span) as u8,
    })
}

/// Every brightness as frequent as any other, as far as that goes.
fn equalized(counts: &[u32; 256]) -> [u8; 256] {
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

/// Mixes with a blurred copy: a factor above 1 sharpens, one below blurs. The outermost pixels stay.
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

/// Takes each pixel from where the matrix about the middle, and the shift, say; between four pixels it is mixed of them.
fn moved(rgb: &[u8], size: usize, [a, b, c, d]: [f64; 4], (right, down): (f64, f64)) -> Vec<u8> {
    let middle = (size as f64 - 1.0) / 2.0;
    let pixel = |x: i64, y: i64, channel: usize| {
        let inside = (0..size as i64).contains(&x) && (0..size as i64).contains(&y);
        match inside {
            true => f64::from(rgb[(y as usize * size + x as usize) * 3 + channel]),
            false => f64::from(BEYOND),
        }
    };
    let mut out = Vec::with_capacity(rgb.len());
    for y in 0..size {
        for x in 0..size {
            let (dx, dy) = (x as f64 - middle, y as f64 - middle);
            let from_x = a * dx + b * dy + middle + right;
            let from_y = c * dx + d * dy + middle + down;
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

    fn picture(size: usize) -> Vec<u8> {
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
    fn no_strength_changes_nothing() {
        for operation in ALL {
            if matches!(operation, Operation::AutoContrast | Operation::Equalize) {
                continue;
            }
            let mut rgb = picture(12);
            carry_out(operation, &mut rgb, 12, 0.0);
            let furthest = rgb
                .iter()
                .zip(picture(12))
                .map(|(a, b)| a.abs_diff(b))
                .max();
            assert!(furthest <= Some(1), "{operation:?}: {furthest:?}");
        }
    }

    #[test]
    fn every_operation_changes_something_and_keeps_the_size() {
        for operation in &ALL[1..] {
            // Large enough for a level of brightness to have two pixels.
            let mut rgb = picture(24);
            carry_out(*operation, &mut rgb, 24, 0.6);
            assert_eq!(rgb.len(), 24 * 24 * 3);
            assert!(rgb != picture(24), "{operation:?}");
        }
    }

    #[test]
    fn a_shift_moves_pixels_and_a_turn_turns_them() {
        let mut rgb = vec![0; 9 * 9 * 3];
        rgb[(4 * 9 + 6) * 3] = 200;
        let right = moved(&rgb, 9, [1.0, 0.0, 0.0, 1.0], (1.0, 0.0));
        assert_eq!(right[(4 * 9 + 5) * 3], 200);
        assert_eq!(right[8 * 3], BEYOND);
        let turned = moved(&rgb, 9, [0.0, 1.0, -1.0, 0.0], (0.0, 0.0));
        let at = turned
            .iter()
            .position(|v| *v == 200)
            .expect("it is still there");
        assert!(at == (2 * 9 + 4) * 3 || at == (6 * 9 + 4) * 3, "{at}");
    }

    #[test]
    fn the_darkest_becomes_black_and_the_brightest_white() {
        let mut rgb = picture(12);
        carry_out(Operation::AutoContrast, &mut rgb, 12, 0.3);
        for channel in 0..3 {
            let values = || rgb.iter().skip(channel).step_by(3);
            assert_eq!((values().min(), values().max()), (Some(&0), Some(&255)));
        }
    }

    #[test]
    fn the_same_place_gives_the_same_picture() {
        let made = |n| {
            let mut rgb = picture(12);
            vary(&mut rgb, 12, &mut Stream::keyed(&[n]));
            rgb
        };
        assert_eq!(made(3), made(3));
        let different = (0..40).filter(|n| made(*n) != made(n + 1)).count();
        assert!(different > 30, "{different}");
    }
}
