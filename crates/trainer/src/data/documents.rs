//! Documents as tokens, for the tasks that train on windows of them.

use super::expect_texts;
use super::split_documents::SplitDocuments;
use super::tokenizer::{document_boundary, open_tokenizer};
use crate::error::Result;
use crate::plan::{Plan, SampleCounts};
use crate::preparation::Preparation;
use dataset::{DetectedDataset, Documents, Packing, Split};
use runlog::RunFolder;
use std::sync::Arc;

/// The tokenized documents of a run.
pub struct DocumentData {
    pub train: Arc<Documents>,
    pub held_out: Arc<Documents>,
    /// The token between two documents.
    pub boundary: u32,
}

impl DocumentData {
    /// Opens the tokens of both splits, and tokenizes them first if there are none yet.
    ///
    /// # Errors
    /// A file is missing or has changed since the inspection, the vocabulary has no token to
    /// separate documents, or the user stops the run.
    pub fn open(
        plan: &Plan,
        found: &DetectedDataset,
        run: &RunFolder,
        preparation: Preparation,
    ) -> Result<Self> {
        let found = &*expect_texts(plan, found)?;
        let tokenizer = &open_tokenizer(plan, found, run)?;
        let open = |part| -> Result<Arc<Documents>> {
            let documents = SplitDocuments {
                found,
                part,
                tokenizer,
                threads: plan.threads,
                preparation,
            };
            Ok(Arc::new(documents.open()?))
        };
        Ok(DocumentData {
            train: open(Split::Train)?,
            held_out: open(Split::HeldOut)?,
            boundary: document_boundary(tokenizer)?,
        })
    }

    /// The number of windows of `tokens` tokens in each split.
    pub fn windows(&self, tokens: u32) -> SampleCounts {
        let count = |documents: &Documents| {
            Packing::in_order(documents, tokens as usize, self.boundary).len() as u64
        };
        SampleCounts {
            train: count(&self.train),
            held_out: count(&self.held_out),
        }
    }
}
