//! How the tiles of a convolution's output are grouped for one job: the whole of some samples, or
//! some rows of one sample.

use crate::cpu::channel_panels::PANEL;
use crate::cpu::threads;
use std::ops::Range;

/// Rows and columns of tiles. Each tile covers 2 x 2 outputs and reads 4 x 4 inputs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grid {
    pub rows: usize,
    pub columns: usize,
}

impl Grid {
    pub fn tiles(self) -> usize {
        self.rows * self.columns
    }
}

/// The jobs of a convolution.
#[derive(Debug, Clone, Copy)]
pub(super) struct Units {
    grid: Grid,
    samples: usize,
    /// Samples of one unit.
    per_unit: usize,
    /// Units per sample, if it has more than one.
    strips: usize,
    strip_rows: usize,
}

/// One job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unit {
    pub first_sample: usize,
    pub samples: usize,
    /// The first row of tiles.
    pub first_row: usize,
    /// Tiles of each sample.
    pub grid: Grid,
}

impl Units {
    /// Units of about `target` tiles. Their sizes depend on the shape only.
    pub fn new(grid: Grid, target: usize, samples: usize) -> Self {
        let rows = (target / grid.columns).clamp(1, grid.rows);
        let strips = grid.rows.div_ceil(rows);
        let strip_rows = grid.rows.div_ceil(strips);
        Units {
            grid,
            samples,
            per_unit: if strips == 1 {
                (target / grid.tiles()).clamp(1, samples.max(1))
            } else {
                1
            },
            strips: grid.rows.div_ceil(strip_rows),
            strip_rows,
        }
    }

    /// Units that occupy all threads if possible.
    pub fn for_threads(grid: Grid, target: usize, samples: usize) -> Self {
        let units = Units::new(grid, target, samples);
        let share = samples.div_ceil(threads()).max(1);
        Units {
            per_unit: units.per_unit.min(share),
            ..units
        }
    }

    pub fn count(&self) -> usize {
        self.samples.div_ceil(self.per_unit) * self.strips
    }

    /// In how many parts the units compute `panels` output panels, so that all threads have work.
    pub fn parts(&self, panels: usize) -> usize {
        let wanted = threads().div_ceil(self.count().max(1)).min(panels);
        // All parts but the last have the same length.
        panels.div_ceil(panels.div_ceil(wanted))
    }

    /// The unit of this strip of a sample.
    pub fn index(&self, sample: usize, strip: usize) -> usize {
        sample / self.per_unit * self.strips + strip
    }

    pub fn get(&self, index: usize) -> Unit {
        let (group, strip) = (index / self.strips, index % self.strips);
        let (first_sample, first_row) = (group * self.per_unit, strip * self.strip_rows);
        Unit {
            first_sample,
            samples: self.per_unit.min(self.samples - first_sample),
            first_row,
            grid: Grid {
                rows: self.strip_rows.min(self.grid.rows - first_row),
                ..self.grid
            },
        }
    }

    /// Rows of tiles in the largest unit.
    pub fn strip_rows(&self) -> usize {
        self.strip_rows
    }

    /// Tiles of the largest unit in one sample.
    pub fn strip_tiles(&self) -> usize {
        self.strip_rows * self.grid.columns
    }

    /// Tiles of the largest unit.
    pub fn tiles(&self) -> usize {
        self.per_unit * self.strip_tiles()
    }
}

impl Unit {
    pub fn tiles(&self) -> usize {
        self.samples * self.grid.tiles()
    }
}

/// Sizes of a convolution's output, for one sample.
#[derive(Debug, Clone, Copy)]
pub(super) struct OutputSizes {
    pub channels: usize,
    pub height: usize,
    pub width: usize,
}

impl Units {
    /// For each unit and each of `parts` parts of the `panels`, the rows of the output that they
    /// write: for each sample of the unit one slice per channel.
    pub fn planes<'a>(
        &self,
        sizes: OutputSizes,
        panels: Range<usize>,
        parts: usize,
        y: &'a mut [f32],
    ) -> Vec<Vec<&'a mut [f32]>> {
        let plane = sizes.height * sizes.width;
        let channels = panels.start * PANEL..(panels.end * PANEL).min(sizes.channels);
        let per_part = panels.len().div_ceil(parts) * PANEL;
        let mut jobs: Vec<Vec<&mut [f32]>> = Vec::new();
        jobs.resize_with(self.count() * parts, Vec::new);
        for (sample, y) in y.chunks_exact_mut(sizes.channels * plane).enumerate() {
            let planes = y.chunks_exact_mut(plane).skip(channels.start);
            for (channel, plane) in planes.take(channels.len()).enumerate() {
                let part = channel / per_part;
                let strips = plane.chunks_mut(2 * self.strip_rows * sizes.width);
                for (strip, rows) in strips.enumerate() {
                    jobs[self.index(sample, strip) * parts + part].push(rows);
                }
            }
        }
        jobs
    }
}
