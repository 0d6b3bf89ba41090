//! What a run shows between two events. The monitor's thread passes every memory sample on, so that
//! the display is current during a slow micro-batch. The highest footprint is kept for the next
//! memory event. Readings of a slow micro-batch are also written to the run folder, for other
//! processes that show the run.

use crate::memory_reading::MemoryReading;
use pressure::{LevelTracker, MemorySample, pressure};
use runlog::{EventWriter, MemoryPeak, RunEvent, StepProgress};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A reading is kept for the events if none was emitted for this long, in milliseconds. Longer
/// than the shortest time between two memory events, so that a fast training emits its own.
const INTERVAL_MS: u64 = 1250;
/// Most readings that wait to be emitted; later ones become part of the newest.
const MAX_WAITING: usize = 3600;

/// Shows a run while it trains. Called on several threads; it must not block.
pub trait LiveObserver: fmt::Debug + Send + Sync {
    /// A memory sample, in the form of a `RunEvent::Memory` that is not emitted.
    fn memory(&self, event: &RunEvent);
    /// A micro-batch begins.
    fn progress(&self, progress: StepProgress);
    /// The run prepares its first step and has done so for `elapsed`. `message` names the work,
    /// such as "Learning a vocabulary of 8,000 tokens". `left` is the remaining time of this work,
    /// if it is known. Called about once per second.
    fn preparing(&self, _message: &str, _elapsed: Duration, _left: Option<Duration>) {}
}

/// Writes the events of a run on two threads.
pub(crate) type SharedWriter = Arc<Mutex<EventWriter>>;

/// The run's clock: milliseconds of training, over all sessions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunClock {
    started: Instant,
    earlier_ms: u64,
}

impl RunClock {
    /// Starts the clock of a session.
    pub fn start(earlier_ms: u64) -> Self {
        RunClock {
            started: Instant::now(),
            earlier_ms,
        }
    }

    pub fn now_ms(&self) -> u64 {
        self.at_ms(Instant::now())
    }

    pub fn at_ms(&self, at: Instant) -> u64 {
        self.earlier_ms + at.saturating_duration_since(self.started).as_millis() as u64
    }
}

/// A memory reading between two events.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Interval {
    begun_ms: u64,
    /// Time of its newest sample.
    pub at_ms: u64,
    pub reading: MemoryReading,
    pub peak: MemoryPeak,
    /// Whether its event is in the run folder already. The observer has not seen it.
    pub is_written: bool,
}

/// The memory samples since the newest memory event, shared with the monitor's thread.
#[derive(Clone)]
pub(crate) struct LiveMemory {
    clock: RunClock,
    observer: Option<Arc<dyn LiveObserver>>,
    history: Arc<Mutex<History>>,
}

impl LiveMemory {
    pub fn new(clock: RunClock, observer: Option<Arc<dyn LiveObserver>>) -> Self {
        LiveMemory {
            clock,
            observer,
            history: Arc::default(),
        }
    }

    pub fn clock(&self) -> RunClock {
        self.clock
    }

    /// Takes a sample that was just read.
    pub fn sample(&self, sample: &MemorySample) {
        let at_ms = self.clock.now_ms();
        let reading = self.history().sample(at_ms, sample);
        self.write_waiting();
        if let (Some(observer), Some(reading)) = (&self.observer, reading) {
            observer.memory(&reading.event(at_ms, None));
        }
    }

    /// Takes the exact peak of a micro-batch that began at `begun` and has just ended.
    pub fn exact_peak(&self, begun: Instant, own_bytes: u64) {
        let begun_ms = self.clock.at_ms(begun);
        self.history().exact_peak(begun_ms, own_bytes);
    }

    /// Ends the interval with an event, and returns its peak and the readings before it.
    pub fn end_interval(&self, at_ms: u64, reading: &MemoryReading) -> (Vec<Interval>, MemoryPeak) {
        self.history().end(at_ms, reading)
    }

    /// From now on, readings that wait for an event are written at once.
    pub fn write_to(&self, writer: SharedWriter) {
        self.history().writer = Some(writer);
    }

    /// Ends what [`LiveMemory::write_to`] began: the run has ended.
    pub fn stop_writing(&self) {
        self.history().writer = None;
    }

