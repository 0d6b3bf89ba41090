//! The transforms of F(2x2, 3x3) in "Fast Algorithms for Convolutional Neural Networks" (Lavin and
//! Gray 2016): only sums, differences and halves.

use super::products::Products;
use super::units::Grid;
use crate::cpu::channel_panels::{PANEL, Pixel};
use pulp::bytemuck::{cast_slice, cast_slice_mut};
use pulp::{Simd, WithSimd};

/// Values of a transformed tile: 4 x 4.
pub(super) const PLACES: usize = 16;

/// `Bᵀ d B` of the 4 x 4 inputs of each tile.
pub(super) struct InputTransform<'a> {
    /// Tiles.
    pub grid: Grid,
    /// `2 rows + 2` rows of `2 columns + 2` pixels.
    pub pixels: &'a [Pixel],
    /// The tiles of the first place; the others follow at `place_stride`.
    pub out: &'a mut [Pixel],
    pub place_stride: usize,
}

impl WithSimd for InputTransform<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let vectors = PANEL / S::F32_LANES;
        let width = 2 * self.grid.columns + 2;
        let out: &mut [S::f32s] = cast_slice_mut(self.out);
        for row in 0..self.grid.rows {
            let lines = &self.pixels[2 * row * width..][..4 * width];
            let lines: &[S::f32s] = cast_slice(lines);
            let step = width * vectors;
            for vector in 0..vectors {
                let mut left = [
                    input_column(simd, lines, step, vector),
                    input_column(simd, lines, step, vectors + vector),
                ];
                for x in 0..self.grid.columns {
                    let first = (2 * x + 2) * vectors + vector;
                    let right = [
                        input_column(simd, lines, step, first),
                        input_column(simd, lines, step, first + vectors),
                    ];
                    let tile = row * self.grid.columns + x;
                    for i in 0..4 {
                        let row = input_differences(
                            simd,
                            left[0][i],
                            left[1][i],
                            right[0][i],
                            right[1][i],
                        );
                        for (j, &value) in row.iter().enumerate() {
                            let place = (4 * i + j) * self.place_stride;
                            out[(place + tile) * vectors + vector] = value;
                        }
                    }
                    left = right;
                }
            }
        }
    }
}

/// `Bᵀ` times the column at `first` of four rows that are `step` apart.
#[inline(always)]
fn input_column<S: Simd>(simd: S, lines: &[S::f32s], step: usize, first: usize) -> [S::f32s; 4] {
    let lines = &lines[first..first + 3 * step + 1];
    input_differences(
        simd,
        lines[0],
        lines[step],
        lines[2 * step],
        lines[3 * step],
    )
}

/// `Bᵀ` times one column.
#[inline(always)]
fn input_differences<S: Simd>(
    simd: S,
    a: S::f32s,
    b: S::f32s,
    c: S::f32s,
    d: S::f32s,
) -> [S::f32s; 4] {
    [
        simd.sub_f32s(a, c),
        simd.add_f32s(b, c),
        simd.sub_f32s(c, b),
        simd.sub_f32s(b, d),
    ]
}

/// `Aᵀ m A`: the 2 x 2 outputs of each tile.
pub(super) struct OutputTransform<'a> {
    /// Tiles.
    pub grid: Grid,
    /// [tile][place].
    pub products: &'a [Pixel],
    /// `2 rows` rows of `2 columns` pixels.
    pub out: &'a mut [Pixel],
}

impl WithSimd for OutputTransform<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let vectors = PANEL / S::F32_LANES;
        let width = 2 * self.grid.columns;
        let out: &mut [S::f32s] = cast_slice_mut(self.out);
        for (tile, products) in self.products.as_chunks::<PLACES>().0.iter().enumerate() {
            let (y, x) = (tile / self.grid.columns, tile % self.grid.columns);
            let corner = 2 * y * width + 2 * x;
            let products: &[S::f32s] = cast_slice(products);
            for vector in 0..vectors {
                let zero = simd.splat_f32s(0.0);
                let mut sums = [[zero; 2]; 4];
                for (j, sums) in sums.iter_mut().enumerate() {
                    let column = &products[j * vectors + vector..][..12 * vectors + 1];
                    *sums = output_sums(
                        simd,
                        column[0],
                        column[4 * vectors],
                        column[8 * vectors],
                        column[12 * vectors],
                    );
                }
                for i in 0..2 {
                    let row = output_sums(simd, sums[0][i], sums[1][i], sums[2][i], sums[3][i]);
                    for (j, &value) in row.iter().enumerate() {
                        out[(corner + i * width + j) * vectors + vector] = value;
                    }
                }
            }
        }
    }
}

/// `Aᵀ` times one column.
#[inline(always)]
fn output_sums<S: Simd>(simd: S, a: S::f32s, b: S::f32s, c: S::f32s, d: S::f32s) -> [S::f32s; 2] {
    [
        simd.add_f32s(simd.add_f32s(a, b), c),
        simd.sub_f32s(simd.sub_f32s(b, c), d),
    ]
}

/// `A dy Aᵀ` of the 2 x 2 gradients of each tile.
pub(super) struct GradientTransform<'a> {
    /// Tiles.
    pub grid: Grid,
    /// `2 rows` rows of `2 columns` pixels.
    pub pixels: &'a [Pixel],
    /// The tiles of the first place; the others follow at `place_stride`.
    pub out: &'a mut [Pixel],
    pub place_stride: usize,
}

