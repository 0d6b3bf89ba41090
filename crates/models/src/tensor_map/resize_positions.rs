//! Resizes a grid of position embeddings for another image size, by cubic convolution (Keys 1981,
//! a = -0.75) over the centres of the patches, like PyTorch's `interpolate(mode="bicubic",
//! align_corners=False)`.

/// Keys' free parameter as PyTorch sets it.
const A: f64 = -0.75;

/// Resizes `rows` [before + from², width] to a grid of `to` by `to`. The first `before` rows are
/// copied.
pub(super) fn resize_positions(
    rows: &[f32],
    before: usize,
    from: usize,
    to: usize,
    width: usize,
) -> Vec<f32> {
    if from == to {
        return rows.to_vec();
    }
    let (first, grid) = rows.split_at(before * width);
    let taps: Vec<[(usize, f64); 4]> = (0..to).map(|at| taps(at, from, to)).collect();
    let mut out = first.to_vec();
    for down in &taps {
        for across in &taps {
            let cell = (0..width).map(|channel| {
                let mut sum = 0.0;
                for (y, wy) in down {
                    for (x, wx) in across {
                        sum += wy * wx * f64::from(grid[(y * from + x) * width + channel]);
                    }
                }
                sum as f32
            });
            out.extend(cell);
        }
    }
    out
}

/// The four indices of `from` that contribute to index `at` of `to`, with their weights. Indices
/// beyond the border are clamped.
fn taps(at: usize, from: usize, to: usize) -> [(usize, f64); 4] {
    let center = (at as f64 + 0.5) * from as f64 / to as f64 - 0.5;
    let (whole, part) = (center.floor(), center - center.floor());
    [-1.0, 0.0, 1.0, 2.0].map(|step: f64| {
        let inside = (whole + step).clamp(0.0, from as f64 - 1.0);
        (inside as usize, kernel((part - step).abs()))
    })
}

fn kernel(distance: f64) -> f64 {
    let d = distance;
    if d <= 1.0 {
        ((A + 2.0) * d - (A + 3.0)) * d * d + 1.0
    } else if d < 2.0 {
        ((A * d - 5.0 * A) * d + 8.0 * A) * d - 4.0 * A
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_between_two_is_their_mean() {
        // From 2 to 1, the single position lies between both: each has the weight of distance 0.5,
        // plus that of the clamped border at distance 1.5.
        let near = kernel(0.5) + kernel(1.5);
        assert!((near - 0.5).abs() < 1e-12 && kernel(1.5) < 0.0);
        assert_eq!(
            resize_positions(&[9.0, 0.0, 2.0, 4.0, 6.0], 1, 2, 1, 1),
            [9.0, 3.0]
        );
    }

    #[test]
    fn a_constant_grid_stays_constant() {
        for to in 1..9 {
            let out = resize_positions(&[5.0; 17], 1, 4, to, 1);
            assert_eq!(out.len(), 1 + to * to);
            assert!(out.iter().all(|v| (v - 5.0).abs() < 1e-6), "{to}: {out:?}");
        }
    }
}