    /// Writes the readings that wait, so that other processes that show the run see them. They wait
    /// for the next event if an event is being written. A disk that refuses them is left alone
    /// until it has accepted an event.
    fn write_waiting(&self) {
        let mut history = self.history();
        let Some(shared) = history.writer.clone() else {
            return;
        };
        let Ok(mut writer) = shared.try_lock() else {
            return;
        };
        let waiting = history.waiting.iter_mut();
        for interval in waiting.filter(|interval| !interval.is_written) {
            let event = interval.reading.event(interval.at_ms, Some(interval.peak));
            interval.is_written = writer.write(&event).is_ok();
            if !interval.is_written {
                history.writer = None;
                return;
            }
        }
    }

    pub fn progress(&self, progress: StepProgress) {
        if let Some(observer) = &self.observer {
            observer.progress(progress);
        }
    }

    fn history(&self) -> MutexGuard<'_, History> {
        // Every change leaves valid readings, so a panic elsewhere does no harm.
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct History {
    level: LevelTracker,
    /// The newest event, whose budget and state stay valid until the next.
    last: Option<(u64, MemoryReading)>,
    waiting: Vec<Interval>,
    open: Option<Interval>,
    writer: Option<SharedWriter>,
}

impl History {
    /// Returns the sample's reading; `None` before the first event.
    fn sample(&mut self, at_ms: u64, sample: &MemorySample) -> Option<MemoryReading> {
        let pressure = pressure(sample);
        let level = self.level.update(sample.at_ms, pressure.value);
        let (last_ms, last) = self.last?;
        // The line stays where the last decision put it.
        let others = |sample: &MemorySample| sample.system_bytes + sample.others_bytes();
        let line = others(&last.sample) + last.budget_bytes;
        let reading = MemoryReading {
            sample: *sample,
            pressure,
            level: level.max(last.level),
            budget_bytes: line.saturating_sub(others(sample)),
            ..last
        };
        let begun_ms = self.open.map_or(last_ms, |open| open.begun_ms);
        let is_over = at_ms >= begun_ms + INTERVAL_MS && self.waiting.len() < MAX_WAITING;
        if let Some(over) = self.open.take_if(|_| is_over) {
            self.waiting.push(over);
        }
        let now = MemoryPeak::from_sample(sample);
        let begun_ms = if is_over { at_ms } else { begun_ms };
        let peak = self.open.map_or(now, |open| open.peak.max(now));
        self.open = Some(Interval {
            begun_ms,
            at_ms,
            reading,
            peak,
            is_written: false,
        });
        Some(reading)
    }

    /// Raises the highest interval since `begun_ms` that is not written yet to the peak that the
    /// device counted.
    fn exact_peak(&mut self, begun_ms: u64, own_bytes: u64) {
        let during = self.waiting.iter_mut().chain(&mut self.open);
        let during = during.filter(|interval| interval.at_ms >= begun_ms && !interval.is_written);
        if let Some(highest) = during.max_by_key(|interval| interval.peak.own_bytes) {
            highest.peak.own_bytes = highest.peak.own_bytes.max(own_bytes);
        } else if let Some((at_ms, reading)) = self.last {
            // A micro-batch so short that nothing was read meanwhile.
            let peak = MemoryPeak {
                own_bytes,
                ..MemoryPeak::from_sample(&reading.sample)
            };
            self.open = Some(Interval {
                begun_ms: at_ms,
                at_ms: begun_ms.max(at_ms),
                reading,
                peak,
                is_written: false,
            });
        }
    }

