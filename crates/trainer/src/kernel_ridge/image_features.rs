//! The features of an image: histograms of its edge directions (Dalal and Triggs 2005), of its
//! local patterns (Ojala et al. 2002), and of its colors. Only operations that round alike on every
//! machine are used.

/// Side of the images in pixels.
const SIDE: usize = 64;
const PIXELS: usize = SIDE * SIDE;

/// Sides of the cells in pixels, and the weight of their edges. Each cell has one histogram of
/// directions.
const CELLS: [(usize, f32); 2] = [(8, 1.0), (16, 0.7)];
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
/// Values of a block.
const BLOCK_VALUES: usize = 4 * DIRECTIONS;
/// Largest value of a normalized block before it is normalized again.
const MAX_BLOCK_VALUE: f32 = 0.2;

/// Side of a region of colors in pixels.
const REGION: usize = 16;
/// Regions along a side.
const REGIONS: usize = SIDE / REGION;
/// Weight of the colors of the regions relative to the edges.
const REGION_WEIGHT: f32 = 0.4;

/// Levels of hue, saturation and value in a histogram of colors.
const LEVELS: [usize; 3] = [18, 5, 4];
/// Colors of a histogram.
const COLORS: usize = LEVELS[0] * LEVELS[1] * LEVELS[2];
/// Histograms of colors along a side: one of the whole image, and one of each quarter.
const COLOR_GRIDS: [usize; 2] = [1, 2];
/// Weight of the histograms of colors relative to the edges.
const COLOR_WEIGHT: f32 = 0.56;

/// The neighbors of a pixel in a circle: steps down and across.
const NEIGHBORS: [[isize; 2]; 8] = [
    [0, 1],
    [1, 1],
    [1, 0],
    [1, -1],
    [0, -1],
    [-1, -1],
    [-1, 0],
    [-1, 1],
];
/// How much brighter a neighbor has to be.
const PATTERN_THRESHOLD: f32 = 0.1;
/// Patterns of brighter neighbors: those that change at most twice around the circle, and all
/// others.
const PATTERNS: usize = 59;
/// Histograms of patterns along a side.
const PATTERN_GRID: usize = 4;
/// Weight of the patterns relative to the edges.
const PATTERN_WEIGHT: f32 = 0.8;

/// Number of features.
pub(super) const FEATURES: usize = edge_features(CELLS[0].0)
    + edge_features(CELLS[1].0)
    + PATTERN_GRID * PATTERN_GRID * PATTERNS
    + 6 * REGIONS * REGIONS
    + (COLOR_GRIDS[0].pow(2) + COLOR_GRIDS[1].pow(2)) * COLORS;

/// Blocks of 2x2 cells along a side. The histograms of a block are normalized together.
const fn blocks(cell: usize) -> usize {
    SIDE / cell - 1
}

const fn edge_features(cell: usize) -> usize {
    blocks(cell).pow(2) * BLOCK_VALUES
}

/// The features of a square image, given as three planes of bytes, and those of its mirror image.
pub(crate) fn image_features(planes: &[u8]) -> [Vec<f32>; 2] {
    let planes = resized(planes, (planes.len() / 3).isqrt());
    let rows = planes.chunks_exact(SIDE);
    let mirrored: Vec<f32> = rows.flat_map(|row| row.iter().rev().copied()).collect();
    [features(&planes), features(&mirrored)]
}

fn features(planes: &[f32]) -> Vec<f32> {
    let mut all = Vec::with_capacity(FEATURES);
    let gray = gray(planes);
    for (cell, weight) in CELLS {
        push_edges(&mut all, &direction_histograms(&gray, cell), weight);
    }
    push_patterns(&mut all, &gray);
    push_region_colors(&mut all, planes);
    push_color_histograms(&mut all, planes);
    all
}

