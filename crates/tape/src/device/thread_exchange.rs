//! Exchange between processes that are threads of this process and use the CPU, for tests. Sums are
//! made in the order of ranks.

use super::exchange::{DeviceExchange, ExchangeLibrary, ExchangeOffer};
use crate::device_sync::read;
use crate::error::{Result, TapeError};
use crate::inplace::{SliceMut, with_slice_mut};
use candle_core::{DType, Device, Tensor};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The exchange of one rank of a group of threads.
#[derive(Debug, Clone)]
pub struct ThreadExchange {
    /// What the rank offers.
    pub offer: ExchangeOffer,
    /// The rank's work fails from this number of exchanges on, counted from 1.
    pub fails_at: Option<u64>,
    /// The rank never takes part from this number of exchanges on, counted from 1.
    pub stalls_at: Option<u64>,
    begun: Arc<AtomicU64>,
    shared: Arc<Shared>,
}

/// The exchanges of a group of `size` threads.
pub fn thread_exchanges(size: usize) -> Vec<ThreadExchange> {
    let shared: Arc<Shared> = Arc::default();
    let rank = |rank| ThreadExchange {
        offer: ExchangeOffer {
            device: format!("GPU {rank}"),
            library: Ok("threads".to_owned()),
        },
        fails_at: None,
        stalls_at: None,
        begun: Arc::default(),
        shared: Arc::clone(&shared),
    };
    (0..size).map(rank).collect()
}

/// What the threads share.
#[derive(Debug, Default)]
struct Shared {
    connections: AtomicU64,
    /// The running exchanges, by the number of the connection and of the exchange.
    running: Mutex<BTreeMap<(u64, u64), Running>>,
    /// The connections that a rank has dropped.
    dropped: Mutex<BTreeSet<u64>>,
    aborted: AtomicU64,
}

/// A panic of another thread leaves the shared state valid: only whole values are written.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One exchange: what ranks have passed, by tensor, and how many have taken the result.
#[derive(Debug, Default)]
struct Running {
    passed: BTreeMap<usize, Vec<Vec<f64>>>,
    taken: usize,
}

impl ThreadExchange {
    /// Number of exchanges that this rank has begun.
    pub fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Number of exchanges that a rank of the group has aborted.
    pub fn aborted(&self) -> u64 {
        self.shared.aborted.load(Ordering::Relaxed)
    }
}

impl ExchangeLibrary for ThreadExchange {
    fn offer(&self, _device: &Device) -> Option<ExchangeOffer> {
        Some(self.offer.clone())
    }

    fn new_id(&self) -> Result<Vec<u8>> {
        let number = self.shared.connections.fetch_add(1, Ordering::Relaxed);
        Ok(number.to_le_bytes().to_vec())
    }

    fn connect(
        &self,
        _device: &Device,
        id: &[u8],
        rank: usize,
        size: usize,
    ) -> Result<Box<dyn DeviceExchange>> {
        let id = id.try_into().map(u64::from_le_bytes);
        Ok(Box::new(Connection {
            id: id.map_err(|_| failed("the identifier has the wrong size"))?,
            rank,
            size,
            next: 0,
            work: None,
            library: self.clone(),
        }))
    }
}

fn failed(reason: &str) -> TapeError {
    TapeError::Device(reason.to_owned())
}

/// The connection of one rank.
struct Connection {
    id: u64,
    rank: usize,
    size: usize,
    /// Number of the next exchange of this connection.
    next: u64,
    work: Option<Work>,
    library: ThreadExchange,
}

/// A running exchange.
struct Work {
    tensors: Vec<Tensor>,
    /// Of a spread.
    owners: Option<Vec<usize>>,
    has_passed: bool,
}

impl Connection {
    fn begin(&mut self, tensors: &[Tensor], owners: Option<&[usize]>) -> Result<()> {
        if self.work.is_some() {
            return Err(failed("the last exchange is not complete"));
        }
        self.library.begun.fetch_add(1, Ordering::Relaxed);
        self.next += 1;
        self.work = Some(Work {
            tensors: tensors.to_vec(),
            owners: owners.map(<[usize]>::to_vec),
            has_passed: false,
        });
        Ok(())
    }

    /// The values of each tensor after the exchange.
    fn result(&self, work: &Work, passed: &BTreeMap<usize, Vec<Vec<f64>>>) -> Vec<Vec<f64>> {
        let of_tensor = |index: usize| -> Vec<f64> {
            if let Some(owners) = &work.owners {
                return passed[&owners[index]][index].clone();
            }
            let mut ranks = passed.values().map(|tensors| &tensors[index]);
            let mut sum = ranks.next().cloned().unwrap_or_default();
            let is_single = work.tensors[index].dtype() == DType::F32;
            for values in ranks {
                for (sum, value) in sum.iter_mut().zip(values) {
                    *sum = if is_single {
                        f64::from(*sum as f32 + *value as f32)
                    } else {
                        *sum + *value
                    };
                }
            }
            sum
        };
        (0..work.tensors.len()).map(of_tensor).collect()
    }
}

fn values(tensor: &Tensor) -> Result<Vec<f64>> {
    match tensor.dtype() {
        DType::F64 => read(tensor),
        _ => Ok(read::<f32>(tensor)?.into_iter().map(f64::from).collect()),
    }
}

fn write(tensor: &Tensor, values: &[f64]) -> Result<()> {
    let written = with_slice_mut(tensor, |to| {
        match to {
            SliceMut::F32(to) => to
                .iter_mut()
                .zip(values)
                .for_each(|(to, v)| *to = *v as f32),
            SliceMut::F64(to) => to.copy_from_slice(values),
            SliceMut::U8(_) => {}
        }
        Ok(())
    });
    Ok(written?)
}

impl DeviceExchange for Connection {
    fn begin_sum(&mut self, tensors: &[Tensor]) -> Result<()> {
        self.begin(tensors, None)
    }

    fn begin_spread(&mut self, tensors: &[Tensor], owners: &[usize]) -> Result<()> {
        self.begin(tensors, Some(owners))
    }

    fn poll(&mut self) -> Result<bool> {
        let Some(mut work) = self.work.take() else {
            return Ok(true);
        };
        let begun = self.library.begun();
        if self.library.fails_at.is_some_and(|at| begun >= at) {
            return Err(failed("the exchange of this thread fails"));
        }
        let is_stalled = self.library.stalls_at.is_some_and(|at| begun >= at);
        let shared = Arc::clone(&self.library.shared);
        let mut running = lock(&shared.running);
        let exchange = running.entry((self.id, self.next)).or_default();
        if !work.has_passed && !is_stalled {
            let mine = work.tensors.iter().map(values);
            exchange
                .passed
                .insert(self.rank, mine.collect::<Result<_>>()?);
            work.has_passed = true;
        }
        if exchange.passed.len() < self.size {
            self.work = Some(work);
            if lock(&shared.dropped).contains(&self.id) {
                return Err(failed("another rank has dropped the connection"));
            }
            return Ok(false);
        }
        let result = self.result(&work, &exchange.passed);
        exchange.taken += 1;
        if exchange.taken == self.size {
            running.remove(&(self.id, self.next));
        }
        drop(running);
        for (tensor, values) in work.tensors.iter().zip(&result) {
            write(tensor, values)?;
        }
        Ok(true)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        lock(&self.library.shared.dropped).insert(self.id);
        if self.work.is_some() {
            self.library.shared.aborted.fetch_add(1, Ordering::Relaxed);
        }
    }
}
