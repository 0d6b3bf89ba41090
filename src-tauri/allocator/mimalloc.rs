//! mimalloc: glibc's allocator maps and unmaps every large tensor, which costs 14 to 20 % of a training step.

/// The allocator.
pub type Chosen = mimalloc::MiMalloc;
/// The allocator's value.
pub const CHOSEN: Chosen = mimalloc::MiMalloc;

/// `mi_option_purge_delay`: its place in mimalloc's list of options, which grows at the end only.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
/// Half a second after the first block is freed mimalloc gives back all that is free at that moment. (Its header speaks of ten times the
/// delay, which was version 2's.) The longer, the more holes stay among what is held, and the shorter, the more pages the system
/// clears anew: the peaks of bert_mini at batch 64 and resnet18 at 32 were 730 and 1,000 MB with 1 s, 612 and 897 with half a second,
/// 590 and 810 with 0.3, 573 and 775 with 0.1; the time of a step 0.70, 0.74, 0.77 and 0.76 s for the first. Where other apps need
/// memory nobody waits: the pilot calls [`purge`]. "Never" would make that do nothing.
const KEEP_MS: std::ffi::c_long = 500;

/// Keeps freed memory for half a second, or until [`purge`], and memory in small pages. mimalloc asks for huge ones, of 2 MB, which
/// stay whole when a part is freed: 100 MB of the 1,760 that a language model of 98 million weights took. Call once, before
/// anything large is allocated.
pub fn keep_freed() {
    // SAFETY: sets one number that mimalloc reads atomically.
    unsafe { libmimalloc_sys::mi_option_set_default(PURGE_DELAY, KEEP_MS) };
    // SAFETY: changes a setting of this process and reads no memory. Where it is refused, huge pages stay.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
}

/// Gives cached memory back to the system.
pub fn purge() {
    // SAFETY: may be called at any time from any thread; it frees only what nobody holds.
    unsafe { libmimalloc_sys::mi_collect(true) };
}
