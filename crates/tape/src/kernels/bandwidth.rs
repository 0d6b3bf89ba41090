//! Measures the kernels that only move memory, next to a copy by the device: the bytes that must be
//! read and written once, divided by the time.

use super::copies;
use super::elementwise::{self, Function};
use super::feature_maps::{self, Groups};
use super::multi_tensor::{self, AdamNumbers, Moved};
use super::row_kernels::{self, AttentionMask};
use crate::convert_dtype::host_tensor;
use crate::device_sync::synchronize;
use crate::error::{Result, TapeError};
use crate::objective_c::with_autorelease_pool;
use crate::rng::Rng;
use candle_core::{DType, Device, Tensor};
use std::time::Instant;

/// The measurement of one kernel, or of a forward or backward pass of several.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// Name of the kernel.
    pub name: &'static str,
    /// `f32` or `bf16`.
    pub precision: &'static str,
    /// Bytes that must be moved.
    pub bytes: u64,
    /// Median time of several measurements.
    pub seconds: f64,
}

impl Reading {
    /// Bytes per second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }
}

/// Rows and columns: 256 MiB in f32, several times the size of a cache.
const ROWS: usize = 1 << 16;
const COLUMNS: usize = 1 << 10;
/// Tokens of a head with as many weights.
const TOKENS: usize = 512;
/// Launches per measurement, and number of measurements.
const LAUNCHES: usize = 4;
const TRIES: usize = 7;

/// Measures every kernel that only moves memory. The first reading of each precision is the copy.
///
/// # Errors
/// There are no kernels for this device.
pub fn measure(device: &Device) -> Result<Vec<Reading>> {
    let mut all = Vec::new();
    for (precision, dtype) in [("f32", DType::F32), ("bf16", DType::BF16)] {
        let x = drawn(&[ROWS, COLUMNS], dtype, device)?;
        if !super::exist_for(&x) {
            return Err(TapeError::Device(
                "there are no kernels for this device; choose --device metal or cuda".to_owned(),
            ));
        }
        let mut note = |name, passes: f64, work: &dyn Fn() -> Result<()>| -> Result<()> {
            let size = (ROWS * COLUMNS * dtype.size_in_bytes()) as f64;
            all.push(Reading {
                name,
                precision,
                bytes: (passes * size) as u64,
                seconds: median(device, work)?,
            });
            Ok(())
        };
        by_element(&x, &mut note)?;
        by_row(&x, &mut note)?;
        by_plane(&x, &mut note)?;
        by_layout(&x, &mut note)?;
        decoded(&x, &mut note)?;
        if dtype == DType::F32 {
            of_many(&x, &mut note)?;
        }
    }
    Ok(all)
}

type Note<'a> = dyn FnMut(&'static str, f64, &dyn Fn() -> Result<()>) -> Result<()> + 'a;

/// Repeats the values of a short random stream. The time of a kernel does not depend on the values,
/// except that zeros would be faster.
fn drawn(shape: &[usize], dtype: DType, device: &Device) -> Result<Tensor> {
    let stream = Rng::new(3);
    let some: Vec<f64> = (0..4093).map(|i| stream.uniform(i) * 2.0 - 1.0).collect();
    let count = shape.iter().product();
    let values = some.iter().copied().cycle().take(count).collect();
    host_tensor(values, shape, dtype, device)
}

fn median(device: &Device, work: &dyn Fn() -> Result<()>) -> Result<f64> {
    work()?;
    synchronize(device)?;
    let mut seconds = Vec::with_capacity(TRIES);
    for _ in 0..TRIES {
        let begun = Instant::now();
        with_autorelease_pool(|| -> Result<()> {
            for _ in 0..LAUNCHES {
                work()?;
            }
            synchronize(device)
        })?;
        seconds.push(begun.elapsed().as_secs_f64() / LAUNCHES as f64);
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[TRIES / 2])
}

fn by_element(x: &Tensor, note: &mut Note) -> Result<()> {
    let (dy, y) = (x.force_contiguous()?, x.force_contiguous()?);
    let bias = drawn(&[COLUMNS], DType::F32, x.device())?;
    note("copy", 2.0, &|| Ok(x.force_contiguous().map(drop)?))?;
    note("gelu", 2.0, &|| {
        elementwise::apply(Function::Gelu, x).map(drop)
    })?;
    note("gelu backward", 3.0, &|| {
        elementwise::apply_backward(Function::Gelu, x, &dy).map(drop)
    })?;
    note("silu", 2.0, &|| {
        elementwise::apply(Function::Silu, x).map(drop)
    })?;
    note("bias", 2.0, &|| elementwise::add_bias(&y, &bias, None))?;
    note("bias and residual", 3.0, &|| {
        elementwise::add_bias(&y, &bias, Some(x))
    })?;
    note("bias and gelu", 2.0, &|| {
        elementwise::bias_gelu(x, &bias).map(drop)
    })?;
    note("bias and gelu backward", 4.0, &|| {
        elementwise::bias_gelu_backward(&y, &bias, &dy)
    })?;
    note("add", 3.0, &|| elementwise::add_to(&y, x))?;
    let streams: Vec<Rng> = (0..ROWS as u64).map(Rng::new).collect();
    let words = elementwise::words(&streams, x)?;
    note("dropout", 2.0, &|| {
        elementwise::drop_by(x, &words, 0.1, 1.1).map(drop)
    })
}

