//! Exchange of tensors between the devices of several processes, without a copy in the memory of
//! the host. NCCL exchanges those of NVIDIA GPUs; threads exchange those of the CPU, for tests.

use crate::error::Result;
use candle_core::{Device, Tensor};

/// What a process has for an exchange between devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExchangeOffer {
    /// Identifies the device among those of its machine.
    pub device: String,
    /// The library with its version, such as `NCCL 2.28.3`, or why none can be used.
    pub library: std::result::Result<String, String>,
}

/// A library that connects the devices of one machine, of which each process uses one.
pub trait ExchangeLibrary: Send + Sync {
    /// What this process has. `None` if the library is not for devices of this kind.
    fn offer(&self, device: &Device) -> Option<ExchangeOffer>;

    /// A new identifier of a connection. One process makes it, and all pass it to
    /// [`connect`](ExchangeLibrary::connect).
    ///
    /// # Errors
    /// The library failed.
    fn new_id(&self) -> Result<Vec<u8>>;

    /// Begins to connect `device`, as number `rank` of `size`. It does not wait for the others: the
    /// connection exists once [`DeviceExchange::poll`] returns true.
    ///
    /// # Errors
    /// The library failed.
    fn connect(
        &self,
        device: &Device,
        id: &[u8],
        rank: usize,
        size: usize,
    ) -> Result<Box<dyn DeviceExchange>>;
}

/// A connection between devices. All processes begin the same work in the same order, and begin the
/// next only once [`poll`](DeviceExchange::poll) has returned true. Dropping it aborts what is
/// under way; the tensors then have undefined values, and the others must drop theirs, too.
pub trait DeviceExchange {
    /// Begins to replace these tensors by their sums over all processes: the same bits on all.
    /// Nothing else may read or share the memory of the tensors, which are contiguous, in f32 or
    /// f64, and have the same sizes in all processes.
    ///
    /// # Errors
    /// The library failed, or a tensor cannot be exchanged.
    fn begin_sum(&mut self, tensors: &[Tensor]) -> Result<()>;

    /// Begins to replace these tensors by those of their owners: `owners` has a rank for each. The
    /// conditions are those of [`begin_sum`](DeviceExchange::begin_sum).
    ///
    /// # Errors
    /// The library failed, or a tensor cannot be exchanged.
    fn begin_spread(&mut self, tensors: &[Tensor], owners: &[usize]) -> Result<()>;

    /// Whether what was begun last is complete. Returns at once.
    ///
    /// # Errors
    /// The library failed, for example because another process has ended.
    fn poll(&mut self) -> Result<bool>;
}
