//! Feeds the flight recorder: every reading of the monitor and every event that says where the run stands, on a thread of its
//! own. The monitor and the training only put records into a queue and never wait for the disk. Knows no rule and no tensor.

use pressure::{Action, MemorySample, Phase, thread_cpu_ms};
use runlog::{FlightRecord, FlightRing, RunEvent};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Distance of two syncs: what a power cut may cost.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// Least distance of two readings kept, milliseconds: a little under the monitor's fast beat.
const READING_EVERY_MS: u64 = 45;
/// Records that wait for a slow disk: half a minute of them. What comes on top is left out.
const QUEUE: usize = 640;

/// What goes through the queue.
enum Word {
    Record(FlightRecord),
    End,
}

/// Writes what a run's last minutes were like.
pub struct Recorder {
    queue: SyncSender<Word>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Mutex<Shared>>,
    unix_ms: fn() -> u64,
    standing: Standing,
}

#[derive(Default)]
struct Shared {
    trouble: Option<String>,
    cpu_ms: f64,
}

/// Where the run stands, as its events tell.
#[derive(Clone, Copy)]
struct Standing {
    step: u64,
    action: Action,
    micro_batch: u32,
    effective_batch: u32,
}

impl Recorder {
    /// Begins a life of `effective_batch` samples a step at `step`. `unix_ms` is the clock on the wall.
    pub fn start(
        ring: FlightRing,
        unix_ms: fn() -> u64,
        effective_batch: u32,
        step: u64,
    ) -> Recorder {
        let (queue, records) = sync_channel(QUEUE);
        let shared = Arc::new(Mutex::new(Shared::default()));
        let seen = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("recorder".into())
            .spawn(move || keep(ring, &records, &seen));
        if let Err(error) = &thread {
            held(&shared).trouble = Some(format!("its thread could not be started: {error}"));
        }
        let recorder = Recorder {
            queue,
            thread: thread.ok(),
            shared,
            unix_ms,
            standing: Standing {
                step,
                action: Action::Run,
                micro_batch: 0,
                effective_batch,
            },
        };
        recorder.tell(FlightRecord::Life {
            unix_ms: unix_ms(),
            process: std::process::id(),
        });
        recorder
    }

    /// Takes the monitor's readings, at most some twenty a second. Called on the monitor's thread: it waits for nothing.
    pub fn ear(&self) -> impl FnMut(&MemorySample) + Send + use<> {
        let (queue, clock, mut last_ms) = (self.queue.clone(), self.unix_ms, 0);
        move |sample| {
            let unix_ms = clock();
            // A clock that was set back begins anew.
            if (last_ms..last_ms + READING_EVERY_MS).contains(&unix_ms) {
                return;
            }
            last_ms = unix_ms;
            let sample = *sample;
            // A full queue or an ended thread costs this reading.
            let _ = queue.try_send(Word::Record(FlightRecord::Sample { unix_ms, sample }));
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
                self.tell(FlightRecord::Decision {
                    unix_ms,
                    sentence: sentence.clone(),
                });
                if decision.budget_bytes > 0 {
                    self.stand(unix_ms, decision.budget_bytes);
                }
            }
            RunEvent::Memory { budget_bytes, .. } => self.stand(unix_ms, *budget_bytes),
            _ => {}
        }
    }

    fn stand(&self, unix_ms: u64, budget_bytes: u64) {
        let standing = self.standing;
        self.tell(FlightRecord::Standing {
            unix_ms,
            step: standing.step,
            action: standing.action,
            micro_batch: standing.micro_batch,
            effective_batch: standing.effective_batch,
            budget_bytes,
        });
    }

    fn tell(&self, record: FlightRecord) {
        // A full queue or an ended thread costs this record.
        let _ = self.queue.try_send(Word::Record(record));
    }

    /// Why nothing is recorded any more, once.
    pub fn take_trouble(&self) -> Option<String> {
        held(&self.shared).trouble.take()
    }

    /// CPU time that the thread has used, in milliseconds; as of its newest record.
    pub fn cpu_ms(&self) -> f64 {
        held(&self.shared).cpu_ms
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // Waits for a place in the queue, and so for what was told before.
        if self.queue.send(Word::End).is_ok()
            && let Some(thread) = self.thread.take()
        {
            // A panic of the thread has been reported by then, and there is nothing left to save.
            let _ = thread.join();
        }
    }
}

/// The thread: write at once, sync once a second, end with the first error.
fn keep(mut ring: FlightRing, records: &Receiver<Word>, shared: &Mutex<Shared>) {
    let (mut synced, mut fresh) = (Instant::now(), false);
    loop {
        let wrote = match records.recv_timeout(SYNC_EVERY) {
            Ok(Word::Record(record)) => {
                fresh = true;
                ring.write(&record)
            }
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Ok(Word::End) | Err(RecvTimeoutError::Disconnected) => {
                // The last words: if this fails there is nobody left to tell.
                let _ = ring.sync();
                return;
            }
        };
        let kept = wrote.and_then(|()| {
            if fresh && synced.elapsed() >= SYNC_EVERY {
                (synced, fresh) = (Instant::now(), false);
                return ring.sync();
            }
            Ok(())
        });
        let mut shared = held(shared);
        shared.cpu_ms = thread_cpu_ms();
        if let Err(error) = kept {
            shared.trouble = Some(error.to_string());
            return;
        }
    }
}

/// Plain values: whoever panicked left them whole.
fn held<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "recorder/tests.rs"]
mod tests;
