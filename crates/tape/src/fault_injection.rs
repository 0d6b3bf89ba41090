//! Fault injection, for tests: a CPU that fails as a GPU does. It counts the dispatches of this
//! crate (one per operation, in-place pass or read) and fails at those that a schedule names.
//!
//! It is asynchronous like Metal. After a failure every result is garbage (finite, so that no check
//! for NaN finds it) until the device has been synchronized, and only the synchronization reports
//! the failure, once, in the words of candle's Metal backend.
//!
//! Without an [`Injection`] each hook costs one relaxed load.

mod garbage;

use crate::error::{Result, TapeError};
use crate::rng::Rng;
use candle_core::{MetalError, Tensor};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A way in which a device fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// An allocation is refused at once.
    AllocationRefused,
    /// A kernel needs more threads than its pipeline allows; refused at once.
    TooManyThreads,
    /// The device runs out of memory while it works.
    OutOfMemory,
    /// The device works too long.
    Timeout,
    /// The device delays the screen.
    ImpactingInteractivity,
    /// Another program's failure takes this one's work along.
    InnocentVictim,
    /// The device ignores this and all later work until it is made anew.
    SubmissionsIgnored,
    /// The device is gone; all later work fails until it is made anew.
    DeviceLost,
}

impl Fault {
    /// All faults.
    pub const ALL: [Fault; 8] = [
        Fault::AllocationRefused,
        Fault::TooManyThreads,
        Fault::OutOfMemory,
        Fault::Timeout,
        Fault::ImpactingInteractivity,
        Fault::InnocentVictim,
        Fault::SubmissionsIgnored,
        Fault::DeviceLost,
    ];

    /// The driver's description, which every error message of this fault contains.
    pub const fn description(self) -> &'static str {
        match self {
            Fault::AllocationRefused => "Failed to create metal resource: Buffer",
            Fault::TooManyThreads => "needs groups of 1024 threads but this GPU allows 832",
            Fault::OutOfMemory => {
                "Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"
            }
            Fault::Timeout => {
                "Caused GPU Timeout Error (00000002:kIOGPUCommandBufferCallbackErrorTimeout)"
            }
            Fault::ImpactingInteractivity => {
                "Impacting Interactivity (0000000e:kIOGPUCommandBufferCallbackErrorImpactingInteractivity)"
            }
            Fault::InnocentVictim => {
                "Discarded (victim of GPU error/recovery) (00000005:kIOGPUCommandBufferCallbackErrorInnocentVictim)"
            }
            Fault::SubmissionsIgnored => {
                "Ignored (for causing prior/excessive GPU errors) (00000004:kIOGPUCommandBufferCallbackErrorSubmissionsIgnored)"
            }
            Fault::DeviceLost => {
                "Device was removed (00000007:kIOGPUCommandBufferCallbackErrorDeviceRemoved)"
            }
        }
    }

    /// True if the call itself fails. The other faults leave garbage and are reported later.
    pub const fn is_immediate(self) -> bool {
        matches!(self, Fault::AllocationRefused | Fault::TooManyThreads)
    }

    /// True if only a new device works again.
    pub const fn is_permanent(self) -> bool {
        matches!(self, Fault::SubmissionsIgnored | Fault::DeviceLost)
    }

    fn error(self) -> TapeError {
        let metal = |text: String| candle_core::Error::from(MetalError::from(text)).into();
        match self {
            Fault::AllocationRefused => metal(self.description().to_owned()),
            Fault::TooManyThreads => TapeError::Device(format!(
                "cross_entropy {}; choose --device cpu",
                self.description()
            )),
            _ => metal(format!(
                "Command buffer had following error: {}",
                self.description()
            )),
        }
    }
}

/// A fault and the dispatch, counted from 0, at which or after which it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduledFault {
    /// Number of dispatches before it.
    pub at: u64,
    /// What happens.
    pub fault: Fault,
}

static INSTALLED: AtomicBool = AtomicBool::new(false);
static DEVICE: Mutex<Option<FaultyDevice>> = Mutex::new(None);
/// Held while an injection is installed: the device belongs to the process.
static OWNER: Mutex<()> = Mutex::new(());

/// The installed injection; dropping it ends it. A second one waits for the first.
pub struct Injection {
    _owner: MutexGuard<'static, ()>,
}

impl Injection {
    /// Makes the CPU of this process fail by `schedule`. `seed` determines the garbage.
    pub fn install(mut schedule: Vec<ScheduledFault>, seed: u64) -> Self {
        let owner = OWNER.lock().unwrap_or_else(PoisonError::into_inner);
        schedule.sort_by_key(|fault| std::cmp::Reverse(fault.at));
        *device() = Some(FaultyDevice {
            waiting: schedule,
            happened: Vec::new(),
            unreported: None,
            permanent: None,
            dispatches: 0,
            garbage: 0,
            rng: Rng::new(seed),
        });
        INSTALLED.store(true, Ordering::Relaxed);
        Injection { _owner: owner }
    }

    /// Number of dispatches so far.
    pub fn dispatches(&self) -> u64 {
        read(|device| device.dispatches)
    }

