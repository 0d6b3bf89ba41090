//! How fast this machine multiplies matrices: the limit that a training step can approach.

use crate::error::Result;
use candle_core::{Device, Tensor};
use std::time::Instant;

/// Side of the matrices: large enough to reach the limit, small enough for a fifth of a second.
const SIDE: usize = 1536;
/// Products measured; the best counts.
const TRIES: usize = 5;

/// Best matrix-product rate of this machine in 10⁹ operations a second.
pub fn peak_gflops(device: &Device) -> Result<f64> {
    let values = vec![0.5f32; SIDE * SIDE];
    let a = Tensor::from_vec(values, (SIDE, SIDE), device)?;
    let mut best = f64::INFINITY;
    for _ in 0..TRIES {
        let begun = Instant::now();
        let _product = a.matmul(&a)?;
        device.synchronize()?;
        best = best.min(begun.elapsed().as_secs_f64());
    }
    Ok(2.0 * (SIDE as f64).powi(3) / best / 1e9)
}
