//! How much work Ebb puts into one command buffer of Metal. macOS ends a command buffer that holds
//! the GPU for too long, and draws the screen only between two of them. So a command buffer has a
//! time budget, which the user can change, and the number of its kernels follows from how long the
//! kernels take. The budget is larger while the display sleeps.
//!
//! The time of single kernels or command buffers cannot be measured: candle holds them. What is
//! measured is the time of a whole micro-batch, from a first launch until the host has awaited the
//! device. It is divided by the number of launches. Ebb's own are counted. candle launches kernels
//! too, for operations in the composed form, and does not report how many; their number is between
//! 1 and [`MOST_COMPOSED`] for each operation. Command buffers are as short as the lower bound
//! asks, and a micro-batch counts as too large only if it is with the upper bound.

mod display;

use display::{DISPLAY_ON, Display};
use std::cell::RefCell;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Most kernels per command buffer, which is the number that candle reads at its start.
const KERNELS: u32 = 10;

/// Environment variables that candle reads before its first Metal device is made, and their values.
/// Set them before any thread starts, unless the user has set them. The first one shortens command
/// buffers from 50 kernels; with the second one candle's kernels honour NaN and infinity, and use
/// precise functions.
pub const CANDLE_ENVIRONMENT: [(&str, &str); 2] = [
    ("CANDLE_METAL_COMPUTE_PER_BUFFER", "10"),
    ("CANDLE_METAL_ENABLE_FAST_MATH", "false"),
];

/// Most kernels of an operation in its composed form, forward and backward.
const MOST_COMPOSED: u64 = 32;

static PACE: Mutex<Pace> = Mutex::new(Pace::new());

thread_local! {
    /// The micro-batch that this thread computes. A device belongs to one thread, so that kernels
    /// of another one, which computes with a trained model meanwhile, are not counted.
    static MEASURED: RefCell<Measured> = const { RefCell::new(Measured::new()) };
}

/// The length of command buffers.
#[derive(Debug)]
struct Pace {
    /// Kernels per command buffer.
    kernels: u32,
    /// Most kernels per command buffer, fewer after each one that the system has ended.
    most: u32,
    /// The command buffers since they were taken last.
    computed: CommandBuffers,
    /// Whether a kernel took longer than the budget in the newest micro-batch.
    was_over: bool,
    /// Decides the budget.
    display: Display,
}

/// What was measured of the kernels of a micro-batch.
#[derive(Debug)]
struct Measured {
    /// Ebb's own kernels in it.
    launched: u64,
    /// Operations that candle computed with its kernels.
    composed: u64,
    /// When the first kernel was launched that the host has not awaited yet.
    since: Option<Instant>,
    /// Time from a first launch until the device was awaited, which is at least the GPU's time.
    /// What the host did before the launch and after the wait is left out.
    busy: Duration,
    /// Whether a kernel was compiled meanwhile, which takes the host longer than the GPU computes.
    has_compiled: bool,
}

impl Measured {
    const fn new() -> Self {
        Measured {
            launched: 0,
            composed: 0,
            since: None,
            busy: Duration::ZERO,
            has_compiled: false,
        }
    }

    /// Counts a kernel.
    #[cfg(any(target_os = "macos", test))]
    fn launch(&mut self, now: Instant) {
        self.launched += 1;
        self.since.get_or_insert(now);
    }

    /// The device has done all that was launched.
    fn awaited(&mut self, now: Instant) {
        if let Some(since) = self.since.take() {
            self.busy += now.saturating_duration_since(since);
        }
    }
}

/// Command buffers that the GPU has computed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CommandBuffers {
    /// Their number; more if kernels of candle ran between those of Ebb.
    pub count: u64,
    /// The time that the GPU took for all of them, at most: the host measures it.
    pub busy: Duration,
}

impl CommandBuffers {
    /// No command buffers.
    pub const NONE: Self = CommandBuffers {
        count: 0,
        busy: Duration::ZERO,
    };

    /// Adds further command buffers.
    pub fn add(&mut self, more: CommandBuffers) {
        self.count += more.count;
        self.busy += more.busy;
    }

    /// Mean time per command buffer in milliseconds; `None` without command buffers.
    pub fn mean_ms(&self) -> Option<f64> {
        (self.count > 0).then(|| 1000.0 * self.busy.as_secs_f64() / self.count as f64)
    }
}

