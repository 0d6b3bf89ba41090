//! Matrix products of panels of 16 channels. Every sum runs over its inner axis in order with fused
//! multiply-adds, so neither the width of the vectors nor the grouping of rows affects the result.

use crate::cpu::channel_panels::{PANEL, Pixel};
use pulp::bytemuck::{Pod, cast_slice};
use pulp::{Simd, WithSimd};

/// Panels whose products are summed at once. Longer sums are added in parts, which keeps the
/// rounding error small.
const PANELS_AT_ONCE: usize = 16;

/// The outputs of one panel: `out[row] = sum a[row][channel] b[channel]`.
pub(super) struct Products<'a> {
    pub rows: usize,
    /// [panel][row].
    pub a: &'a [Pixel],
    /// [channel], with the channels of all panels.
    pub b: &'a [Pixel],
    /// The rows are `out_step` apart.
    pub out: &'a mut [Pixel],
    pub out_step: usize,
}

impl WithSimd for Products<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match S::F32_LANES {
            16 => self.in_rows_of::<S, 12, 1>(simd),
            8 => self.in_rows_of::<S, 6, 2>(simd),
            4 => self.in_rows_of::<S, 6, 4>(simd),
            _ => self.in_rows_of::<S, 1, 16>(simd),
        }
    }
}

impl Products<'_> {
    /// Computes `ROWS` rows at once, and single ones at the end.
    #[inline(always)]
    fn in_rows_of<S: Simd, const ROWS: usize, const VECTORS: usize>(mut self, simd: S) {
        let whole = self.rows / ROWS * ROWS;
        let parts = self.b.chunks(PANELS_AT_ONCE * PANEL);
        for (part, b) in parts.enumerate() {
            let a = &self.a[part * PANELS_AT_ONCE * self.rows..];
            for row in (0..whole).step_by(ROWS) {
                let sums = product::<S, ROWS, VECTORS>(simd, &a[row..], self.rows, b);
                self.write(row, &sums, part > 0);
            }
            // Two rows at least hide some of the latency.
            for row in (whole..self.rows - self.rows % 2).step_by(2) {
                let sums = product::<S, 2, VECTORS>(simd, &a[row..], self.rows, b);
                self.write(row, &sums, part > 0);
            }
            if self.rows % 2 == 1 {
                let row = self.rows - 1;
                let sums = product::<S, 1, VECTORS>(simd, &a[row..], self.rows, b);
                self.write(row, &sums, part > 0);
            }
        }
    }

    /// Writes the sums of some rows, or adds them.
    #[inline(always)]
    fn write<V: Pod, const ROWS: usize, const VECTORS: usize>(
        &mut self,
        first: usize,
        sums: &[[V; VECTORS]; ROWS],
        adds: bool,
    ) {
        for (row, sums) in sums.iter().enumerate() {
            store(&mut self.out[(first + row) * self.out_step], sums, adds);
        }
    }
}

/// The sums of the first `ROWS` rows of `a`, whose panels are `rows` apart.
#[inline(always)]
fn product<S: Simd, const ROWS: usize, const VECTORS: usize>(
    simd: S,
    a: &[Pixel],
    rows: usize,
    b: &[Pixel],
) -> [[S::f32s; VECTORS]; ROWS] {
    let mut sums = [[simd.splat_f32s(0.0); VECTORS]; ROWS];
    for (a, b) in a.chunks(rows).zip(b.as_chunks::<PANEL>().0) {
        let Some(a) = a.first_chunk::<ROWS>() else {
            break;
        };
        for (channel, b) in b.iter().enumerate() {
            let b: &[S::f32s] = cast_slice(&b.0);
            for (sums, a) in sums.iter_mut().zip(a) {
                let factor = simd.splat_f32s(a.0[channel]);
                for (sum, &b) in sums.iter_mut().zip(b) {
                    *sum = simd.mul_add_f32s(factor, b, *sum);
                }
            }
        }
    }
    sums
}

#[inline(always)]
fn store<V: Pod, const VECTORS: usize>(pixel: &mut Pixel, sums: &[V; VECTORS], adds: bool) {
    let sums: &[f32] = cast_slice(sums);
    if adds {
        pixel
            .0
            .iter_mut()
            .zip(sums)
            .for_each(|(total, &sum)| *total += sum);
    } else {
        pixel.0.copy_from_slice(sums);
    }
}

