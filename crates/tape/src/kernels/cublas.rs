//! Matrix products by cuBLAS on candle's own handle and stream, or on tensor cores if that is
//! faster. cuBLAS is column-major, so a row-major product is computed as `cᵀ = bᵀ aᵀ`.

use super::cuda_error::failed;
use super::tensor_cores;
use super::tiling::{Side, Work};
use super::uninit;
use crate::error::{Result, TapeError};
use candle_core::cuda_backend::cudarc::cublas::result::{gemm_ex, gemm_strided_batched_ex};
use candle_core::cuda_backend::cudarc::cublas::sys;
use candle_core::cuda_backend::cudarc::driver::DevicePtr;
use candle_core::cuda_backend::{CudaDevice, CudaStorageSlice};
use candle_core::{DType, Storage, Tensor};
use std::ffi::c_void;

/// One operand as cuBLAS reads it.
struct Operand {
    address: u64,
    kind: sys::cudaDataType,
    /// Elements between two rows, or between two columns if transposed.
    step: i32,
    /// Column-major.
    turned: bool,
    /// Elements between two matrices of a batch.
    stride: i64,
}

impl Operand {
    fn side(&self) -> Side {
        Side {
            address: self.address,
            step: self.step as usize,
            turned: self.turned,
        }
    }
}

fn refused(tensor: &Tensor) -> TapeError {
    TapeError::Device(format!(
        "a matrix product cannot read a tensor of shape {:?} with strides {:?}",
        tensor.dims(),
        tensor.stride()
    ))
}

/// The address, element type and device of a tensor.
pub(super) fn place(tensor: &Tensor) -> Result<(u64, sys::cudaDataType, CudaDevice)> {
    let (guard, layout) = tensor.storage_and_layout();
    let Storage::Cuda(storage) = &*guard else {
        return Err(refused(tensor));
    };
    let stream = storage.device.cuda_stream();
    let (base, kind) = match &storage.slice {
        CudaStorageSlice::F32(slice) => {
            (slice.device_ptr(&stream).0, sys::cudaDataType::CUDA_R_32F)
        }
        CudaStorageSlice::BF16(slice) => {
            (slice.device_ptr(&stream).0, sys::cudaDataType::CUDA_R_16BF)
        }
        CudaStorageSlice::F16(slice) => {
            (slice.device_ptr(&stream).0, sys::cudaDataType::CUDA_R_16F)
        }
        _ => return Err(refused(tensor)),
    };
    let address = base + (layout.start_offset() * tensor.dtype().size_in_bytes()) as u64;
    Ok((address, kind, storage.device.clone()))
}

fn operand(tensor: &Tensor) -> Result<(Operand, CudaDevice)> {
    let (address, kind, device) = place(tensor)?;
    let layout = tensor.layout();
    let (dims, steps) = (layout.dims(), layout.stride());
    let (rows, columns) = (dims[dims.len() - 2], dims[dims.len() - 1]);
    let (across, along) = (steps[steps.len() - 2], steps[steps.len() - 1]);
    let by_rows = (along == 1 || columns == 1) && (across >= columns || rows == 1);
    let by_columns = (across == 1 || rows == 1) && (along >= rows || columns == 1);
    let (step, turned) = match (by_rows, by_columns) {
        (true, _) => (across.max(columns), false),
        (false, true) => (along.max(rows), true),
        (false, false) => return Err(refused(tensor)),
    };
    let stride = if dims.len() == 3 { steps[0] } else { 0 };
    let operand = Operand {
        address,
        kind,
        step: step as i32,
        turned,
        stride: stride as i64,
    };
    Ok((operand, device))
}

/// `a b` in a new tensor.
pub(super) fn product(a: &Tensor, b: &Tensor, dtype: DType) -> Result<Tensor> {
    let columns = b.dim(candle_core::D::Minus1)?;
    let shape = [&a.dims()[..a.dims().len() - 1], &[columns]].concat();
    let c = uninit(&shape, dtype, a)?;
    multiply(a, b, &c, 0.0)?;
    Ok(c)
}

