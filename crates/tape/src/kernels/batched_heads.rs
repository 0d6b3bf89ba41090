//! Batched products of all heads on CUDA, which read and write [samples, tokens, parts heads head]
//! or matrices of weights directly: cuBLAS gets the address of each head's matrix, so that heads
//! need not be copied. All addresses of a call are sent to the device together.

use super::cuda_error::failed;
use super::elementwise::Heads;
use super::tensor_cores;
use super::tiling::{Side, Work};
use super::{cublas, uninit};
use crate::error::Result;
use candle_core::cuda_backend::cudarc::cublas::sys;
use candle_core::cuda_backend::cudarc::driver::{CudaSlice, DevicePtr};
use candle_core::{Tensor, cuda_backend::CudaDevice};
use std::ffi::c_void;

/// One matrix per head, as cuBLAS reads it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Matrices {
    /// Index of the first address.
    first: usize,
    /// Elements between two rows.
    step: usize,
    /// Transposed.
    turned: bool,
}

impl Matrices {
    /// The transpose.
    pub fn t(self) -> Self {
        Matrices {
            turned: !self.turned,
            ..self
        }
    }
}

/// The addresses of matrices, and their common sizes and type.
pub(crate) struct Table {
    sizes: Heads,
    device: CudaDevice,
    kind: sys::cudaDataType,
    bytes: usize,
    addresses: Vec<u64>,
    uploaded: Option<CudaSlice<u64>>,
}

impl Table {
    /// An empty table for heads of the type of `like`.
    pub fn new(sizes: Heads, like: &Tensor) -> Result<Self> {
        let (_, kind, device) = cublas::place(like)?;
        Ok(Table {
            sizes,
            device,
            kind,
            bytes: like.dtype().size_in_bytes(),
            addresses: Vec::new(),
            uploaded: None,
        })
    }

    /// Number of heads in all samples.
    fn count(&self) -> usize {
        self.sizes.samples * self.sizes.heads
    }

    /// Part `part` of `parts` of `whole` [samples, tokens, parts heads head], beginning with row
    /// `from`.
    pub fn heads(
        &mut self,
        whole: &Tensor,
        part: usize,
        parts: usize,
        from: usize,
    ) -> Result<Matrices> {
        let (base, s) = (cublas::place(whole)?.0, self.sizes);
        let (first, step) = (self.addresses.len(), parts * s.heads * s.head);
        for sample in 0..s.samples {
            for head in 0..s.heads {
                let at = (sample * s.tokens + from) * step + (part * s.heads + head) * s.head;
                self.addresses.push(base + (at * self.bytes) as u64);
            }
        }
        Ok(Matrices {
            first,
            step,
            turned: false,
        })
    }

    /// One matrix of `rows` and `columns` per head, one after the other in `whole`.
    pub fn squares(&mut self, whole: &Tensor, rows: usize, columns: usize) -> Result<Matrices> {
        let (base, first) = (cublas::place(whole)?.0, self.addresses.len());
        let each = (rows * columns * self.bytes) as u64;
        let count = self.count() as u64;
        self.addresses.extend((0..count).map(|i| base + i * each));
        Ok(Matrices {
            first,
            step: columns,
            turned: false,
        })
    }

    /// True if every matrix begins at a multiple of 16 bytes.
    fn whole_words(&self) -> bool {
        self.addresses.iter().all(|at| at.is_multiple_of(16))
    }

    /// Sends the addresses to the device. No more can be added afterwards.
    pub fn upload(&mut self) -> Result<()> {
        self.uploaded = Some(self.device.clone_htod(&self.addresses)?);
        Ok(())
    }

    /// `out = a b + keep out` for every head: `a` is [m, k], `b` is [k, n]. `sizes` are m, n and k.
    pub fn multiply(
        &self,
        sizes: [usize; 3],
        a: Matrices,
        b: Matrices,
        out: Matrices,
        keep: f32,
    ) -> Result<()> {
        let uploaded = self.uploaded.as_ref();
        let uploaded = uploaded.ok_or_else(|| failed("the matrix addresses are not on the GPU"))?;
        let (start, _guard) = uploaded.device_ptr(uploaded.stream());
        let at = |matrices: Matrices| start + 8 * matrices.first as u64;
        let side = |matrices: Matrices| Side {
            address: at(matrices),
            step: matrices.step,
            turned: matrices.turned,
        };
        let work = Work {
            sizes,
            a: side(a),
            b: side(b),
            c: side(out),
            keep,
            many: Some(self.count()),
            strides: None,
        };
        let single = self.kind == sys::cudaDataType::CUDA_R_32F;
        if single && self.whole_words() && tensor_cores::multiply(&work, &self.device)? {
            return Ok(());
        }
        let cublas = self.device.cublas_handle();
        // SAFETY: the addresses are those of matrices inside live tensors on the handle's own
        // stream, in whose order memory is freed; sizes and strides are those of the matrices.
        unsafe {
            sys::cublasGemmBatchedEx(
                *cublas.handle(),
                cublas::operation(b.turned),
                cublas::operation(a.turned),
                sizes[1] as i32,
                sizes[0] as i32,
                sizes[2] as i32,
                cublas::factor(&1.0),
                at(b) as *const *const c_void,
                self.kind,
                b.step as i32,
                at(a) as *const *const c_void,
                self.kind,
                a.step as i32,
                cublas::factor(&keep),
                at(out) as *const *mut c_void,
                self.kind,
                out.step as i32,
                self.count() as i32,
                sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        }
        .result()
        .map_err(failed)
    }

    /// Memory for one matrix of `rows` and `columns` per head.
    pub fn scratch(&self, rows: usize, columns: usize, like: &Tensor) -> Result<Tensor> {
        uninit(&[self.count(), rows, columns], like.dtype(), like)
    }
}
