//! Fault injection, for tests: a CPU that fails as a GPU does. It counts the dispatches of this
//! crate (one per operation, in-place pass or read) and fails at those that a schedule names.
//!
//! It is asynchronous like Metal. After a failure every result is garbage (finite, so that no check
//! for NaN finds it) until the device has been synchronized, and only the synchronization reports
//! the failure, once, in the words of candle's Metal backend. Nothing reports two of the faults, so
//! Ebb has to look for them itself: a kernel does not run if its launch has more threads than the
//! device allows, and a copy shares the memory of its original.
//!
//! Without an [`Injection`] each hook costs one relaxed load.

mod garbage_results;

use crate::error::{Result, TapeError};
use crate::launch_grid::Grid;
use crate::rng::Rng;
use candle_core::{DType, MetalError, Tensor};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A way in which a device fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// An allocation is refused at once.
    AllocationRefused,
    /// The system raises an exception, which unwinds the stack to the next place that catches it.
    /// What was begun stays incomplete, so that all later work fails until the device is made anew.
    Exception,
    /// A kernel needs more threads than its pipeline allows. If it is launched all the same, the
    /// device drops the launch and never reports it.
    TooManyThreads,
    /// A copy shares the memory of its original, as `Tensor::copy` of candle does on Metal. It is
    /// never reported.
    AliasedCopy,
    /// The device runs out of memory while it works.
    OutOfMemory,
    /// The device works too long.
    Timeout,
    /// The device delays the screen.
    ImpactingInteractivity,
    /// Another program's failure takes this one's work along.
    InnocentVictim,
    /// The device reads or writes where it must not, and damages the newest parameter that was
    /// read. If an earlier failure is not reported yet, that one hides this one.
    PageFault,
    /// The device ignores this and all later work until it is made anew.
    SubmissionsIgnored,
    /// The device is gone; all later work fails until it is made anew.
    DeviceLost,
}

impl Fault {
    /// All faults.
    pub const ALL: [Fault; 11] = [
        Fault::AllocationRefused,
        Fault::Exception,
        Fault::TooManyThreads,
        Fault::AliasedCopy,
        Fault::OutOfMemory,
        Fault::Timeout,
        Fault::ImpactingInteractivity,
        Fault::InnocentVictim,
        Fault::PageFault,
        Fault::SubmissionsIgnored,
        Fault::DeviceLost,
    ];

    /// The driver's description, which every error message of this fault contains.
    pub const fn description(self) -> &'static str {
        match self {
            Fault::AllocationRefused => "Failed to create metal resource: Buffer",
            Fault::Exception => "A command encoder is already encoding to this command buffer",
            Fault::TooManyThreads => "needs groups of 1024 threads but this GPU allows 832",
            Fault::AliasedCopy => "the device made no separate copy of a tensor",
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
            Fault::PageFault => {
                "Caused GPU Address Fault Error (0000000b:kIOGPUCommandBufferCallbackErrorPageFault)"
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
        matches!(
            self,
            Fault::AllocationRefused
                | Fault::Exception
                | Fault::TooManyThreads
                | Fault::AliasedCopy
        )
    }

    /// True if only a new device works again.
    pub const fn is_permanent(self) -> bool {
        matches!(
            self,
            Fault::Exception | Fault::SubmissionsIgnored | Fault::DeviceLost
        )
    }

    fn error(self) -> TapeError {
        let metal = |text: String| candle_core::Error::from(MetalError::from(text)).into();
        match self {
            Fault::AllocationRefused => metal(self.description().to_owned()),
            Fault::Exception => TapeError::Exception(self.description().to_owned()),
            _ => metal(format!(
                "Command buffer had following error: {}",
                self.description()
            )),
        }
    }
}

/// Threads of a group that a device with [`Fault::TooManyThreads`] allows, as an M1 Max does for
/// some kernels.
const ALLOWED_THREADS: usize = 832;

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
            drops_next: false,
            newest_parameter: None,
            damages_parameter: false,
            aliases_next: None,
            lacks_f64: false,
            allocated_bytes: 0,
            measure: None,
            measured: Vec::new(),
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

