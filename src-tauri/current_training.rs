//! The training of this process. It runs on a thread of its own, and its events are folded into a
//! `Run` in memory. It does not depend on the page: the page may be reloaded, and a panic of the
//! training does not end the window.

use crate::lock_mutex::lock;
use crate::machine_readings::{FRESH, Reported};
use crate::window_types::{CommandError, DeviceCheckView, PlanSettings, RunRequest};
use runlog::{PowerPolicyChoice, Run, RunEvent, RunFolder, RunStatus, StepProgress};
use std::fmt;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use trainer::{
    Control, LiveObserver, Machine, Request, RunContext, RunOutcome, STACK_BYTES, TrainError,
};

/// A training: takes its requests from `RunContext` and passes on every event.
pub trait Work:
    FnOnce(RunContext, &mut (dyn FnMut(&RunEvent) + Send)) -> trainer::Result<RunOutcome>
    + Send
    + 'static
{
}

impl<F> Work for F where
    F: FnOnce(RunContext, &mut (dyn FnMut(&RunEvent) + Send)) -> trainer::Result<RunOutcome>
        + Send
        + 'static
{
}

/// Holds the training of this process: none, the running one, or the one that ended last.
pub struct Active {
    machine: Machine,
    last: Mutex<Option<Arc<Training>>>,
    estimated: Mutex<Option<Estimated>>,
    after_run: AfterRun,
}

/// Work that the newest ended run has left for later.
pub type AfterRun = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// The newest estimate of a plan, which its run is compared with.
struct Estimated {
    inspection: String,
    settings: PlanSettings,
    peak_bytes: u64,
}

/// A run while this process trains it, and after that.
pub struct Training {
    pub id: String,
    pub folder: RunFolder,
    control: Control,
    run: Mutex<Run>,
    /// The newest memory sample of the monitor, and when it was read.
    newest: Mutex<Option<(Instant, Reported)>>,
    /// When it rests, if that was changed.
    courtesy: Mutex<Option<PowerPolicyChoice>>,
    /// How far the check of the GPU is.
    device_check: Mutex<Option<DeviceCheckView>>,
    /// Length of the events file when the training ended, in bytes; `None` while it runs.
    ended: Mutex<Option<u64>>,
    ending: Condvar,
}

impl Active {
    /// Without a training.
    pub fn new(machine: Machine) -> Self {
        Active {
            machine,
            last: Mutex::default(),
            estimated: Mutex::default(),
            after_run: AfterRun::default(),
        }
    }

    /// Where a run that ends leaves work for [`Active::finish_ended_run`].
    pub fn after_run(&self) -> AfterRun {
        Arc::clone(&self.after_run)
    }

    /// Does the work that the newest ended run has left, unless a training runs.
    pub fn finish_ended_run(&self) {
        if self.running().is_some() {
            return;
        }
        let left = lock(&self.after_run).take();
        if let Some(work) = left {
            work();
        }
    }

    /// Takes the estimated peak of a plan.
    pub fn estimated(&self, inspection: &str, settings: PlanSettings, peak_bytes: u64) {
        *lock(&self.estimated) = Some(Estimated {
            inspection: inspection.to_owned(),
            settings,
            peak_bytes,
        });
    }

    /// The estimated peak of this plan in bytes; 0 if none was made.
    pub fn estimate_of(&self, inspection: &str, settings: &PlanSettings) -> u64 {
        let newest = lock(&self.estimated);
        let same = newest
            .as_ref()
            .filter(|it| it.inspection == inspection && it.settings == *settings);
        same.map_or(0, |it| it.peak_bytes)
    }

    /// The training, if it runs.
    pub fn running(&self) -> Option<Arc<Training>> {
        let last = lock(&self.last).clone();
        last.filter(|training| training.is_running())
    }