/// `c = a b + keep c`, for matrices or for batches of them.
pub(super) fn multiply(a: &Tensor, b: &Tensor, c: &Tensor, keep: f32) -> Result<()> {
    let rank = a.dims().len();
    let (m, k, n) = (a.dims()[rank - 2], a.dims()[rank - 1], b.dims()[rank - 1]);
    if rank > 3 || b.dims().len() != rank || c.dims().len() != rank || b.dims()[rank - 2] != k {
        return Err(refused(b));
    }
    let batch = if rank == 3 { a.dims()[0] } else { 1 };
    if m * n * batch == 0 {
        return Ok(());
    }
    let ((left, device), (right, _), (out, _)) = (operand(a)?, operand(b)?, operand(c)?);
    if out.turned {
        return Err(refused(c));
    }
    let product = Product {
        sizes: [m, n, k],
        left,
        right,
        out,
        keep,
    };
    if product.by_tensor_cores(batch, &device)? {
        return Ok(());
    }
    if batch == 1 {
        product.by_cublas(&device)
    } else {
        product.batched_by_cublas(batch, &device)
    }
}

/// cuBLAS's word for an operand that is transposed or not.
pub(super) fn operation(turned: bool) -> sys::cublasOperation_t {
    if turned {
        sys::cublasOperation_t::CUBLAS_OP_T
    } else {
        sys::cublasOperation_t::CUBLAS_OP_N
    }
}

/// A factor as cuBLAS reads it.
pub(super) fn factor(value: &f32) -> *const c_void {
    std::ptr::from_ref(value).cast()
}

/// `out = left right + keep out`.
struct Product {
    /// Rows of `left`, columns of `right`, and the inner size.
    sizes: [usize; 3],
    left: Operand,
    right: Operand,
    out: Operand,
    keep: f32,
}

impl Product {
    /// Multiplies f32 matrices on tensor cores, if that is faster. Returns false if it is not.
    fn by_tensor_cores(&self, batch: usize, device: &CudaDevice) -> Result<bool> {
        let all = [&self.left, &self.right, &self.out];
        let kinds = all.map(|operand| operand.kind);
        if kinds != [sys::cudaDataType::CUDA_R_32F; 3] {
            return Ok(false);
        }
        let work = Work {
            sizes: self.sizes,
            a: self.left.side(),
            b: self.right.side(),
            c: self.out.side(),
            keep: self.keep,
            many: (batch > 1).then_some(batch),
            strides: (batch > 1).then(|| all.map(|operand| operand.stride as usize)),
        };
        tensor_cores::multiply(&work, device)
    }

    fn by_cublas(&self, device: &CudaDevice) -> Result<()> {
        let ([m, n, k], blas) = (self.sizes, device.cublas_handle());
        let (left, right, out) = (&self.left, &self.right, &self.out);
        // SAFETY: addresses, sizes and strides are those of live tensors on the handle's own
        // stream, in whose order memory is freed.
        unsafe {
            gemm_ex(
                *blas.handle(),
                operation(right.turned),
                operation(left.turned),
                n as i32,
                m as i32,
                k as i32,
                factor(&1.0),
                right.address as *const c_void,
                right.kind,
                right.step,
                left.address as *const c_void,
                left.kind,
                left.step,
                factor(&self.keep),
                out.address as *mut c_void,
                out.kind,
                out.step,
                sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        }
        .map_err(failed)
    }

    fn batched_by_cublas(&self, batch: usize, device: &CudaDevice) -> Result<()> {
        let ([m, n, k], blas) = (self.sizes, device.cublas_handle());
        let (left, right, out) = (&self.left, &self.right, &self.out);
        // SAFETY: as in `by_cublas`, for every matrix of the batch.
        unsafe {
            gemm_strided_batched_ex(
                *blas.handle(),
                operation(right.turned),
                operation(left.turned),
                n as i32,
                m as i32,
                k as i32,
                factor(&1.0),
                right.address as *const c_void,
                right.kind,
                right.step,
                right.stride,
                left.address as *const c_void,
                left.kind,
                left.step,
                left.stride,
                factor(&self.keep),
                out.address as *mut c_void,
                out.kind,
                out.step,
                out.stride,
                batch as i32,
                sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        }
        .map_err(failed)
    }
}
