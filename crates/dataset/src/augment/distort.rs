//! Distorts a square like handwriting: rotates, slants, zooms and moves it a little. Angles come
//! from tangents, because only basic arithmetic rounds alike on every machine.

use crate::rng::Rng;

/// Tangent of half the largest rotation, which is 12 degrees.
const MAX_HALF_TANGENT: f64 = 0.105_104_235_265_676_5;
/// Largest slant, as a fraction of the distance from the center.
const MAX_SLANT: f64 = 0.2;
/// Range of the zoom.
const ZOOM: [f64; 2] = [0.88, 1.12];
/// Largest shift in each direction, as a fraction of the side.
const MAX_SHIFT: f64 = 1.0 / 14.0;

/// A map from a pixel of the result to its position in the source, relative to the center.
#[derive(Debug, Clone, Copy)]
struct Distortion {
    /// Row-major matrix.
    matrix: [f64; 4],
    /// Added to the position in the source, to the right and down, as a fraction of the side.
    shift: [f64; 2],
}

impl Distortion {
    fn random(rng: &mut Rng) -> Self {
        // With t = tan(angle / 2): cos = (1 - t²) / (1 + t²), sin = 2 t / (1 + t²).
        let t = rng.range(-MAX_HALF_TANGENT, MAX_HALF_TANGENT);
        let (cos, sin) = ((1.0 - t * t) / (1.0 + t * t), 2.0 * t / (1.0 + t * t));
        let slant = rng.range(-MAX_SLANT, MAX_SLANT);
        let zoom = rng.range(ZOOM[0], ZOOM[1]);
        let matrix = [cos, sin + cos * slant, -sin, cos - sin * slant];
        Distortion {
            matrix: matrix.map(|value| value / zoom),
            shift: [(); 2].map(|()| rng.range(-MAX_SHIFT, MAX_SHIFT)),
        }
    }
}

/// A random distortion of a square of `side` by `side` interleaved RGB pixels. All its parts are
/// resampled together, because each resampling blurs small images. A position beyond the edge has
/// the color of the nearest pixel of the edge.
pub(super) fn distort(rgb: &[u8], side: usize, rng: &mut Rng) -> Vec<u8> {
    resample(rgb, side, Distortion::random(rng))
}

/// Resamples with bilinear interpolation.
fn resample(rgb: &[u8], side: usize, distortion: Distortion) -> Vec<u8> {
    let Distortion { matrix, shift } = distortion;
    let (middle, last) = ((side as f64 - 1.0) / 2.0, side as i64 - 1);
    let [right, down] = shift.map(|shift| middle + shift * side as f64);
    let row = |y: i64| y.clamp(0, last) as usize * side;
    let column = |x: i64| x.clamp(0, last) as usize;
    let mut out = Vec::with_capacity(rgb.len());
    for y in 0..side {
        for x in 0..side {
            let (dx, dy) = (x as f64 - middle, y as f64 - middle);
            let from_x = matrix[0] * dx + matrix[1] * dy + right;
            let from_y = matrix[2] * dx + matrix[3] * dy + down;
            let (left, top) = (from_x.floor(), from_y.floor());
            let (fx, fy) = (from_x - left, from_y - top);
            let (left, top) = (left as i64, top as i64);
            let (rows, columns) = ([row(top), row(top + 1)], [column(left), column(left + 1)]);
            let between = |row: usize, channel: usize| {
                let [left, right] =
                    columns.map(|column| f64::from(rgb[3 * (row + column) + channel]));
                left * (1.0 - fx) + right * fx
            };
            for channel in 0..3 {
                let value = between(rows[0], channel) * (1.0 - fy) + between(rows[1], channel) * fy;
                out.push((value + 0.5).clamp(0.0, 255.0) as u8);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotation_slant_zoom_and_shift_stay_within_their_limits() {
        let is_within = |value: f64, most: f64| value.abs() <= most + 1e-12;
        for n in 0..200 {
            let distortion = Distortion::random(&mut Rng::from_key(&[n]));
            let [a, b, c, d] = distortion.matrix;
            let (area, column) = (a * d - b * c, a * a + c * c);
            // Only the zoom changes the area, and the slant leaves the first column as it is.
            assert!(is_within(area - column, 0.0));
            assert!((ZOOM[0]..=ZOOM[1]).contains(&(1.0 / area.sqrt())));
            assert!(is_within(c / a, 12f64.to_radians().tan()));
            assert!(is_within((a * b + c * d) / column, MAX_SLANT));
            assert!(distortion.shift.iter().all(|s| is_within(*s, MAX_SHIFT)));
        }
    }

    /// A white pixel at (x, y) of a black square with 9 pixels along a side.
    fn dot(x: usize, y: usize) -> Vec<u8> {
        let pixel = |i: usize| if i == 9 * y + x { [255; 3] } else { [0; 3] };
        (0..81).flat_map(pixel).collect()
    }

    const PLAIN: Distortion = Distortion {
        matrix: [1.0, 0.0, 0.0, 1.0],
        shift: [0.0; 2],
    };

    #[test]
    fn no_distortion_changes_nothing() {
        assert_eq!(resample(&dot(2, 7), 9, PLAIN), dot(2, 7));
    }

    #[test]
    fn a_shift_moves_pixels_and_repeats_the_edge() {
        let shift = [-3.0 / 9.0, 0.0];
        let moved = resample(&dot(2, 4), 9, Distortion { shift, ..PLAIN });
        assert_eq!(moved, dot(5, 4));
        let edge = resample(&dot(0, 4), 9, Distortion { shift, ..PLAIN });
        let row: Vec<u8> = edge[3 * 36..3 * 45].iter().step_by(3).copied().collect();
        assert_eq!(row, [255, 255, 255, 255, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_slant_moves_the_rows_beside_the_center_in_opposite_directions() {
        let matrix = [1.0, 0.5, 0.0, 1.0];
        for (y, x) in [(0, 6), (4, 4), (8, 2)] {
            let slanted = resample(&dot(4, y), 9, Distortion { matrix, ..PLAIN });
            assert_eq!(slanted, dot(x, y));
        }
    }

    #[test]
    fn distortions_are_small_and_all_differ() {
        let made = |n: u64| distort(&dot(4, 4), 9, &mut Rng::from_key(&[n]));
        for n in 0..200 {
            let brightest = made(n)
                .iter()
                .step_by(3)
                .copied()
                .enumerate()
                .max_by_key(|pixel| pixel.1);
            let (place, _) = brightest.expect("it has pixels");
            assert!(
                (3..=5).contains(&(place % 9)) && (3..=5).contains(&(place / 9)),
                "{place}"
            );
            assert_eq!(made(n), made(n));
            assert_ne!(made(n), made(n + 1));
        }
    }
}
