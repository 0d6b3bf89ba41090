//! Documents as tokens, for the tasks that train on windows of them.

use super::conversations::{conversation_encoder, describe_cut, expect_windows};
use super::expect_texts;
use super::split_documents::{Encoding, SplitDocuments};
use super::tokenizer::{document_boundary, open_tokenizer};
use super::windows::WindowSource;
use crate::error::Result;
use crate::plan::{Plan, SampleCounts};
use crate::preparation::Preparation;
use dataset::{
    ConversationCounts, DetectedDataset, Documents, LeftOut, Split, TextInspection, Tokenizer,
    WindowOptions,
};
use runlog::RunFolder;
use std::sync::Arc;

/// The tokenized documents or conversations of a run.
pub struct DocumentData {
    pub train: WindowSource,
    pub held_out: WindowSource,
    /// Conversations that are not learned.
    left_out: LeftOut,
}

impl DocumentData {
    /// Opens the tokens of both splits, and tokenizes them first if there are none yet.
    ///
    /// # Errors
    /// A file is missing or has changed since the inspection, the vocabulary has no token to
    /// separate documents, the chat template cannot be used, no conversation can be learned, or
    /// the user stops the run.
    pub fn open(
        plan: &Plan,
        found: &DetectedDataset,
        run: &RunFolder,
        preparation: Preparation,
    ) -> Result<Self> {
        let found = &*expect_texts(plan, found)?;
        let tokenizer = &open_tokenizer(plan, found, run)?;
        let open = |part| open_split(plan, found, tokenizer, part, preparation);
        let (train, held_out) = (open(Split::Train)?, open(Split::HeldOut)?);
        let mut left_out = train.documents().left_out().clone();
        left_out.add(held_out.documents().left_out());
        if found.has_conversations() {
            expect_windows(&train, &left_out)?;
        }
        Ok(DocumentData {
            train,
            held_out,
            left_out,
        })
    }

    /// The number of windows of a plan in each split, and its steps per epoch if tokens limit them.
    pub fn sample_counts(&self, plan: &Plan) -> SampleCounts {
        let batches = self.train.token_batches(plan);
        SampleCounts {
            train: self.train.count(plan.input_size) as u64,
            held_out: self.held_out.count(plan.input_size) as u64,
            steps_per_epoch: batches.map(|batches| batches.steps_per_epoch()),
        }
    }

    /// A warning about conversations that are cut or left out, if there are any.
    pub(crate) fn truncation_warning(&self, tokens: u32) -> Option<String> {
        let (a, b) = (self.train.counts()?, self.held_out.counts()?);
        let both = ConversationCounts {
            used: a.used + b.used,
            truncated: a.truncated + b.truncated,
            too_long: a.too_long + b.too_long,
            unusable: a.unusable + b.unusable,
        };
        describe_cut(both, &self.left_out, tokens)
    }
}

/// Opens the tokens of one split, as windows for a plan.
///
/// # Errors
/// As for [`DocumentData::open`].
pub(crate) fn open_split(
    plan: &Plan,
    found: &TextInspection,
    tokenizer: &Tokenizer,
    part: Split,
    preparation: Preparation,
) -> Result<WindowSource> {
    let open = |encoding| -> Result<Arc<Documents>> {
        let documents = SplitDocuments {
            found,
            part,
            encoding,
            threads: plan.threads,
            preparation,
        };
        Ok(Arc::new(documents.open()?))
    };
    if !found.has_conversations() {
        let documents = open(Encoding::Documents(tokenizer))?;
        return Ok(WindowSource::joined(
            documents,
            document_boundary(tokenizer)?,
        ));
    }
    let encoder = conversation_encoder(plan, tokenizer)?;
    let options = WindowOptions {
        length: plan.input_size as usize,
        packs: plan.conversations.is_some_and(|options| options.packs),
        seed: plan.seed,
        are_pairs: found.has_preferences(),
    };
    let documents = open(Encoding::Conversations(&encoder))?;
    Ok(WindowSource::conversations(documents, options))
}
