//! Convolutions with 3 x 3 kernels and stride 1 by the minimal filtering algorithm F(2x2, 3x3), in
//! f32: 16 multiplications for 2 x 2 outputs instead of 36 (Lavin and Gray 2016). Its transforms
//! need only sums and halves, so the error is as small as that of a direct product.
//!
//! Each sample's result depends on this sample alone: the grouping of tiles only decides which
//! thread computes them.

mod products;
mod transforms;
mod units;
mod weight_gradient;

use self::transforms::{FilterTransform, InputTransform, OutputTransform, PLACES, TileProducts};
use self::units::{Grid, OutputSizes, Unit, Units};
use crate::cancel::{Cancel, CancelWatch};
use crate::cpu::channel_panels::{Crop, FeatureMap, PANEL, Pixel, panels, read_channel};
use crate::cpu::im2col::Window;
use crate::cpu::{buffer, scratch_of_other_threads, skips_arithmetic, threads};
use crate::error::Result;
use rayon::prelude::*;
use std::ops::Range;

/// Transformed filters, or their gradients, that are in memory at once: 4 MiB.
const FILTER_PIXELS: usize = 1 << 16;

/// Sizes of a convolution, for one sample.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Winograd {
    inputs: usize,
    outputs: usize,
    height: usize,
    width: usize,
    padding: usize,
}

impl Winograd {
    /// The sizes of a convolution, or none if columns are faster or this machine has no fused
    /// multiply-add.
    pub fn new(window: &Window, outputs: usize) -> Option<Self> {
        let sizes = Winograd {
            inputs: window.channels,
            outputs,
            height: window.height,
            width: window.width,
            padding: window.padding,
        };
        let fits = window.kernel == (3, 3)
            && window.stride == 1
            && window.groups == 1
            && window.padding <= 2
            && !matches!(pulp::Arch::new(), pulp::Arch::Scalar);
        (fits && sizes.is_faster()).then_some(sizes)
    }

    /// True if panels and tiles are filled well enough.
    fn is_faster(&self) -> bool {
        let (height, width) = self.out();
        let tiles = height.div_ceil(2) * width.div_ceil(2);
        self.inputs.min(self.outputs) >= PANEL && tiles * PLACES * 4 <= height * width * 9 * 3
    }

    /// Output height and width.
    fn out(&self) -> (usize, usize) {
        let size = |input: usize| input + 2 * self.padding - 2;
        (size(self.height), size(self.width))
    }

    fn grid(&self) -> Grid {
        let (height, width) = self.out();
        Grid {
            rows: height.div_ceil(2),
            columns: width.div_ceil(2),
        }
    }

    /// Values of one sample's input.
    fn sample(&self) -> usize {
        self.inputs * self.height * self.width
    }

    fn output_sizes(&self) -> OutputSizes {
        let (height, width) = self.out();
        OutputSizes {
            channels: self.outputs,
            height,
            width,
        }
    }

    /// Tiles of one job. More tiles use each filter more often, but their transforms leave the
    /// cache.
    fn tiles_at_once(&self) -> usize {
        if self.inputs >= 256 { 64 } else { 112 }
    }

    /// Values of one sample's output.
    fn output(&self) -> usize {
        let (height, width) = self.out();
        self.outputs * height * width
    }

    /// The convolution of the output's gradient that gives the input's.
    fn transposed(&self) -> Self {
        let (height, width) = self.out();
        Winograd {
            inputs: self.outputs,
            outputs: self.inputs,
            height,
            width,
            padding: 2 - self.padding,
        }
    }

    /// Computes the output of all samples in `x` with `weight` [outputs, inputs, 3, 3].
    ///
    /// # Errors
    /// The micro-batch was cancelled.
    pub fn forward(&self, x: &[f32], weight: &[f32], y: &mut [f32], cancel: &Cancel) -> Result<()> {
        let filters = Filters {
            weight,
            inputs: self.inputs,
            transposed: false,
        };
        self.convolve(x, filters, y, cancel)
    }

