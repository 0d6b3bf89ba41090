//! Number of threads of candle's own operations, which dry runs on the CPU use.

/// Environment variable that sets the number of threads of candle's own operations.
const THREADS: &str = "CANDLE_NUM_THREADS";

/// Makes candle's own operations run on the calling thread, unless the user has set the environment
/// variable `CANDLE_NUM_THREADS`. Otherwise candle starts one thread per core, and all threads spin
/// after every operation. Spinning took more than half of the CPU time of a list of estimates. Call
/// this before anything is computed.
pub fn run_stock_operations_on_one_thread() {
    if std::env::var_os(THREADS).is_none() {
        // SAFETY: changes this process's environment. Nothing was computed yet, so no other thread
        // reads it at the same time.
        unsafe { std::env::set_var(THREADS, "1") };
    }
}
