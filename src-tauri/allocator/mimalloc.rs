//! mimalloc: glibc's allocator maps and unmaps every large tensor, which costs 14 to 20 % of a training step.

/// The allocator.
pub type Chosen = mimalloc::MiMalloc;
/// The allocator's value.
pub const CHOSEN: Chosen = mimalloc::MiMalloc;

/// `mi_option_purge_delay`: its place in mimalloc's list of options, which grows at the end only.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
/// mimalloc waits ten times as long, 2.5 s. What a step frees the next one takes, without the system clearing pages in between:
/// a third of a step of 0.45 s. Long steps give back what they do not need again: a tenth of the peak. "Never" would make
/// [`purge`] do nothing.
const KEEP_MS: std::ffi::c_long = 250;

/// Keeps freed memory for some seconds, or until [`purge`]. Call once, before anything large is allocated.
pub fn keep_freed() {
    // SAFETY: sets one number that mimalloc reads atomically.
    unsafe { libmimalloc_sys::mi_option_set_default(PURGE_DELAY, KEEP_MS) };
}

/// Gives cached memory back to the system.
pub fn purge() {
    // SAFETY: may be called at any time from any thread; it frees only what nobody holds.
    unsafe { libmimalloc_sys::mi_collect(true) };
}
