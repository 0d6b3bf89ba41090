//! The features of an image: histograms of its edge directions (Dalal and Triggs 2005), and its
//! colors. Only operations that round alike on every machine are used.

/// Side of the images in pixels.
pub(crate) const SIDE: u32 = 64;
const PIXELS: usize = (SIDE * SIDE) as usize;

/// Side of a cell in pixels. Each cell has one histogram of directions.
const CELL: usize = 8;
/// Cells along a side.
const CELLS: usize = SIDE as usize / CELL;
/// Directions of a histogram.
const DIRECTIONS: usize = 9;
/// Cosine and sine of 0, 20, .. 160 degrees.
const UNIT_VECTORS: [[f32; 2]; DIRECTIONS] = [
    [1.0, 0.0],
    [0.939_692_6, 0.342_020_15],
    [0.766_044_44, 0.642_787_6],
    [0.5, 0.866_025_4],
    [0.173_648_18, 0.984_807_7],
    [-0.173_648_18, 0.984_807_7],
    [-0.5, 0.866_025_4],
    [-0.766_044_44, 0.642_787_6],
    [-0.939_692_6, 0.342_020_15],
];
/// Blocks of 2x2 cells along a side. The histograms of a block are normalized together.
const BLOCKS: usize = CELLS - 1;
/// Values of a block.
const BLOCK_VALUES: usize = 4 * DIRECTIONS;
/// Largest value of a normalized block before it is normalized again.
const MAX_BLOCK_VALUE: f32 = 0.2;

/// Side of a region of colors in pixels.
const REGION: usize = 16;
/// Regions along a side.
const REGIONS: usize = SIDE as usize / REGION;
/// Levels of each channel in the histogram of colors.
const LEVELS: usize = 4;
/// Weight of the colors of the regions, and of the histogram of colors, relative to the edges.
const COLOR_WEIGHTS: [f32; 2] = [0.4, 0.8];

/// Number of features.
pub(crate) const FEATURES: usize =
    BLOCKS * BLOCKS * BLOCK_VALUES + 6 * REGIONS * REGIONS + LEVELS * LEVELS * LEVELS;

/// The features of an image, given as three planes of `SIDE * SIDE` bytes.
pub(crate) fn features(planes: &[u8]) -> Vec<f32> {
    let mut all = Vec::with_capacity(FEATURES);
    push_edges(&mut all, &direction_histograms(&gray(planes)));
    push_region_colors(&mut all, planes);
    push_color_histogram(&mut all, planes);
    all
}

/// The square root of the gray level of each pixel, which evens out bright and dark parts.
fn gray(planes: &[u8]) -> Vec<f32> {
    let level = |i: usize| {
        let [red, green, blue] = [0, 1, 2].map(|channel| u32::from(planes[channel * PIXELS + i]));
        (299 * red + 587 * green + 114 * blue) as f32 / 1000.0
    };
    (0..PIXELS).map(|i| level(i).sqrt()).collect()
}

/// A histogram of directions per cell. Each pixel adds its gradient to the directions near its own.
fn direction_histograms(gray: &[f32]) -> Vec<[f32; DIRECTIONS]> {
    let side = SIDE as usize;
    let mut cells = vec![[0.0; DIRECTIONS]; CELLS * CELLS];
    for y in 1..side - 1 {
        for x in 1..side - 1 {
            let i = y * side + x;
            let (across, down) = (gray[i + 1] - gray[i - 1], gray[i + side] - gray[i - side]);
            let length = (across * across + down * down).sqrt();
            if length == 0.0 {
                continue;
            }
            let cell = &mut cells[y / CELL * CELLS + x / CELL];
            for (sum, [cos, sin]) in cell.iter_mut().zip(UNIT_VECTORS) {
                // The eighth power of the cosine of the angle between both directions: 0.61 at 20
                // degrees and 0.12 at 40 degrees.
                let square = ((across * cos + down * sin) / length).powi(2);
                let fourth = square * square;
                *sum += length * fourth * fourth;
            }
        }
    }
    cells
}