/// The planes with `SIDE` pixels along a side instead of `side`: each pixel is a mean of the pixels
/// that it covers, or of its neighbors if the image is smaller.
fn resized(planes: &[u8], side: usize) -> Vec<f32> {
    if side == SIDE {
        return planes.iter().map(|value| f32::from(*value)).collect();
    }
    let weights: Vec<Vec<(usize, f32)>> = (0..SIDE).map(|to| weights(to, side)).collect();
    let mut all = Vec::with_capacity(3 * PIXELS);
    for plane in planes.chunks_exact(side * side) {
        let mut narrow = vec![0.0; side * SIDE];
        for (row, narrow) in plane.chunks_exact(side).zip(narrow.chunks_exact_mut(SIDE)) {
            for (value, weights) in narrow.iter_mut().zip(&weights) {
                *value = weights
                    .iter()
                    .map(|(x, weight)| weight * f32::from(row[*x]))
                    .sum();
            }
        }
        for weights in &weights {
            let at = |x: usize| {
                weights
                    .iter()
                    .map(|(y, weight)| weight * narrow[y * SIDE + x])
                    .sum()
            };
            all.extend((0..SIDE).map(at).collect::<Vec<f32>>());
        }
    }
    all
}

/// The pixels of a row of `side` that the pixel `to` of a row of `SIDE` consists of, with weights
/// that add up to 1.
fn weights(to: usize, side: usize) -> Vec<(usize, f32)> {
    let step = side as f32 / SIDE as f32;
    let center = (to as f32 + 0.5) * step - 0.5;
    let reach = step.max(1.0);
    let first = (center - reach).ceil().max(0.0) as usize;
    let last = ((center + reach).floor() as usize).min(side - 1);
    let weight = |x: usize| (1.0 - (x as f32 - center).abs() / reach).max(0.0);
    let total: f32 = (first..=last).map(weight).sum();
    (first..=last).map(|x| (x, weight(x) / total)).collect()
}

/// The square root of the gray level of each pixel, which evens out bright and dark parts.
fn gray(planes: &[f32]) -> Vec<f32> {
    let [red, green, blue] = channels(planes);
    let levels = red.iter().zip(green).zip(blue);
    let level =
        |((red, green), blue): ((&f32, &f32), &f32)| 0.299 * red + 0.587 * green + 0.114 * blue;
    levels.map(|pixel| level(pixel).sqrt()).collect()
}

fn channels(planes: &[f32]) -> [&[f32]; 3] {
    [0, 1, 2].map(|channel| &planes[channel * PIXELS..][..PIXELS])
}

/// A histogram of directions per cell. Each pixel adds its gradient to the directions near its own.
fn direction_histograms(gray: &[f32], cell: usize) -> Vec<[f32; DIRECTIONS]> {
    let (side, cells) = (SIDE, SIDE / cell);
    let mut histograms = vec![[0.0; DIRECTIONS]; cells * cells];
    for y in 1..side - 1 {
        for x in 1..side - 1 {
            let i = y * side + x;
            let (across, down) = (gray[i + 1] - gray[i - 1], gray[i + side] - gray[i - side]);
            let length = (across * across + down * down).sqrt();
            if length == 0.0 {
                continue;
            }
            let histogram = &mut histograms[y / cell * cells + x / cell];
            for (sum, [cos, sin]) in histogram.iter_mut().zip(UNIT_VECTORS) {
                // The eighth power of the cosine of the angle between both directions: 0.61 at 20
                // degrees and 0.12 at 40 degrees.
                let square = ((across * cos + down * sin) / length).powi(2);
                let fourth = square * square;
                *sum += length * fourth * fourth;
            }
        }
    }
    histograms
}

/// Appends the histograms of each block. All blocks together have at most the length `weight`.
fn push_edges(all: &mut Vec<f32>, histograms: &[[f32; DIRECTIONS]], weight: f32) {
    let cells = histograms.len().isqrt();
    let blocks = cells - 1;
    for y in 0..blocks {
        for x in 0..blocks {
            let first = y * cells + x;
            let block = [first, first + 1, first + cells, first + cells + 1];
            let mut block = block.map(|cell| histograms[cell]).concat();
            normalize(&mut block, 1.0);
            block
                .iter_mut()
                .for_each(|value| *value = value.min(MAX_BLOCK_VALUE));
            normalize(&mut block, 1.0 / blocks as f32);
            all.extend(block.iter().map(|value| weight * value));
        }
    }
}

/// Scales values to this length. Values that are all nearly 0 stay so.
fn normalize(values: &mut [f32], length: f32) {
    let square: f32 = values.iter().map(|value| value * value).sum();
    let factor = length / (square + 1e-3).sqrt();
    values.iter_mut().for_each(|value| *value *= factor);
}

