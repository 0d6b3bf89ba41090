//! The thread that computes with trained models for the window: Try it, evaluations and saliency.
//! It owns the model of one results page, and answers one request after the other.
//!
//! Two threads must not compute on one device object: if both wait for Metal at once, candle drops
//! the fences of kernels that still run, and later kernels may read unfinished values. The pool of
//! kernel outputs (`tape`) belongs to a thread, too. For this reason a model is loaded, used and
//! dropped on this thread only. Requests are closures that borrow the model, and only what they
//! return leaves the thread.
//!
//! A training, or a check of the GPU, may run in this process at the same time, on other threads.
//! This is allowed because `select_device` makes a device object of its own for each of them, with
//! its own queue, fences and pool. They share only what is behind locks: compiled kernels, and the
//! length of command buffers. An export loads its model on the CPU.

use crate::lock_mutex::lock;
use crate::paths::device_check_path;
use crate::window_types::CommandError;
use runlog::RunFolder;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use trainer::{DevicePreference, STACK_BYTES, TrainedModel};

/// Cancels the current computation of a model and all later ones. Any thread may call it.
pub type Canceller = Box<dyn Fn() + Send>;

/// A model that the thread can own.
pub trait Model: Sized + 'static {
    /// Loads the model of a run.
    ///
    /// # Errors
    /// The run has no usable checkpoint, or the device cannot be used.
    fn load(folder: &RunFolder) -> Result<Self, CommandError>;

    /// What ends its computations.
    fn canceller(&self) -> Canceller;

    /// Frees the memory that only a computation needs. Called after each one.
    fn free_unused_memory(&self);
}

impl Model for TrainedModel {
    fn load(folder: &RunFolder) -> Result<Self, CommandError> {
        let path = device_check_path();
        Ok(TrainedModel::load(
            folder,
            DevicePreference::Auto,
            Some(&path),
        )?)
    }

    fn canceller(&self) -> Canceller {
        let progress = Arc::clone(&self.progress);
        Box::new(move || progress.cancel())
    }

    fn free_unused_memory(&self) {
        TrainedModel::free_unused_memory(self);
    }
}

/// A results page, from its first request until it is left.
#[derive(Default)]
struct Page {
    is_left: AtomicBool,
    /// Cancels the model that was loaded for this page.
    cancel: Mutex<Option<Canceller>>,
}

impl Page {
    /// Cancels its model, also if it is being loaded: the thread sets `cancel` before it reads
    /// `is_left`.
    fn leave(&self) {
        self.is_left.store(true, Ordering::SeqCst);
        if let Some(cancel) = &*lock(&self.cancel) {
            cancel();
        }
    }

    /// # Errors
    /// The page was left.
    fn expect_open(&self) -> Result<(), CommandError> {
        if self.is_left.load(Ordering::SeqCst) {
            return Err(CommandError::unknown("page"));
        }
        Ok(())
    }
}

/// A model, and the page that it was loaded for.
struct Loaded<M> {
    page: Arc<Page>,
    model: M,
}

impl<M: Model> Loaded<M> {
    fn load(page: &Arc<Page>, folder: &RunFolder) -> Result<Self, CommandError> {
        let model = M::load(folder)?;
        *lock(&page.cancel) = Some(model.canceller());
        Ok(Loaded {
            page: Arc::clone(page),
            model,
        })
    }
}

type Job<M> = Box<dyn FnOnce(&mut Option<Loaded<M>>) + Send>;

/// The thread, which starts with the first request and ends when this value is dropped.
pub struct InferenceThread<M> {
    jobs: Mutex<Option<Sender<Job<M>>>>,
    /// The pages that were not left yet, by run.
    pages: Mutex<HashMap<String, Arc<Page>>>,
}

impl<M> Default for InferenceThread<M> {
    fn default() -> Self {
        InferenceThread {
            jobs: Mutex::default(),
            pages: Mutex::default(),
        }
    }
}

