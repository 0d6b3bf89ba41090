//! The threads of candle's own stock operations, which rehearsals on the CPU run. Refuses to know what is rehearsed.

/// Names how many threads candle keeps for stock operations.
const THREADS: &str = "CANDLE_NUM_THREADS";

/// Has stock operations run on the thread that asks for them. Otherwise candle keeps one thread a core, and all of them wait for one
/// another without sleep after every operation: more than half of the processor time of a list of forecasts. What a user has set
/// stands. Call before anything is computed.
pub fn run_stock_operations_alone() {
    if std::env::var_os(THREADS).is_none() {
        // SAFETY: changes this process's environment. Nothing was computed yet, so that no other thread reads it meanwhile.
        unsafe { std::env::set_var(THREADS, "1") };
    }
}
