//! Other systems have no notification that is fast enough: the stall trigger of Linux checks every
//! two seconds, and came 0.9 to 2.1 s after polling had read the same stall.

/// Not available on this system.
pub(crate) enum PressureNotification {}

impl PressureNotification {
    /// Returns `None`; `wake` is never called.
    pub(crate) fn on_pressure(_wake: impl Fn() + Send + Sync + 'static) -> Option<Self> {
        None
    }
}
