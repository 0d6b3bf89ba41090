//! Tables whose rows are conversations.

use super::file_splits::splits_by_name;
use super::task_decision::{ChosenFile, Decision, LabelSource};
use crate::chat::ChatColumn;
use crate::options::TextOptions;
use crate::readers::PreviewedTable;
use crate::task::Task;
use crate::types::{SkippedFile, Split};

/// Decides for tables of conversations; `None` if there are none, or if the user asks for something
/// else. Other tables are added to `skipped`.
pub(crate) fn decide(
    tables: &[PreviewedTable],
    options: &TextOptions,
    skipped: &mut Vec<SkippedFile>,
) -> Option<Decision> {
    let is_open = options.task.is_none_or(|task| task == Task::LanguageModel);
    if !is_open || options.text_column.is_some() || options.label_column.is_some() {
        return None;
    }
    let chats: Vec<&PreviewedTable> = tables.iter().filter(|it| !it.chat.is_empty()).collect();
    let first = chats.first()?;
    for table in tables.iter().filter(|table| table.chat.is_empty()) {
        skipped.push(table.entry.skip(format!(
            "The rows of this file are not conversations, but those of {} are. Move the file into a folder of its own.",
            first.entry.path.display()
        )));
    }
    let names: Vec<Vec<String>> = chats.iter().map(|it| it.entry.all_names()).collect();
    let splits = splits_by_name(&names);
    let some_have_one = splits.iter().any(Option::is_some);
    let files = chats.iter().zip(splits).map(|(table, split)| ChosenFile {
        entry: table.entry.clone(),
        dialect: table.dialect,
        split: split.or(some_have_one.then_some(Split::Train)),
        text_columns: table.chat.iter().map(|(_, index)| *index).collect(),
        chat: table.chat.iter().map(|(column, _)| *column).collect(),
        label: LabelSource::Unlabeled,
    });
    let path = first.entry.path.display();
    let name = |wanted: ChatColumn| {
        let index = first.chat.iter().find(|(column, _)| *column == wanted)?.1;
        first.preview.names.get(index).map(String::as_str)
    };
    let completion = name(ChatColumn::Completion).unwrap_or_default();
    let asked = name(ChatColumn::Prompt).or(name(ChatColumn::Instruction));
    let reason = match (name(ChatColumn::Messages), asked) {
        (Some(messages), _) => {
            format!("each row of {path} is a conversation, in the column \"{messages}\".")
        }
        (None, asked) => format!(
            "each row of {path} is an answer (\"{completion}\") to the column \"{}\".",
            asked.unwrap_or_default()
        ),
    };
    Some(Decision {
        task: Some(Task::LanguageModel),
        reason,
        files: files.collect(),
        ..Decision::default()
    })
}
