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
    let chats = alike_chats(tables, skipped);
    let first = *chats.first()?;
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
    Some(Decision {
        task: Some(Task::LanguageModel),
        reason: reason(first),
        files: files.collect(),
        ..Decision::default()
    })
}

/// The tables of conversations, or those of preferences if the first table has preferences. The
/// other ones of both are added to `skipped`.
fn alike_chats<'t, 'e>(
    tables: &'t [PreviewedTable<'e>],
    skipped: &mut Vec<SkippedFile>,
) -> Vec<&'t PreviewedTable<'e>> {
    let mut chats: Vec<&PreviewedTable> = tables.iter().filter(|it| !it.chat.is_empty()).collect();
    let Some(first) = chats.first().copied() else {
        return chats;
    };
    let has_preferences = holds_preferences(first);
    let path = first.entry.path.display();
    let reason = if has_preferences {
        format!(
            "The rows of this file are conversations, but those of {path} are preferences. Move the file into a folder of its own."
        )
    } else {
        format!(
            "The rows of this file are preferences, but those of {path} are conversations. Move the file into a folder of its own."
        )
    };
    chats.retain(|table| {
        let is_alike = holds_preferences(table) == has_preferences;
        if !is_alike {
            skipped.push(table.entry.skip(reason.clone()));
        }
        is_alike
    });
    chats
}

/// Why the rows are conversations, as a sentence about the first table.
fn reason(first: &PreviewedTable) -> String {
    let path = first.entry.path.display();
    let name = |wanted: ChatColumn| {
        let index = first.chat.iter().find(|(column, _)| *column == wanted)?.1;
        first.preview.names.get(index).map(String::as_str)
    };
    let completion = name(ChatColumn::Completion).unwrap_or_default();
    let asked = name(ChatColumn::Prompt).or(name(ChatColumn::Instruction));
    match (name(ChatColumn::Messages), asked) {
        _ if holds_preferences(first) => format!(
            "each row of {path} is a preference: an answer in the column \"{}\" is better than the one in \"{}\".",
            name(ChatColumn::Chosen).unwrap_or_default(),
            name(ChatColumn::Rejected).unwrap_or_default()
        ),
        (Some(messages), _) => {
            format!("each row of {path} is a conversation, in the column \"{messages}\".")
        }
        (None, asked) => format!(
            "each row of {path} has an answer (\"{completion}\") to a prompt (\"{}\").",
            asked.unwrap_or_default()
        ),
    }
}

/// Whether the rows of a table have a chosen and a rejected answer.
fn holds_preferences(table: &PreviewedTable) -> bool {
    table
        .chat
        .iter()
        .any(|(column, _)| *column == ChatColumn::Chosen)
}
