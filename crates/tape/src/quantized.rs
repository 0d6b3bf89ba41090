//! A frozen matrix with 8 or 4 bits per value. Each row is cut into blocks of 64 values that share
//! one f32 scale. A value is `code * scale`, with `code` in -127..=127 or -7..=7 and `scale` the
//! block's largest absolute value over 127 or 7, so the error of a value is at most half a scale.
//! Bytes per value: 1 + 1/16 or 1/2 + 1/16.
//!
//! NF4 (Dettmers et al. 2023, QLoRA) also has 4 bits per value. A value is `NF4[code] * scale`,
//! with `code` in 0..=15 and `scale` the block's largest absolute value. The 16 levels are
//! quantiles of the normal distribution, so that each code is about as frequent as the others in a
//! matrix of normally distributed values. Its mean squared error on such a matrix is lower than
//! that of the evenly spaced codes (`tests/tape/quantized.rs`).
//!
//! The last block of a row is padded with zeros. Eight bits: byte `128 + code`. Four bits: byte `j`
//! of a block holds `8 + code` of value `j` in its low half and of value `j + 32` in its high half.
//! NF4 stores `code` itself in the same places, and pads with the code of zero.
//!
//! A large matrix is never in floating point at once: it is read by rows.

use crate::cpu::{Float, View, buffer, skips_arithmetic, to_tensor};
use crate::device_sync::to_host;
use crate::error::{Result, TapeError};
use crate::inplace::to_f64;
use crate::kernels::copies::{contiguous, joined};
use crate::kernels::elementwise::{self, Coding};
use candle_core::{CpuStorage, DType, Device, Storage, Tensor};
use rayon::prelude::*;
use std::fmt;

/// Values per scale.
const BLOCK: usize = 64;
/// Values decoded at once: 256 kB in f32.
const TILE: usize = 64 * 1024;
/// Values that a thread encodes at once: 2 MB in f64.
const ENCODED: usize = 1 << 18;
/// Values that a GPU decodes at once: 16 MB in f32, and 128 MB in bf16 on CUDA, whose GPUs need
/// larger products. The tests have small matrices of several tiles.
const DEVICE_TILE: usize = if cfg!(test) { 4096 } else { 4 << 20 };
const CUDA_TILE: usize = 64 << 20;

/// The levels of NF4, from Appendix E of the QLoRA paper: quantiles of the normal distribution
/// divided by the largest one. The kernel has the same table.
#[rustfmt::skip]
const NF4: [f64; 16] = [
    -1.0, -0.696_192_800_998_687_7, -0.525_073_051_452_636_7, -0.394_917_488_098_144_53,
    -0.284_441_381_692_886_35, -0.184_773_430_228_233_34, -0.091_050_036_251_544_95, 0.0,
    0.079_580_299_556_255_34, 0.160_930_201_411_247_25, 0.246_112_301_945_686_34,
    0.337_915_241_718_292_24, 0.440_709_829_330_444_34, 0.562_617_003_917_694_1,
    0.722_956_836_223_602_3, 1.0,
];

/// How a value is stored. It is displayed as in the setting `quantize`: `8`, `4` or `nf4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bits {
    /// One byte per value.
    Eight,
    /// Two values per byte, evenly spaced.
    Four,
    /// Two values per byte, at the quantiles of the normal distribution.
    Nf4,
}

impl Bits {
    /// The largest absolute value of a block, divided by its scale.
    fn top(self) -> f64 {
        match self {
            Bits::Eight => 127.0,
            Bits::Four => 7.0,
            Bits::Nf4 => 1.0,
        }
    }

    fn block_bytes(self) -> usize {
        match self {
            Bits::Eight => BLOCK,
            Bits::Four | Bits::Nf4 => BLOCK / 2,
        }
    }
}

impl fmt::Display for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bits::Eight => "8",
            Bits::Four => "4",
            Bits::Nf4 => "nf4",
        })
    }
}

/// A frozen matrix [rows, columns] as codes and scales. Clones share them.
#[derive(Debug, Clone)]
pub struct Quantized {
    bits: Bits,
    rows: usize,
    columns: usize,
    /// u8 [rows, bytes per row].
    codes: Tensor,
    /// f32 [rows, blocks per row].
    scales: Tensor,
}

