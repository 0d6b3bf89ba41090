//! Times of single kernel launches, measured on request. A measured launch waits for the device
//! before and after the kernel, so kernels cannot overlap: this is for a report, not for training.
//! A time includes the launch and the wait, which even an empty kernel takes: on Metal the commit
//! of a command buffer and the notice that it has ended.

use super::Kernel;
use crate::device_sync::synchronize;
use crate::error::Result;
use crate::launch_grid::Grid;
use candle_core::Device;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

static MEASURES: AtomicBool = AtomicBool::new(false);
static TIMES: Mutex<BTreeMap<String, LaunchTime>> = Mutex::new(BTreeMap::new());

/// The fastest of the widest launches of a kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
struct LaunchTime {
    threads: usize,
    ms: f64,
}

/// Measures every launch of this process until it is dropped.
#[must_use = "the measurement ends when this is dropped"]
pub struct LaunchTimer(());

impl LaunchTimer {
    /// Forgets the times of earlier measurements and begins to measure.
    pub fn start() -> Self {
        times().clear();
        MEASURES.store(true, Ordering::Relaxed);
        LaunchTimer(())
    }
}

impl Drop for LaunchTimer {
    fn drop(&mut self) {
        MEASURES.store(false, Ordering::Relaxed);
    }
}

/// Launches a kernel, and records its time if a [`LaunchTimer`] exists.
///
/// # Errors
/// As `launch`, or earlier work of the device failed.
pub(super) fn launched(
    kernel: Kernel,
    grid: Grid,
    device: &Device,
    launch: impl FnOnce() -> Result<()>,
) -> Result<()> {
    if !MEASURES.load(Ordering::Relaxed) {
        return launch();
    }
    synchronize(device)?;
    let start = Instant::now();
    launch()?;
    synchronize(device)?;
    let measured = LaunchTime {
        threads: grid.total_threads(),
        ms: start.elapsed().as_secs_f64() * 1000.0,
    };
    record(&mut times(), kernel.symbol(), measured);
    Ok(())
}

/// The time of the widest measured launch of a kernel in milliseconds, the lowest if there were
/// several of that width. `None` if no launch was measured.
pub(super) fn launch_ms(kernel: &str) -> Option<f64> {
    times().get(kernel).map(|time| time.ms)
}

fn record(times: &mut BTreeMap<String, LaunchTime>, kernel: String, measured: LaunchTime) {
    let best = times.entry(kernel).or_insert(measured);
    let is_wider = measured.threads > best.threads;
    let is_faster = measured.threads == best.threads && measured.ms < best.ms;
    if is_wider || is_faster {
        *best = measured;
    }
}

fn times() -> MutexGuard<'static, BTreeMap<String, LaunchTime>> {
    // A panic elsewhere leaves a valid map: entries are plain numbers.
    TIMES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::elementwise::{Function, apply};
    use super::super::{CompiledKernel, emulator};
    use super::*;
    use candle_core::{DType, Tensor};

    fn launch_gelu() -> Kernel {
        let x = Tensor::zeros(8, DType::F32, &Device::Cpu).expect("small");
        emulator::with(|| apply(Function::Gelu, &x)).expect("the kernel runs");
        Kernel::typed("gelu_tanh", &x)
    }

    #[test]
    fn a_launch_is_measured_only_while_a_timer_exists() {
        let kernel = launch_gelu();
        assert_eq!(CompiledKernel::new(kernel, 1024).ms, None);
        let timer = LaunchTimer::start();
        launch_gelu();
        let measured = CompiledKernel::new(kernel, 1024).ms;
        assert!(measured.is_some_and(|ms| ms > 0.0), "{measured:?}");
        drop(timer);
        launch_gelu();
        assert_eq!(CompiledKernel::new(kernel, 1024).ms, measured);
    }

    #[test]
    fn the_widest_launch_counts_and_the_fastest_of_these() {
        let mut times = BTreeMap::new();
        for (threads, ms) in [(64, 0.1), (256, 3.0), (256, 2.0), (256, 2.5), (32, 0.01)] {
            record(&mut times, "sum_f32".to_owned(), LaunchTime { threads, ms });
        }
        let kept = LaunchTime {
            threads: 256,
            ms: 2.0,
        };
        assert_eq!(times["sum_f32"], kept);
    }
}
