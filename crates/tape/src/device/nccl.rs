//! Exchange between NVIDIA GPUs by NCCL, NVIDIA's library for collective communication. Ebb loads
//! it at run time, so a build needs no NCCL.
//!
//! Communicators are non-blocking: no call waits for another process, so a process that has ended
//! never makes the others hang.

mod communicator;
mod library;

use super::cuda;
use super::exchange::{DeviceExchange, ExchangeLibrary, ExchangeOffer};
use crate::error::{Result, TapeError};
use candle_core::{DType, Device, Tensor};
use communicator::{Buffer, Communicator, Element, Operation};
use library::{Library, find};
pub use library::{NCCL_ENVIRONMENT, NCCL_VARIABLE};

/// The NCCL library that a run on several GPUs of this machine would use, with its version.
///
/// # Errors
/// None can be used, and why.
pub fn find_nccl() -> std::result::Result<String, String> {
    find().as_ref().map(Library::describe).map_err(Clone::clone)
}

/// The exchange between the NVIDIA GPUs of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nccl;

fn library() -> Result<&'static Library> {
    find().as_ref().map_err(|reason| failed(reason.as_str()))
}

fn failed(reason: impl Into<String>) -> TapeError {
    TapeError::Device(reason.into())
}

/// The memory of a tensor, for NCCL.
fn buffer(tensor: &Tensor) -> Result<Buffer> {
    let element = match tensor.dtype() {
        DType::F32 => Some(Element::Single),
        DType::F64 => Some(Element::Double),
        _ => None,
    };
    let element = element.filter(|_| tensor.is_contiguous());
    Ok(Buffer {
        element: element
            .ok_or_else(|| failed("only contiguous tensors in f32 or f64 can be exchanged"))?,
        address: cuda::address(tensor)?,
        count: tensor.elem_count(),
    })
}

impl ExchangeLibrary for Nccl {
    fn offer(&self, device: &Device) -> Option<ExchangeOffer> {
        Some(ExchangeOffer {
            device: cuda::uuid(device)?,
            library: find().as_ref().map(Library::name).map_err(Clone::clone),
        })
    }

    fn new_id(&self) -> Result<Vec<u8>> {
        library()?.new_id().map_err(failed)
    }

    fn connect(
        &self,
        device: &Device,
        id: &[u8],
        rank: usize,
        size: usize,
    ) -> Result<Box<dyn DeviceExchange>> {
        let stream = cuda::SideStream::new(device)?;
        let communicator = Communicator::begin(library()?, id, rank, size).map_err(failed)?;
        Ok(Box::new(NcclExchange {
            communicator,
            stream,
            device: device.clone(),
            work: Work::Connection,
        }))
    }
}

/// What was begun last.
enum Work {
    Connection,
    /// NCCL still gives its kernels to the device.
    Launching,
    /// The device computes.
    Running(cuda::Mark),
    Nothing,
}

/// The connection of one GPU with the others.
struct NcclExchange {
    communicator: Communicator,
    stream: cuda::SideStream,
    device: Device,
    work: Work,
}

impl NcclExchange {
    fn begin(&mut self, operations: &[Operation]) -> Result<()> {
        if !matches!(self.work, Work::Nothing) {
            return Err(failed("an exchange began before the last one was complete"));
        }
        let stream = self.stream.after_all_work(&self.device)?;
        self.work = Work::Launching;
        self.communicator.start(operations, stream).map_err(failed)
    }
}

impl DeviceExchange for NcclExchange {
    fn begin_sum(&mut self, tensors: &[Tensor]) -> Result<()> {
        let operation = |tensor| Ok(Operation::Sum(buffer(tensor)?));
        let operations = tensors.iter().map(operation).collect::<Result<Vec<_>>>()?;
        self.begin(&operations)
    }

    fn begin_spread(&mut self, tensors: &[Tensor], owners: &[usize]) -> Result<()> {
        let operation =
            |(tensor, owner): (&Tensor, &usize)| Ok(Operation::Spread(buffer(tensor)?, *owner));
        let operations = tensors.iter().zip(owners).map(operation);
        self.begin(&operations.collect::<Result<Vec<_>>>()?)
    }

    fn poll(&mut self) -> Result<bool> {
        let is_ready = self.communicator.is_ready().map_err(failed)?;
        if !is_ready {
            return Ok(false);
        }
        match &self.work {
            Work::Nothing => return Ok(true),
            Work::Connection => {}
            Work::Launching => {
                self.work = Work::Running(self.stream.mark()?);
                return Ok(false);
            }
            Work::Running(mark) if !mark.is_passed()? => return Ok(false),
            Work::Running(_) => {}
        }
        self.work = Work::Nothing;
        Ok(true)
    }
}
