//! Feeds the flight recorder: every reading of the monitor and every event that says where the run stands, written by a thread
//! of its own. The monitor and the training only lay records down and wait for nothing. Knows no rule and no tensor.

use pressure::{Action, MemorySample, Phase};
use runlog::{FlightRecord, FlightRing, RunEvent};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Distance of two visits of the thread: what a kill may cost. It comes by the clock, because to be woken for each reading
/// would cost the monitor more than the reading itself.
const WRITE_EVERY: Duration = Duration::from_millis(200);
/// Distance of two syncs: what a power cut may cost.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// Least distance of two readings kept, milliseconds: a little under the monitor's fast beat.
const READING_EVERY_MS: u64 = 45;
/// Records that wait for a slow disk: half a minute of them. What comes on top is left out.
const WAITING: usize = 640;

/// Writes what a run's last minutes were like.
pub struct Recorder {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
    unix_ms: fn() -> u64,
    standing: Standing,
}

/// Where records are laid down for the thread.
#[derive(Default)]
struct Desk {
    papers: Mutex<Papers>,
    ending: Condvar,
}

#[derive(Default)]
struct Papers {
    waiting: Vec<FlightRecord>,
    ended: bool,
    trouble: Option<String>,
}

impl Desk {
    /// A full desk costs this record.
    fn lay(&self, record: FlightRecord) {
        let mut papers = self.papers();
        if papers.waiting.len() < WAITING {
            papers.waiting.push(record);
        }
    }

    fn papers(&self) -> MutexGuard<'_, Papers> {
        // Plain values: whoever panicked left them whole.
        self.papers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the run stands, as its events tell.
#[derive(Clone, Copy)]
struct Standing {
    step: u64,
    action: Action,
    micro_batch: u32,
    effective_batch: u32,
    budget_bytes: u64,
}

impl Recorder {
    /// Begins a life of `effective_batch` samples a step at `step`. `unix_ms` is the clock on the wall.
    pub fn start(
        ring: FlightRing,
        unix_ms: fn() -> u64,
        effective_batch: u32,
        step: u64,
    ) -> Recorder {
        let desk = Arc::new(Desk::default());
        let seen = Arc::clone(&desk);
        let thread = std::thread::Builder::new()
            .name("recorder".into())
            .spawn(move || keep(ring, &seen));
        if let Err(error) = &thread {
            desk.papers().trouble = Some(format!("its thread could not be started: {error}"));
        }
        let recorder = Recorder {
            desk,
            thread: thread.ok(),
            unix_ms,
            standing: Standing {
                step,
                action: Action::Run,
                micro_batch: 0,
                effective_batch,
                budget_bytes: 0,
            },
        };
        recorder.desk.lay(FlightRecord::Life {
            unix_ms: unix_ms(),
            process: std::process::id(),
        });
        recorder
    }

    /// Takes the monitor's readings, at most some twenty a second. Called on the monitor's thread: it waits for nothing.
    pub fn ear(&self) -> impl FnMut(&MemorySample) + Send + use<> {
        let (desk, clock, mut last_ms) = (Arc::clone(&self.desk), self.unix_ms, 0);
        move |sample| {
            let unix_ms = clock();
            // A clock that was set back begins anew.
            if (last_ms..last_ms + READING_EVERY_MS).contains(&unix_ms) {
                return;
            }
            last_ms = unix_ms;
            let sample = *sample;
            desk.lay(FlightRecord::Sample { unix_ms, sample });
        }
    }

    /// Takes an event of the run: decisions, and where the run stands whenever memory is told of, once a second.
    pub fn hear(&mut self, event: &RunEvent) {
        let unix_ms = (self.unix_ms)();
        match event {
            RunEvent::Step { step, .. } => self.standing.step = *step,
            RunEvent::Decision {
                phase,
                decision,
                sentence,
                ..
            } => {
                self.standing.action = decision.action;
                if *phase == Phase::Train {
                    self.standing.micro_batch = decision.micro_batch;
                }
                // A user's pause has no budget of its own.
                if decision.budget_bytes > 0 {
                    self.standing.budget_bytes = decision.budget_bytes;
                }
                self.desk.lay(FlightRecord::Decision {
                    unix_ms,
                    sentence: sentence.clone(),
                });
                self.stand(unix_ms);
            }
            RunEvent::Memory { budget_bytes, .. } => {
                self.standing.budget_bytes = *budget_bytes;
                self.stand(unix_ms);
            }
            _ => {}
        }
    }

    fn stand(&self, unix_ms: u64) {
        let standing = self.standing;
        self.desk.lay(FlightRecord::Standing {
            unix_ms,
            step: standing.step,
            action: standing.action,
            micro_batch: standing.micro_batch,
            effective_batch: standing.effective_batch,
            budget_bytes: standing.budget_bytes,
        });
    }

    /// Why nothing is recorded any more, once.
    pub fn take_trouble(&self) -> Option<String> {
        self.desk.papers().trouble.take()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.desk.papers().ended = true;
        self.desk.ending.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported by then, and there is nothing left to save.
            let _ = thread.join();
        }
    }
}

/// The thread: write five times a second, sync once, end with the first error.
fn keep(mut ring: FlightRing, desk: &Desk) {
    let (mut synced, mut fresh) = (Instant::now(), false);
    let mut papers = desk.papers();
    loop {
        if !papers.ended {
            let waited = desk.ending.wait_timeout(papers, WRITE_EVERY);
            papers = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let (records, ended) = (std::mem::take(&mut papers.waiting), papers.ended);
        drop(papers);
        fresh |= !records.is_empty();
        let mut kept = records.iter().try_for_each(|record| ring.write(record));
        if kept.is_ok() && fresh && (ended || synced.elapsed() >= SYNC_EVERY) {
            (synced, fresh) = (Instant::now(), false);
            kept = ring.sync();
        }
        papers = desk.papers();
        if let Err(error) = &kept {
            papers.trouble = Some(error.to_string());
        }
        if ended || kept.is_err() {
            return;
        }
    }
}

#[cfg(test)]
#[path = "recorder/tests.rs"]
mod tests;
