//! How long a command buffer may hold the GPU: short while the display is on, longer while it
//! sleeps and no picture has to wait. Each platform has a file with the same interface.

#[cfg_attr(target_os = "macos", path = "display/macos.rs")]
#[cfg_attr(not(target_os = "macos"), path = "display/other.rs")]
mod platform;

use std::time::{Duration, Instant};

pub(super) use platform::is_asleep;

/// GPU time of a command buffer while the display is on. A screen with 60 pictures per second has
/// 16.7 ms for each.
pub(super) const DISPLAY_ON: Duration = Duration::from_millis(10);
/// GPU time of a command buffer while the display sleeps: far below what macOS allows before it
/// ends the work.
const DISPLAY_ASLEEP: Duration = Duration::from_millis(100);
/// The state of the display is read at most this often.
const INTERVAL: Duration = Duration::from_secs(1);

/// The display as it was read last.
#[derive(Debug)]
pub(super) struct Display {
    read_at: Option<Instant>,
    is_asleep: bool,
    /// The budget while it is on.
    on: Duration,
}

impl Display {
    pub(super) const fn new() -> Self {
        Display {
            read_at: None,
            is_asleep: false,
            on: DISPLAY_ON,
        }
    }

    /// Sets the budget while the display is on. One that is longer than the usual budget of a
    /// sleeping display holds for that, too.
    pub(super) fn set_budget(&mut self, on: Duration) {
        self.on = on;
    }

    /// The budget while the display is on.
    pub(super) fn budget_while_on(&self) -> Duration {
        self.on
    }

    /// The time budget of a command buffer now. `is_asleep` reads the state of the display.
    pub(super) fn budget(&mut self, now: Instant, is_asleep: impl FnOnce() -> bool) -> Duration {
        let is_recent = |at: Instant| now.saturating_duration_since(at) < INTERVAL;
        if !self.read_at.is_some_and(is_recent) {
            self.is_asleep = is_asleep();
            self.read_at = Some(now);
        }
        if self.is_asleep {
            self.on.max(DISPLAY_ASLEEP)
        } else {
            self.on
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_follows_the_display_and_is_read_once_a_second() {
        let mut display = Display::new();
        let start = Instant::now();
        let mut reads = 0;
        let mut budget_ms = |at_ms: u64, is_asleep: bool| {
            let now = start + Duration::from_millis(at_ms);
            let budget = display.budget(now, || {
                reads += 1;
                is_asleep
            });
            (budget.as_millis(), reads)
        };
        assert_eq!(budget_ms(0, false), (10, 1));
        // It fell asleep, which is noticed a second after the last look.
        assert_eq!(budget_ms(999, true), (10, 1));
        assert_eq!(budget_ms(1000, true), (100, 2));
        assert_eq!(budget_ms(1999, false), (100, 2));
        assert_eq!(budget_ms(2000, false), (10, 3));
        for (on_ms, asleep_ms) in [(25_u64, 100_u128), (400, 400)] {
            for (is_asleep, expected_ms) in [(false, u128::from(on_ms)), (true, asleep_ms)] {
                let mut display = Display::new();
                display.set_budget(Duration::from_millis(on_ms));
                let budget = display.budget(start, || is_asleep);
                assert_eq!(budget.as_millis(), expected_ms);
            }
        }
    }
}