/// Appends the histograms of each block. All blocks together have at most length 1.
fn push_edges(all: &mut Vec<f32>, cells: &[[f32; DIRECTIONS]]) {
    for y in 0..BLOCKS {
        for x in 0..BLOCKS {
            let first = y * CELLS + x;
            let block = [first, first + 1, first + CELLS, first + CELLS + 1];
            let mut block = block.map(|cell| cells[cell]).concat();
            normalize(&mut block, 1.0);
            block
                .iter_mut()
                .for_each(|value| *value = value.min(MAX_BLOCK_VALUE));
            normalize(&mut block, 1.0 / BLOCKS as f32);
            all.extend(block);
        }
    }
}

/// Scales values to this length. Values that are all nearly 0 stay so.
fn normalize(values: &mut [f32], length: f32) {
    let square: f32 = values.iter().map(|value| value * value).sum();
    let factor = length / (square + 1e-3).sqrt();
    values.iter_mut().for_each(|value| *value *= factor);
}

/// Appends mean and standard deviation of each channel in each region.
fn push_region_colors(all: &mut Vec<f32>, planes: &[u8]) {
    let side = SIDE as usize;
    let weight = COLOR_WEIGHTS[0] / REGIONS as f32;
    let pixels = (REGION * REGION) as f32;
    for plane in planes.chunks_exact(PIXELS) {
        for region in 0..REGIONS * REGIONS {
            let first = region / REGIONS * REGION * side + region % REGIONS * REGION;
            let rows = (0..REGION).map(|row| &plane[first + row * side..][..REGION]);
            // Integers, so that the sums are exact.
            let (mut sum, mut squares) = (0u32, 0u32);
            for value in rows.flatten().map(|value| u32::from(*value)) {
                sum += value;
                squares += value * value;
            }
            let mean = sum as f32 / pixels;
            let variance = (squares as f32 / pixels - mean * mean).max(0.0);
            all.push(weight * mean / 64.0);
            all.push(weight * variance.sqrt() / 64.0);
        }
    }
}

/// Appends the square roots of the fractions of the pixels that have each color.
fn push_color_histogram(all: &mut Vec<f32>, planes: &[u8]) {
    let mut counts = [0u32; LEVELS * LEVELS * LEVELS];
    for i in 0..PIXELS {
        let levels =
            [0, 1, 2].map(|channel| usize::from(planes[channel * PIXELS + i]) * LEVELS / 256);
        counts[(levels[0] * LEVELS + levels[1]) * LEVELS + levels[2]] += 1;
    }
    let fraction = |count: u32| (count as f32 / PIXELS as f32).sqrt();
    all.extend(counts.map(|count| COLOR_WEIGHTS[1] * fraction(count)));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Planes of an image whose gray level rises in a direction.
    fn slope(across: usize, down: usize) -> Vec<u8> {
        let side = SIDE as usize;
        let level = |i: usize| (across * (i % side) + down * (i / side)) as u8;
        let plane: Vec<u8> = (0..PIXELS).map(level).collect();
        [&*plane, &*plane, &*plane].concat()
    }

    #[test]
    fn a_slope_has_its_direction_in_every_cell() {
        for (across, down, expected) in [(3, 0, 0), (0, 3, 4), (2, 2, 2)] {
            for cell in direction_histograms(&gray(&slope(across, down))) {
                let most = (0..DIRECTIONS).max_by(|a, b| cell[*a].total_cmp(&cell[*b]));
                let most = most.expect("there are directions");
                // A slope straight down is as far from 80 as from 100 degrees.
                assert!(most == expected || (expected == 4 && most == 5), "{cell:?}");
            }
        }
    }

    #[test]
    fn an_image_of_one_color_has_no_edges() {
        let planes = [[200; PIXELS], [30; PIXELS], [30; PIXELS]].concat();
        let all = features(&planes);
        assert_eq!(all.len(), FEATURES);
        let (edges, colors) = all.split_at(BLOCKS * BLOCKS * BLOCK_VALUES);
        assert!(edges.iter().all(|value| *value == 0.0));
        let histogram = &colors[6 * REGIONS * REGIONS..];
        assert_eq!(histogram.iter().filter(|value| **value > 0.0).count(), 1);
        assert_eq!(histogram[3 * LEVELS * LEVELS], COLOR_WEIGHTS[1]);
    }
}
