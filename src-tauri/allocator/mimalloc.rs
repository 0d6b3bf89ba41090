//! mimalloc: glibc's allocator maps and unmaps every large tensor, which costs 14 to 20 % of a
//! training step.

/// The allocator.
pub type Chosen = mimalloc::MiMalloc;
/// The allocator's value.
pub const CHOSEN: Chosen = mimalloc::MiMalloc;

/// `mi_option_purge_delay`: its index in mimalloc's list of options, which only grows at its end.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
/// mimalloc gives back all memory that is free half a second after the first block is freed. (Its
/// header mentions ten times the delay, which was true of version 2.) A longer delay leaves more
/// holes, a shorter one makes the system clear more pages again. Peaks of bert_mini at batch 64 and
/// resnet18 at 32 were 730 and 1,000 MB with 1 s, 612 and 897 with 0.5 s, 590 and 810 with 0.3 s,
/// 573 and 775 with 0.1 s; a step of the first took 0.70, 0.74, 0.77 and 0.76 s. When other apps
/// need memory the controller calls [`purge`], which would do nothing with a delay of "never".
const KEEP_MS: std::ffi::c_long = 500;

/// Holds freed memory for half a second, or until [`purge`], in small pages. mimalloc asks for huge
/// pages of 2 MB, which stay resident when a part of them is freed: 100 of the 1,760 MB of a
/// language model with 98 million weights. Call this once, before anything large is allocated.
pub fn keep_freed() {
    // SAFETY: sets one number that mimalloc reads atomically.
    unsafe { libmimalloc_sys::mi_option_set_default(PURGE_DELAY, KEEP_MS) };
    // SAFETY: changes a setting of this process and reads no memory. Where it is refused, huge
    // pages stay.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
}

/// Gives cached memory back to the system.
pub fn purge() {
    // SAFETY: may be called at any time from any thread; it frees only memory that is not in use.
    unsafe { libmimalloc_sys::mi_collect(true) };
}
