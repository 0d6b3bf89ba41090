//! The matrix-product rate of this machine: the limit that a training step can approach.

use candle_core::{Device, Tensor};
use std::time::Instant;
use tape::device::synchronize;
use trainer::Result;

/// Side of the matrices: large enough to reach the limit, small enough to take a fifth of a second.
const SIDE: usize = 1536;
/// Products measured; the fastest one counts.
const TRIES: usize = 5;

/// Highest matrix-product rate of `device` in 10⁹ operations per second.
///
/// # Errors
/// The device has no memory for three matrices of 9 MB, or fails.
pub fn peak_gflops(device: &Device) -> Result<f64> {
    let values = vec![0.5f32; SIDE * SIDE];
    let a = Tensor::from_vec(values, (SIDE, SIDE), device)?;
    let mut fastest_s = f64::INFINITY;
    for _ in 0..TRIES {
        let start = Instant::now();
        let _product = a.matmul(&a)?;
        synchronize(device)?;
        fastest_s = fastest_s.min(start.elapsed().as_secs_f64());
    }
    Ok(2.0 * (SIDE as f64).powi(3) / fastest_s / 1e9)
}