    /// Bytes that another app must take to make the running training use a smaller micro-batch: the
    /// unused part of its budget, and half of its activations.
    pub fn bytes_to_shrink(&self) -> Option<u64> {
        let training = self.running()?;
        let run = training.run();
        let (budget, peak) = (run.figures().budget_bytes?, run.figures().own_bytes?);
        let activations = peak.saturating_sub(run.state_bytes());
        Some(budget.saturating_sub(peak) + activations / 2).filter(|bytes| *bytes > 0)
    }

    /// The training of this run, running or ended; `None` if another process has continued the run
    /// since.
    pub fn of(&self, id: &str) -> Option<Arc<Training>> {
        let last = lock(&self.last).clone();
        last.filter(|training| training.id == id && training.is_newest())
    }

    /// Does `work` unless a training runs. None begins meanwhile.
    pub fn while_nothing_trains<R>(&self, work: impl FnOnce() -> Option<R>) -> Option<R> {
        let last = lock(&self.last);
        let trains = last.as_ref().is_some_and(|training| training.is_running());
        if trains { None } else { work() }
    }

    /// Returns the allocator's cached memory to the system.
    pub fn purge(&self) {
        (self.machine.purge)();
    }

    /// Starts `work` on a thread and waits for its first event.
    ///
    /// # Errors
    /// Another training runs, or `work` failed before its first event.
    pub fn begin(&self, id: &str, folder: RunFolder, work: impl Work) -> Result<(), CommandError> {
        let training = {
            let mut last = lock(&self.last);
            if let Some(busy) = last.as_ref().filter(|training| training.is_running()) {
                return Err(busy.in_the_way());
            }
            let training = Arc::new(Training::for_run(id, folder)?);
            *last = Some(Arc::clone(&training));
            training
        };
        let (first_event, received) = channel();
        let context = RunContext {
            control: training.control.clone(),
            machine: self.machine.clone(),
            live: Some(Arc::clone(&training) as Arc<dyn LiveObserver>),
            ..RunContext::default()
        };
        let running = Arc::clone(&training);
        let spawned = thread::Builder::new()
            .name("training".into())
            .stack_size(STACK_BYTES)
            .spawn(move || running.live(context, work, &first_event));
        let begun = match spawned {
            Ok(_) => received.recv().unwrap_or_else(|_| Err(silent_end())),
            Err(error) => {
                training.end();
                let why = format!(
                    "The training thread could not be started: {error}. Close other apps, then try again."
                );
                Err(CommandError::new("failed", why))
            }
        };
        if begun.is_err() {
            *lock(&self.last) = None;
        }
        begun
    }
}

fn silent_end() -> CommandError {
    let sentence = "The training ended before its first step. Try again, or train in the terminal to see more: ebb train FOLDER";
    CommandError::new("failed", sentence)
}

impl Training {
    fn for_run(id: &str, folder: RunFolder) -> Result<Training, CommandError> {
        let mut run = Run::default();
        if folder.events_path().exists() {
            let earlier = runlog::read_events(&folder.events_path())?;
            earlier.iter().for_each(|event| run.apply(event));
        }
        Ok(Training {
            id: id.to_owned(),
            folder,
            control: Control::default(),
            run: Mutex::new(run),
            newest: Mutex::default(),
            courtesy: Mutex::default(),
            device_check: Mutex::default(),
            ended: Mutex::default(),
            ending: Condvar::new(),
        })
    }

    /// Runs `work` to its end.
    fn live(
        &self,
        context: RunContext,
        work: impl Work,
        first_event: &Sender<Result<(), CommandError>>,
    ) {
        // Dropped also if `work` panics.
        let _end = Ended(self);
        let mut has_started = false;
        let ending = work(context, &mut |event| {
            if let RunEvent::DeviceCheck { done, total, .. } = event {
                // The run has not begun yet and may still be refused.
                *lock(&self.device_check) = Some(DeviceCheckView {
                    run: Some(self.id.clone()),
                    done: *done,
                    total: *total,
                });
                return;
            }
            *lock(&self.device_check) = None;
            self.receive(event);
            if !std::mem::replace(&mut has_started, true) {
                // Fails only if the caller no longer waits.
                let _ = first_event.send(Ok(()));
            }
        });
        match ending {
            Err(error) if !has_started => drop(first_event.send(Err(error.into()))),
            Err(error) => self.fail(&error),
            Ok(_) => {}
        }
    }

