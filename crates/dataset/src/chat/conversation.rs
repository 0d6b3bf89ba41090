//! One conversation, and its canonical text: a JSON object. The text stands for the conversation
//! wherever texts are counted, compared, split and read again.

use super::chat_columns::ChatColumn;
use super::read_messages::{read_messages, read_tools};
use format::format_bytes;
use minijinja::Value;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Most bytes of a conversation. The tokenizers library needs about a hundred times its memory.
pub(crate) const MAX_BYTES: usize = 1 << 20;

/// A conversation: either messages, or a prompt with its completion.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Conversation {
    /// Messages, each an object with a role.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<Value>,
    /// Descriptions of the tools that the assistant may call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// An instruction is a prompt that is written into a form if the model has no chat template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instruction: Option<String>,
    /// What an instruction is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion: Option<String>,
}

impl Conversation {
    /// Reads a row. The error is the end of a sentence about the row.
    pub fn from_cells(
        cells: &[Option<Cow<'_, str>>],
        columns: &[ChatColumn],
    ) -> Result<Self, String> {
        let mut found = Conversation::default();
        for (cell, column) in cells.iter().zip(columns) {
            let Some(cell) = cell.as_deref().filter(|cell| !cell.trim().is_empty()) else {
                continue;
            };
            let text = || Some(cell.to_owned());
            match column {
                ChatColumn::Messages => found.messages = read_messages(cell)?,
                ChatColumn::Tools => found.tools = read_tools(cell)?,
                ChatColumn::System => found.system = text(),
                // The prompt is before the completion in `columns`.
                ChatColumn::Prompt | ChatColumn::Completion if is_list(cell) => {
                    found.messages.extend(read_messages(cell)?);
                }
                ChatColumn::Prompt => found.prompt = text(),
                ChatColumn::Completion => found.completion = text(),
                ChatColumn::Instruction => found.instruction = text(),
                ChatColumn::Input => found.input = text(),
            }
        }
        found.check(columns)?;
        Ok(found)
    }

    fn check(&mut self, columns: &[ChatColumn]) -> Result<(), String> {
        let has = |column| columns.contains(&column);
        if !self.messages.is_empty() {
            if self.prompt.is_some() || self.completion.is_some() {
                return Err(
                    "its prompt and its completion must both be texts, or both be lists of messages"
                        .to_owned(),
                );
            }
            if let Some(system) = self.system.take() {
                let first = self.messages.first().map(role);
                if first.as_deref() != Some("system") {
                    self.messages.insert(0, message("system", &system));
                }
            }
            let mut answers = self.messages.iter().filter(|message| is_answer(message));
            return match answers.next() {
                Some(_) => Ok(()),
                None => Err("it has no answer of the assistant to learn from".to_owned()),
            };
        }
        let missing = |what: &str| Err(format!("it has no {what}"));
        if has(ChatColumn::Messages) {
            return missing("messages");
        }
        if has(ChatColumn::Instruction) && self.instruction.is_none() {
            return missing("instruction");
        }
        if has(ChatColumn::Prompt) && self.prompt.is_none() {
            return missing("prompt");
        }
        match self.completion {
            Some(_) => Ok(()),
            None => missing("completion to learn from"),
        }
    }

    /// Reads the canonical text of a row. The error is the end of a sentence about the row.
    pub fn text_of_cells(
        cells: &[Option<Cow<'_, str>>],
        columns: &[ChatColumn],
    ) -> Result<String, String> {
        let text = Self::from_cells(cells, columns)?.to_text();
        if text.len() > MAX_BYTES {
            let limit = format_bytes(MAX_BYTES as u64);
            return Err(format!("the conversation is longer than {limit}"));
        }
        Ok(text)
    }

    /// The canonical text.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("a conversation is plain JSON")
    }

    /// Reads a canonical text; `None` if it is none.
    pub fn from_text(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Its messages. A prompt is what the user says, its completion what the assistant says.
    pub fn as_messages(&self) -> Vec<Value> {
        if !self.messages.is_empty() {
            return self.messages.iter().map(with_reasoning).collect();
        }
        let asked = [&self.prompt, &self.instruction, &self.input];
        let asked: Vec<&str> = asked.into_iter().flatten().map(String::as_str).collect();
        let system = self.system.as_deref().map(|text| message("system", text));
        let mut messages: Vec<Value> = system.into_iter().collect();
        messages.push(message("user", &asked.join("\n\n")));
        let completion = self.completion.as_deref().unwrap_or_default();
        messages.push(message("assistant", completion));
        messages
    }

    /// The prompt and the completion as plain text, for a model without a chat template; `None` if
    /// the conversation consists of messages. Instructions get the form of Alpaca (Taori et al.
    /// 2023).
    pub fn as_plain_pair(&self) -> Option<(String, &str)> {
        let completion = self.completion.as_deref()?;
        let system = self.system.as_ref().map(|text| format!("{text}\n\n"));
        let system = system.unwrap_or_default();
        let asked = match (&self.prompt, &self.instruction, &self.input) {
            (Some(prompt), ..) => prompt.clone(),
            (None, Some(instruction), Some(input)) => {
                format!("### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:\n")
            }
            (None, instruction, None) => format!(
                "### Instruction:\n{}\n\n### Response:\n",
                instruction.as_deref().unwrap_or_default()
            ),
            (None, None, Some(input)) => format!("{input}\n\n"),
        };
        Some((system + &asked, completion))
    }
}

/// A message with its reasoning under the names that templates read, as in transformers.
fn with_reasoning(message: &Value) -> Value {
    let found = ["reasoning_content", "thinking", "reasoning"].into_iter();
    let mut found = found.filter_map(|key| message.get_attr(key).ok());
    let Some(reasoning) = found.find(|value| !value.is_undefined() && !value.is_none()) else {
        return message.clone();
    };
    let names = message.try_iter().into_iter().flatten();
    let mut pairs: Vec<(Value, Value)> = names
        .map(|name| {
            let value = message.get_item(&name).unwrap_or_default();
            (name, value)
        })
        .collect();
    for name in ["thinking", "reasoning_content"] {
        let is_given =
            |(known, value): &(Value, Value)| known.as_str() == Some(name) && !value.is_none();
        if !pairs.iter().any(is_given) {
            pairs.retain(|(known, _)| known.as_str() != Some(name));
            pairs.push((Value::from(name), reasoning.clone()));
        }
    }
    Value::from_pairs(pairs)
}

/// A message of plain text.
pub(crate) fn message(role: &str, content: &str) -> Value {
    Value::from_pairs([("role", role), ("content", content)])
}

/// The role of a message; empty if it has none.
pub(super) fn role(message: &Value) -> String {
    let role = message.get_attr("role").unwrap_or_default();
    role.as_str().unwrap_or_default().to_owned()
}

/// Whether a message is an answer of the assistant that says or calls something.
pub(super) fn is_answer(message: &Value) -> bool {
    let has = |key: &str| message.get_attr(key).is_ok_and(|value| value.is_true());
    role(message) == "assistant"
        && ["content", "tool_calls", "reasoning_content", "thinking"]
            .into_iter()
            .any(has)
}

/// Whether a cell is a list of messages rather than text.
fn is_list(cell: &str) -> bool {
    cell.trim_start().starts_with('[') && read_messages(cell).is_ok()
}

/// The texts of a conversation, one per line, without the names of roles; of another text itself.
pub(crate) fn plain_text(text: &str) -> Cow<'_, str> {
    let Some(found) = Conversation::from_text(text) else {
        return Cow::Borrowed(text);
    };
    let contents = found.as_messages().into_iter().filter_map(|message| {
        let content = message.get_attr("content").ok()?;
        content.as_str().map(str::to_owned)
    });
    Cow::Owned(contents.collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(cells: &[&str], columns: &[ChatColumn]) -> Result<Conversation, String> {
        let cells: Vec<_> = cells
            .iter()
            .map(|cell| Some(Cow::Borrowed(*cell)).filter(|cell| !cell.is_empty()))
            .collect();
        Conversation::from_cells(&cells, columns)
    }

    #[test]
    fn a_row_without_anything_to_learn_gets_a_reason() {
        let messages = |text: &str| read(&[text], &[ChatColumn::Messages]).err();
        let user = r#"[{"role":"user","content":"Hi"}]"#;
        assert_eq!(
            messages(user).as_deref(),
            Some("it has no answer of the assistant to learn from")
        );
        let silent = r#"[{"role":"user","content":"Hi"},{"role":"assistant","content":""}]"#;
        assert!(messages(silent).is_some());
        assert_eq!(messages("").as_deref(), Some("it has no messages"));
        let pair = [ChatColumn::Prompt, ChatColumn::Completion];
        assert_eq!(
            read(&["", "b"], &pair).err().as_deref(),
            Some("it has no prompt")
        );
        assert_eq!(
            read(&["a", ""], &pair).err().as_deref(),
            Some("it has no completion to learn from")
        );
    }

    #[test]
    fn prompts_and_instructions_become_messages_or_plain_text() {
        let columns = [
            ChatColumn::Instruction,
            ChatColumn::Input,
            ChatColumn::Completion,
        ];
        let found = read(&["Add", "1 2", "3"], &columns).expect("it is complete");
        let texts: Vec<String> = found
            .as_messages()
            .iter()
            .map(|message| {
                format!(
                    "{}: {}",
                    role(message),
                    message.get_attr("content").expect("text")
                )
            })
            .collect();
        assert_eq!(texts, ["user: Add\n\n1 2", "assistant: 3"]);
        let (prompt, completion) = found.as_plain_pair().expect("it is a pair");
        assert_eq!(completion, "3");
        assert!(
            prompt.ends_with("### Input:\n1 2\n\n### Response:\n"),
            "{prompt}"
        );
        let list = r#"[{"role":"user","content":"Hi"}]"#;
        let answer = r#"[{"role":"assistant","content":"Hello"}]"#;
        let pair = [ChatColumn::Prompt, ChatColumn::Completion];
        let found = read(&[list, answer], &pair).expect("lists of messages");
        assert_eq!(found.messages.len(), 2);
        assert!(read(&[list, "Hello"], &pair).is_err());
    }

    #[test]
    fn the_canonical_text_keeps_the_order_of_keys_and_reads_back() {
        let cell = r#"[{"role":"user","content":"Hi","zeta":1,"alpha":{"b":[1,2.5,null],"a":true}},
            {"role":"assistant","content":"Hello"}]"#;
        let found = read(&[cell], &[ChatColumn::Messages]).expect("it is complete");
        let text = found.to_text();
        assert!(
            text.contains(r#""zeta":1,"alpha":{"b":[1,2.5,null],"a":true}"#),
            "{text}"
        );
        let again = Conversation::from_text(&text).expect("it was written by us");
        assert_eq!(again.to_text(), text);
        assert_eq!(plain_text(&text), "Hi\nHello");
        let thought = r#"[{"role":"assistant","content":"a","reasoning":"b"}]"#;
        let found = read(&[thought], &[ChatColumn::Messages]).expect("it has an answer");
        let message = &found.as_messages()[0];
        for name in ["reasoning_content", "thinking", "reasoning"] {
            let value = message.get_attr(name).expect("it is an object");
            assert_eq!(value.as_str(), Some("b"), "{name}");
        }
    }
}