    fn end(&mut self, at_ms: u64, reading: &MemoryReading) -> (Vec<Interval>, MemoryPeak) {
        let now = MemoryPeak::from_sample(&reading.sample);
        let open = self.open.take();
        self.last = Some((at_ms, *reading));
        let peak = open.map_or(now, |open| open.peak.max(now));
        (std::mem::take(&mut self.waiting), peak)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pressure::{Component, Level, Reading};
    use runlog::RunFolder;

    fn sample(own_bytes: u64) -> MemorySample {
        MemorySample {
            total_bytes: 1000,
            available_bytes: 800 - own_bytes,
            own_bytes,
            ..MemorySample::default()
        }
    }

    fn reading(own_bytes: u64) -> MemoryReading {
        MemoryReading {
            sample: sample(own_bytes),
            pressure: Reading {
                value: 0.0,
                cause: Component::Headroom,
            },
            level: Level::Normal,
            state_bytes: 50,
            budget_bytes: 600,
            limit_bytes: 900,
            micro_batch: 8,
        }
    }

    fn begun() -> History {
        let mut history = History::default();
        assert!(history.sample(0, &sample(100)).is_none(), "no budget yet");
        history.end(0, &reading(100));
        history
    }

    #[test]
    fn an_event_has_the_highest_footprint_since_the_one_before() {
        let mut history = begun();
        for (at_ms, own) in [(100, 120), (200, 400), (300, 110)] {
            history.sample(at_ms, &sample(own));
        }
        let (waiting, peak) = history.end(400, &reading(105));
        assert!(waiting.is_empty());
        assert_eq!((peak.own_bytes, peak.others_bytes), (400, 200));
        let (_, peak) = history.end(500, &reading(105));
        assert_eq!(peak.own_bytes, 105, "the next interval begins anew");
    }

    #[test]
    fn a_slow_micro_batch_leaves_a_reading_for_each_interval() {
        let mut history = begun();
        for tenth in 1..=100 {
            history.sample(tenth * 100, &sample(100 + tenth));
        }
        let (waiting, _) = history.end(10_050, &reading(100));
        let at_ms: Vec<u64> = waiting.iter().map(|interval| interval.at_ms).collect();
        assert_eq!(at_ms, [1200, 2500, 3800, 5100, 6400, 7700, 9000]);
        assert_eq!(waiting[0].peak.own_bytes, 112);
    }

    #[test]
    fn other_processes_see_a_slow_micro_batch_while_it_runs() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let run = RunFolder {
            path: folder.path().to_owned(),
        };
        let writer = EventWriter::append(&run).expect("it can be written");
        let writer = Arc::new(Mutex::new(writer));
        let live = LiveMemory::new(RunClock::start(0), None);
        live.write_to(Arc::clone(&writer));
        live.end_interval(0, &reading(100));
        let sample_until = |tenths: std::ops::RangeInclusive<u64>| {
            for tenth in tenths {
                live.history().sample(tenth * 100, &sample(100 + tenth));
                live.write_waiting();
            }
        };
        let written = || -> Vec<u64> {
            let events = runlog::read_events(&run.events_path()).expect("they can be read");
            events.iter().map(RunEvent::at_ms).collect()
        };
        sample_until(1..=30);
        assert_eq!(written(), [1200, 2500]);
        let busy = writer.lock().expect("no thread panicked");
        sample_until(31..=45);
        drop(busy);
        assert_eq!(written(), [1200, 2500], "an event is being written");
        sample_until(46..=46);
        assert_eq!(written(), [1200, 2500, 3800]);
        // What is written already keeps its peak.
        live.history().exact_peak(100, 900);
        let (waiting, peak) = live.end_interval(4700, &reading(100));
        assert!(waiting.iter().all(|interval| interval.is_written));
        assert_eq!(peak.own_bytes, 900);
        live.stop_writing();
        sample_until(47..=80);
        assert_eq!(written().len(), 3, "the run has ended");
    }

    #[test]
    fn an_exact_peak_raises_the_highest_interval_of_its_micro_batch() {
        let mut history = begun();
        for (tenth, own) in (1..=30).zip([500; 10].into_iter().chain(11..=30)) {
            history.sample(tenth * 100, &sample(own));
        }
        history.exact_peak(1500, 700);
        let (waiting, peak) = history.end(3050, &reading(100));
        let peaks: Vec<u64> = waiting.iter().map(|it| it.peak.own_bytes).collect();
        assert_eq!((peaks, peak.own_bytes), (vec![500, 25], 700));
        history.exact_peak(3060, 650);
        assert_eq!(history.end(3100, &reading(100)).1.own_bytes, 650);
    }

    #[test]
    fn the_line_stays_while_other_apps_take_memory() {
        let mut history = begun();
        let busy = MemorySample {
            available_bytes: 400,
            ..sample(100)
        };
        let reading = history.sample(100, &busy).expect("an event came first");
        assert_eq!(reading.budget_bytes, 300, "300 more are used by others");
    }
}