fn by_row(x: &Tensor, note: &mut Note) -> Result<()> {
    let one = drawn(&[COLUMNS], DType::F32, x.device())?;
    let dy = x.force_contiguous()?;
    note("layer norm", 2.0, &|| {
        row_kernels::layer_norm(x, &one, &one, 1e-5).map(drop)
    })?;
    note("layer norm backward", 5.0, &|| {
        row_kernels::layer_norm_backward(x, &one, &dy, None, 1e-5).map(drop)
    })?;
    note("column sums", 1.0, &|| {
        row_kernels::column_sums(x).map(drop)
    })?;
    let squares = x.force_contiguous()?.reshape(((), TOKENS, TOKENS))?;
    let seen = AttentionMask {
        scale: 0.125,
        queries: (TOKENS, 0),
        keys: TOKENS,
        heads: 8,
        causal: false,
        lengths: None,
    };
    note("softmax", 2.0, &|| row_kernels::softmax(&squares, &seen))?;
    let p = x.reshape(((), TOKENS, TOKENS))?;
    note("softmax backward", 3.0, &|| {
        row_kernels::softmax_backward(&p, &squares, 0.125)
    })
}

fn by_plane(x: &Tensor, note: &mut Note) -> Result<()> {
    let sizes = Groups {
        channels: 64,
        pixels: 4096,
        each: 2,
        function: 1,
    };
    let images = x.reshape(((), 64, 64, 64))?;
    let (one, dy) = (
        drawn(&[64], DType::F32, x.device())?,
        images.force_contiguous()?,
    );
    let moments = feature_maps::group_moments(&images, sizes, 1e-5)?;
    note("group norm", 3.0, &|| {
        let moments = feature_maps::group_moments(&images, sizes, 1e-5)?;
        feature_maps::group_norm(&images, &moments, &one, &one, sizes).map(drop)
    })?;
    note("group norm backward", 5.0, &|| {
        feature_maps::group_norm_backward(&images, &moments, &one, &one, &dy, sizes).map(drop)
    })?;
    note("swap axes", 2.0, &|| {
        elementwise::swap_axes(x, [64, ROWS / 64, COLUMNS]).map(drop)
    })
}

/// Copies between layouts, and the same by candle.
fn by_layout(x: &Tensor, note: &mut Note) -> Result<()> {
    let (turned, part) = (x.t()?, x.narrow(1, 4, COLUMNS / 2)?);
    let channels = x.reshape(((), 64, 32, 32))?.permute((0, 2, 3, 1))?;
    let parts = [part.force_contiguous()?, part.force_contiguous()?];
    let parts = [&parts[0], &parts[1]];
    let zeros = (COLUMNS / 4, COLUMNS / 4);
    note("transpose", 2.0, &|| {
        copies::try_contiguous(&turned).map(drop)
    })?;
    note("transpose by candle", 2.0, &|| {
        Ok(turned.force_contiguous().map(drop)?)
    })?;
    note("channels last", 2.0, &|| {
        copies::try_contiguous(&channels).map(drop)
    })?;
    note("channels last by candle", 2.0, &|| {
        Ok(channels.force_contiguous().map(drop)?)
    })?;
    note("narrow", 1.0, &|| copies::try_contiguous(&part).map(drop))?;
    note("narrow by candle", 1.0, &|| {
        Ok(part.force_contiguous().map(drop)?)
    })?;
    note("join", 2.0, &|| copies::try_joined(&parts, 1).map(drop))?;
    note("join by candle", 2.0, &|| {
        copies::joined_by_candle(&parts, 1).map(drop)
    })?;
    note("pad", 1.5, &|| {
        copies::padded(parts[0], 1, zeros.0, zeros.1).map(drop)
    })?;
    note("pad by candle", 1.5, &|| {
        let padded = parts[0].pad_with_zeros(1, zeros.0, zeros.1);
        Ok(padded.map(drop)?)
    })
}

/// A quantized matrix of the size of `x`. The bytes of its codes and scales count as well.
fn decoded(x: &Tensor, note: &mut Note) -> Result<()> {
    let blocks = COLUMNS / 64;
    let codes = |bytes: usize| Tensor::ones((ROWS, blocks * bytes), DType::U8, x.device());
    let scales = drawn(&[ROWS, blocks], DType::F32, x.device())?;
    for (name, bytes) in [("dequantize 8 bits", 64), ("dequantize 4 bits", 32)] {
        let codes = codes(bytes)?;
        let read = (bytes + size_of::<f32>()) as f64 / (64 * x.dtype().size_in_bytes()) as f64;
        note(name, 1.0 + read, &|| {
            elementwise::dequantize(&codes, &scales, None, COLUMNS, x.dtype()).map(drop)
        })?;
    }
    Ok(())
}

fn of_many(x: &Tensor, note: &mut Note) -> Result<()> {
    let [p, m, v] = [x.force_contiguous()?, x.force_contiguous()?, x.abs()?];
    let moved = || Moved {
        written: [&p, &m, &v],
        gradient: x,
        keep: 1.0,
    };
    let numbers = AdamNumbers {
        rate: 1e-3,
        betas: (0.9, 0.999),
        factor: 1.0,
        root: 1.0,
        epsilon: 1e-8,
    };
    note("adamw", 7.0, &|| multi_tensor::adamw(&[moved()], &numbers))?;
    note("sgd", 5.0, &|| {
        multi_tensor::sgd(&[moved()], 1e-3, 0.9, 1.0)
    })?;
    note("accumulate", 3.0, &|| multi_tensor::accumulate(&[(&p, x)]))?;
    let all = [x.clone()];
    note("norm of gradients", 1.0, &|| {
        multi_tensor::square_sums(&all).map(drop)
    })?;
    let scores = x.force_contiguous()?;
    let targets = Tensor::new(vec![1u32; ROWS], x.device())?;
    note("cross-entropy", 2.0, &|| {
        multi_tensor::cross_entropy_of(&scores, &targets, 1.0, 0.0).map(drop)
    })?;
    Ok(())
}