    /// Computes the gradient of the input of all samples in `dy`.
    ///
    /// # Errors
    /// The micro-batch was cancelled.
    pub fn input_gradient(
        &self,
        dy: &[f32],
        weight: &[f32],
        dx: &mut [f32],
        cancel: &Cancel,
    ) -> Result<()> {
        let filters = Filters {
            weight,
            inputs: self.inputs,
            transposed: true,
        };
        self.transposed().convolve(dy, filters, dx, cancel)
    }

    fn convolve(&self, x: &[f32], filters: Filters, y: &mut [f32], cancel: &Cancel) -> Result<()> {
        let units = Units::for_threads(self.grid(), self.tiles_at_once(), x.len() / self.sample());
        let scratch = self.scratch(&units);
        let filter = PLACES * place_stride(panels(self.inputs) * PANEL);
        let (all, at_once) = (panels(self.outputs), (FILTER_PIXELS / filter).max(1));
        let mut u = buffer::<Pixel>(filter * at_once.min(all));
        let watch = CancelWatch::new(cancel);
        for first in (0..all).step_by(at_once) {
            let count = at_once.min(all - first);
            let u = &mut u[..count * filter];
            if !skips_arithmetic() {
                filters.transform(first, u);
            }
            let parts = units.parts(count);
            let jobs = units.planes(self.output_sizes(), first..first + count, parts, y);
            let _others = scratch_of_other_threads::<Pixel>(jobs.len(), scratch);
            // Each part that rayon splits off allocates its own scratch memory.
            let per_split = jobs.len().div_ceil(4 * threads());
            let jobs = jobs.into_par_iter().with_min_len(per_split);
            jobs.enumerate().for_each_init(
                || buffer::<Pixel>(scratch),
                |scratch, (job, planes)| {
                    if !watch.should_continue() {
                        return;
                    }
                    let panels = count.div_ceil(parts) * filter;
                    let unit = units.get(job / parts);
                    let u = u[job % parts * panels..]
                        .chunks_exact(filter)
                        .take(panels / filter);
                    self.compute(&unit, x, u, planes, scratch);
                },
            );
        }
        watch.finish()
    }

    /// The pixels that a unit reads in one sample.
    fn crop(&self, unit: &Unit) -> Crop {
        Crop {
            top: 2 * unit.first_row as isize - self.padding as isize,
            left: -(self.padding as isize),
            rows: 2 * unit.grid.rows + 2,
            columns: 2 * unit.grid.columns + 2,
        }
    }

    /// Pixels that the largest unit reads in one sample.
    fn crop_pixels(&self, units: &Units) -> usize {
        (2 * units.strip_rows() + 2) * (2 * self.grid().columns + 2)
    }

    /// Pixels that one thread needs.
    fn scratch(&self, units: &Units) -> usize {
        let tiles = units.tiles();
        let v = PLACES * place_stride(panels(self.inputs) * tiles);
        self.crop_pixels(units) + v + tiles * PLACES + units.strip_tiles() * 4
    }

    /// Computes the output of one unit for the panels with the transformed filters `u`.
    fn compute<'a>(
        &self,
        unit: &Unit,
        x: &[f32],
        u: impl Iterator<Item = &'a [Pixel]>,
        mut planes: Vec<&mut [f32]>,
        scratch: &mut [Pixel],
    ) {
        if skips_arithmetic() {
            planes.iter_mut().for_each(|plane| plane.fill(0.0));
            return;
        }
        let tiles = unit.tiles();
        let place_stride = place_stride(panels(self.inputs) * tiles);
        let (crop, scratch) = scratch.split_at_mut(self.crop(unit).pixels());
        let (v, scratch) = scratch.split_at_mut(PLACES * place_stride);
        let (products, scratch) = scratch.split_at_mut(tiles * PLACES);
        let out = &mut scratch[..unit.grid.tiles() * 4];
        self.transform_inputs(unit, x, crop, v);
        let width = self.out().1;
        let channels = planes.len() / unit.samples;
        for (panel, u) in u.enumerate() {
            pulp::Arch::new().dispatch(TileProducts {
                tiles,
                v,
                place_stride,
                u,
                out: products,
            });
            let per_sample = products.chunks_exact(unit.grid.tiles() * PLACES);
            for (products, planes) in per_sample.zip(planes.chunks_exact_mut(channels)) {
                pulp::Arch::new().dispatch(OutputTransform {
                    grid: unit.grid,
                    products,
                    out,
                });
                let planes = planes.iter_mut().skip(panel * PANEL).take(PANEL);
                for (lane, plane) in planes.enumerate() {
                    read_channel(out, 2 * unit.grid.columns, lane, plane, width);
                }
            }
        }
    }

    /// Writes the transformed inputs of a unit, [place][panel][tile].
    fn transform_inputs(&self, unit: &Unit, x: &[f32], crop: &mut [Pixel], v: &mut [Pixel]) {
        let tiles = unit.tiles();
        let samples = x.chunks_exact(self.sample()).skip(unit.first_sample);
        for (index, values) in samples.take(unit.samples).enumerate() {
            let map = FeatureMap {
                values,
                height: self.height,
                width: self.width,
            };
            for panel in 0..panels(self.inputs) {
                map.write_panel(panel, self.crop(unit), crop);
                pulp::Arch::new().dispatch(InputTransform {
                    grid: unit.grid,
                    pixels: crop,
                    out: &mut v[panel * tiles + index * unit.grid.tiles()..],
                    place_stride: place_stride(panels(self.inputs) * tiles),
                });
            }
        }
    }
}