impl Quantized {
    /// Quantizes `weight` [rows, columns] on its device.
    ///
    /// # Errors
    /// `weight` is not a matrix, is empty, or has values that are not finite.
    pub fn from_weight(weight: &Tensor, bits: Bits) -> Result<Self> {
        let (rows, columns) = match *weight.dims() {
            [rows, columns] if rows > 0 && columns > 0 => (rows, columns),
            _ => {
                return Err(TapeError::Shape {
                    op: "quantize",
                    what: "weight".to_owned(),
                    expected: "a matrix with at least one row and one column".to_owned(),
                    found: weight.shape().clone(),
                });
            }
        };
        let blocks = columns.div_ceil(BLOCK);
        let mut codes = vec![0; rows * blocks * bits.block_bytes()];
        let mut scales = vec![0.0; rows * blocks];
        let (step, host) = ((ENCODED / columns).max(1), to_host(weight)?);
        let parts = codes.par_chunks_mut(step * blocks * bits.block_bytes());
        let parts = parts.zip(scales.par_chunks_mut(step * blocks)).enumerate();
        let encoded = parts.map(|(at, (codes, scales))| {
            let first = at * step;
            let tile = to_f64(&host.narrow(0, first, step.min(rows - first))?)?;
            if let Some(at) = tile.iter().position(|v| !v.is_finite()) {
                let (op, row) = ("quantize", first + at / columns);
                return Err(TapeError::NotFinite { op, row });
            }
            let codes = codes.chunks_exact_mut(blocks * bits.block_bytes());
            let rows = codes.zip(scales.chunks_exact_mut(blocks));
            for ((codes, scales), row) in rows.zip(tile.chunks_exact(columns)) {
                let blocks = codes.chunks_exact_mut(bits.block_bytes()).zip(scales);
                for ((codes, scale), block) in blocks.zip(row.chunks(BLOCK)) {
                    *scale = encode(block, bits, codes);
                }
            }
            Ok(())
        });
        // The first row that is not finite is the one that is named.
        let encoded: Vec<Result<()>> = encoded.collect();
        encoded.into_iter().collect::<Result<()>>()?;
        let device = weight.device();
        Ok(Quantized {
            bits,
            rows,
            columns,
            codes: Tensor::from_vec(codes, (rows, blocks * bits.block_bytes()), device)?,
            scales: Tensor::from_vec(scales, (rows, blocks), device)?,
        })
    }

    /// A matrix of `shape` [rows, columns] whose scales are zero, in almost no time. On the CPU it
    /// takes no memory until something is written to it.
    pub fn of_zeros(bits: Bits, shape: [usize; 2], device: &Device) -> Result<Self> {
        let [rows, columns] = shape;
        let blocks = columns.div_ceil(BLOCK);
        Ok(Quantized {
            bits,
            rows,
            columns,
            codes: Tensor::zeros((rows, blocks * bits.block_bytes()), DType::U8, device)?,
            scales: Tensor::zeros((rows, blocks), DType::F32, device)?,
        })
    }

    /// Makes a matrix of `shape` [rows, columns] from saved codes and scales.
    ///
    /// # Errors
    /// The codes and scales belong to another shape or to another number of bits.
    pub fn restore(bits: Bits, shape: [usize; 2], codes: Tensor, scales: Tensor) -> Result<Self> {
        let [rows, columns] = shape;
        let blocks = columns.div_ceil(BLOCK);
        let row_bytes = blocks * bits.block_bytes();
        let check = |what: &str, tensor: &Tensor, width: usize, dtype: DType| {
            if rows * width > 0 && tensor.dims() == [rows, width] && tensor.dtype() == dtype {
                return Ok(());
            }
            Err(TapeError::Shape {
                op: "quantized",
                what: what.to_owned(),
                expected: format!("[{rows}, {width}] of {dtype:?}"),
                found: tensor.shape().clone(),
            })
        };
        check("codes", &codes, row_bytes, DType::U8)?;
        check("scales", &scales, blocks, DType::F32)?;
        Ok(Quantized {
            bits,
            rows,
            columns,
            codes: contiguous(&codes)?,
            scales: contiguous(&scales)?,
        })
    }

    /// The same matrix on another device.
    pub fn to_device(&self, device: &Device) -> Result<Self> {
        Ok(Quantized {
            codes: self.codes.to_device(device)?,
            scales: self.scales.to_device(device)?,
            ..self.clone()
        })
    }

    /// The codes and scales with their names in a file: `NAME.codes`, `NAME.scales`.
    pub fn named(&self, name: &str) -> [(String, Tensor); 2] {
        [
            (format!("{name}.codes"), self.codes.clone()),
            (format!("{name}.scales"), self.scales.clone()),
        ]
    }

    /// Rows and columns.
    pub fn dims(&self) -> [usize; 2] {
        [self.rows, self.columns]
    }

    /// How a value is stored.
    pub fn bits(&self) -> Bits {
        self.bits
    }

    /// Bytes of codes and scales.
    pub fn bytes(&self) -> u64 {
        (self.codes.elem_count() + 4 * self.scales.elem_count()) as u64
    }

