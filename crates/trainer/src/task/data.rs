//! What a run is trained on, opened: photographs by name, texts and documents as tokens in memory.

use super::corpus::{Corpus, boundary, learnt};
use super::{Sample, Sequence, shares};
use crate::error::{Result, TrainError};
use crate::plan::Plan;
use dataset::{
    DetectedDataset, Documents, ImageInspection, Packing, Split, Task, TextInspection, Tokenizer,
    Window,
};
use runlog::{RunFolder, format_count};
use std::sync::Arc;

/// The samples of a run, by what they are.
pub enum Data {
    /// Photographs, decoded when they are needed.
    Photographs(Box<ImageInspection>),
    /// Labelled texts.
    Texts {
        /// Those trained on.
        train: Arc<Corpus>,
        /// Those held out.
        held_out: Arc<Corpus>,
    },
    /// Documents.
    Documents {
        /// Those trained on.
        train: Arc<Documents>,
        /// Those held out.
        held_out: Arc<Documents>,
        /// The token between them.
        boundary: u32,
        /// What their windows are read for.
        reading: Reading,
    },
}

/// What windows of documents are read for.
#[derive(Debug, Clone, PartialEq)]
pub enum Reading {
    /// The next token of each.
    Next,
    /// To be compressed: the share of each token of the vocabulary in the texts trained on.
    Whole(Arc<[f32]>),
}

impl Reading {
    /// A window as a sample: number `index` of its epoch, seen in `step`.
    pub fn sample(&self, window: Window, index: u32, step: u64) -> Sample {
        match self {
            Reading::Next => Sample::Window(window),
            Reading::Whole(shares) => Sample::Sequence(Sequence {
                index,
                step,
                ids: window.inputs,
                shares: Arc::clone(shares),
            }),
        }
    }
}

impl Data {
    /// Opens what was found. The vocabulary of texts is learnt once and kept in the run folder.
    ///
    /// # Errors
    /// A file of texts is gone or changed since it was looked at.
    pub fn open(plan: &Plan, found: &DetectedDataset, run: &RunFolder) -> Result<Self> {
        let found = match found {
            DetectedDataset::Images(found) => {
                return Ok(Data::Photographs(Box::new(found.clone())));
            }
            DetectedDataset::Texts(found) => found,
        };
        let limited;
        let found = match plan.dev_samples {
            Some(limit) => {
                limited = found.clone().limited(plan.seed, limit as usize);
                &limited
            }
            None => found,
        };
        match plan.task() {
            Task::TextClassification => {
                let tokenizer = Data::tokenizer(plan, found, run)?;
                let most = plan.image_size as usize;
                let part = |part| -> Result<Arc<Corpus>> {
                    let corpus = apart(|| Corpus::open(found, part, &tokenizer, most))?;
                    Ok(Arc::new(corpus))
                };
                Ok(Data::Texts {
                    train: part(Split::Train)?,
                    held_out: part(Split::HeldOut)?,
                })
            }
            _ => Data::documents(plan, found, run),
        }
    }

    /// What splits the texts of a run: the published weights' vocabulary, one that is learnt from them, or bytes.
    fn tokenizer(plan: &Plan, found: &TextInspection, run: &RunFolder) -> Result<Tokenizer> {
        match (&plan.origin, plan.learnt_vocabulary()) {
            (Some(origin), _) => origin.tokenizer(),
            (None, Some(size)) => learnt(run, found, size),
            (None, None) => Ok(Tokenizer::bytes()),
        }
    }

    fn documents(plan: &Plan, found: &TextInspection, run: &RunFolder) -> Result<Self> {
        let tokenizer = &Data::tokenizer(plan, found, run)?;
        let part = |part| -> Result<Arc<Documents>> {
            let documents = apart(|| Ok(Documents::open(found, part, tokenizer)?))?;
            Ok(Arc::new(documents))
        };
        let train = part(Split::Train)?;
        let reading = match plan.compression {
            None => Reading::Next,
            Some(_) => Reading::Whole(shares::counted(&train, run)?),
        };
        Ok(Data::Documents {
            train,
            held_out: part(Split::HeldOut)?,
            boundary: boundary(tokenizer)?,
            reading,
        })
    }

    /// Windows of so many tokens that documents come to: those trained on, and those held out.
    pub fn windows(&self, tokens: u32) -> Option<(u64, u64)> {
        let Data::Documents {
            train,
            held_out,
            boundary,
            ..
        } = self
        else {
            return None;
        };
        let count = |documents: &Documents| {
            Packing::in_order(documents, tokens as usize, *boundary).len() as u64
        };
        Some((count(train), count(held_out)))
    }

    /// Bytes of the held-out documents' texts; 0 where samples are no documents.
    pub fn held_out_bytes(&self) -> u64 {
        match self {
            Data::Photographs(_) | Data::Texts { .. } => 0,
            Data::Documents { held_out, .. } => held_out.bytes(),
        }
    }

    /// Texts that lost their end, as a sentence.
    pub fn cut(&self, tokens: u32) -> Option<String> {
        let Data::Texts { train, held_out } = self else {
            return None;
        };
        match train.cut() + held_out.cut() {
            0 => None,
            cut => Some(format!(
                "{} of {} texts are longer than {tokens} tokens and lose their end; a larger length (--tokens in the terminal) reads more",
                format_count(cut),
                format_count((train.len() + held_out.len()) as u64)
            )),
        }
    }
}

/// Splits texts on a thread of its own. The tokenizers' library keeps the words that a thread has split, up to 10,000 of each
/// vocabulary, until that thread ends: on the training's own they would stay for the whole run.
fn apart<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("tokens".to_owned());
        let started = thread.spawn_scoped(scope, work);
        let started = started.map_err(|error| TrainError::NoThreads(error.to_string()))?;
        let ended = started.join();
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
