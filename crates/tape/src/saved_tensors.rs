//! Counts the bytes that recorded operations save for their backward pass. Tensors that share
//! storage count once. Parameters do not count, because they exist anyway.

use crate::error::{Result, TapeError};
use candle_core::{CpuStorage, Storage, Tensor};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// The address of a tensor's storage, equal for all views of one allocation.
pub(crate) fn storage_key(tensor: &Tensor) -> usize {
    let (guard, _) = tensor.storage_and_layout();
    std::ptr::from_ref::<Storage>(&guard) as usize
}

/// Bytes of a tensor's whole storage, because a view keeps all of it alive.
fn storage_bytes(tensor: &Tensor) -> u64 {
    let (guard, _) = tensor.storage_and_layout();
    let count = match &*guard {
        Storage::Cpu(CpuStorage::F32(values)) => values.len(),
        Storage::Cpu(CpuStorage::F64(values)) => values.len(),
        Storage::Cpu(CpuStorage::BF16(values)) => values.len(),
        Storage::Cpu(CpuStorage::F16(values)) => values.len(),
        Storage::Cpu(CpuStorage::U8(values)) => values.len(),
        // On other devices operations make their inputs contiguous, so storage and tensor have the
        // same size.
        _ => tensor.elem_count(),
    };
    (count * tensor.dtype().size_in_bytes()) as u64
}

/// Bytes saved, by storage.
#[derive(Debug, Default)]
struct Counts {
    holders: HashMap<usize, (u64, u32)>,
    bytes: u64,
    peak_bytes: u64,
    limit_bytes: Option<u64>,
}

impl Counts {
    /// Excludes this storage (a parameter's) from the count.
    fn exempt(&mut self, tensor: &Tensor) {
        self.holders.insert(storage_key(tensor), (0, 1));
    }

    /// An operation saves this tensor. Returns the key for [`SavedTensors::release`].
    fn keep(&mut self, tensor: &Tensor) -> usize {
        let key = storage_key(tensor);
        let bytes = storage_bytes(tensor);
        let holder = self.holders.entry(key).or_insert((bytes, 0));
        if holder.1 == 0 {
            self.bytes += holder.0;
            self.peak_bytes = self.peak_bytes.max(self.bytes);
        }
        holder.1 += 1;
        key
    }

    /// The backward pass of an operation is done.
    fn release(&mut self, key: usize) {
        if let Some(holder) = self.holders.get_mut(&key) {
            holder.1 -= 1;
            if holder.1 == 0 {
                self.bytes -= holder.0;
                self.holders.remove(&key);
            }
        }
    }
}

/// The count of one recording, readable during and after the backward pass. A checkpointed block
/// that runs again adds to the count of its outer tape.
#[derive(Debug, Clone, Default)]
pub struct SavedTensors(Rc<RefCell<Counts>>);

impl SavedTensors {
    /// A count with a limit for [`SavedTensors::check`].
    pub(crate) fn with_limit(limit_bytes: Option<u64>) -> Self {
        let saved_tensors = SavedTensors::default();
        saved_tensors.0.borrow_mut().limit_bytes = limit_bytes;
        saved_tensors
    }

    /// Bytes saved now.
    pub fn bytes(&self) -> u64 {
        self.0.borrow().bytes
    }

    /// Peak bytes saved so far.
    pub fn peak_bytes(&self) -> u64 {
        self.0.borrow().peak_bytes
    }

    pub(crate) fn exempt(&self, tensor: &Tensor) {
        self.0.borrow_mut().exempt(tensor);
    }

    pub(crate) fn keep(&self, tensor: &Tensor) -> usize {
        self.0.borrow_mut().keep(tensor)
    }

    pub(crate) fn release(&self, key: usize) {
        self.0.borrow_mut().release(key);
    }

    /// Fails with [`TapeError::Memory`] if the limit is exceeded.
    pub(crate) fn check(&self) -> Result<()> {
        let saved = self.0.borrow();
        match saved.limit_bytes {
            Some(limit) if saved.bytes > limit => Err(TapeError::Memory(format!(
                "the micro-batch saves {} bytes for its backward pass, but the limit is {limit} bytes",
                saved.bytes
            ))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{AttentionShape, Cancel, Conv2dShape, Kernels, Parameters, Tape};
    use candle_core::{DType, Device, Tensor};

    #[test]
    fn the_backward_pass_releases_all_saved_tensors() {
        for kernels in [Kernels::Fused, Kernels::Composed] {
            let parameters = Parameters::default();
            let tape = Tape::record(&parameters, Cancel::default(), kernels);
            let variable = |shape: &[usize]| {
                let ones = Tensor::ones(shape, DType::F32, &Device::Cpu);
                tape.variable(ones.expect("a small tensor"))
            };
            let run = || {
                let shape = Conv2dShape {
                    stride: 1,
                    padding: 1,
                    groups: 1,
                };
                let y = tape.conv2d(&variable(&[2, 3, 4, 6]), &variable(&[3, 3, 3, 3]), shape)?;
                let y = tape.reshape(&y, &[2, 6, 12])?;
                let y = tape.layer_norm(&y, &variable(&[12]), &variable(&[12]), 1e-5)?;
                let shape = AttentionShape {
                    heads: 2,
                    causal: true,
                };
                let y = tape.checkpoint(&y, move |t, x| t.attention(x, shape))?;
                let y = tape.linear(&tape.gelu(&y)?, &variable(&[3, 4]), None)?;
                let y = tape.first_token(&tape.relu(&y)?)?;
                let root = tape.cross_entropy(&y, &[0, 1], 0.1)?.sum;
                let (kept, seed) = (tape.saved_bytes(), root.tensor().ones_like()?);
                tape.backward_from(vec![(root, seed)], &[])?;
                crate::Result::Ok((kept, tape.saved_bytes(), tape.peak_saved_bytes()))
            };
            let (kept, left, peak) = run().expect("shapes that fit");
            assert!(kept > 0 && kept == peak, "{kept} {peak}");
            assert_eq!(left, 0, "{kernels:?}");
        }
    }
}