impl<M: Model> InferenceThread<M> {
    /// Computes `work` with the model of a run, and waits for it. Requests are answered in turn.
    ///
    /// # Errors
    /// Those of `work` and of loading the model. The page was left meanwhile; the thread cannot be
    /// started; `work` panicked.
    pub fn ask<T: Send + 'static>(
        &self,
        run: &str,
        folder: RunFolder,
        work: impl FnOnce(&M) -> Result<T, CommandError> + Send + 'static,
    ) -> Result<T, CommandError> {
        let (answer, answered) = channel::<Result<T, CommandError>>();
        let respond = move |outcome| {
            // Cannot fail: the receiver waits below.
            let _ = answer.send(outcome);
        };
        self.begin(run, folder, work, respond)?;
        answered.recv().unwrap_or_else(|_| Err(stopped()))
    }

    /// Queues `work` and returns. `respond` receives what [`Self::ask`] would return.
    ///
    /// # Errors
    /// The thread cannot be started; `respond` is not called.
    pub fn begin<T: Send + 'static>(
        &self,
        run: &str,
        folder: RunFolder,
        work: impl FnOnce(&M) -> Result<T, CommandError> + Send + 'static,
        respond: impl FnOnce(Result<T, CommandError>) + Send + 'static,
    ) -> Result<(), CommandError> {
        let page = Arc::clone(lock(&self.pages).entry(run.to_owned()).or_default());
        self.send(Box::new(move |loaded: &mut Option<Loaded<M>>| {
            respond(compute(loaded, &page, &folder, work));
            // The page may stay open for hours without another request.
            if let Some(loaded) = loaded {
                loaded.model.free_unused_memory();
            }
        }))
    }

    /// Leaves the page of a run: cancels its requests and frees its model. A later request opens
    /// the page again.
    pub fn leave(&self, run: &str) {
        let left = lock(&self.pages).remove(run);
        let Some(page) = left else {
            return;
        };
        page.leave();
        let free = move |loaded: &mut Option<Loaded<M>>| {
            drop(loaded.take_if(|loaded| Arc::ptr_eq(&loaded.page, &page)));
        };
        if let Some(jobs) = &*lock(&self.jobs) {
            // Fails only if the thread has ended, and then it holds no model.
            let _ = jobs.send(Box::new(free));
        }
    }

    fn send(&self, job: Job<M>) -> Result<(), CommandError> {
        let mut jobs = lock(&self.jobs);
        let sender = match jobs.take() {
            Some(sender) => sender,
            None => start()?,
        };
        sender.send(job).map_err(|_| stopped())?;
        *jobs = Some(sender);
        Ok(())
    }
}

/// Starts the thread. Its stack suffices for deep networks. It ends when the sender is dropped.
fn start<M: Model>() -> Result<Sender<Job<M>>, CommandError> {
    let (sender, jobs) = channel::<Job<M>>();
    let thread = thread::Builder::new().name("inference".into());
    let spawned = thread.stack_size(STACK_BYTES).spawn(move || {
        let mut loaded: Option<Loaded<M>> = None;
        for job in jobs {
            job(&mut loaded);
        }
    });
    match spawned {
        Ok(_) => Ok(sender),
        Err(error) => Err(CommandError::no_thread(&error)),
    }
}

/// Computes `work` with the model of a page. After a panic, or if the device is lost, the model is
/// dropped, so that the next request loads it on a new device.
fn compute<M: Model, T>(
    loaded: &mut Option<Loaded<M>>,
    page: &Arc<Page>,
    folder: &RunFolder,
    work: impl FnOnce(&M) -> Result<T, CommandError>,
) -> Result<T, CommandError> {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        model_of(loaded, page, folder).and_then(work)
    }));
    let is_usable = match &outcome {
        Ok(Ok(_)) => true,
        Ok(Err(error)) => !error.needs_reload(),
        Err(_) => false,
    };
    if !is_usable {
        *loaded = None;
    }
    outcome.unwrap_or_else(|_| Err(stopped()))
}

/// The model of a page. That of another page is freed first.
fn model_of<'a, M: Model>(
    loaded: &'a mut Option<Loaded<M>>,
    page: &Arc<Page>,
    folder: &RunFolder,
) -> Result<&'a M, CommandError> {
    page.expect_open()?;
    let own = loaded
        .take()
        .filter(|loaded| Arc::ptr_eq(&loaded.page, page));
    let own = match own {
        Some(own) => own,
        None => Loaded::load(page, folder)?,
    };
    let own = loaded.insert(own);
    // Loading takes long enough to leave the page.
    page.expect_open()?;
    Ok(&own.model)
}

