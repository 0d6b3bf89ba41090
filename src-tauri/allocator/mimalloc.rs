//! mimalloc: glibc's allocator maps and unmaps every large tensor, which costs 14 to 20 % of a
//! training step.

pub type Chosen = mimalloc::MiMalloc;
pub const CHOSEN: Chosen = mimalloc::MiMalloc;

/// Index of `mi_option_purge_delay` in mimalloc's list of options, which only grows at its end.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
/// Milliseconds after which mimalloc returns freed memory to the system, counted from the first
/// block that is freed. (Its header mentions ten times the delay, which was true of version 2.) A
/// longer delay leaves more holes; with a shorter one the system has to clear more pages again.
/// Peaks of bert_mini at batch 64 and resnet18 at 32 were 730 and 1,000 MB with 1 s, 612 and 897
/// with 0.5 s, 590 and 810 with 0.3 s, 573 and 775 with 0.1 s; a step of bert_mini took 0.70, 0.74,
/// 0.77 and 0.76 s. When other apps need memory, the controller calls [`purge`], which would do
/// nothing with a delay of "never".
const KEEP_MS: std::ffi::c_long = 500;

/// Makes mimalloc hold freed memory for half a second, or until [`purge`], and use small pages. By
/// default it asks for huge pages of 2 MB, which stay resident if only a part of them is freed: 100
/// of the 1,760 MB of a language model with 98 million parameters. Call this once, before any large
/// allocation.
pub fn keep_freed() {
    // SAFETY: sets one number that mimalloc reads atomically.
    unsafe { libmimalloc_sys::mi_option_set_default(PURGE_DELAY, KEEP_MS) };
    // SAFETY: changes a setting of this process and reads no memory. If the system refuses, huge
    // pages stay enabled.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
}

/// Returns freed memory to the system.
pub fn purge() {
    // SAFETY: may be called at any time from any thread; it frees only memory that is not in use.
    unsafe { libmimalloc_sys::mi_collect(true) };
}
