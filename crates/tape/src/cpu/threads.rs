//! Threads of the CPU kernels. In a dry run one thread does the work of the whole pool: it
//! allocates every thread's buffers and skips the arithmetic.

use crate::cpu::tensor_view::{Plain, buffer};
use crate::dry_run;

/// Threads of the CPU kernels: the size of the pool they run in, or the number that a dry run is
/// for.
pub(crate) fn threads() -> usize {
    dry_run::threads().unwrap_or_else(rayon::current_num_threads)
}

/// True in a dry run: buffers are allocated and freed, but their values only have to stay finite.
pub(crate) fn skips_arithmetic() -> bool {
    dry_run::threads().is_some()
}

/// In a dry run, the scratch buffers of `len` values that the other threads of the pool would
/// allocate for `jobs` parallel jobs; otherwise empty.
pub(crate) fn scratch_of_other_threads<T: Plain>(jobs: usize, len: usize) -> Vec<Vec<T>> {
    let threads = dry_run::threads().unwrap_or(0).min(jobs);
    (1..threads)
        .map(|thread| dry_run::as_thread(thread, || buffer(len)))
        .collect()
}

/// A buffer of `len` values for job `job` of `jobs`, which run in parallel. A dry run attributes it
/// to the thread that would run the job.
pub(crate) fn buffer_for_job<T: Plain>(len: usize, job: usize, jobs: usize) -> Vec<T> {
    match dry_run::threads() {
        Some(threads) => dry_run::as_thread(job * threads.min(jobs) / jobs.max(1), || buffer(len)),
        None => buffer(len),
    }
}
