//! Measures the kernels that only move memory, next to a copy by the device: the bytes that must be
//! read and written once, divided by the time.

use super::copies;
use super::elementwise::{self, Coding, Function, Gate};
use super::feature_maps::{self, Groups};
use super::grouped_heads::{self, GroupMask};
use super::multi_tensor::{self, AdamNumbers, Moved};
use super::rotated_heads::{self, RotatedHeads};
use super::row_kernels::{self, AttentionMask, RmsNormInputs, RmsNormShape};
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
        of_decoders(&x, &mut note)?;
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
        row_kernels::layer_norm_backward(x, &one, &dy, None, 1e-5, true).map(drop)
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
    })?;
    by_group(x, note)
}

/// Attention with shared keys. The rows are the queries of many heads at the last token, which sees
/// all keys.
fn by_group(x: &Tensor, note: &mut Note) -> Result<()> {
    let groups = grouped_heads::Groups {
        samples: ROWS * COLUMNS / (TOKENS * TOKENS),
        tokens: TOKENS,
        key_heads: 1,
        share: TOKENS,
        head: 64,
    };
    let mask = GroupMask {
        groups,
        scale: 0.125,
        soft_cap: None,
        window: None,
        starts: None,
        first: TOKENS - 1,
        begin: 0,
    };
    let (p, dp) = (
        x.force_contiguous()?.reshape(((), TOKENS, TOKENS))?,
        x.force_contiguous()?.reshape(((), TOKENS, TOKENS))?,
    );
    note("grouped softmax", 2.0, &|| mask.softmax(&p))?;
    note("grouped softmax backward", 4.0, &|| {
        mask.softmax_backward(&p, &dp)
    })?;
    // As many values, of two heads that share one of keys.
    let few = grouped_heads::Groups {
        samples: ROWS * COLUMNS / (TOKENS * 256),
        share: 2,
        ..groups
    };
    let qkv = x.reshape((few.samples, TOKENS, 256))?;
    note("grouped heads", 2.0, &|| few.split_all(&qkv).map(drop))
}

/// Operations of today's language models.
fn of_decoders(x: &Tensor, note: &mut Note) -> Result<()> {
    let shape = RmsNormShape {
        epsilon: 1e-6,
        offset: 0.0,
    };
    let dy = x.force_contiguous()?;
    // Rows of the width of a model, and of the width of a head.
    let norms = [
        ("rms norm", "rms norm backward", COLUMNS),
        ("rms norm of heads", "rms norm of heads backward", 128),
    ];
    for (forward, backward, width) in norms {
        let (x, dy) = (x.reshape(((), width))?, dy.reshape(((), width))?);
        let weight = drawn(&[width], DType::F32, x.device())?;
        note(forward, 2.0, &|| {
            row_kernels::rms_norm(&x, &weight, shape).map(drop)
        })?;
        let inputs = RmsNormInputs {
            x: &x,
            weight: &weight,
            dy: &dy,
            held: None,
        };
        note(backward, 3.0, &|| {
            row_kernels::rms_norm_backward(&inputs, shape, false).map(drop)
        })?;
    }
    note("gated", 3.0, &|| {
        elementwise::gated(x, &dy, Gate::Silu).map(drop)
    })?;
    note("gated backward", 5.0, &|| {
        elementwise::gated_backward(x, &dy, &dy, Gate::Silu).map(drop)
    })?;
    rotations(x, note)
}

/// Four heads of queries, two of keys and two of values per token.
fn rotations(x: &Tensor, note: &mut Note) -> Result<()> {
    let joined = x.reshape(((), TOKENS, COLUMNS))?;
    let table = drawn(&[TOKENS, 64], DType::F32, x.device())?;
    let heads = RotatedHeads {
        tokens: TOKENS,
        heads: 4,
        key_heads: 2,
        head_width: 128,
        tables: Some([&table, &table]),
    };
    let part = |from: usize, width: usize| joined.narrow(2, from, width)?.force_contiguous();
    let parts = [part(0, 512)?, part(512, 256)?, part(768, 256)?];
    note("rotated heads", 2.0, &|| {
        rotated_heads::join(&parts, &heads).map(drop)
    })?;
    note("rotated heads backward", 2.0, &|| {
        rotated_heads::split(&joined, &heads).map(drop)
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
    let kinds = [
        ("dequantize 8 bits", 64, Coding::Even),
        ("dequantize 4 bits", 32, Coding::Even),
        ("dequantize NF4", 32, Coding::Nf4),
    ];
    for (name, bytes, coding) in kinds {
        let codes = codes(bytes)?;
        let read = (bytes + size_of::<f32>()) as f64 / (64 * x.dtype().size_in_bytes()) as f64;
        note(name, 1.0 + read, &|| {
            elementwise::dequantize(&codes, coding, &scales, None, COLUMNS, x.dtype()).map(drop)
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
