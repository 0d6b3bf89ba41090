//! macOS: the dispatch source of memory pressure. It reaches one process after another, with pauses of up to half a minute;
//! what the level is, the monitor reads from the kernel.

use block2::RcBlock;
use dispatch2::{
    _dispatch_source_type_memorypressure as MEMORY_PRESSURE, DispatchObject, DispatchQueue,
    DispatchRetained, DispatchSource, dispatch_source_memorypressure_flags_t as Level,
};

/// Tells of each change of the system's level until it is dropped.
pub(crate) struct WakeUp(DispatchRetained<DispatchSource>);

impl WakeUp {
    /// From now on `wake` is called at each change, on a thread of the system's.
    pub(crate) fn on_pressure(wake: impl Fn() + Send + Sync + 'static) -> Option<Self> {
        let levels = Level::DISPATCH_MEMORYPRESSURE_NORMAL.0
            | Level::DISPATCH_MEMORYPRESSURE_WARN.0
            | Level::DISPATCH_MEMORYPRESSURE_CRITICAL.0;
        let queue = DispatchQueue::new("ebb.memory-pressure", None);
        let kind = (&raw const MEMORY_PRESSURE).cast_mut();
        // SAFETY: the kind is the system's own constant, which this kind of source only reads; it takes no handle, and these
        // are its flags.
        let source = unsafe { DispatchSource::new(kind, 0, levels as usize, Some(&queue)) };
        let handler = RcBlock::new(wake);
        // SAFETY: the source copies the block, whose closure may run on any thread and owns all that it uses.
        unsafe { source.set_event_handler_with_block(RcBlock::as_ptr(&handler)) };
        source.resume();
        Some(Self(source))
    }
}

impl Drop for WakeUp {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
