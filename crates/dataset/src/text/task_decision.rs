//! The decision about a folder of texts: its task, and how each file is read.

use super::text_inspection::Column;
use crate::chat::ChatColumn;
use crate::folder_listing::Entry;
use crate::readers::Dialect;
use crate::task::Task;
use crate::types::Split;

/// The task of the files, and how each is read.
#[derive(Debug, Default)]
pub(crate) struct Decision {
    /// The task; `None` if the files show none.
    pub task: Option<Task>,
    /// Why it is that task, as a sentence.
    pub reason: String,
    /// Columns that are read.
    pub columns: Vec<Column>,
    /// Files that are read.
    pub files: Vec<ChosenFile>,
    /// Why nothing can be trained on.
    pub refusal: Option<String>,
}

/// A file, and where its samples are in it.
#[derive(Debug)]
pub(crate) struct ChosenFile {
    pub entry: Entry,
    /// How it is read.
    pub dialect: Dialect,
    /// The split that its name or folder gives.
    pub split: Option<Split>,
    /// Columns that make up the text.
    pub text_columns: Vec<usize>,
    /// What these columns hold, if the rows are conversations.
    pub chat: Vec<ChatColumn>,
    /// Where the labels come from.
    pub label: LabelSource,
}

/// Where the label of a sample comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LabelSource {
    Column(usize),
    /// The folder of the file.
    Class(String),
    /// Documents have no label.
    Unlabeled,
}