    pub(crate) fn parts(&self) -> [&Tensor; 2] {
        [&self.codes, &self.scales]
    }

    /// The ranges of rows that are decoded at once, in order. They depend on the shape only.
    pub(crate) fn tiles(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        self.ranges(tile_rows(self.columns))
    }

    /// The ranges of rows that a GPU decodes at once, in order. They depend on the shape only.
    pub(crate) fn device_tiles(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let values = if self.codes.device().is_cuda() {
            CUDA_TILE
        } else {
            DEVICE_TILE
        };
        self.ranges((values / self.columns).max(1))
    }

    fn ranges(&self, step: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let rows = self.rows;
        let firsts = (0..rows).step_by(step);
        firsts.map(move |first| (first, step.min(rows - first)))
    }

    /// Rows `first..first + count` as a tensor [count, columns], by the kernel of a GPU.
    pub(crate) fn device_tile(&self, first: usize, count: usize, dtype: DType) -> Result<Tensor> {
        let codes = self.codes.narrow(0, first, count)?;
        let scales = self.scales.narrow(0, first, count)?;
        elementwise::dequantize(&codes, self.coding(), &scales, None, self.columns, dtype)
    }

    fn coding(&self) -> Coding {
        match self.bits {
            Bits::Eight | Bits::Four => Coding::Even,
            Bits::Nf4 => Coding::Nf4,
        }
    }

    /// The rows `ids` as a tensor [ids, columns] in f32, by the kernel of a GPU. All ids must be
    /// inside the matrix.
    pub(crate) fn device_rows(&self, ids: &[u32]) -> Result<Tensor> {
        let ids = Tensor::new(ids, self.codes.device())?;
        elementwise::dequantize(
            &self.codes,
            self.coding(),
            &self.scales,
            Some(&ids),
            self.columns,
            DType::F32,
        )
    }

    /// True if the kernel of a GPU can index this many rows of the matrix, and the matrix itself.
    pub(crate) fn is_indexable(&self, rows: usize) -> bool {
        let values = rows
            .max(self.rows)
            .saturating_mul(self.columns.next_multiple_of(BLOCK));
        values < 1 << 31
    }

    /// Rows `first..first + count` as a tensor [count, columns], by tensor primitives on the
    /// device.
    pub(crate) fn tile(&self, first: usize, count: usize, dtype: DType) -> Result<Tensor> {
        if skips_arithmetic() {
            let device = self.codes.device();
            return Ok(Tensor::zeros((count, self.columns), dtype, device)?);
        }
        let codes = self.codes.narrow(0, first, count)?;
        self.values(&codes, &self.scales.narrow(0, first, count)?, dtype)
    }

    /// The whole matrix, dequantized.
    pub fn whole(&self, dtype: DType) -> Result<Tensor> {
        let tiles = self.tiles();
        let tiles = tiles.map(|(first, count)| self.tile(first, count, dtype));
        let tiles = tiles.collect::<Result<Vec<_>>>()?;
        joined(&tiles.iter().collect::<Vec<_>>(), 0)
    }

    /// The rows `ids` as a tensor [ids, columns] in f32. All ids must be inside the matrix.
    pub(crate) fn rows(&self, ids: &[u32], fused: bool) -> Result<Tensor> {
        if fused {
            let mut rows = buffer::<f32>(ids.len() * self.columns);
            self.read(|at| ids[at] as usize, &mut rows)?;
            return to_tensor(rows, &[ids.len(), self.columns]);
        }
        let ids = Tensor::new(ids, self.codes.device())?;
        let codes = self.codes.index_select(&ids, 0)?;
        self.values(&codes, &self.scales.index_select(&ids, 0)?, DType::F32)
    }

    fn values(&self, codes: &Tensor, scales: &Tensor, dtype: DType) -> Result<Tensor> {
        let (rows, blocks) = scales.dims2()?;
        // A type that holds every code exactly and that all devices can convert to an index.
        let in_type = match self.bits {
            Bits::Eight | Bits::Four => dtype,
            Bits::Nf4 => DType::F32,
        };
        let codes = contiguous(codes)?.to_dtype(in_type)?.reshape((
            rows,
            blocks,
            self.bits.block_bytes(),
        ))?;
        let codes = match self.bits {
            Bits::Eight => (codes - 128.0)?,
            Bits::Four => (halves(&codes)? - 8.0)?,
            Bits::Nf4 => {
                let codes = halves(&codes)?.to_dtype(DType::U32)?.flatten_all()?;
                let levels = Tensor::new(&NF4, &Device::Cpu)?.to_dtype(dtype)?;
                let levels = levels.to_device(codes.device())?.index_select(&codes, 0)?;
                levels.reshape((rows, blocks, BLOCK))?
            }
        };
        let scales = contiguous(scales)?.to_dtype(dtype)?.unsqueeze(2)?;
        let values = codes.broadcast_mul(&scales)?;
        let values = values.reshape((rows, blocks * BLOCK))?;
        contiguous(&values.narrow(1, 0, self.columns)?)
    }