    /// Adds faults. Their dispatches are counted from now.
    pub fn add(&self, faults: &[ScheduledFault]) {
        if let Some(device) = &mut *device() {
            let from = device.dispatches;
            device
                .waiting
                .extend(faults.iter().map(|later| ScheduledFault {
                    at: from + later.at,
                    ..*later
                }));
            let last_first = |fault: &ScheduledFault| std::cmp::Reverse(fault.at);
            device.waiting.sort_by_key(last_first);
        }
    }

    /// Makes the driver hold this many bytes, until it frees them at the next synchronization or
    /// copy to the host.
    pub fn allocate(&self, bytes: u64) {
        if let Some(device) = &mut *device() {
            device.allocated_bytes = bytes;
        }
    }

    /// Calls `measure` at every synchronization from now on. It must not use the device.
    pub fn measure_at_waits(&self, measure: fn() -> u64) {
        if let Some(device) = &mut *device() {
            device.measure = Some(measure);
        }
    }

    /// What [`Injection::measure_at_waits`] has measured, in order.
    pub fn measured_at_waits(&self) -> Vec<u64> {
        read(|device| device.measured.clone())
    }

    /// Makes the device refuse conversions to and from f64, as Metal does. The host still converts.
    pub fn remove_f64(&self) {
        if let Some(device) = &mut *device() {
            device.lacks_f64 = true;
        }
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
    /// The next launch has too many threads, and nothing prevented it.
    drops_next: bool,
    /// The parameter that an operation has read last.
    newest_parameter: Option<Tensor>,
    /// A page fault has happened, and has not damaged it yet.
    damages_parameter: bool,
    /// The next copy shares the memory of its original.
    aliases_next: Option<ScheduledFault>,
    /// It converts nothing to or from f64.
    lacks_f64: bool,
    allocated_bytes: u64,
    /// What a test measures at every synchronization.
    measure: Option<fn() -> u64>,
    measured: Vec<u64>,
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
        if next.at <= self.dispatches && next.fault == Fault::AliasedCopy {
            self.aliases_next = self.waiting.pop();
            return self.next(is_immediate);
        }
        if next.at > self.dispatches || next.fault.is_immediate() != is_immediate {
            return None;
        }
        self.waiting.pop();
        self.happened.push(next);
        if next.fault.is_permanent() {
            self.permanent.get_or_insert(next.fault);
        }
        self.damages_parameter |= next.fault == Fault::PageFault;
        Some(next.fault)
    }

    /// The parameter that a page fault damages now.
    fn take_damaged(&mut self) -> Option<Tensor> {
        let damages = std::mem::take(&mut self.damages_parameter);
        damages.then(|| self.newest_parameter.take()).flatten()
    }

