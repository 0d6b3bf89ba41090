//! macOS: the dispatch source of memory pressure. It notifies processes one after another, with
//! pauses of up to half a minute. The monitor reads the level itself from the kernel.

use block2::RcBlock;
use dispatch2::{
    _dispatch_source_type_memorypressure as MEMORY_PRESSURE, DispatchObject, DispatchQueue,
    DispatchRetained, DispatchSource, dispatch_source_memorypressure_flags_t as Level,
};

/// Notifies of each change of the system's level until it is dropped.
pub(crate) struct PressureNotification(DispatchRetained<DispatchSource>);

impl PressureNotification {
    /// Calls `wake` at each change, on a system thread.
    pub(crate) fn on_pressure(wake: impl Fn() + Send + Sync + 'static) -> Option<Self> {
        let levels = Level::DISPATCH_MEMORYPRESSURE_NORMAL.0
            | Level::DISPATCH_MEMORYPRESSURE_WARN.0
            | Level::DISPATCH_MEMORYPRESSURE_CRITICAL.0;
        let queue = DispatchQueue::new("ebb.memory-pressure", None);
        let kind = (&raw const MEMORY_PRESSURE).cast_mut();
        // SAFETY: the kind is the system's constant, which this source only reads; it takes no
        // handle, and these are its flags.
        let source = unsafe { DispatchSource::new(kind, 0, levels as usize, Some(&queue)) };
        let handler = RcBlock::new(wake);
        // SAFETY: the source copies the block, whose closure may run on any thread and owns
        // everything it uses.
        unsafe { source.set_event_handler_with_block(RcBlock::as_ptr(&handler)) };
        source.resume();
        Some(Self(source))
    }
}

impl Drop for PressureNotification {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
