//! The one running training: a thread of its own, folded into memory as it speaks. It lives and
//! ends without the page; its thread may die while the window lives. Refuses to know folders,
//! settings and widgets.

use crate::lock::lock;
use crate::machine_readings::Reported;
use crate::view::{CommandError, RunRequest};
use runlog::{Run, RunEvent, RunFolder, RunStatus};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use trainer::{Control, Machine, Request, RunContext, RunOutcome, TrainError};

/// Stack of the thread that a training begins on, in bytes.
const STACK_BYTES: usize = 64 << 20;

/// A training that takes its wishes from `RunContext` and tells every event.
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

/// Holds the training of this process: none, one at work, or the one that ended last.
pub struct Active {
    machine: Machine,
    last: Mutex<Option<Arc<Training>>>,
}

/// One life of a run in this process.
pub struct Training {
    /// The run's id.
    pub id: String,
    /// Its folder.
    pub folder: RunFolder,
    control: Control,
    run: Mutex<Run>,
    messages: Mutex<Option<Reported>>,
    /// Length of the events file when the life ended, in bytes; nothing while it lasts.
    ended: Mutex<Option<u64>>,
    ending: Condvar,
}

impl Active {
    /// Nothing trains yet.
    pub fn on(machine: Machine) -> Self {
        Active {
            machine,
            last: Mutex::default(),
        }
    }

    /// The training at work.
    pub fn running(&self) -> Option<Arc<Training>> {
        let last = lock(&self.last).clone();
        last.filter(|training| training.is_running())
    }

    /// The training of this run, at work or ended, as long as no other process has gone on with it.
    pub fn of(&self, id: &str) -> Option<Arc<Training>> {
        let last = lock(&self.last).clone();
        last.filter(|training| training.id == id && training.is_newest())
    }

    /// Starts `work` on a thread and waits for its first word: an event, or the reason why there is
    /// none.
    pub fn begin(&self, id: &str, folder: RunFolder, work: impl Work) -> Result<(), CommandError> {
        let training = {
            let mut last = lock(&self.last);
            if let Some(busy) = last.as_ref().filter(|training| training.is_running()) {
                return Err(busy.in_the_way());
            }
            let training = Arc::new(Training::of(id, folder)?);
            *last = Some(Arc::clone(&training));
            training
        };
        let (first_word, received) = channel();
        let flight = RunContext {
            control: training.control.clone(),
            machine: self.machine.clone(),
            replay: None,
        };
        let there = Arc::clone(&training);
        let spawned = thread::Builder::new()
            .name("training".into())
            .stack_size(STACK_BYTES)
            .spawn(move || there.live(flight, work, &first_word));
        let begun = match spawned {
            Ok(_) => received.recv().unwrap_or_else(|_| Err(silent_end())),
            Err(error) => {
                training.end();
                let why = format!(
                    "The training thread cannot be started: {error}. Close other apps, then try again."
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
    let sentence = "The training ended before it began. Try again, or train in the terminal to see more: ebb train FOLDER";
    CommandError::new("failed", sentence)
}

impl Training {
    fn of(id: &str, folder: RunFolder) -> Result<Training, CommandError> {
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
            messages: Mutex::default(),
            ended: Mutex::default(),
            ending: Condvar::new(),
        })
    }

    /// Works to the end, however that comes.
    fn live(
        &self,
        flight: RunContext,
        work: impl Work,
        first_word: &Sender<Result<(), CommandError>>,
    ) {
        // Also when the work panics.
        let _end = Ended(self);
        let mut spoke = false;
        let ending = work(flight, &mut |event| {
            self.receive(event);
            if !std::mem::replace(&mut spoke, true) {
                // Fails only when nobody waits any more.
                let _ = first_word.send(Ok(()));
            }
        });
        match ending {
            Err(error) if !spoke => drop(first_word.send(Err(error.into()))),
            Err(error) => self.fail(&error),
            Ok(_) => {}
        }
    }

    fn receive(&self, event: &RunEvent) {
        if let RunEvent::Memory {
            sample,
            level,
            pressure,
            ..
        } = event
        {
            *lock(&self.messages) = Some(Reported {
                sample: *sample,
                level: *level,
                pressure: *pressure,
            });
        }
        lock(&self.run).apply(event);
    }

    /// The last word where the run folder could not take it: a full disk, for instance.
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

    /// It is at work.
    pub fn is_running(&self) -> bool {
        lock(&self.ended).is_none()
    }

    /// Nobody wrote into the run after this life.
    fn is_newest(&self) -> bool {
        let ended = *lock(&self.ended);
        ended.is_none_or(|bytes| bytes == self.written_bytes())
    }

    /// The run as folded so far. The training waits while this is held: milliseconds, not more.
    pub fn run(&self) -> MutexGuard<'_, Run> {
        lock(&self.run)
    }

    /// What it said last about memory.
    pub fn messages(&self) -> Option<Reported> {
        *lock(&self.messages)
    }

    /// Passes a wish on.
    pub fn ask(&self, request: RunRequest) {
        self.control.send(match request {
            RunRequest::Stop => Request::Stop,
            RunRequest::Checkpoint => Request::Checkpoint,
            RunRequest::Pause => Request::Pause,
            RunRequest::Continue => Request::Resume,
            RunRequest::Leave {
                max_system_fraction,
            } => Request::SetMaxSystemFraction(max_system_fraction),
        });
    }

    /// Asks for a stop and waits until the checkpoint is durable.
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

    /// Why another training has to wait.
    pub fn in_the_way(&self) -> CommandError {
        let run = self.run();
        let name = run
            .started()
            .map_or(self.id.as_str(), |started| &started.name);
        let message = format!("{name} is training already. Stop it first, then try again.");
        CommandError::new("busy", message)
    }
}

/// Says that the life ended, also when its thread unwinds.
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
        let active = Active::on(Machine::default());
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
        drop(go);
        training.stop_and_wait();
        assert!(active.running().is_none());
        assert_eq!(code(active.begin("b", folder, work)), "begun");
    }

    #[test]
    fn a_wait_for_the_end_has_a_limit() {
        let (_home, folder) = folder();
        let active = Active::on(Machine::default());
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
    fn a_training_that_never_begins_reports_why_and_leaves_room() {
        let (_home, folder) = folder();
        let active = Active::on(Machine::default());
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
    fn a_failure_that_the_folder_cannot_take_is_shown_all_the_same() {
        let (_home, folder) = folder();
        let active = Active::on(Machine::default());
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
        std::fs::write(folder.events_path(), "somebody else went on\n").expect("it can be written");
        assert!(active.of("a").is_none(), "the folder knows more now");
    }
}
