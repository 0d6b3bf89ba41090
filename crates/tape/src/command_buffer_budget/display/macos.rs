//! macOS: CoreGraphics knows the state of the main display. Same interface as `other.rs`.

#[link(name = "CoreGraphics", kind = "framework")]
unsafe extern "C-unwind" {
    fn CGMainDisplayID() -> u32;
    /// Not 0 if the display sleeps, and so shows nothing.
    fn CGDisplayIsAsleep(display: u32) -> i32;
}

/// Whether the main display sleeps.
pub(crate) fn is_asleep() -> bool {
    // SAFETY: both functions take and return numbers only, and may be called from any thread.
    unsafe { CGDisplayIsAsleep(CGMainDisplayID()) != 0 }
}
