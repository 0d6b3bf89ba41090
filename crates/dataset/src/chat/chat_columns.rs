//! Recognizes the columns of a table that hold conversations, by their names and, for lists of
//! messages, by their first cells.

use super::read_messages::read_messages;
use serde::{Deserialize, Serialize};

/// A part of a conversation that a column holds. It is saved in the data file of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum ChatColumn {
    /// A list of messages.
    Messages,
    /// Descriptions of tools.
    Tools,
    /// The system prompt.
    System,
    Prompt,
    Completion,
    /// The better one of two answers to a prompt, or the whole conversation with it.
    Chosen,
    /// The worse one.
    Rejected,
    Instruction,
    /// What an instruction is about.
    Input,
}

const MESSAGES: [&str; 3] = ["messages", "conversations", "conversation"];
const TOOLS: [&str; 1] = ["tools"];
const SYSTEM: [&str; 2] = ["system", "system_prompt"];
const CHOSEN: [&str; 1] = ["chosen"];
const REJECTED: [&str; 1] = ["rejected"];
/// Names of a prompt.
const PROMPT: [&str; 2] = ["prompt", "question"];
const COMPLETION: &str = "completion";
const INPUT: [&str; 2] = ["input", "context"];
/// Names of a prompt, each with the names of its completion.
const PAIRS: [(&str, ChatColumn, &[&str]); 2] = [
    ("prompt", ChatColumn::Prompt, &[COMPLETION, "response"]),
    (
        "instruction",
        ChatColumn::Instruction,
        &["output", "response", COMPLETION],
    ),
];

/// Whether a column of this name may hold nested values, such as lists of messages, instead of
/// texts. Readers pass such values on as JSON.
pub(crate) fn may_be_nested(name: &str) -> bool {
    let lists: [&[&str]; 5] = [&MESSAGES, &TOOLS, &CHOSEN, &REJECTED, &PROMPT];
    name == COMPLETION || lists.iter().any(|names| names.contains(&name))
}

/// The columns that hold conversations, each with its index; empty if there are none. `first_cells`
/// gives the first cells of a column.
pub(crate) fn find_chat_columns(
    names: &[String],
    first_cells: &dyn Fn(usize) -> Vec<String>,
) -> Vec<(ChatColumn, usize)> {
    let find = |wanted: &[&str]| {
        let index = |name: &&str| names.iter().position(|n| n.trim().to_lowercase() == **name);
        wanted.iter().find_map(index)
    };
    let system = find(&SYSTEM).map(|index| (ChatColumn::System, index));
    let tools = find(&TOOLS).map(|index| (ChatColumn::Tools, index));
    if let (Some(chosen), Some(rejected)) = (find(&CHOSEN), find(&REJECTED)) {
        let prompt = find(&PROMPT);
        // Without a prompt, both hold whole conversations.
        if prompt.is_some() || hold_messages(&first_cells(chosen)) {
            let all = [
                prompt.map(|index| (ChatColumn::Prompt, index)),
                Some((ChatColumn::Chosen, chosen)),
                Some((ChatColumn::Rejected, rejected)),
                tools,
                system,
            ];
            return all.into_iter().flatten().collect();
        }
    }
    let messages = find(&MESSAGES).filter(|index| hold_messages(&first_cells(*index)));
    if let Some(index) = messages {
        let all = [Some((ChatColumn::Messages, index)), tools, system];
        return all.into_iter().flatten().collect();
    }
    for (name, column, answers) in PAIRS {
        let (Some(asked), Some(answer)) = (find(&[name]), find(answers)) else {
            continue;
        };
        let input = find(&INPUT).filter(|_| column == ChatColumn::Instruction);
        let all = [
            Some((column, asked)),
            input.map(|index| (ChatColumn::Input, index)),
            Some((ChatColumn::Completion, answer)),
            tools.filter(|_| column == ChatColumn::Prompt),
            system,
        ];
        return all.into_iter().flatten().collect();
    }
    Vec::new()
}

/// Whether most cells are lists of objects with roles.
fn hold_messages(cells: &[String]) -> bool {
    let is_list = |cell: &&String| match read_messages(cell) {
        Ok(_) => true,
        // A list of messages with a fault; the scan reports it.
        Err(reason) => reason.contains("message ") || reason.contains("1,000"),
    };
    let lists = cells.iter().filter(is_list).count();
    lists > 0 && lists * 2 > cells.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_messages_tools_and_answers_may_be_nested() {
        let nested = [
            "messages",
            "conversations",
            "conversation",
            "prompt",
            "question",
            "completion",
            "chosen",
            "rejected",
            "tools",
        ];
        for name in nested {
            assert!(may_be_nested(name), "{name}");
        }
        for name in [
            "system", "response", "output", "input", "context", "text", "Messages", "",
        ] {
            assert!(!may_be_nested(name), "{name}");
        }
    }

    #[test]
    fn columns_are_recognized_by_name_and_messages_by_their_cells() {
        let found = |names: &[&str], cell: &str| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            find_chat_columns(&names, &|_| vec![cell.to_owned()])
        };
        let list = r#"[{"from":"human","value":"Hi"}]"#;
        assert_eq!(
            found(&["id", "conversations", "tools"], list),
            [(ChatColumn::Messages, 1), (ChatColumn::Tools, 2)]
        );
        assert_eq!(found(&["id", "messages"], "see you"), []);
        assert_eq!(
            found(&["Prompt", "completion"], ""),
            [(ChatColumn::Prompt, 0), (ChatColumn::Completion, 1)]
        );
        assert_eq!(
            found(&["instruction", "context", "response", "category"], ""),
            [
                (ChatColumn::Instruction, 0),
                (ChatColumn::Input, 1),
                (ChatColumn::Completion, 2)
            ]
        );
        assert_eq!(found(&["text", "output"], ""), []);
        assert_eq!(
            found(&["prompt", "rejected", "chosen", "completion"], ""),
            [
                (ChatColumn::Prompt, 0),
                (ChatColumn::Chosen, 2),
                (ChatColumn::Rejected, 1)
            ]
        );
        assert_eq!(
            found(&["chosen", "rejected"], list),
            [(ChatColumn::Chosen, 0), (ChatColumn::Rejected, 1)]
        );
        assert_eq!(found(&["chosen", "rejected"], "yes"), []);
    }
}
