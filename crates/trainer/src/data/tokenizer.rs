//! The tokenizer of a run: the one of its pretrained model, a vocabulary learned once from the
//! training texts, or bytes.

use super::expect_texts;
use crate::error::{Result, TrainError, at};
use crate::plan::Plan;
use crate::preparation::{Preparation, stopped_before_start};
use dataset::{DatasetError, DetectedDataset, Split, Task, TextInspection, Tokenizer, WordCounts};
use runlog::{RunFolder, format_bytes, format_count};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// File name of the vocabulary in the run folder.
pub(crate) const TOKENIZER: &str = "tokenizer.json";
/// Most bytes of it, as when a tokenizer is opened.
pub(crate) const MAX_TOKENIZER_BYTES: u64 = 64 << 20;

/// The tokenizer for the texts of a run. A vocabulary is learned when the run starts and saved in
/// its folder.
///
/// # Errors
/// The pretrained model has no tokenizer that Ebb can read, or the vocabulary cannot be learned or
/// saved.
pub(super) fn open_tokenizer(
    plan: &Plan,
    found: &TextInspection,
    run: &RunFolder,
) -> Result<Tokenizer> {
    match (&plan.pretrained, plan.learned_vocabulary()) {
        (Some(pretrained), _) => crate::pretrained::tokenizer(pretrained),
        (None, Some(size)) => learned_vocabulary(run, found, size),
        (None, None) => Ok(Tokenizer::bytes()),
    }
}

/// The tokenizer of a run that has begun. Images have none; for them, it reads bytes.
///
/// # Errors
/// The tokenizer of the pretrained model, or the saved vocabulary, cannot be read.
pub(crate) fn saved_tokenizer(plan: &Plan, run: &RunFolder) -> Result<Tokenizer> {
    match (&plan.pretrained, plan.learned_vocabulary()) {
        (Some(pretrained), _) if plan.task() != Task::ImageClassification => {
            crate::pretrained::tokenizer(pretrained)
        }
        (None, Some(_)) => Ok(Tokenizer::load(&run.path.join(TOKENIZER))?),
        (Some(_), _) | (None, None) => Ok(Tokenizer::bytes()),
    }
}

/// Interval at which a stop request is noticed while a vocabulary is learned.
const STOP_POLL: Duration = Duration::from_millis(100);

/// The end of a thread that learns a vocabulary: its outcome, or its panic.
type Learned = std::thread::Result<std::result::Result<Tokenizer, DatasetError>>;

/// Learns the vocabulary of a new run and saves it in the run folder, if the plan has one and the
/// folder has none yet.
///
/// # Errors
/// The vocabulary cannot be learned or saved, or the user stops the run meanwhile.
pub(crate) fn learn_vocabulary(
    plan: &Plan,
    found: &DetectedDataset,
    run: &RunFolder,
    preparation: Preparation,
) -> Result<()> {
    let (None, Some(size)) = (&plan.pretrained, plan.learned_vocabulary()) else {
        return Ok(());
    };
    if run.path.join(TOKENIZER).exists() {
        return Ok(());
    }
    let counts = {
        let found = expect_texts(plan, found)?;
        let bytes = found.split_bytes(Split::Train);
        let message = format!("Counting the words of {} of texts", format_bytes(bytes));
        let work = preparation.begin(message, bytes);
        let goes_on = |done| work.goes_on(done);
        WordCounts::from_split(&found, Split::Train, &goes_on).map_err(stopped_before_start)?
    };
    let message = format!(
        "Learning a vocabulary of {} tokens",
        format_count(size.into())
    );
    let work = preparation.begin(message, 0);
    work.show_begun();
    let outcome = learn_in_background(counts, size, plan.threads)?;
    loop {
        match outcome.recv_timeout(STOP_POLL) {
            Ok(learned) => {
                let learned = learned.map_err(|panic| TrainError::from_panic(&*panic))??;
                return save_vocabulary(run, &learned, size);
            }
            Err(RecvTimeoutError::Timeout) if preparation.is_stopping() => {
                return Err(TrainError::StoppedBeforeStart);
            }
            Err(RecvTimeoutError::Timeout) => work.show_elapsed(),
            Err(RecvTimeoutError::Disconnected) => {
                let panic: Box<dyn Any + Send> = Box::new("a vocabulary was not learned");
                return Err(TrainError::from_panic(&*panic));
            }
        }
    }
}

/// Learns a vocabulary in a thread pool of its own. The tokenizers library cannot be interrupted:
/// after a stop, the pool ends by itself.
fn learn_in_background(counts: WordCounts, size: u32, threads: u32) -> Result<Receiver<Learned>> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads as usize)
        .thread_name(|n| format!("vocabulary-{n}"))
        .build()
        .map_err(|error| TrainError::NoThreads(error.to_string()))?;
    let (finished, outcome) = channel();
    pool.spawn(move || {
        let learn = || Tokenizer::learn(size as usize, counts);
        // A panic would end the process. The receiver is dropped if the run was stopped.
        let _ = finished.send(catch_unwind(AssertUnwindSafe(learn)));
    });
    Ok(outcome)
}

/// The vocabulary of at most `size` tokens that is saved in the run folder; learns and saves it
/// first if there is none. It is loaded from the file in any case, so that a resumed run uses
/// exactly the same vocabulary.
fn learned_vocabulary(run: &RunFolder, found: &TextInspection, size: u32) -> Result<Tokenizer> {
    let path = run.path.join(TOKENIZER);
    if !path.exists() {
        let counts = WordCounts::from_split(found, Split::Train, &|_| true)?;
        save_vocabulary(run, &Tokenizer::learn(size as usize, counts)?, size)?;
    }
    Ok(Tokenizer::load(&path)?)
}

/// Saves a learned vocabulary in the run folder.
///
/// # Errors
/// It has more than `size` tokens, or cannot be written.
fn save_vocabulary(run: &RunFolder, learned: &Tokenizer, size: u32) -> Result<()> {
    if learned.vocabulary() > size as usize {
        return Err(TrainError::Setting {
            key: "vocabulary",
            value: size.to_string(),
            allowed: format!(
                "these texts have {} different characters; use a vocabulary of at least as many tokens",
                format_count(learned.vocabulary() as u64)
            ),
        });
    }
    let path = run.path.join(TOKENIZER);
    let unwritable = || std::io::Error::other("the vocabulary cannot be written as JSON");
    let json = learned
        .to_json()
        .ok_or_else(unwritable)
        .map_err(at(&path))?;
    disk::write_atomic(&path, json.as_bytes()).map_err(at(&path))
}

/// The token between documents.
///
/// # Errors
/// The vocabulary has none.
pub(crate) fn document_boundary(tokenizer: &Tokenizer) -> Result<u32> {
    tokenizer.boundary().ok_or_else(|| TrainError::NotTrainable {
        message: "the vocabulary of these weights has no token to separate documents (<|endoftext|>, </s> or <eos>); choose another folder"
            .to_owned(),
    })
}

/// Runs `work` on a thread of its own. The tokenizers library caches up to 10,000 words per
/// vocabulary and thread until that thread ends; on the training thread they would stay for the
/// whole run.
pub(super) fn on_tokenizer_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("tokens".to_owned());
        let started = thread.spawn_scoped(scope, work);
        let started = started.map_err(|error| TrainError::NoThreads(error.to_string()))?;
        let outcome = started.join();
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
