//! The windows of one split: cut from joined documents, or made of whole conversations.

use crate::plan::Plan;
use dataset::{
    ConversationCounts, ConversationWindows, Documents, Packing, TokenBatches, Window,
    WindowOptions,
};
use std::sync::Arc;

/// The tokenized documents of one split, and how they become windows.
#[derive(Debug, Clone)]
pub struct WindowSource {
    documents: Arc<Documents>,
    layout: Layout,
}

#[derive(Debug, Clone)]
enum Layout {
    /// Documents are joined, with this token between them.
    Joined { boundary: u32 },
    /// Windows of whole conversations. They are the same in each epoch.
    Conversations(Arc<ConversationWindows<Arc<Documents>>>),
}

/// The windows of one epoch.
#[derive(Debug, Clone)]
pub(super) enum Windows {
    Joined(Packing<Arc<Documents>>),
    Conversations(Arc<ConversationWindows<Arc<Documents>>>),
}

impl WindowSource {
    /// Documents that are joined, with the token `boundary` between them.
    pub fn joined(documents: Arc<Documents>, boundary: u32) -> Self {
        WindowSource {
            documents,
            layout: Layout::Joined { boundary },
        }
    }

    /// Conversations.
    pub fn conversations(documents: Arc<Documents>, options: WindowOptions) -> Self {
        let windows = ConversationWindows::new(Arc::clone(&documents), options);
        WindowSource {
            documents,
            layout: Layout::Conversations(Arc::new(windows)),
        }
    }

    /// The documents.
    pub fn documents(&self) -> &Arc<Documents> {
        &self.documents
    }

    /// How many conversations are used; `None` for documents.
    pub fn counts(&self) -> Option<ConversationCounts> {
        match &self.layout {
            Layout::Joined { .. } => None,
            Layout::Conversations(windows) => Some(windows.counts()),
        }
    }

    /// Whether the windows are preferences.
    pub(super) fn are_pairs(&self) -> bool {
        match &self.layout {
            Layout::Joined { .. } => false,
            Layout::Conversations(windows) => windows.are_pairs(),
        }
    }

    /// Number of windows of `tokens` tokens.
    pub(super) fn count(&self, tokens: u32) -> usize {
        match &self.layout {
            Layout::Joined { boundary } => {
                Packing::in_order(&*self.documents, tokens as usize, *boundary).len()
            }
            Layout::Conversations(windows) => windows.len(),
        }
    }

    /// The steps of a plan whose steps are limited by their tokens; `None` for other plans.
    pub(super) fn token_batches(&self, plan: &Plan) -> Option<TokenBatches> {
        let most = plan.effective_batch_tokens?;
        let windows = self.in_order(plan.input_size);
        let tokens: Vec<u32> = (0..windows.len())
            .map(|index| windows.tokens_of(index) as u32)
            .collect();
        let by_length = plan.conversations.is_some_and(|options| options.by_length);
        Some(TokenBatches::new(plan.seed, most, &tokens, by_length))
    }

    /// The windows for evaluation.
    pub(super) fn in_order(&self, tokens: u32) -> Windows {
        let documents = Arc::clone(&self.documents);
        match &self.layout {
            Layout::Joined { boundary } => {
                Windows::Joined(Packing::in_order(documents, tokens as usize, *boundary))
            }
            Layout::Conversations(windows) => Windows::Conversations(Arc::clone(windows)),
        }
    }

    /// The windows of a training epoch.
    pub(super) fn shuffled(&self, tokens: u32, seed: u64, epoch: u64) -> Windows {
        let documents = Arc::clone(&self.documents);
        match &self.layout {
            Layout::Joined { boundary } => Windows::Joined(Packing::shuffled(
                documents,
                tokens as usize,
                *boundary,
                seed,
                epoch,
            )),
            Layout::Conversations(windows) => Windows::Conversations(Arc::clone(windows)),
        }
    }
}

impl Windows {
    /// Number of windows.
    pub fn len(&self) -> usize {
        match self {
            Windows::Joined(windows) => windows.len(),
            Windows::Conversations(windows) => windows.len(),
        }
    }

    /// Most tokens of a window.
    pub fn window_tokens(&self) -> usize {
        match self {
            Windows::Joined(windows) => windows.window_tokens(),
            Windows::Conversations(windows) => windows.window_tokens(),
        }
    }

    /// One window. Panics if `index` is not below `len`.
    pub fn window(&self, index: usize) -> Window {
        match self {
            Windows::Joined(windows) => windows.window(index),
            Windows::Conversations(windows) => windows.window(index),
        }
    }

    /// Number of tokens of a window, both texts of a preference together; that of the longest
    /// window for documents.
    pub fn tokens_of(&self, index: usize) -> usize {
        match self {
            Windows::Joined(windows) => windows.window_tokens(),
            Windows::Conversations(windows) => windows.tokens_of(index),
        }
    }

    /// Number of tokens of a window; that of the longest for documents.
    pub fn size_of(&self, index: usize) -> usize {
        match self {
            Windows::Joined(windows) => windows.window_tokens(),
            Windows::Conversations(windows) => windows.size_of(index),
        }
    }
}