/// Distance between two places of a tile, for this many pixels at each: an odd number, because the
/// lines of all places would else compete for the same sets of the cache.
fn place_stride(pixels: usize) -> usize {
    pixels | 1
}

/// The filters of a convolution, or of its transpose.
#[derive(Clone, Copy)]
struct Filters<'a> {
    /// [outputs, inputs, 3, 3] of the forward convolution.
    weight: &'a [f32],
    inputs: usize,
    transposed: bool,
}

impl Filters<'_> {
    /// Inputs and outputs of the convolution that uses the filters.
    fn sizes(&self) -> (usize, usize) {
        let outputs = self.weight.len() / self.inputs / 9;
        if self.transposed {
            (outputs, self.inputs)
        } else {
            (self.inputs, outputs)
        }
    }

    /// Writes the transformed filters from panel `first` on, [panel][place][input].
    fn transform(&self, first: usize, u: &mut [Pixel]) {
        let (inputs, outputs) = self.sizes();
        let place_stride = place_stride(panels(inputs) * PANEL);
        let all = u.par_chunks_mut(PLACES * place_stride).enumerate();
        all.for_each(|(panel, u)| {
            let outputs = (first + panel) * PANEL..((first + panel + 1) * PANEL).min(outputs);
            for input in (0..inputs).step_by(PANEL) {
                let inputs = input..(input + PANEL).min(inputs);
                let filters = if self.transposed {
                    self.gather_transposed(inputs, outputs.clone())
                } else {
                    self.gather(inputs, outputs.clone())
                };
                pulp::Arch::new().dispatch(FilterTransform {
                    filters: &filters,
                    out: &mut u[input..],
                    place_stride,
                });
            }
        });
    }

    /// The filters of one panel of inputs and of outputs, [input][3][3].
    fn gather(&self, inputs: Range<usize>, outputs: Range<usize>) -> [Pixel; PANEL * 9] {
        let mut filters = [Pixel::ZERO; PANEL * 9];
        for (lane, output) in outputs.enumerate() {
            let weights = &self.weight[(output * self.inputs + inputs.start) * 9..];
            for (pixel, &weight) in filters.iter_mut().zip(&weights[..inputs.len() * 9]) {
                pixel.0[lane] = weight;
            }
        }
        filters
    }

    /// As [`Filters::gather`], for weights [inputs, outputs, 3, 3] of the other direction.
    fn gather_transposed(&self, inputs: Range<usize>, outputs: Range<usize>) -> [Pixel; PANEL * 9] {
        let mut filters = [Pixel::ZERO; PANEL * 9];
        for (filter, input) in filters.as_chunks_mut::<9>().0.iter_mut().zip(inputs) {
            let weights = &self.weight[(input * self.inputs + outputs.start) * 9..];
            for (lane, weights) in weights.as_chunks::<9>().0[..outputs.len()]
                .iter()
                .enumerate()
            {
                let pixels = filter.iter_mut().rev();
                pixels
                    .zip(weights)
                    .for_each(|(pixel, &weight)| pixel.0[lane] = weight);
            }
        }
        filters
    }
}
