//! A picture of where a network looked: the gradient of its answer with respect to the pixels.

/// The gradient is averaged over this fraction of the image's side, because single pixels are
/// noise.
const BLUR_FRACTION: f64 = 1.0 / 24.0;
/// This fraction of the pixels is below full strength; a few outliers do not darken the others.
const FULL_STRENGTH: f64 = 0.99;

/// How much each pixel of a square image changed the answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Saliency {
    /// Pixels per side.
    pub side: usize,
    /// From 0 to 255, rows from the top.
    pub strengths: Vec<u8>,
}

impl Saliency {
    /// From `side * side` absolute gradients.
    pub(super) fn new(side: usize, gradients: &[f64]) -> Self {
        let radius = ((side as f64 * BLUR_FRACTION).round() as usize).max(1);
        // Three box filters approximate a Gaussian.
        let blurred = (0..3).fold(gradients.to_vec(), |values, _| {
            transposed(
                &box_filter(
                    &transposed(&box_filter(&values, side, radius), side),
                    side,
                    radius,
                ),
                side,
            )
        });
        let mut sorted = blurred.clone();
        sorted.sort_by(f64::total_cmp);
        let place = (sorted.len().saturating_sub(1) as f64 * FULL_STRENGTH) as usize;
        let full = sorted.get(place).copied().unwrap_or(0.0);
        let strength = |value: &f64| {
            if full > 0.0 && value.is_finite() {
                (255.0 * (value / full).clamp(0.0, 1.0)).round() as u8
            } else {
                0
            }
        };
        Saliency {
            side,
            strengths: blurred.iter().map(strength).collect(),
        }
    }
}

/// The mean of each value and its neighbors in the row, up to `radius` away.
fn box_filter(values: &[f64], side: usize, radius: usize) -> Vec<f64> {
    let mean = |row: &[f64], x: usize| {
        let near = &row[x.saturating_sub(radius)..(x + radius + 1).min(row.len())];
        near.iter().sum::<f64>() / near.len() as f64
    };
    let rows = values.chunks_exact(side.max(1));
    rows.flat_map(|row| (0..row.len()).map(move |x| mean(row, x)))
        .collect()
}

fn transposed(values: &[f64], side: usize) -> Vec<f64> {
    let at = |place: usize| values[(place % side) * side + place / side];
    (0..values.len()).map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strongest_region_has_full_strength() {
        let side = 48;
        let bright = |place: usize| (place / side < 8 && place % side >= 40) as u8;
        let gradients: Vec<f64> = (0..side * side)
            .map(|place| f64::from(bright(place)))
            .collect();
        let found = Saliency::new(side, &gradients);
        assert_eq!(found.strengths.len(), side * side);
        assert_eq!(found.strengths[3 * side + 44], 255, "top right");
        assert_eq!(found.strengths[44 * side + 3], 0, "bottom left");
        let none = Saliency::new(2, &[0.0, f64::NAN, 0.0, 0.0]);
        assert_eq!(none.strengths, [0; 4]);
    }
}