    /// Number of results that were replaced by garbage.
    pub fn garbage_results(&self) -> u64 {
        read(|device| device.garbage)
    }

    /// The faults that have happened, in order.
    pub fn happened(&self) -> Vec<ScheduledFault> {
        read(|device| device.happened.clone())
    }

    /// Cancels the faults that have not happened yet.
    pub fn cancel_rest(&self) {
        if let Some(device) = &mut *device() {
            device.waiting.clear();
        }
    }
}

impl Drop for Injection {
    fn drop(&mut self) {
        INSTALLED.store(false, Ordering::Relaxed);
        *device() = None;
    }
}

/// The device in its present state.
struct FaultyDevice {
    /// The next fault is the last one.
    waiting: Vec<ScheduledFault>,
    happened: Vec<ScheduledFault>,
    /// A failure that no synchronization has reported yet.
    unreported: Option<Fault>,
    /// Why the device refuses all work.
    permanent: Option<Fault>,
    dispatches: u64,
    garbage: u64,
    rng: Rng,
}

/// What becomes of the result of a dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is right.
    Correct,
    /// Something else is written.
    Garbage,
    /// Nothing is written: the memory holds what it held before.
    Unwritten,
}

impl FaultyDevice {
    /// Takes the next fault if it is due and of the asked kind.
    fn next(&mut self, is_immediate: bool) -> Option<Fault> {
        let next = *self.waiting.last()?;
        if next.at > self.dispatches || next.fault.is_immediate() != is_immediate {
            return None;
        }
        self.waiting.pop();
        self.happened.push(next);
        Some(next.fault)
    }

    fn dispatch(&mut self) -> Fate {
        while let Some(fault) = self.next(false) {
            self.unreported.get_or_insert(fault);
            if fault.is_permanent() {
                self.permanent.get_or_insert(fault);
            }
        }
        self.dispatches += 1;
        if self.unreported.is_none() && self.permanent.is_none() {
            return Fate::Correct;
        }
        self.garbage += 1;
        match self.rng.uniform(self.dispatches) {
            draw if draw < 0.25 => Fate::Unwritten,
            _ => Fate::Garbage,
        }
    }
}

fn device() -> MutexGuard<'static, Option<FaultyDevice>> {
    DEVICE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read<R: Default>(from: impl FnOnce(&FaultyDevice) -> R) -> R {
    device().as_ref().map(from).unwrap_or_default()
}

/// True while an [`Injection`] exists.
#[inline]
pub(crate) fn is_installed() -> bool {
    INSTALLED.load(Ordering::Relaxed)
}

/// Called before an operation. Fails if its memory or its kernel is refused.
#[inline]
pub(crate) fn begin() -> Result<()> {
    if is_installed() { begin_slow() } else { Ok(()) }
}

/// Called for an in-place pass: what becomes of its result.
#[inline]
pub(crate) fn dispatch() -> Fate {
    if is_installed() {
        dispatch_slow()
    } else {
        Fate::Correct
    }
}

/// Called for the new tensor that an operation has computed. Returns it, or garbage in its place.
#[inline]
pub(crate) fn computed(tensor: Tensor) -> Tensor {
    if is_installed() && dispatch_slow() != Fate::Correct {
        garbage::tensor_like(&tensor)
    } else {
        tensor
    }
}

/// Called for sums that a GPU would compute and read back.
#[inline]
pub(crate) fn read_back(mut values: Vec<f64>) -> Result<Vec<f64>> {
    if is_installed() {
        if dispatch_slow() != Fate::Correct {
            garbage::fill(&mut values, garbage_stream());
        }
        report()?;
    }
    Ok(values)
}

/// Called when all work of the device was awaited: reports the failure since the last call.
#[inline]
pub(crate) fn synchronized() -> Result<()> {
    if is_installed() { report() } else { Ok(()) }
}

/// Called when a device is made: it works again.
#[inline]
pub(crate) fn device_made() {
    if is_installed()
        && let Some(device) = &mut *device()
    {
        device.unreported = None;
        device.permanent = None;
    }
}

/// Replaces the values of a tensor on the CPU, in place.
pub(crate) fn overwrite(tensor: &Tensor) -> candle_core::Result<()> {
    garbage::overwrite(tensor)
}

#[cold]
fn begin_slow() -> Result<()> {
    let fault = device().as_mut().and_then(|device| device.next(true));
    fault.map_or(Ok(()), |fault| Err(fault.error()))
}

#[cold]
fn dispatch_slow() -> Fate {
    let mut device = device();
    device
        .as_mut()
        .map_or(Fate::Correct, FaultyDevice::dispatch)
}

#[cold]
fn report() -> Result<()> {
    let mut device = device();
    let Some(device) = device.as_mut() else {
        return Ok(());
    };
    match device.unreported.take().or(device.permanent) {
        Some(fault) => Err(fault.error()),
        None => Ok(()),
    }
}

/// The random numbers of the next garbage.
fn garbage_stream() -> Rng {
    let device = device();
    let device = device.as_ref();
    device.map_or(Rng::new(0), |device| device.rng.at(device.dispatches))
}