impl WithSimd for GradientTransform<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let vectors = PANEL / S::F32_LANES;
        let width = 2 * self.grid.columns;
        let pixels: &[S::f32s] = cast_slice(self.pixels);
        let out: &mut [S::f32s] = cast_slice_mut(self.out);
        for tile in 0..self.grid.tiles() {
            let (y, x) = (tile / self.grid.columns, tile % self.grid.columns);
            let corner = 2 * y * width + 2 * x;
            for vector in 0..vectors {
                let (first, step) = (corner * vectors + vector, width * vectors);
                let second = first + vectors;
                let left = spread(simd, pixels[first], pixels[first + step]);
                let right = spread(simd, pixels[second], pixels[second + step]);
                for (i, (&left, &right)) in left.iter().zip(&right).enumerate() {
                    let row = spread(simd, left, right);
                    for (j, &value) in row.iter().enumerate() {
                        let place = (4 * i + j) * self.place_stride;
                        out[(place + tile) * vectors + vector] = value;
                    }
                }
            }
        }
    }
}

/// `A` times one column.
#[inline(always)]
fn spread<S: Simd>(simd: S, a: S::f32s, b: S::f32s) -> [S::f32s; 4] {
    [
        a,
        simd.add_f32s(a, b),
        simd.sub_f32s(a, b),
        simd.neg_f32s(b),
    ]
}

/// `G g Gᵀ` of some filters, one per lane and nine pixels.
pub(super) struct FilterTransform<'a> {
    pub filters: &'a [Pixel],
    /// The filters at the first place; the others follow at `place_stride`.
    pub out: &'a mut [Pixel],
    pub place_stride: usize,
}

impl WithSimd for FilterTransform<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let vectors = PANEL / S::F32_LANES;
        let out: &mut [S::f32s] = cast_slice_mut(self.out);
        for (index, filter) in self.filters.as_chunks::<9>().0.iter().enumerate() {
            let filter: &[S::f32s] = cast_slice(filter);
            for vector in 0..vectors {
                let mut columns = [[simd.splat_f32s(0.0); 4]; 3];
                for (j, column) in columns.iter_mut().enumerate() {
                    let g = &filter[j * vectors + vector..][..6 * vectors + 1];
                    *column = halves(simd, g[0], g[3 * vectors], g[6 * vectors]);
                }
                let [left, middle, right] = columns;
                for i in 0..4 {
                    let row = halves(simd, left[i], middle[i], right[i]);
                    for (j, &value) in row.iter().enumerate() {
                        let place = (4 * i + j) * self.place_stride;
                        out[(place + index) * vectors + vector] = value;
                    }
                }
            }
        }
    }
}

/// `G` times one column.
#[inline(always)]
fn halves<S: Simd>(simd: S, a: S::f32s, b: S::f32s, c: S::f32s) -> [S::f32s; 4] {
    let half = simd.splat_f32s(0.5);
    let outer = simd.mul_f32s(half, simd.add_f32s(a, c));
    let middle = simd.mul_f32s(half, b);
    [
        a,
        simd.add_f32s(outer, middle),
        simd.sub_f32s(outer, middle),
        c,
    ]
}

/// `Gᵀ m G`: the gradients of some filters, one per lane.
pub(super) struct FilterGradient<'a> {
    /// The sums at the first place; the others follow at `place_stride`.
    pub sums: &'a [Pixel],
    pub place_stride: usize,
    /// [3][3].
    pub out: &'a mut [Pixel; 9],
}

impl WithSimd for FilterGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let vectors = PANEL / S::F32_LANES;
        let sums: &[S::f32s] = cast_slice(self.sums);
        let out: &mut [S::f32s] = cast_slice_mut(self.out);
        let step = self.place_stride * vectors;
        for vector in 0..vectors {
            let mut columns = [[simd.splat_f32s(0.0); 3]; 4];
            for (j, column) in columns.iter_mut().enumerate() {
                let m = &sums[j * step + vector..][..12 * step + 1];
                *column = joined_halves(simd, m[0], m[4 * step], m[8 * step], m[12 * step]);
            }
            for i in 0..3 {
                let [a, b, c, d] = [columns[0][i], columns[1][i], columns[2][i], columns[3][i]];
                let row = joined_halves(simd, a, b, c, d);
                for (j, &value) in row.iter().enumerate() {
                    out[(3 * i + j) * vectors + vector] = value;
                }
            }
        }
    }
}

/// `Gᵀ` times one column.
#[inline(always)]
fn joined_halves<S: Simd>(simd: S, a: S::f32s, b: S::f32s, c: S::f32s, d: S::f32s) -> [S::f32s; 3] {
    let half = simd.splat_f32s(0.5);
    let middle = simd.mul_f32s(half, simd.add_f32s(b, c));
    [
        simd.add_f32s(a, middle),
        simd.mul_f32s(half, simd.sub_f32s(b, c)),
        simd.add_f32s(middle, d),
    ]
}

/// The products of the transformed tiles: at each place one matrix product.
pub(super) struct TileProducts<'a> {
    pub tiles: usize,
    /// Transformed inputs, [place][panel][tile]; the places are `place_stride` apart.
    pub v: &'a [Pixel],
    pub place_stride: usize,
    /// Transformed filters, [place][channel].
    pub u: &'a [Pixel],
    /// [tile][place].
    pub out: &'a mut [Pixel],
}

impl WithSimd for TileProducts<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let filter = self.u.len() / PLACES;
        let channels = filter / PANEL * PANEL;
        for place in 0..PLACES {
            let products = Products {
                rows: self.tiles,
                a: &self.v[place * self.place_stride..][..channels / PANEL * self.tiles],
                b: &self.u[place * filter..][..channels],
                out: &mut self.out[place..],
                out_step: PLACES,
            };
            products.with_simd(simd);
        }
    }
}
