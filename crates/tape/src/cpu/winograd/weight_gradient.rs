//! The gradient of the weights, `dw = Gᵀ (sum over tiles (Bᵀ d B) (A dy Aᵀ)) G`.

use super::products::OuterProducts;
use super::transforms::{FilterGradient, GradientTransform, PLACES};
use super::units::{Unit, Units};
use super::{FILTER_PIXELS, Winograd, place_stride};
use crate::cancel::{Cancel, CancelWatch};
use crate::cpu::channel_panels::{Crop, FeatureMap, PANEL, Pixel, panels};
use crate::cpu::{buffer, scratch_of_other_threads, skips_arithmetic};
use crate::error::Result;
use rayon::prelude::*;

/// Transformed inputs and gradients that are in memory at once: 6 MiB.
const TILE_PIXELS: usize = 3 << 15;

/// Some panels of the outputs, whose gradients are summed together.
struct Block<'a> {
    sizes: &'a Winograd,
    first: usize,
    count: usize,
}

impl Winograd {
    /// Computes the gradient of the weights, summed over all samples, [outputs, inputs, 3, 3].
    ///
    /// # Errors
    /// The micro-batch was cancelled.
    pub fn weight_gradient(&self, x: &[f32], dy: &[f32], cancel: &Cancel) -> Result<Vec<f32>> {
        // The shape determines the units, whose sums are added in order.
        let units = Units::new(self.grid(), self.tiles_at_once(), x.len() / self.sample());
        let filters = panels(self.inputs) * PANEL;
        let all = panels(self.outputs);
        let at_once = (FILTER_PIXELS / (PLACES * filters)).clamp(1, all);
        let unit = self.unit_pixels(at_once, units.tiles());
        let units_at_once = (TILE_PIXELS / unit).clamp(1, units.count().max(1));
        let mut total = buffer::<Pixel>(PLACES * place_stride(filters * at_once));
        let mut transformed = buffer::<Pixel>(unit * units_at_once);
        let _others = scratch_of_other_threads::<Pixel>(units_at_once, self.crop_pixels(&units));
        let mut dw = buffer::<f32>(self.outputs * self.inputs * 9);
        let watch = CancelWatch::new(cancel);
        let rows = dw.chunks_mut(at_once * PANEL * self.inputs * 9);
        for (dw, first) in rows.zip((0..all).step_by(at_once)) {
            let block = Block {
                sizes: self,
                first,
                count: at_once.min(all - first),
            };
            let total = &mut total[..PLACES * place_stride(block.sums())];
            total.fill(Pixel::ZERO);
            for from in (0..units.count()).step_by(units_at_once) {
                if !watch.should_continue() || skips_arithmetic() {
                    let _scratch = buffer::<Pixel>(self.crop_pixels(&units));
                    break;
                }
                let some = from..(from + units_at_once).min(units.count());
                let some: Vec<Unit> = some.map(|index| units.get(index)).collect();
                let chunks = transformed.par_chunks_exact_mut(unit).zip(&some);
                chunks.for_each_init(
                    || buffer::<Pixel>(self.crop_pixels(&units)),
                    |crop, (out, unit)| block.transform(unit, x, dy, crop, out),
                );
                block.add(&some, &transformed, unit, total);
            }
            block.write(total, dw);
        }
        watch.finish()?;
        Ok(dw)
    }

    /// Pixels of the transformed input and gradient of one unit.
    fn unit_pixels(&self, output_panels: usize, tiles: usize) -> usize {
        let input = place_stride(panels(self.inputs) * tiles);
        PLACES * (input + place_stride(output_panels * tiles))
    }
}

impl Block<'_> {
    /// Writes the transformed input of a unit, [place][panel][tile], then its gradient.
    fn transform(&self, unit: &Unit, x: &[f32], dy: &[f32], crop: &mut [Pixel], out: &mut [Pixel]) {
        let tiles = unit.tiles();
        let input = PLACES * place_stride(panels(self.sizes.inputs) * tiles);
        let (v, d) = out.split_at_mut(input);
        self.sizes
            .transform_inputs(unit, x, &mut crop[..self.sizes.crop(unit).pixels()], v);
        let (height, width) = self.sizes.out();
        let window = Crop {
            top: 2 * unit.first_row as isize,
            left: 0,
            rows: 2 * unit.grid.rows,
            columns: 2 * unit.grid.columns,
        };
        let crop = &mut crop[..window.pixels()];
        let samples = dy.chunks_exact(self.sizes.output()).skip(unit.first_sample);
        for (index, values) in samples.take(unit.samples).enumerate() {
            let map = FeatureMap {
                values,
                height,
                width,
            };
            for panel in 0..self.count {
                map.write_panel(self.first + panel, window, crop);
                pulp::Arch::new().dispatch(GradientTransform {
                    grid: unit.grid,
                    pixels: crop,
                    out: &mut d[panel * tiles + index * unit.grid.tiles()..],
                    place_stride: place_stride(self.count * tiles),
                });
            }
        }
    }

    /// Pixels of `total` at one place.
    fn sums(&self) -> usize {
        self.count * panels(self.sizes.inputs) * PANEL
    }

    /// Adds the products of some units to `total`, [place][output panel][input panel][output].
    fn add(&self, units: &[Unit], transformed: &[Pixel], size: usize, total: &mut [Pixel]) {
        let input_panels = panels(self.sizes.inputs);
        let places = total.par_chunks_exact_mut(place_stride(self.sums()));
        places.enumerate().for_each(|(place, sums)| {
            let panels = sums[..self.sums()].par_chunks_exact_mut(input_panels * PANEL);
            panels.enumerate().for_each(|(panel, out)| {
                for (unit, values) in units.iter().zip(transformed.chunks_exact(size)) {
                    let tiles = unit.tiles();
                    let input_stride = place_stride(input_panels * tiles);
                    let (v, d) = values.split_at(PLACES * input_stride);
                    let d = &d[place * place_stride(self.count * tiles)..];
                    pulp::Arch::new().dispatch(OuterProducts {
                        d: &d[panel * tiles..][..tiles],
                        v: &v[place * input_stride..][..input_panels * tiles],
                        out,
                    });
                }
            });
        });
    }

    /// Writes the gradient of the block's weights, [output][input][3][3].
    fn write(&self, total: &[Pixel], dw: &mut [f32]) {
        if skips_arithmetic() {
            dw.fill(0.0);
            return;
        }
        let inputs = self.sizes.inputs;
        let rows = dw.par_chunks_exact_mut(inputs * 9).enumerate();
        rows.for_each(|(output, row)| {
            let (panel, lane) = (output / PANEL, output % PANEL);
            for (index, filters) in row.chunks_mut(PANEL * 9).enumerate() {
                let mut gradients = [Pixel::ZERO; 9];
                pulp::Arch::new().dispatch(FilterGradient {
                    sums: &total[(panel * panels(inputs) + index) * PANEL + lane..],
                    place_stride: place_stride(self.sums()),
                    out: &mut gradients,
                });
                for (lane, filter) in filters.as_chunks_mut::<9>().0.iter_mut().enumerate() {
                    let values = filter.iter_mut().zip(&gradients);
                    values.for_each(|(value, gradient)| *value = gradient.0[lane]);
                }
            }
        });
    }
}
