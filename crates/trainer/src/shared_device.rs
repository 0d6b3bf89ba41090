//! The device of a run, which several threads share, and its memory counters.

use candle_core::Device;
use pressure::DeviceReadings;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tape::counting_allocator::live_bytes;

/// The device of a run, shared with the monitor thread, which only reads its counters. A run whose
/// device is lost gets another one.
#[derive(Clone)]
pub(crate) struct SharedDevice(Arc<Mutex<Device>>);

impl SharedDevice {
    pub(crate) fn new(device: &Device) -> Self {
        SharedDevice(Arc::new(Mutex::new(device.clone())))
    }

    /// The device now.
    pub(crate) fn get(&self) -> Device {
        self.lock().clone()
    }

    /// Shares another device from now on.
    pub(crate) fn replace(&self, device: &Device) {
        *self.lock() = device.clone();
    }

    fn lock(&self) -> MutexGuard<'_, Device> {
        // Both changes are single assignments, so a panic elsewhere leaves a valid device.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Readings of the device's own counters. `idle_bytes` are mapped for this process but never
/// touched.
pub(crate) fn device_readings(device: &SharedDevice, idle_bytes: u64) -> DeviceReadings {
    let (allocated, limit, peak) = (device.clone(), device.clone(), device.clone());
    DeviceReadings {
        live_bytes: Box::new(live_bytes),
        allocated_bytes: Box::new(move || tape::device::allocated_bytes(&allocated.lock())),
        take_peak_bytes: Box::new(move || tape::device::take_peak_bytes(&peak.lock())),
        limit_bytes: Box::new(move || tape::device::limit_bytes(&limit.lock())),
        idle_bytes: Box::new(move || idle_bytes),
    }
}