/// Appends, for each part of the image, the square roots of the fractions of the pixels that have
/// each pattern.
fn push_patterns(all: &mut Vec<f32>, gray: &[f32]) {
    let places = pattern_places();
    let inner = SIDE - 2;
    let part = |at: usize| (at - 1) * PATTERN_GRID / inner;
    let mut counts = [[0u32; PATTERNS]; PATTERN_GRID * PATTERN_GRID];
    for y in 1..=inner {
        for x in 1..=inner {
            let own = gray[y * SIDE + x] + PATTERN_THRESHOLD;
            let mut pattern = 0;
            for (bit, [down, across]) in NEIGHBORS.into_iter().enumerate() {
                let [y, x] = [y.wrapping_add_signed(down), x.wrapping_add_signed(across)];
                pattern |= usize::from(gray[y * SIDE + x] > own) << bit;
            }
            counts[part(y) * PATTERN_GRID + part(x)][places[pattern]] += 1;
        }
    }
    for counts in counts {
        let total = counts.iter().sum::<u32>() as f32;
        let weight = PATTERN_WEIGHT / PATTERN_GRID as f32;
        all.extend(counts.map(|count| weight * (count as f32 / total).sqrt()));
    }
}

/// The place of each pattern in a histogram.
fn pattern_places() -> [usize; 256] {
    let (mut places, mut next) = ([PATTERNS - 1; 256], 0);
    for (pattern, place) in (0..=u8::MAX).zip(&mut places) {
        if (pattern ^ pattern.rotate_right(1)).count_ones() <= 2 {
            *place = next;
            next += 1;
        }
    }
    places
}

/// Appends mean and standard deviation of each channel in each region.
fn push_region_colors(all: &mut Vec<f32>, planes: &[f32]) {
    let weight = REGION_WEIGHT / REGIONS as f32 / 64.0;
    let pixels = (REGION * REGION) as f32;
    for plane in channels(planes) {
        for region in 0..REGIONS * REGIONS {
            let first = region / REGIONS * REGION * SIDE + region % REGIONS * REGION;
            let values = || (0..REGION).flat_map(|row| &plane[first + row * SIDE..][..REGION]);
            let mean = values().sum::<f32>() / pixels;
            let variance = values().map(|value| (value - mean).powi(2)).sum::<f32>() / pixels;
            all.extend([weight * mean, weight * variance.sqrt()]);
        }
    }
}

/// Appends, for the image and for each quarter, the square roots of the fractions of the pixels
/// that have each color.
fn push_color_histograms(all: &mut Vec<f32>, planes: &[f32]) {
    let [red, green, blue] = channels(planes);
    let color = |i: usize| color_level([red[i], green[i], blue[i]]);
    let colors: Vec<usize> = (0..PIXELS).map(color).collect();
    for grid in COLOR_GRIDS {
        let part = SIDE / grid;
        let mut counts = vec![0u32; grid * grid * COLORS];
        for (i, color) in colors.iter().enumerate() {
            let (x, y) = (i % SIDE / part, i / SIDE / part);
            counts[(y * grid + x) * COLORS + color] += 1;
        }
        let weight = COLOR_WEIGHT / grid as f32;
        let pixels = (part * part) as f32;
        all.extend(
            counts
                .iter()
                .map(|count| weight * (*count as f32 / pixels).sqrt()),
        );
    }
}

