//! A communicator of NCCL: the connection of one GPU with those of the other processes.

use super::library::{Config, DOUBLE, FLOAT, Handle, Library, SUM, UniqueId};
use std::ffi::{c_int, c_void};

/// The element type of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Element {
    /// 32-bit values.
    Single,
    /// 64-bit values.
    Double,
}

/// The memory of a tensor on the device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Buffer {
    pub(super) address: u64,
    /// Number of values.
    pub(super) count: usize,
    pub(super) element: Element,
}

/// What happens to a buffer. Its memory belongs to the device until the operation is complete, or
/// the communicator is dropped.
#[derive(Debug, Clone, Copy)]
pub(super) enum Operation {
    /// It is replaced by its sum over all processes.
    Sum(Buffer),
    /// It is replaced by that of the process with this number.
    Spread(Buffer, usize),
}

/// A communicator. It is aborted when it is dropped: the others must drop theirs, too.
pub(super) struct Communicator {
    library: &'static Library,
    handle: Handle,
}

impl Communicator {
    /// Begins to connect with the `size - 1` processes that have the same identifier. The context
    /// of the device must be current on this thread.
    ///
    /// # Errors
    /// NCCL failed.
    pub(super) fn begin(
        library: &'static Library,
        id: &[u8],
        rank: usize,
        size: usize,
    ) -> Result<Self, String> {
        let id = UniqueId::from_bytes(id)?;
        let mut config = Config::non_blocking();
        let mut handle = std::ptr::null_mut();
        // SAFETY: NCCL copies the configuration, and writes the handle during the call.
        let code = unsafe {
            (library.functions.begin)(&mut handle, size as c_int, id, rank as c_int, &mut config)
        };
        let communicator = Communicator { library, handle };
        library.check(code, handle)?;
        if handle.is_null() {
            return Err("NCCL failed: there is no communicator".to_owned());
        }
        Ok(communicator)
    }

    /// Whether NCCL has done all that was asked of it. The device may still compute.
    ///
    /// # Errors
    /// NCCL failed, also while the device computes.
    pub(super) fn is_ready(&self) -> Result<bool, String> {
        let mut state = 0;
        // SAFETY: the communicator exists until it is dropped, and the number lives during the
        // call.
        let code = unsafe { (self.library.functions.state)(self.handle, &mut state) };
        self.library.check(code, self.handle)?;
        self.library.check(state, self.handle)
    }

    /// Starts operations on a stream of the device. The communicator must be ready.
    ///
    /// # Errors
    /// NCCL failed.
    pub(super) fn start(
        &self,
        operations: &[Operation],
        stream: *mut c_void,
    ) -> Result<(), String> {
        let functions = &self.library.functions;
        // SAFETY: the function has no arguments.
        let code = unsafe { (functions.start_group)() };
        self.library.check(code, self.handle)?;
        let started = operations.iter().try_for_each(|operation| {
            let code = self.add(*operation, stream);
            self.library.check(code, self.handle).map(|_| ())
        });
        // SAFETY: a group was started, and is ended also after an error.
        let code = unsafe { (functions.end_group)() };
        started?;
        self.library.check(code, self.handle).map(|_| ())
    }

    fn add(&self, operation: Operation, stream: *mut c_void) -> c_int {
        let functions = &self.library.functions;
        let (Operation::Sum(buffer) | Operation::Spread(buffer, _)) = operation;
        let address = buffer.address as *mut c_void;
        let element = match buffer.element {
            Element::Single => FLOAT,
            Element::Double => DOUBLE,
        };
        // SAFETY: the buffer lies in a tensor that the caller keeps until the operation is complete
        // or aborted, and nothing else uses its memory. The stream is that of the device.
        unsafe {
            match operation {
                Operation::Sum(_) => (functions.sum)(
                    address,
                    address,
                    buffer.count,
                    element,
                    SUM,
                    self.handle,
                    stream,
                ),
                Operation::Spread(_, owner) => (functions.spread)(
                    address,
                    address,
                    buffer.count,
                    element,
                    owner as c_int,
                    self.handle,
                    stream,
                ),
            }
        }
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the communicator is not used any more. The code does not matter: the process
            // cannot use it in either case.
            unsafe { (self.library.functions.abort)(self.handle) };
        }
    }
}

#[cfg(test)]
mod tests;