/// Adds outer products: `out[panel][output] += sum over rows d[row][output] v[panel][row]`.
pub(super) struct OuterProducts<'a> {
    /// [row].
    pub d: &'a [Pixel],
    /// [panel][row].
    pub v: &'a [Pixel],
    pub out: &'a mut [Pixel],
}

impl WithSimd for OuterProducts<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let panels = self.v.chunks_exact(self.d.len());
        for (v, out) in panels.zip(self.out.as_chunks_mut::<PANEL>().0) {
            add_outer_products(simd, self.d, v, out);
        }
    }
}

#[inline(always)]
fn add_outer_products<S: Simd>(simd: S, d: &[Pixel], v: &[Pixel], out: &mut [Pixel; PANEL]) {
    match S::F32_LANES {
        16 => {
            add_rows::<S, 0, 8, 1>(simd, d, v, out);
            add_rows::<S, 8, 8, 1>(simd, d, v, out);
        }
        8 => {
            add_rows::<S, 0, 6, 2>(simd, d, v, out);
            add_rows::<S, 6, 5, 2>(simd, d, v, out);
            add_rows::<S, 11, 5, 2>(simd, d, v, out);
        }
        4 => {
            add_rows::<S, 0, 6, 4>(simd, d, v, out);
            add_rows::<S, 6, 5, 4>(simd, d, v, out);
            add_rows::<S, 11, 5, 4>(simd, d, v, out);
        }
        _ => add_rows::<S, 0, 16, 16>(simd, d, v, out),
    }
}

/// Adds the products of `ROWS` outputs from `FIRST` on.
#[inline(always)]
fn add_rows<S: Simd, const FIRST: usize, const ROWS: usize, const VECTORS: usize>(
    simd: S,
    d: &[Pixel],
    v: &[Pixel],
    out: &mut [Pixel; PANEL],
) {
    let mut sums = [[simd.splat_f32s(0.0); VECTORS]; ROWS];
    for (d, v) in d.iter().zip(v) {
        let v: &[S::f32s] = cast_slice(&v.0);
        for (sums, &d) in sums.iter_mut().zip(&d.0[FIRST..FIRST + ROWS]) {
            let factor = simd.splat_f32s(d);
            for (sum, &v) in sums.iter_mut().zip(v) {
                *sum = simd.mul_add_f32s(factor, v, *sum);
            }
        }
    }
    for (row, sums) in sums.iter().enumerate() {
        store(&mut out[FIRST + row], sums, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small whole numbers, whose sums are exact.
    fn pixels(count: usize, factor: usize) -> Vec<Pixel> {
        let value = |i: usize| ((i * factor) % 7) as f32 - 3.0;
        let pixel = |i: usize| Pixel(std::array::from_fn(|lane| value(i * PANEL + lane)));
        (0..count).map(pixel).collect()
    }

    /// Run by miri, in single rows.
    #[test]
    fn products_sum_over_all_panels() {
        for rows in [1, 2, 5, 6, 13] {
            let panels = PANELS_AT_ONCE + 1;
            let (a, b) = (pixels(panels * rows, 3), pixels(panels * PANEL, 5));
            let mut out = vec![Pixel([9.0; PANEL]); 2 * rows];
            pulp::Arch::new().dispatch(Products {
                rows,
                a: &a,
                b: &b,
                out: &mut out,
                out_step: 2,
            });
            for (row, lane) in (0..rows).flat_map(|row| (0..PANEL).map(move |lane| (row, lane))) {
                let factor = |i: usize| a[i / PANEL * rows + row].0[i % PANEL];
                let sum = (0..b.len()).map(|i| factor(i) * b[i].0[lane]).sum::<f32>();
                assert_eq!(out[2 * row].0[lane], sum, "row {row} of {rows}");
                assert_eq!(out[2 * row + 1].0[lane], 9.0, "between the rows");
            }
        }
    }

    #[test]
    fn outer_products_are_added() {
        let (d, v) = (pixels(5, 3), pixels(2 * 5, 5));
        let mut out = vec![Pixel([2.0; PANEL]); 2 * PANEL];
        pulp::Arch::new().dispatch(OuterProducts {
            d: &d,
            v: &v,
            out: &mut out,
        });
        for (i, pixel) in out.iter().enumerate() {
            let v = &v[i / PANEL * 5..][..5];
            for (lane, &found) in pixel.0.iter().enumerate() {
                let product = |row: usize| d[row].0[i % PANEL] * v[row].0[lane];
                assert_eq!(found, 2.0 + (0..5).map(product).sum::<f32>());
            }
        }
    }
}
