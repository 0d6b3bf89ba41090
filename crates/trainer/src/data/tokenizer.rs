//! The tokenizer of a run: the one of its pretrained model, a vocabulary learned once from the
//! training texts, or bytes.

use crate::error::{Result, TrainError, at};
use crate::plan::Plan;
use crate::write_atomic::write_atomic;
use dataset::{Split, TextDataset, TextInspection, Tokenizer, Vocabulary};
use runlog::{RunFolder, format_count};

/// File name of the vocabulary in the run folder.
pub(crate) const TOKENIZER: &str = "tokenizer.json";

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

/// The vocabulary of at most `size` tokens that is saved in the run folder; learns and saves it
/// first if there is none.
fn learned_vocabulary(run: &RunFolder, found: &TextInspection, size: u32) -> Result<Tokenizer> {
    let path = run.path.join(TOKENIZER);
    if path.exists() {
        return Ok(Tokenizer::load(&path)?);
    }
    let rows = TextDataset::open(found, Split::Train)?;
    // Byte pairs: the library numbers word pieces differently each time it learns them, so two runs
    // would differ.
    let learned = Tokenizer::train(Vocabulary::BytePairs, size as usize, rows.texts())?;
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
    let unwritable = || std::io::Error::other("the vocabulary cannot be written as JSON");
    let json = learned
        .to_json()
        .ok_or_else(unwritable)
        .map_err(at(&path))?;
    write_atomic(&path, json.as_bytes())?;
    // Reloaded from the file, so that a resumed run uses exactly the same vocabulary.
    Ok(Tokenizer::load(&path)?)
}

/// The token between documents.
///
/// # Errors
/// The vocabulary has none.
pub(crate) fn document_boundary(tokenizer: &Tokenizer) -> Result<u32> {
    tokenizer.boundary().ok_or_else(|| TrainError::NotTrainable {
        message: "the vocabulary of these weights has no token that could separate documents (<|endoftext|>, </s>, <eos>); choose another folder"
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
