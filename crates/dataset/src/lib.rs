//! Reads a dropped folder or file as a dataset: its contents, and its images or texts as plain
//! arrays.
//!
//! Detection goes by names and file headers; images are decoded late. Nothing is ever written into
//! the folder, and every file is treated as hostile. This crate does not depend on tensors, devices
//! or models.
//!
//! ```
//! use dataset::{DetectedDataset, InspectOptions, Split, TextDataset, TextOptions, detect};
//!
//! let folder = tempfile::tempdir()?;
//! let rows = "ham,See you tonight\nspam,You have won\n".repeat(10);
//! std::fs::write(folder.path().join("sms.csv"), format!("label,text\n{rows}"))?;
//!
//! let (options, texts) = (InspectOptions::default(), TextOptions::default());
//! let found = detect(folder.path(), &options, &texts, &|_| {})?;
//! let DetectedDataset::Texts(found) = found else {
//!     panic!("the folder contains no images");
//! };
//! assert_eq!(found.classes[1].name, "spam");
//!
//! let train = TextDataset::open(&found, Split::Train)?;
//! assert_eq!(train.row(0), ("See you tonight", 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// Values, options and errors.
mod task;
mod types;

mod class_selection;

mod options;

mod error;

mod user_messages;

// Random numbers, and choices by seed.
mod rng;

mod seeded_selection;

mod image_groups;

// Listing a folder, and reading its names.
mod disk_threads;

mod folder_listing;

mod folder_layout;

// Opening a listed file.
mod open_file;

// Image files: headers, and pixels.
mod image_header;

mod decoded_image;

mod decode_image;

mod identify_image;

// Conversations: their columns, and the chat templates of models.
mod chat;

// Questions that a language model is evaluated on.
mod questions;

// Text and table files: rows and columns.
mod readers;

// Inspecting a folder of images.
mod target_statistics;

mod split_lists;

mod image_inspection;

mod image_table;

mod image_classes_and_splits;

mod inspect_images;

// Inspecting and loading texts.
mod text;

// Detecting the contents of a folder, and selecting from them.
mod horizontal_flip_check;
mod model_folder;

mod detected_dataset;

mod duplicates;

mod apply_selection;

mod held_out_copies;
mod detect_dataset;

// Comparing the images of a run with its folder.
mod changed_image_files;

// The beginning of texts and tables, for the window.
mod text_preview;
mod text_column;

mod first_table_rows;

// Images as samples.
mod augment;

mod image_cache;

mod image_dataset;

mod thumbnail;

// Samples in order and ahead of time.
mod sample_order;

mod load_queue;

mod loader;

// Watching the folder while the window is open.
mod watch_folder;

#[cfg(test)]
mod heic_avif_tests;

pub use augment::Mix;
pub use changed_image_files::describe_image_changes;
pub use chat::{ChatTemplate, TEMPLATE_FILES};
pub use class_selection::{ClassSelection, MergedClass};
pub use detect_dataset::detect;
pub use detected_dataset::DetectedDataset;
pub use duplicates::{DuplicateGroup, Duplicates, find_duplicates};
pub use error::{DatasetError, SampleError};
pub use first_table_rows::{TableRows, table_rows};
pub use image_dataset::{Augment, ImageDataset, ImageOptions, ImageSample};
pub use image_inspection::{ImageFile, ImageInspection};
pub use inspect_images::inspect_images;
pub use loader::{Loader, LoaderOptions};
pub use model_folder::{is_model_file, is_model_folder};
pub use options::{DEFAULT_SEED, InspectOptions, StopReading, TableOptions, TextOptions};
pub use questions::{
    AnswerRule, Expected, Question, QuestionFile, QuestionOptions, QuestionRow, QuestionRows,
    QuestionScores, is_question_file, letter,
};
pub use readers::{is_table_file, is_text_file};
pub use sample_order::{CachedOrder, Order};
pub use seeded_selection::chosen_first;
pub use target_statistics::TargetColumn;
pub use task::Task;
pub use text::{
    AnswerEnd, Buckets, ChatMessage, ChatRole, ChatTurn, Column, ConversationCounts,
    ConversationEncoder, ConversationExample, ConversationWindows, Documents, EncodedConversation,
    ExamplePart, LearnedTokens, LeftOut, Lengths, NOT_LEARNED, Packing, PromptEncoder, SkippedRows,
    StoredTokens, TextDataset, TextEncoder, TextInspection, TextManifest, TextSample, TokenBatches,
    TokenBytes, TokenSink, TokenWidth, Tokenizer, Vocabulary, Window, WindowOptions, WordCounts,
    conversation_examples, first_prompts, normalized_text, read_samples, read_texts,
    tokenize_conversations, tokenize_documents,
};
pub use text_column::read_text_column;
pub use text_preview::text_previews;
pub use thumbnail::{encode_jpeg, thumbnail};
pub use types::{Class, Ignored, ReadProgress, SkippedFile, Split, SplitKind};
pub use watch_folder::{Watch, watch};
