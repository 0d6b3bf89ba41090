//! Conversations: rows of messages, or of prompts and completions. Recognizes the columns that hold
//! them, renders them with the chat template of a model, and finds the answers of the assistant.

// One conversation, and the columns of a table that hold its parts.
mod read_messages;
mod chat_columns;
mod conversation;

// The chat template of a model.
mod python_json;
mod template_costs;
mod template_operands;
mod chat_template;
mod template_files;

// The answers in a rendered conversation.
mod learned_text;

pub use chat_template::ChatTemplate;
pub use template_files::TEMPLATE_FILES;

pub(crate) use chat_columns::{ChatColumn, find_chat_columns, may_be_nested};
pub(crate) use chat_template::MARKS;
pub(crate) use conversation::{Conversation, MAX_BYTES, first_prompt, message, plain_text};
pub(crate) use learned_text::LearnedText;
