//! How much work Ebb puts into one command buffer of Metal. macOS ends a command buffer that holds
//! the GPU for too long, and draws the screen only between two of them. So a command buffer has a
//! time budget, and the number of its kernels follows from how long the kernels take.

use std::sync::Mutex;
use std::time::Duration;

/// Most kernels per command buffer, which is the number that candle reads at its start.
pub(crate) const KERNELS: u32 = 10;

/// GPU time of a command buffer. A screen with 60 pictures per second has 16.7 ms for each.
const BUDGET: Duration = Duration::from_millis(10);

/// Environment variables that candle reads before its first Metal device is made, and their values.
/// Set them before any thread starts, unless the user has set them. The first one shortens command
/// buffers from 50 kernels; with the second one candle's kernels honour NaN and infinity, and use
/// precise functions.
pub const CANDLE_ENVIRONMENT: [(&str, &str); 2] = [
    ("CANDLE_METAL_COMPUTE_PER_BUFFER", "10"),
    ("CANDLE_METAL_ENABLE_FAST_MATH", "false"),
];

static PACE: Mutex<Pace> = Mutex::new(Pace::new());

/// The length of command buffers, and what was measured of the kernels in them.
#[derive(Debug)]
struct Pace {
    /// Kernels per command buffer.
    kernels: u32,
    /// Most kernels per command buffer, fewer after each one that the system has ended.
    most: u32,
    /// Kernels since the last measurement.
    launched: u64,
}

/// Whether kernels fit into the time budget of a command buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelTime {
    /// A command buffer with one kernel or more stays within the budget.
    WithinBudget,
    /// One kernel alone takes longer: only a smaller micro-batch helps.
    OverBudget,
}

impl Pace {
    const fn new() -> Self {
        Pace {
            kernels: KERNELS,
            most: KERNELS,
            launched: 0,
        }
    }

    /// Halves the command buffers for good. False if each kernel already has its own.
    fn shorten(&mut self) -> bool {
        let is_shorter = self.most > 1;
        self.most = (self.most / 2).max(1);
        self.kernels = self.kernels.min(self.most);
        is_shorter
    }

    /// Counts a kernel and returns as how many candle has to count it, so that it begins another
    /// command buffer after [`Self::kernels`] of them.
    #[cfg(any(target_os = "macos", test))]
    fn launch(&mut self) -> u32 {
        self.launched += 1;
        KERNELS.div_ceil(self.kernels)
    }

    /// Chooses the number of kernels that fit into the budget, if the kernels since the last call
    /// took `elapsed` together.
    fn measured(&mut self, elapsed: Duration) -> KernelTime {
        let launched = std::mem::take(&mut self.launched);
        if launched == 0 {
            return KernelTime::WithinBudget;
        }
        let each = elapsed.as_secs_f64() / launched as f64;
        let fitting = BUDGET.as_secs_f64() / each.max(1e-9);
        self.kernels = (fitting as u32).clamp(1, self.most);
        if fitting < 1.0 {
            KernelTime::OverBudget
        } else {
            KernelTime::WithinBudget
        }
    }
}

fn with_pace<R>(change: impl FnOnce(&mut Pace) -> R) -> R {
    change(&mut PACE.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
}

/// Halves the number of kernels per command buffer for the rest of the process, after the system
/// has ended one. False if each kernel already has its own: then only a smaller micro-batch helps.
/// Other devices than Metal have no command buffers.
pub fn shorten() -> bool {
    with_pace(Pace::shorten)
}

/// Adapts the number of kernels per command buffer to their measured time. `elapsed` is the time of
/// a micro-batch from its first kernel until the device was awaited, which is at least the GPU's
/// time; earlier kernels count as its own. Other devices than Metal have no command buffers, so
/// that nothing exceeds the budget there.
pub fn adapt(elapsed: Duration) -> KernelTime {
    with_pace(|pace| pace.measured(elapsed))
}

/// Counts a kernel that is launched now; returns as how many candle has to count it.
#[cfg(any(target_os = "macos", test))]
pub(crate) fn launch() -> u32 {
    with_pace(Pace::launch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_buffers_are_halved_down_to_one_kernel() {
        let mut pace = Pace::new();
        let mut kernels = Vec::new();
        while pace.shorten() {
            kernels.push(pace.kernels);
        }
        assert_eq!(kernels, [5, 2, 1]);
        assert_eq!(pace.launch(), KERNELS);
    }

    #[test]
    fn slow_kernels_get_shorter_command_buffers_and_fast_ones_long_ones_again() {
        let mut pace = Pace::new();
        let mut after = |ms: u64| {
            for _ in 0..100 {
                pace.launch();
            }
            let time = pace.measured(Duration::from_millis(ms));
            (time, pace.kernels, pace.launch())
        };
        assert_eq!(after(5), (KernelTime::WithinBudget, 10, 1));
        // 4 ms for each kernel.
        assert_eq!(after(404), (KernelTime::WithinBudget, 2, 5));
        // 12 ms for each kernel.
        assert_eq!(after(1212), (KernelTime::OverBudget, 1, 10));
        assert_eq!(after(5), (KernelTime::WithinBudget, 10, 1));
    }

    #[test]
    fn measured_time_does_not_undo_what_the_system_taught() {
        let mut pace = Pace::new();
        assert!(pace.shorten());
        assert_eq!(pace.launch(), 2);
        pace.measured(Duration::from_micros(10));
        assert_eq!(pace.kernels, 5);
    }

    #[test]
    fn without_kernels_of_metal_nothing_exceeds_the_budget() {
        let mut pace = Pace::new();
        let time = pace.measured(Duration::from_secs(60));
        assert_eq!((time, pace.kernels), (KernelTime::WithinBudget, KERNELS));
        assert_eq!(launch(), 1);
    }

    #[test]
    fn candle_counts_the_same_number() {
        assert_eq!(CANDLE_ENVIRONMENT[0].1, KERNELS.to_string());
    }
}