fn stopped() -> CommandError {
    CommandError::new("failed", "The model stopped unexpectedly. Try again.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::sync::atomic::AtomicU32;
    use std::sync::mpsc::Receiver;
    use std::thread::ThreadId;
    use std::time::Duration;

    /// The runs whose models were asked to free memory. Each test has runs of its own.
    static FREED: Mutex<Vec<String>> = Mutex::new(Vec::new());
    /// The runs whose models were dropped, and by which thread.
    static DROPPED: Mutex<Vec<(String, ThreadId)>> = Mutex::new(Vec::new());
    /// Whether the run `slow` is being loaded, and whether it may become loaded.
    static LOADING: AtomicBool = AtomicBool::new(false);
    static MAY_LOAD: AtomicBool = AtomicBool::new(false);

    /// A model that can be cancelled and observed.
    struct Observed {
        run: String,
        is_cancelled: Arc<AtomicBool>,
    }

    impl Model for Observed {
        fn load(folder: &RunFolder) -> Result<Self, CommandError> {
            let run = folder.id();
            if run == "broken" {
                return Err(CommandError::new("failed", "No usable checkpoint."));
            }
            if run == "slow" {
                LOADING.store(true, Ordering::SeqCst);
                wait_for(&MAY_LOAD);
            }
            Ok(Observed {
                run,
                is_cancelled: Arc::default(),
            })
        }

        fn canceller(&self) -> Canceller {
            let is_cancelled = Arc::clone(&self.is_cancelled);
            Box::new(move || is_cancelled.store(true, Ordering::SeqCst))
        }

        fn free_unused_memory(&self) {
            lock(&FREED).push(self.run.clone());
        }
    }

    impl Drop for Observed {
        fn drop(&mut self) {
            lock(&DROPPED).push((self.run.clone(), thread::current().id()));
        }
    }

    fn wait_for(flag: &AtomicBool) {
        while !flag.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn folder(run: &str) -> RunFolder {
        RunFolder {
            path: Path::new("/runs").join(run),
        }
    }

    /// The threads that dropped the models of a run.
    fn dropped_by(run: &str) -> Vec<ThreadId> {
        let dropped = lock(&DROPPED);
        let of_run = dropped.iter().filter(|(dropped, _)| dropped == run);
        of_run.map(|(_, by)| *by).collect()
    }

    fn thread_of(inference: &InferenceThread<Observed>, run: &str) -> Result<ThreadId, String> {
        let asked = inference.ask(run, folder(run), |_| Ok(thread::current().id()));
        asked.map_err(|error| error.code)
    }

    /// Begins a request, whose outcome or code of an error comes over the channel.
    fn begin(
        inference: &InferenceThread<Observed>,
        run: &str,
        work: impl FnOnce(&Observed) -> Result<(), CommandError> + Send + 'static,
    ) -> Receiver<Result<(), String>> {
        let (ended, outcome) = channel();
        let respond = move |outcome: Result<(), CommandError>| {
            let outcome = outcome.map_err(|error| error.code);
            ended.send(outcome).expect("the test waits");
        };
        let queued = inference.begin(run, folder(run), work, respond);
        queued.expect("the thread starts");
        outcome
    }

    #[test]
    fn requests_of_many_threads_compute_on_one_thread_and_never_at_once() {
        let inference = InferenceThread::<Observed>::default();
        let computing = Arc::new(AtomicU32::new(0));
        let ask = |run: &'static str| {
            let computing = Arc::clone(&computing);
            let answered = inference.ask(run, folder(run), move |model| {
                let at_once = computing.fetch_add(1, Ordering::SeqCst) + 1;
                thread::sleep(Duration::from_millis(2));
                computing.fetch_sub(1, Ordering::SeqCst);
                Ok((at_once, model.run.clone(), thread::current().id()))
            });
            let (at_once, of, by) = answered.expect("it computes");
            assert_eq!((at_once, &*of), (1, run));
            by
        };
        let threads: Vec<ThreadId> = thread::scope(|scope| {
            let both = || ["first", "second"].map(ask);
            let asking: Vec<_> = (0..8).map(|_| scope.spawn(both)).collect();
            let asked = asking
                .into_iter()
                .flat_map(|asking| asking.join().expect("it asks"));
            asked.collect()
        });
        assert_eq!(threads.len(), 16);
        assert!(threads.iter().all(|by| *by == threads[0]), "{threads:?}");
        assert_ne!(threads[0], thread::current().id());
        assert!(dropped_by("first").iter().all(|by| *by == threads[0]));
    }

    #[test]
    fn memory_is_freed_after_each_request_while_the_page_stays_open() {
        let inference = InferenceThread::<Observed>::default();
        let times_freed = || {
            let freed = lock(&FREED);
            freed.iter().filter(|run| *run == "open").count()
        };
        for before in 0..3 {
            let asked = inference.ask("open", folder("open"), move |_| Ok(times_freed()));
            assert_eq!(asked.map_err(|error| error.code), Ok(before));
        }
        assert!(dropped_by("open").is_empty(), "the model stays");
    }

    #[test]
    fn a_page_that_is_left_stops_its_requests_and_frees_its_model() {
        let inference = InferenceThread::<Observed>::default();
        let by = thread_of(&inference, "left").expect("it computes");
        let (computes, it_computes) = channel();
        let computing = begin(&inference, "left", move |model| {
            computes.send(()).expect("the test waits");
            wait_for(&model.is_cancelled);
            Err(CommandError::new("cancelled", "Cancelled."))
        });
        let queued = begin(&inference, "left", |_| Ok(()));
        it_computes.recv().expect("it computes");
        inference.leave("another");
        inference.leave("left");
        assert_eq!(computing.recv(), Ok(Err("cancelled".to_owned())));
        assert_eq!(queued.recv(), Ok(Err("unknown_id".to_owned())));
        // Opened again: the cancelled model is not used any more.
        let again = begin(&inference, "left", |model| {
            assert_eq!(
                dropped_by("left").len(),
                1,
                "freed before the next is loaded"
            );
            assert!(!model.is_cancelled.load(Ordering::SeqCst));
            Ok(())
        });
        assert_eq!(again.recv(), Ok(Ok(())));
        assert_eq!(dropped_by("left"), [by]);
    }

    #[test]
    fn a_page_may_be_left_while_its_model_is_loaded() {
        let inference = InferenceThread::<Observed>::default();
        let asked = begin(&inference, "slow", |_| Ok(()));
        wait_for(&LOADING);
        inference.leave("slow");
        MAY_LOAD.store(true, Ordering::SeqCst);
        assert_eq!(asked.recv(), Ok(Err("unknown_id".to_owned())));
        let by = thread_of(&inference, "after slow").expect("it computes");
        assert_eq!(dropped_by("slow"), [by]);
    }

    #[test]
    fn the_thread_survives_a_panic_and_drops_the_model_that_panicked() {
        let inference = InferenceThread::<Observed>::default();
        let by = thread_of(&inference, "panics").expect("it computes");
        let panicked = begin(&inference, "panics", |_| panic!("deliberately"));
        assert_eq!(panicked.recv(), Ok(Err("failed".to_owned())));
        assert_eq!(dropped_by("panics"), [by]);
        assert_eq!(thread_of(&inference, "panics"), Ok(by));
    }

    #[test]
    fn a_model_is_loaded_anew_after_its_device_was_lost() {
        let inference = InferenceThread::<Observed>::default();
        let fails_with = |code: &'static str| {
            let failed = begin(&inference, "lost", move |_| {
                Err(CommandError::new(code, "The GPU no longer accepts work."))
            });
            assert_eq!(failed.recv(), Ok(Err(code.to_owned())));
            dropped_by("lost").len()
        };
        assert_eq!(fails_with("failed"), 0, "any other error keeps the model");
        assert_eq!(fails_with("device_lost"), 1);
        let by = thread_of(&inference, "lost").expect("it is loaded again");
        assert_eq!(dropped_by("lost"), [by]);
    }

    #[test]
    fn a_model_that_cannot_be_loaded_leaves_none_behind() {
        let inference = InferenceThread::<Observed>::default();
        let by = thread_of(&inference, "before broken").expect("it computes");
        let refused = thread_of(&inference, "broken");
        assert_eq!(refused, Err("failed".to_owned()));
        assert_eq!(
            dropped_by("before broken"),
            [by],
            "never two models at once"
        );
        assert_eq!(thread_of(&inference, "before broken"), Ok(by));
    }
}
