//! How much work Ebb puts into one command buffer of Metal. macOS ends a command buffer that holds
//! the GPU for too long, and draws the screen only between two of them.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Kernels per command buffer. A large micro-batch takes some 10 ms for each.
pub(crate) const KERNELS: usize = 10;

/// Environment variables that candle reads before its first Metal device is made, and their values.
/// Set them before any thread starts, unless the user has set them. The first one shortens command
/// buffers from 50 kernels; with the second one candle's kernels honour NaN and infinity, and use
/// precise functions.
pub const CANDLE_ENVIRONMENT: [(&str, &str); 2] = [
    ("CANDLE_METAL_COMPUTE_PER_BUFFER", "10"),
    ("CANDLE_METAL_ENABLE_FAST_MATH", "false"),
];

/// As how many kernels candle counts each of Ebb's.
static WEIGHT: Weight = Weight(AtomicUsize::new(1));

/// The number of kernels that one kernel counts as.
struct Weight(AtomicUsize);

impl Weight {
    /// Doubles the weight until each kernel has a command buffer of its own. True if that shortens
    /// the buffers.
    fn double(&self) -> bool {
        let double = |weight: usize| (weight < KERNELS).then(|| (2 * weight).min(KERNELS));
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, double)
            .is_ok()
    }
}

/// Halves the number of kernels per command buffer for the rest of the process, after the system
/// has ended one. False if each kernel already has its own: then only a smaller micro-batch helps.
/// Other devices than Metal have no command buffers.
pub fn shorten() -> bool {
    WEIGHT.double()
}

/// As how many kernels the next one counts.
#[cfg(any(target_os = "macos", test))]
pub(crate) fn weight() -> usize {
    WEIGHT.0.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_buffers_are_halved_down_to_one_kernel() {
        let weight = Weight(AtomicUsize::new(1));
        let mut kernels = Vec::new();
        while weight.double() {
            kernels.push(KERNELS / weight.0.load(Ordering::Relaxed));
        }
        assert_eq!(kernels, [5, 2, 1, 1]);
        assert!(!weight.double());
        assert_eq!(super::weight(), 1, "candle's own count until one was ended");
        assert!(shorten() && super::weight() == 2);
    }

    #[test]
    fn candle_counts_the_same_number() {
        assert_eq!(CANDLE_ENVIRONMENT[0].1, KERNELS.to_string());
    }
}