    fn dispatch(&mut self) -> Fate {
        while let Some(fault) = self.next(false) {
            self.unreported.get_or_insert(fault);
        }
        self.dispatches += 1;
        if std::mem::take(&mut self.drops_next) {
            self.garbage += 1;
            return Fate::Unwritten;
        }
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

/// Called for a parameter that an operation is about to read.
#[inline]
pub(crate) fn reads_parameter(parameter: &Tensor) {
    if is_installed()
        && let Some(device) = &mut *device()
    {
        device.newest_parameter = Some(parameter.clone());
    }
}

/// True while the device may report one of several failures and forget the others.
pub(crate) fn forgets_failures() -> bool {
    is_installed()
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
        garbage_results::tensor_like(&tensor)
    } else {
        tensor
    }
}

/// Called for a copy that an operation has made of `original`. Returns it, or what the device gives
/// in its place.
#[inline]
pub(crate) fn copied(original: &Tensor, copy: Tensor) -> Tensor {
    if is_installed() && takes_alias() {
        return original.clone();
    }
    computed(copy)
}

/// Called for the copy of a tensor to the host. As candle does for it, frees unused memory.
#[inline]
pub(crate) fn copied_to_host(copy: Tensor) -> Tensor {
    if is_installed()
        && let Some(device) = &mut *device()
    {
        device.allocated_bytes = 0;
    }
    computed(copy)
}

/// Called before a conversion on the device. Fails if the device lacks a type.
#[inline]
pub(crate) fn converts(from: DType, to: DType) -> Result<()> {
    let is_about_f64 = (from == DType::F64) != (to == DType::F64);
    if is_installed() && is_about_f64 && read(|device| device.lacks_f64) {
        let text = format!("Metal contiguous to_dtype {from:?} {to:?} not implemented");
        return Err(candle_core::Error::from(MetalError::from(text)).into());
    }
    Ok(())
}

/// Bytes that the driver of the CPU holds: none, but for those of an [`Injection`].
pub(crate) fn allocated_bytes() -> u64 {
    if is_installed() {
        read(|device| device.allocated_bytes)
    } else {
        0
    }
}

/// Called for sums that a GPU would compute and read back.
#[inline]
pub(crate) fn read_back(mut values: Vec<f64>) -> Result<Vec<f64>> {
    if is_installed() {
        if dispatch_slow() != Fate::Correct {
            garbage_results::fill(&mut values, garbage_stream());
        }
        report()?;
    }
    Ok(values)
}

/// Called when all work of the device was awaited: reports the failure since the last call.
#[inline]
pub(crate) fn synchronized() -> Result<()> {
    if is_installed() {
        measure_slow();
        damage_slow();
        report()
    } else {
        Ok(())
    }
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
    garbage_results::overwrite(tensor)
}

#[cold]
fn begin_slow() -> Result<()> {
    damage_slow();
    let fault = device().as_mut().and_then(|device| device.next(true));
    match fault {
        None => Ok(()),
        Some(Fault::TooManyThreads) => launch_wide(),
        // As an exception of Objective-C, it runs no panic hook.
        Some(Fault::Exception) => resume_unwind(Box::new(RaisedException)),
        Some(fault) => Err(fault.error()),
    }
}

/// Damages a parameter after a page fault. Not in the middle of an operation, which may be reading
/// it: what it computes is garbage anyway.
fn damage_slow() {
    let damaged = device().as_mut().and_then(FaultyDevice::take_damaged);
    if let Some(parameter) = damaged {
        // Other types than those that are trained stay.
        let _ = overwrite(&parameter);
    }
}

/// What unwinds the stack in the place of an exception of the system.
struct RaisedException;

/// Runs `work` and returns the exception of an [`Injection`] as an error. Other panics pass
/// through. Call it outside of every frame that a real exception may unwind.
pub(crate) fn catch_exception<R, E: From<TapeError>>(
    work: impl FnOnce() -> std::result::Result<R, E>,
) -> std::result::Result<R, E> {
    if !is_installed() {
        return work();
    }
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        if panic.is::<RaisedException>() {
            Err(Fault::Exception.error().into())
        } else {
            resume_unwind(panic)
        }
    })
}

/// Launches a kernel with too many threads, which Ebb has to refuse.
fn launch_wide() -> Result<()> {
    Grid::groups(1, 32).within(ALLOWED_THREADS, || "cross_entropy".to_owned())?;
    if let Some(device) = &mut *device() {
        device.drops_next = true;
    }
    Ok(())
}

#[cold]
fn takes_alias() -> bool {
    let mut device = device();
    let Some(device) = device.as_mut() else {
        return false;
    };
    let due =
        |fault: &ScheduledFault| fault.fault == Fault::AliasedCopy && fault.at <= device.dispatches;
    if device.waiting.last().is_some_and(due) {
        device.aliases_next = device.waiting.pop();
    }
    let alias = device.aliases_next.take();
    device.happened.extend(alias);
    alias.is_some()
}

#[cold]
fn dispatch_slow() -> Fate {
    let mut device = device();
    device
        .as_mut()
        .map_or(Fate::Correct, FaultyDevice::dispatch)
}

#[cold]
fn measure_slow() {
    if let Some(device) = &mut *device() {
        device
            .measured
            .extend(device.measure.map(|measure| measure()));
    }
}

#[cold]
fn report() -> Result<()> {
    let mut device = device();
    let Some(device) = device.as_mut() else {
        return Ok(());
    };
    device.allocated_bytes = 0;
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