    /// Writes row `row(i)` to the i-th row of `out`. On the CPU only.
    pub(crate) fn read<T: Float>(
        &self,
        row: impl Fn(usize) -> usize + Sync,
        out: &mut [T],
    ) -> Result<()> {
        let (guard, _) = self.codes.storage_and_layout();
        let Storage::Cpu(CpuStorage::U8(codes)) = &*guard else {
            return Err(TapeError::Type {
                op: "quantized",
                dtype: self.codes.dtype(),
            });
        };
        let scales = View::<f32>::new("quantized", &self.scales)?;
        let blocks = self.columns.div_ceil(BLOCK);
        let (row_bytes, bits, scales) = (blocks * self.bits.block_bytes(), self.bits, &*scales);
        out.par_chunks_mut(self.columns)
            .enumerate()
            .for_each(|(at, out)| {
                let row = row(at);
                let codes = codes[row * row_bytes..][..row_bytes].chunks_exact(bits.block_bytes());
                let scales = &scales[row * blocks..][..blocks];
                for ((out, codes), &scale) in out.chunks_mut(BLOCK).zip(codes).zip(scales) {
                    decode(codes, bits, T::from_constant(f64::from(scale)), out);
                }
            });
        Ok(())
    }
}

/// The low halves of the bytes of each block, then the high ones: [.., bytes] to [.., 2 bytes].
fn halves(bytes: &Tensor) -> Result<Tensor> {
    let high = (bytes / 16.0)?.floor()?;
    let low = (bytes - (&high * 16.0)?)?;
    joined(&[&low, &high], 2)
}

fn tile_rows(columns: usize) -> usize {
    (TILE / columns.max(1)).max(1)
}

/// Writes the codes of one block and returns its scale.
fn encode(block: &[f64], bits: Bits, codes: &mut [u8]) -> f32 {
    let largest = block.iter().fold(0.0f64, |l, v| l.max(v.abs()));
    let scale = (largest / bits.top()) as f32;
    let inverse = if scale > 0.0 {
        1.0 / f64::from(scale)
    } else {
        0.0
    };
    let code = |at: usize| {
        let value = block.get(at).copied().unwrap_or(0.0);
        (value * inverse).round().clamp(-bits.top(), bits.top())
    };
    let level = |at: usize| {
        let value = block.get(at).copied().unwrap_or(0.0);
        nearest_level(value * inverse)
    };
    for (i, byte) in codes.iter_mut().enumerate() {
        *byte = match bits {
            Bits::Eight => (code(i) + 128.0) as u8,
            Bits::Nf4 => level(i) | (level(i + BLOCK / 2) << 4),
            Bits::Four => {
                let (low, high) = (code(i) + 8.0, code(i + BLOCK / 2) + 8.0);
                low as u8 | ((high as u8) << 4)
            }
        };
    }
    scale
}

/// The code of the level of NF4 that is nearest to `value`.
fn nearest_level(value: f64) -> u8 {
    let above = NF4
        .partition_point(|level| *level < value)
        .clamp(1, NF4.len() - 1);
    let is_nearer_below = value - NF4[above - 1] <= NF4[above] - value;
    (above - usize::from(is_nearer_below)) as u8
}

/// Writes the values of one block, as many as `out` has.
fn decode<T: Float>(codes: &[u8], bits: Bits, scale: T, out: &mut [T]) {
    let value = |code: f64| T::from_constant(code) * scale;
    match bits {
        Bits::Eight => out
            .iter_mut()
            .zip(codes)
            .for_each(|(out, &code)| *out = value(f64::from(code) - 128.0)),
        Bits::Four => decode_halves(codes, out, |code| value(f64::from(code) - 8.0)),
        Bits::Nf4 => {
            let values = NF4.map(value);
            decode_halves(codes, out, |code| values[usize::from(code & 15)]);
        }
    }
}

/// Writes `value` of the low halves of the bytes, then of the high ones, as many as `out` has.
fn decode_halves<T>(codes: &[u8], out: &mut [T], value: impl Fn(u8) -> T) {
    let half = out.len().min(BLOCK / 2);
    let (low, high) = out.split_at_mut(half);
    low.iter_mut()
        .zip(codes)
        .for_each(|(out, &code)| *out = value(code & 15));
    high.iter_mut()
        .zip(codes)
        .for_each(|(out, &code)| *out = value(code >> 4));
}
