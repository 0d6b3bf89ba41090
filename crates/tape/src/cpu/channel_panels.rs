//! Feature maps whose channels lie side by side in panels of 16: `[panel][pixel][16]`. Vectors then
//! hold channels of one pixel, so that kernels use whole vectors for images of any size.

use crate::cpu::tensor_view::Plain;
use crate::cpu::wide;
use pulp::bytemuck::{Pod, Zeroable};

/// Channels per panel. The last panel of an image is filled with zeros.
pub(crate) const PANEL: usize = 16;

/// Number of panels for this many channels.
pub(crate) fn panels(channels: usize) -> usize {
    channels.div_ceil(PANEL)
}

/// The channels of one panel at one pixel: a line of the cache.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Pixel(pub [f32; PANEL]);

impl Pixel {
    pub const ZERO: Pixel = Pixel([0.0; PANEL]);
}

impl Plain for Pixel {}

// SAFETY: 16 values of 4 bytes, aligned to their 64 bytes, leave no padding; every bit pattern of
// an `f32` is valid.
unsafe impl Zeroable for Pixel {}
// SAFETY: as above, and the type is `Copy` and `'static`.
unsafe impl Pod for Pixel {}

/// One sample's feature map, [channels, height, width].
#[derive(Clone, Copy)]
pub(crate) struct FeatureMap<'a> {
    pub values: &'a [f32],
    pub height: usize,
    pub width: usize,
}

/// A rectangle of pixels. What lies outside of the feature map is zero.
#[derive(Clone, Copy)]
pub(crate) struct Crop {
    pub top: isize,
    pub left: isize,
    pub rows: usize,
    pub columns: usize,
}

impl Crop {
    pub fn pixels(&self) -> usize {
        self.rows * self.columns
    }
}

impl FeatureMap<'_> {
    fn channels(&self) -> usize {
        self.values.len() / (self.height * self.width)
    }

    /// Writes the pixels inside `crop` of one panel's channels to `out`.
    pub fn write_panel(&self, panel: usize, crop: Crop, out: &mut [Pixel]) {
        let outside = crop.left.min(0).unsigned_abs().min(crop.columns);
        let first = crop.left.max(0).unsigned_abs().min(self.width);
        let count = (crop.columns - outside).min(self.width - first);
        let channels = (self.channels() - panel * PANEL).min(PANEL);
        let zeros = vec![0.0; if channels < PANEL { count } else { 0 }];
        for (row, line) in out.chunks_exact_mut(crop.columns).enumerate() {
            let y = crop.top + row as isize;
            if y < 0 || y >= self.height as isize {
                line.fill(Pixel::ZERO);
                continue;
            }
            line[..outside].fill(Pixel::ZERO);
            line[outside + count..].fill(Pixel::ZERO);
            let mut sources = [zeros.as_slice(); PANEL];
            for (lane, source) in sources.iter_mut().enumerate().take(channels) {
                let plane = panel * PANEL + lane;
                let start = (plane * self.height + y.unsigned_abs()) * self.width + first;
                *source = &self.values[start..start + count];
            }
            let line = &mut line[outside..outside + count];
            wide(
                #[inline(always)]
                || interleave(sources, line),
            );
        }
    }
}

/// Writes one value of each source per pixel.
#[inline(always)]
fn interleave(sources: [&[f32]; PANEL], line: &mut [Pixel]) {
    let count = line.len();
    let sources = sources.map(|source| &source[..count]);
    for (x, pixel) in line.iter_mut().enumerate() {
        let values = pixel.0.iter_mut().zip(&sources);
        values.for_each(|(value, source)| *value = source[x]);
    }
}

/// Copies one channel of the pixels in `lines`, which are `columns` apart, to the rows of `plane`.
pub(crate) fn read_channel(
    lines: &[Pixel],
    columns: usize,
    lane: usize,
    plane: &mut [f32],
    width: usize,
) {
    for (row, line) in plane
        .chunks_exact_mut(width)
        .zip(lines.chunks_exact(columns))
    {
        for (value, pixel) in row.iter_mut().zip(line) {
            *value = pixel.0[lane];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Run by miri. The crop is larger than the map on all sides.
    #[test]
    fn pixels_outside_of_the_map_and_missing_channels_are_zero() {
        let (channels, height, width) = (PANEL + 2, 3, 2);
        let values: Vec<f32> = (1..=channels * height * width).map(|v| v as f32).collect();
        let map = FeatureMap {
            values: &values,
            height,
            width,
        };
        for (top, left) in [(-1, -2), (1, 1), (0, 0)] {
            let crop = Crop {
                top,
                left,
                rows: 5,
                columns: 6,
            };
            for panel in 0..2 {
                let mut out = vec![Pixel([-1.0; PANEL]); crop.pixels()];
                map.write_panel(panel, crop, &mut out);
                for (i, pixel) in out.iter().enumerate() {
                    let y = usize::try_from(top + (i / 6) as isize).unwrap_or(height);
                    let x = usize::try_from(left + (i % 6) as isize).unwrap_or(width);
                    for (lane, &value) in pixel.0.iter().enumerate() {
                        let channel = panel * PANEL + lane;
                        let inside = channel < channels && y < height && x < width;
                        let expected = ((channel * height + y) * width + x + 1) as f32;
                        assert_eq!(value, if inside { expected } else { 0.0 });
                    }
                }
            }
        }
        let mut plane = [0.0; 4];
        let lines = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0].map(|v| Pixel([v; PANEL]));
        read_channel(&lines, 3, 5, &mut plane, 2);
        assert_eq!(plane, [1.0, 2.0, 4.0, 5.0], "the last column is cut off");
    }
}