/// Whether kernels fit into the time budget of a command buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelTime {
    /// A command buffer with one kernel or more stays within the budget.
    WithinBudget,
    /// One kernel alone takes longer, in two micro-batches in a row: only a smaller micro-batch
    /// helps. In a single one, candle may have compiled kernels, which it does not report.
    OverBudget,
}

impl Pace {
    const fn new() -> Self {
        Pace {
            kernels: KERNELS,
            most: KERNELS,
            computed: CommandBuffers::NONE,
            was_over: false,
            display: Display::new(),
        }
    }

    /// Halves the command buffers for good. False if each kernel already has its own.
    fn shorten(&mut self) -> bool {
        let is_shorter = self.most > 1;
        self.most = (self.most / 2).max(1);
        self.kernels = self.kernels.min(self.most);
        is_shorter
    }

    /// As how many kernels candle has to count one, so that it begins another command buffer after
    /// [`Self::kernels`] of them.
    #[cfg(any(target_os = "macos", test))]
    fn count_each_as(&self) -> u32 {
        KERNELS.div_ceil(self.kernels)
    }

    /// Chooses the number of kernels that fit into the budget. A micro-batch without kernels, or
    /// during which kernels were compiled, changes nothing. `is_asleep` reads the state of the
    /// display.
    fn adapt(
        &mut self,
        measured: &Measured,
        now: Instant,
        is_asleep: impl FnOnce() -> bool,
    ) -> KernelTime {
        if measured.launched == 0 || measured.has_compiled {
            return KernelTime::WithinBudget;
        }
        let at_least_launched = measured.launched + measured.composed;
        self.computed.add(CommandBuffers {
            count: at_least_launched.div_ceil(u64::from(self.kernels)),
            busy: measured.busy,
        });
        let budget = self.display.budget(now, is_asleep).as_secs_f64();
        let fitting = |launches: u64| {
            let each = measured.busy.as_secs_f64() / launches as f64;
            budget / each.max(1e-9)
        };
        let at_least = fitting(at_least_launched);
        self.kernels = (at_least as u32).clamp(1, self.most);
        let is_over = fitting(measured.launched + MOST_COMPOSED * measured.composed) < 1.0;
        if std::mem::replace(&mut self.was_over, is_over) && is_over {
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

/// Sets the GPU time of a command buffer while the display is on, for the runs of this process;
/// `None` for the usual one.
pub fn set_budget(budget: Option<Duration>) {
    with_pace(|pace| pace.display.set_budget(budget.unwrap_or(DISPLAY_ON)));
}

/// The GPU time of a command buffer while the display is on.
pub fn budget() -> Duration {
    with_pace(|pace| pace.display.budget_while_on())
}

/// Changes what was measured on this thread.
fn measure<R>(change: impl FnOnce(&mut Measured) -> R) -> R {
    MEASURED.with_borrow_mut(change)
}

/// Begins to measure the kernels of a micro-batch, which this thread computes.
pub fn begin() {
    MEASURED.set(Measured::new());
}

/// Adapts the number of kernels per command buffer to the measured time of a micro-batch that the
/// device has computed for this thread. Other devices than Metal have no command buffers, so that
/// nothing exceeds the budget there.
pub fn adapt() -> KernelTime {
    let (measured, now) = (MEASURED.replace(Measured::new()), Instant::now());
    with_pace(|pace| pace.adapt(&measured, now, display::is_asleep))
}

/// The command buffers of the micro-batches since the last call that [`adapt`] has measured. None
/// on other devices than Metal, and none of micro-batches during which kernels were compiled.
pub fn take_computed() -> CommandBuffers {
    with_pace(|pace| std::mem::replace(&mut pace.computed, CommandBuffers::NONE))
}

/// Counts a kernel that is launched now; returns as how many candle has to count it.
#[cfg(any(target_os = "macos", test))]
pub(crate) fn launch() -> u32 {
    let now = Instant::now();
    measure(|measured| measured.launch(now));
    with_pace(|pace| pace.count_each_as())
}

/// Counts an operation that candle computes on a Metal device.
pub(crate) fn composed() {
    measure(|measured| measured.composed += 1);
}

/// The kernels of Ebb and the operations of candle that this thread has counted since [`begin`].
#[cfg(test)]
pub(crate) fn counted() -> (u64, u64) {
    measure(|measured| (measured.launched, measured.composed))
}

/// Notes that a kernel is compiled: the time of this micro-batch is not that of its kernels.
#[cfg(any(target_os = "macos", test))]
pub(crate) fn compiled() {
    measure(|measured| measured.has_compiled = true);
}

/// Notes that the host has awaited a Metal device.
pub(crate) fn awaited() {
    let now = Instant::now();
    measure(|measured| measured.awaited(now));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that a test moves.
    struct Clock(Instant);

    impl Clock {
        fn new() -> Self {
            Clock(Instant::now())
        }

        fn after_ms(&mut self, ms: u64) -> Instant {
            self.0 += Duration::from_millis(ms);
            self.0
        }
    }

    /// A thread that computes, and the command buffers of the process.
    struct Thread {
        pace: Pace,
        measured: Measured,
    }

    impl Thread {
        fn new() -> Self {
            Thread {
                pace: Pace::new(),
                measured: Measured::new(),
            }
        }

        /// Launches 100 kernels, and awaits them `ms` later.
        fn compute(&mut self, clock: &mut Clock, ms: u64) {
            for _ in 0..100 {
                self.measured.launch(clock.0);
            }
            self.measured.awaited(clock.after_ms(ms));
        }

        /// Adapts while the display is on.
        fn adapted(&mut self, clock: &Clock) -> KernelTime {
            self.adapt(clock, false)
        }

        fn adapt(&mut self, clock: &Clock, is_asleep: bool) -> KernelTime {
            let measured = std::mem::replace(&mut self.measured, Measured::new());
            self.pace.adapt(&measured, clock.0, || is_asleep)
        }
    }

    #[test]
    fn command_buffers_are_halved_down_to_one_kernel() {
        let mut pace = Pace::new();
        let mut kernels = Vec::new();
        while pace.shorten() {
            kernels.push(pace.kernels);
        }
        assert_eq!(kernels, [5, 2, 1]);
        assert_eq!(pace.count_each_as(), KERNELS);
    }

    #[test]
    fn slow_kernels_get_shorter_command_buffers_and_fast_ones_long_ones_again() {
        let (mut thread, mut clock) = (Thread::new(), Clock::new());
        let mut after = |ms: u64| {
            thread.compute(&mut clock, ms);
            let time = thread.adapted(&clock);
            (time, thread.pace.kernels, thread.pace.count_each_as())
        };
        assert_eq!(after(5), (KernelTime::WithinBudget, 10, 1));
        // 4 ms for each kernel.
        assert_eq!(after(404), (KernelTime::WithinBudget, 2, 5));
        // 12 ms for each kernel.
        assert_eq!(after(1212), (KernelTime::WithinBudget, 1, 10));
        assert_eq!(after(1212), (KernelTime::OverBudget, 1, 10));
        assert_eq!(after(5), (KernelTime::WithinBudget, 10, 1));
    }

    #[test]
    fn command_buffers_are_counted_with_their_time() {
        let (mut thread, mut clock) = (Thread::new(), Clock::new());
        // 10 kernels per command buffer, then, at 4 ms for each kernel, 2.
        thread.compute(&mut clock, 400);
        thread.adapted(&clock);
        assert_eq!(thread.pace.computed.mean_ms(), Some(40.0));
        thread.compute(&mut clock, 400);
        thread.adapted(&clock);
        let all = CommandBuffers {
            count: 60,
            busy: Duration::from_millis(800),
        };
        assert_eq!(thread.pace.computed, all);
        // While kernels are compiled, the time is not that of the GPU.
        thread.measured.has_compiled = true;
        thread.compute(&mut clock, 9000);
        thread.adapted(&clock);
        // A micro-batch on another device launches none.
        thread.adapted(&clock);
        assert_eq!(thread.pace.computed, all);
        assert_eq!(CommandBuffers::NONE.mean_ms(), None);
    }

    #[test]
    fn only_the_time_between_a_launch_and_the_wait_for_it_is_measured() {
        let (mut thread, mut clock) = (Thread::new(), Clock::new());
        // The host prepares the samples, and reads a value in between.
        clock.after_ms(5000);
        thread.compute(&mut clock, 200);
        clock.after_ms(3000);
        thread.compute(&mut clock, 600);
        clock.after_ms(9000);
        // A wait with nothing to await.
        thread.measured.awaited(clock.0);
        // 4 ms for each kernel.
        let time = thread.adapted(&clock);
        assert_eq!((time, thread.pace.kernels), (KernelTime::WithinBudget, 2));
    }

    #[test]
    fn a_micro_batch_that_compiled_kernels_is_not_measured() {
        let (mut thread, mut clock) = (Thread::new(), Clock::new());
        thread.measured.has_compiled = true;
        thread.compute(&mut clock, 60_000);
        let time = thread.adapted(&clock);
        assert_eq!(
            (time, thread.pace.kernels),
            (KernelTime::WithinBudget, KERNELS)
        );
        // The next two compile nothing.
        thread.compute(&mut clock, 60_000);
        assert_eq!(thread.adapted(&clock), KernelTime::WithinBudget);
        thread.compute(&mut clock, 60_000);
        let time = thread.adapted(&clock);
        assert_eq!((time, thread.pace.kernels), (KernelTime::OverBudget, 1));
    }

    #[test]
    fn kernels_of_candle_are_not_counted_as_time_of_ours() {
        let (mut thread, mut clock) = (Thread::new(), Clock::new());
        thread.measured.composed = 100;
        thread.compute(&mut clock, 800);
        // At most 4 ms for each kernel, of which 200 or more share the time.
        let time = thread.adapted(&clock);
        assert_eq!((time, thread.pace.kernels), (KernelTime::WithinBudget, 2));
        thread.measured.composed = 100;
        thread.compute(&mut clock, 1212);
        // Our 100 alone would take 12 ms each, but they do not compute alone.
        let time = thread.adapted(&clock);
        assert_eq!((time, thread.pace.kernels), (KernelTime::WithinBudget, 1));
        thread.measured.composed = 1;
        thread.compute(&mut clock, 1600);
        assert_eq!(thread.adapted(&clock), KernelTime::WithinBudget);
        thread.measured.composed = 1;
        thread.compute(&mut clock, 1600);
        // 12 ms for each, however many of them are candle's.
        let time = thread.adapted(&clock);
        assert_eq!((time, thread.pace.kernels), (KernelTime::OverBudget, 1));
    }

    #[test]
    fn kernels_before_a_micro_batch_are_not_its_own() {
        launch();
        composed();
        compiled();
        begin();
        launch();
        awaited();
        measure(|measured| {
            assert_eq!((measured.launched, measured.composed), (1, 0));
            assert!(measured.since.is_none() && !measured.has_compiled);
        });
        assert_eq!(adapt(), KernelTime::WithinBudget);
    }

    #[test]
    fn kernels_of_another_thread_are_not_those_of_the_micro_batch() {
        begin();
        launch();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                launch();
                composed();
                compiled();
                awaited();
            });
        });
        measure(|measured| {
            assert_eq!((measured.launched, measured.composed), (1, 0));
            assert!(!measured.has_compiled);
            assert!(measured.since.is_some(), "only this thread awaits its work");
        });
    }

    #[test]
    fn kernels_may_take_longer_while_the_display_sleeps() {
        let (mut thread, mut clock) = (Thread::new(), Clock::new());
        // 19 ms for each kernel.
        thread.compute(&mut clock, 1900);
        let time = thread.adapt(&clock, true);
        assert_eq!((time, thread.pace.kernels), (KernelTime::WithinBudget, 5));
        thread.compute(&mut clock, 1900);
        assert_eq!(thread.adapted(&clock), KernelTime::WithinBudget);
        thread.compute(&mut clock, 1900);
        let time = thread.adapted(&clock);
        assert_eq!((time, thread.pace.kernels), (KernelTime::OverBudget, 1));
    }

    #[test]
    fn measured_time_does_not_undo_what_the_system_taught() {
        let (mut thread, mut clock) = (Thread::new(), Clock::new());
        assert!(thread.pace.shorten());
        assert_eq!(thread.pace.count_each_as(), 2);
        thread.compute(&mut clock, 0);
        thread.adapted(&clock);
        assert_eq!(thread.pace.kernels, 5);
    }

    #[test]
    fn without_kernels_of_metal_nothing_exceeds_the_budget() {
        let (mut thread, clock) = (Thread::new(), Clock::new());
        thread.measured.awaited(clock.0);
        let time = thread.adapted(&clock);
        assert_eq!(
            (time, thread.pace.kernels),
            (KernelTime::WithinBudget, KERNELS)
        );
    }

    #[test]
    fn candle_counts_the_same_number() {
        assert_eq!(CANDLE_ENVIRONMENT[0].1, KERNELS.to_string());
    }
}
