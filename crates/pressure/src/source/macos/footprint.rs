//! The footprint of this process on macOS.

use std::mem::MaybeUninit;

/// Footprint of this process, in bytes: `phys_footprint`, which Activity Monitor shows as "Memory";
/// 0 if it cannot be read. Takes about a microsecond.
pub fn own_footprint_bytes() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage_info_v4>::zeroed();
    // SAFETY: asks about this process; `usage` is the struct of the flavour asked for.
    let code = unsafe {
        libc::proc_pid_rusage(
            libc::getpid(),
            libc::RUSAGE_INFO_V4,
            usage.as_mut_ptr().cast(),
        )
    };
    if code != 0 {
        return 0;
    }
    // SAFETY: the call succeeded and filled the struct of plain numbers, which was zeroed before.
    unsafe { usage.assume_init() }.ri_phys_footprint
}

/// Highest footprint of this process since the last call. `None`: the kernel counts it only over
/// the whole life of a process, so the monitor polls.
pub fn take_own_peak_bytes() -> Option<u64> {
    None
}