/// The place of a color in a histogram of hue, saturation and value.
fn color_level(color: [f32; 3]) -> usize {
    let [red, green, blue] = color;
    let (most, least) = (red.max(green).max(blue), red.min(green).min(blue));
    let range = most - least;
    // From 0 to 6: red, yellow, green, cyan, blue, magenta, red.
    let hue = if range < 1.0 {
        0.0
    } else if most == red {
        (green - blue) / range + if green < blue { 6.0 } else { 0.0 }
    } else if most == green {
        (blue - red) / range + 2.0
    } else {
        (red - green) / range + 4.0
    };
    let saturation = range / most.max(1.0);
    let level =
        |fraction: f32, levels: usize| ((fraction * levels as f32) as usize).min(levels - 1);
    let [hues, saturations, values] = LEVELS;
    (level(hue / 6.0, hues) * saturations + level(saturation, saturations)) * values
        + level(most / 255.0, values)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Planes of an image of `side` pixels whose gray level rises in a direction.
    fn slope(side: usize, across: usize, down: usize) -> Vec<u8> {
        let level = |i: usize| (across * (i % side) + down * (i / side)) as u8;
        let plane: Vec<u8> = (0..side * side).map(level).collect();
        [&*plane, &*plane, &*plane].concat()
    }

    fn floats(planes: &[u8]) -> Vec<f32> {
        planes.iter().map(|value| f32::from(*value)).collect()
    }

    #[test]
    fn a_slope_has_its_direction_in_every_cell() {
        for (across, down, expected) in [(3, 0, 0), (0, 3, 4), (2, 2, 2)] {
            let gray = gray(&floats(&slope(SIDE, across, down)));
            for (cell, _) in CELLS {
                for histogram in direction_histograms(&gray, cell) {
                    let most =
                        (0..DIRECTIONS).max_by(|a, b| histogram[*a].total_cmp(&histogram[*b]));
                    let most = most.expect("there are directions");
                    // A slope straight down is as far from 80 as from 100 degrees.
                    assert!(
                        most == expected || (expected == 4 && most == 5),
                        "{histogram:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn an_image_of_one_color_has_no_edges() {
        let planes = [[200; PIXELS], [30; PIXELS], [30; PIXELS]].concat();
        let [all, mirrored] = image_features(&planes);
        assert_eq!((all.len(), &all), (FEATURES, &mirrored));
        let (edges, colors) = all.split_at(edge_features(CELLS[0].0) + edge_features(CELLS[1].0));
        assert!(edges.iter().all(|value| *value == 0.0));
        let (patterns, colors) = colors.split_at(PATTERN_GRID * PATTERN_GRID * PATTERNS);
        // No neighbor is brighter.
        assert!(patterns.chunks_exact(PATTERNS).all(|part| part[0] == 0.2));
        let (whole, quarters) = colors[6 * REGIONS * REGIONS..].split_at(COLORS);
        // Red, with the highest saturation and value.
        let red = LEVELS[1] * LEVELS[2] - 1;
        let found = whole.iter().position(|value| *value > 0.0);
        assert_eq!(found, Some(red));
        assert_eq!(whole[red], COLOR_WEIGHT);
        assert_eq!(quarters.iter().filter(|value| **value > 0.0).count(), 4);
    }

    #[test]
    fn each_color_has_its_hue() {
        let hue = |color| color_level(color) / (LEVELS[1] * LEVELS[2]);
        assert_eq!(hue([255.0, 0.0, 0.0]), 0);
        assert_eq!(hue([200.0, 200.0, 0.0]), 3);
        assert_eq!(hue([0.0, 255.0, 0.0]), 6);
        assert_eq!(hue([0.0, 0.0, 255.0]), 12);
        assert_eq!(hue([255.0, 0.0, 10.0]), 17);
        assert_eq!(color_level([0.0; 3]), 0);
        assert!(color_level([255.0; 3]) < COLORS);
    }

    #[test]
    fn an_image_of_another_size_has_nearly_the_same_features() {
        let [own, _] = image_features(&slope(64, 2, 0));
        for side in [32, 128] {
            let [other, _] = image_features(&slope(side, 2 * 64 / side, 0));
            let apart = own.iter().zip(&other).map(|(a, b)| (a - b).powi(2));
            let apart = apart.sum::<f32>().sqrt();
            assert!(apart < 0.5, "{side}: {apart}");
        }
        assert_eq!(image_features(&[9, 9, 9])[0].len(), FEATURES);
    }

    #[test]
    fn every_pattern_that_changes_at_most_twice_has_its_place() {
        let places = pattern_places();
        assert_eq!(
            (places[0], places[255], places[0b0101]),
            (0, PATTERNS - 2, PATTERNS - 1)
        );
        let others = places
            .iter()
            .filter(|place| **place == PATTERNS - 1)
            .count();
        assert_eq!(256 - others, PATTERNS - 1);
    }

    #[test]
    fn a_mirror_image_has_the_features_of_the_mirrored_pixels() {
        let planes = slope(SIDE, 2, 1);
        let rows = planes.chunks_exact(SIDE);
        let mirrored: Vec<u8> = rows.flat_map(|row| row.iter().rev().copied()).collect();
        let [own, other] = image_features(&planes);
        assert_eq!(image_features(&mirrored), [other.clone(), own.clone()]);
        assert_ne!(own, other);
    }
}