    fn receive(&self, event: &RunEvent) {
        lock(&self.run).apply(event);
    }

    /// Marks the run as failed, if the error could not be written to the run folder (because the
    /// disk is full, for example).
    fn fail(&self, error: &TrainError) {
        let mut run = lock(&self.run);
        if run.status() != RunStatus::Failed {
            let failed = RunEvent::Failed {
                at_ms: run.now_ms(),
                step: run.figures().step,
                code: error.code().to_owned(),
                message: error.to_string(),
            };
            run.apply(&failed);
        }
    }

    fn end(&self) {
        *lock(&self.ended) = Some(self.written_bytes());
        self.ending.notify_all();
    }

    fn written_bytes(&self) -> u64 {
        std::fs::metadata(self.folder.events_path()).map_or(0, |about| about.len())
    }

    /// Whether the training runs.
    pub fn is_running(&self) -> bool {
        lock(&self.ended).is_none()
    }

    /// Whether no other process wrote to the run after this training.
    fn is_newest(&self) -> bool {
        let ended = *lock(&self.ended);
        ended.is_none_or(|bytes| bytes == self.written_bytes())
    }

    /// The run as folded so far. The training waits while this is locked: hold it for milliseconds
    /// only.
    pub fn run(&self) -> MutexGuard<'_, Run> {
        lock(&self.run)
    }

    /// The newest memory sample of the training's monitor, unless it is old.
    pub fn newest_sample(&self) -> Option<Reported> {
        let newest = lock(&self.newest).filter(|(at, _)| at.elapsed() < FRESH);
        newest.map(|(_, reported)| reported)
    }

    /// When it rests, if that was changed since it began.
    pub fn changed_courtesy(&self) -> Option<PowerPolicyChoice> {
        *lock(&self.courtesy)
    }

    /// How far the check of the GPU is, before the run begins.
    pub fn device_check(&self) -> Option<DeviceCheckView> {
        lock(&self.device_check).clone()
    }

    /// Sends a request to the training.
    pub fn ask(&self, request: RunRequest) {
        self.control.send(match request {
            RunRequest::Stop => Request::Stop,
            RunRequest::Checkpoint => Request::Checkpoint,
            RunRequest::Pause => Request::Pause,
            RunRequest::Continue => Request::Resume,
            RunRequest::Leave {
                max_system_fraction,
            } => Request::SetMaxSystemFraction(max_system_fraction),
            RunRequest::MemoryCap { bytes } => Request::SetMemoryCap(bytes),
            RunRequest::Courtesy { when } => {
                *lock(&self.courtesy) = Some(when);
                Request::SetCourtesy(when)
            }
        });
    }

    /// Records in the run that a stress test holds memory from now on, or none with 0 bytes.
    pub fn record_stress_test(&self, bytes: u64, seconds: u64) {
        self.control.send(Request::StressTest {
            bytes,
            seconds,
            at: Instant::now(),
        });
    }

    /// Requests a stop and waits until the checkpoint is on disk.
    pub fn stop_and_wait(&self) {
        self.ask(RunRequest::Stop);
        let ended = lock(&self.ended);
        let _ended = self
            .ending
            .wait_while(ended, |ended| ended.is_none())
            .unwrap_or_else(PoisonError::into_inner);
    }

    /// Asks for a stop and waits until the checkpoint is durable, but no longer than `limit`.
    pub fn stop_and_wait_for(&self, limit: Duration) {
        self.ask(RunRequest::Stop);
        let ended = lock(&self.ended);
        let _ended = self
            .ending
            .wait_timeout_while(ended, limit, |ended| ended.is_none())
            .unwrap_or_else(PoisonError::into_inner);
    }

    /// The error for a second training while this one runs.
    pub fn in_the_way(&self) -> CommandError {
        let run = self.run();
        let name = run
            .started()
            .map_or(self.id.as_str(), |started| &started.name);
        let message = format!(
            "Another training is running: {name}. Stop that training first, then try again."
        );
        CommandError::new("busy", message)
    }
}

