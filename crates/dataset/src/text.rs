//! Texts: which files of a folder contain them, which task they are for, and the texts themselves
//! as plain arrays. Treats every file as hostile, never reads outside the folder, and never trains
//! a model.

// Inspecting: files to rows, rows to a task and a split.
mod text_inspection;

mod file_splits;
mod refusals_and_notes;

mod task_decision;

mod decide_task;
mod decide_conversations;
mod decide_labeled_tables;

mod line_ends;
mod scan_rows;

mod assign_splits;

mod inspect_texts;

// Loading: the texts of one split as arrays.
mod text_manifest;
mod read_samples;

mod tokenizer_chunks;
mod word_boundaries;
mod word_counts;
mod text_dataset;

mod tokenizer;
mod text_encoder;

mod tokenize_documents;
mod tokenized_documents;
mod pack_documents;

// Conversations as tokens and windows.
mod conversation_encoder;
mod prompt_encoder;
mod tokenize_conversations;
mod conversation_windows;
mod conversation_examples;

mod length_buckets;
mod token_batches;

pub use conversation_encoder::{ConversationEncoder, EncodedConversation, LearnedTokens};
pub use conversation_examples::{
    ConversationExample, ExamplePart, conversation_examples, first_prompts,
};
pub use conversation_windows::{
    ConversationCounts, ConversationWindows, NOT_LEARNED, WindowOptions,
};
pub use length_buckets::Buckets;
pub use line_ends::normalized_text;
pub use pack_documents::{Packing, Window};
pub use prompt_encoder::{AnswerEnd, ChatMessage, ChatRole, ChatTurn, PromptEncoder};
pub use read_samples::{read_samples, read_texts};
pub use text_dataset::TextDataset;
pub use text_encoder::TextEncoder;
pub use text_inspection::{Column, Lengths, SkippedRows, TextInspection, TextSample};
pub use text_manifest::TextManifest;
pub use token_batches::TokenBatches;
pub use tokenize_conversations::{LeftOut, tokenize_conversations};
pub use tokenize_documents::{TokenSink, tokenize_documents};
pub use tokenized_documents::{Documents, StoredTokens, TokenBytes, TokenWidth};
pub use tokenizer::{Tokenizer, Vocabulary};
pub use word_counts::WordCounts;

pub(crate) use inspect_texts::inspect_texts;
pub(crate) use read_samples::read_chosen;
pub(crate) use refusals_and_notes::classes as class_notes;