impl LiveObserver for Training {
    fn memory(&self, event: &RunEvent) {
        if let RunEvent::Memory {
            sample,
            level,
            pressure,
            ..
        } = event
        {
            let reported = Reported {
                sample: *sample,
                level: *level,
                pressure: *pressure,
            };
            *lock(&self.newest) = Some((Instant::now(), reported));
        }
        // The monitor must not wait while a pull is made; the next sample comes soon.
        if let Ok(mut run) = self.run.try_lock() {
            run.show_sample(event);
        }
    }

    fn progress(&self, progress: StepProgress) {
        lock(&self.run).show_progress(progress);
    }
}

impl fmt::Debug for Training {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Training").field("id", &self.id).finish()
    }
}

/// Marks the training as ended when it is dropped, also during a panic.
struct Ended<'a>(&'a Training);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runlog::{RunStore, Started, StopReason};

    fn folder() -> (tempfile::TempDir, RunFolder) {
        let home = tempfile::tempdir().expect("a temporary folder");
        let folder = RunStore::open(home.path())
            .create("birds")
            .expect("it can be made");
        (home, folder)
    }

    fn started() -> RunEvent {
        RunEvent::Started(Box::new(Started {
            name: "birds".into(),
            ..Started::default()
        }))
    }

    fn ending() -> RunOutcome {
        RunOutcome {
            reason: StopReason::Requested,
            step: 0,
            accuracy: None,
        }
    }

    fn code(result: Result<(), CommandError>) -> String {
        result.map_or_else(|error| error.code, |()| "begun".into())
    }

    #[test]
    fn a_second_training_is_refused_while_one_runs() {
        let (_home, folder) = folder();
        let active = Active::new(Machine::default());
        let (go, wait) = channel::<()>();
        let first = active.begin(
            "a",
            folder.clone(),
            move |_: RunContext, report: &mut (dyn FnMut(&RunEvent) + Send)| {
                report(&started());
                let _ = wait.recv();
                Ok(ending())
            },
        );
        assert_eq!(code(first), "begun");
        let training = active.running().expect("it runs");
        assert_eq!(
            training.run().started().map(|s| s.name.clone()),
            Some("birds".into())
        );
        let work = |_: RunContext, report: &mut (dyn FnMut(&RunEvent) + Send)| {
            report(&started());
            Ok(ending())
        };
        assert_eq!(code(active.begin("b", folder.clone(), work)), "busy");
        let checks = || -> Option<()> { panic!("a training runs") };
        assert!(active.while_nothing_trains(checks).is_none());
        drop(go);
        training.stop_and_wait();
        assert!(active.running().is_none());
        assert_eq!(active.while_nothing_trains(|| Some(7)), Some(7));
        assert_eq!(code(active.begin("b", folder, work)), "begun");
    }

    #[test]
    fn work_after_a_run_waits_until_nothing_trains_and_is_done_once() {
        let (_home, folder) = folder();
        let active = Active::new(Machine::default());
        let (after_run, (done, received)) = (active.after_run(), channel::<()>());
        let (go, wait) = channel::<()>();
        let begun = active.begin(
            "a",
            folder,
            move |_: RunContext, report: &mut (dyn FnMut(&RunEvent) + Send)| {
                report(&started());
                *lock(&after_run) = Some(Box::new(move || {
                    done.send(()).expect("the test receives it")
                }));
                let _ = wait.recv();
                Ok(ending())
            },
        );
        assert_eq!(code(begun), "begun");
        let training = active.running().expect("it runs");
        active.finish_ended_run();
        assert!(received.try_recv().is_err(), "a training runs");
        drop(go);
        training.stop_and_wait();
        active.finish_ended_run();
        active.finish_ended_run();
        assert_eq!(received.iter().count(), 1);
    }

    #[test]
    fn a_wait_for_the_end_has_a_limit() {
        let (_home, folder) = folder();
        let active = Active::new(Machine::default());
        let (go, wait) = channel::<()>();
        let begun = active.begin(
            "a",
            folder,
            move |_: RunContext, report: &mut (dyn FnMut(&RunEvent) + Send)| {
                report(&started());
                let _ = wait.recv();
                Ok(ending())
            },
        );
        assert_eq!(code(begun), "begun");
        let training = active.running().expect("it runs");
        training.stop_and_wait_for(Duration::from_millis(20));
        assert!(training.is_running(), "it did not stop in time");
        drop(go);
        training.stop_and_wait_for(Duration::from_secs(60));
        assert!(!training.is_running());
    }

    #[test]
    fn a_training_that_fails_to_start_reports_why_and_can_be_repeated() {
        let (_home, folder) = folder();
        let active = Active::new(Machine::default());
        let refused = |_: RunContext, _: &mut (dyn FnMut(&RunEvent) + Send)| {
            Err(TrainError::NotTrainable {
                message: "one class".into(),
            })
        };
        assert_eq!(
            code(active.begin("a", folder.clone(), refused)),
            "not_trainable"
        );
        assert!(active.of("a").is_none());
        let dies = |_: RunContext, _: &mut (dyn FnMut(&RunEvent) + Send)| panic!("a bug");
        assert_eq!(code(active.begin("a", folder, dies)), "failed");
        assert!(active.running().is_none());
    }

    #[test]
    fn a_stop_ends_the_check_of_the_gpu_that_a_run_waits_for() {
        let (_home, folder) = folder();
        let active = Active::new(Machine::default());
        let checks = |context: RunContext, report: &mut (dyn FnMut(&RunEvent) + Send)| {
            while !context.control.is_stopping() {
                report(&RunEvent::DeviceCheck {
                    at_ms: 0,
                    done: 3,
                    total: 9,
                });
                thread::sleep(Duration::from_millis(1));
            }
            Err(TrainError::CheckStopped)
        };
        let begun = thread::scope(|scope| {
            let begun = scope.spawn(|| active.begin("a", folder, checks));
            let check = loop {
                let running = active.running();
                match running
                    .as_ref()
                    .and_then(|training| training.device_check())
                {
                    Some(check) => break check,
                    None => thread::yield_now(),
                }
            };
            let run = check.run.as_deref();
            assert_eq!((run, check.done, check.total), (Some("a"), 3, 9));
            let training = active.running().expect("it checks");
            training.ask(RunRequest::Stop);
            begun.join().expect("it ends")
        });
        assert_eq!(code(begun), "stopped");
        assert!(active.running().is_none());
    }

    #[test]
    fn a_failure_is_shown_even_if_the_folder_cannot_be_written() {
        let (_home, folder) = folder();
        let active = Active::new(Machine::default());
        let begun = active.begin(
            "a",
            folder.clone(),
            |_: RunContext, report: &mut (dyn FnMut(&RunEvent) + Send)| {
                report(&started());
                Err(TrainError::Panicked("a bug".into()))
            },
        );
        assert_eq!(code(begun), "begun");
        let training = active.of("a").expect("it is kept");
        training.stop_and_wait();
        assert_eq!(training.run().status(), RunStatus::Failed);
        std::fs::write(folder.events_path(), "another process continued\n")
            .expect("it can be written");
        assert!(
            active.of("a").is_none(),
            "another process wrote to the folder"
        );
    }
}
