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

/// A conversation: either messages, or a prompt with its completion. A preference is a conversation
/// with the chosen answer that also holds the rejected one.
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
    /// The completion that was rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected: Option<String>,
    /// The messages that were rejected. They follow the first `shared_messages` messages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rejected_messages: Vec<Value>,
    #[serde(skip_serializing_if = "is_zero")]
    pub shared_messages: usize,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl Conversation {
    /// Reads a row. The error is the end of a sentence about the row.
    pub fn from_cells(
        cells: &[Option<Cow<'_, str>>],
        columns: &[ChatColumn],
    ) -> Result<Self, String> {
        let mut found = Conversation::default();
        let (mut chosen, mut rejected) = (None, None);
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
                ChatColumn::Chosen => chosen = Some(cell),
                ChatColumn::Rejected => rejected = Some(cell),
                ChatColumn::Instruction => found.instruction = text(),
                ChatColumn::Input => found.input = text(),
            }
        }
        if columns.contains(&ChatColumn::Chosen) {
            let chosen = chosen.ok_or("the row has no chosen answer")?;
            let rejected = rejected.ok_or("the row has no rejected answer")?;
            found.set_answers(chosen, rejected)?;
        }
        found.check(columns)?;
        Ok(found)
    }

    /// Adds the two answers of a preference to its prompt.
    fn set_answers(&mut self, chosen: &str, rejected: &str) -> Result<(), String> {
        let same = || Err("the chosen and the rejected answer are the same".to_owned());
        if self.messages.is_empty() && !is_list(chosen) && !is_list(rejected) {
            if self.prompt.is_none() {
                return Err("the row has no prompt".to_owned());
            }
            if chosen == rejected {
                return same();
            }
            self.completion = Some(chosen.to_owned());
            self.rejected = Some(rejected.to_owned());
            return Ok(());
        }
        let (chosen, rejected) = (self.continued(chosen)?, self.continued(rejected)?);
        let pairs = chosen.iter().zip(&rejected);
        let shared = pairs.take_while(|(chosen, rejected)| chosen == rejected);
        let shared = shared.count();
        if shared == 0 {
            return Err("the row has no prompt, or its answers have different prompts".to_owned());
        }
        match (chosen.get(shared), rejected.get(shared)) {
            (None, None) => return same(),
            (Some(chosen), Some(rejected)) if is_answer(chosen) && is_answer(rejected) => {}
            _ => {
                let reason = "the chosen and the rejected answer do not follow the same messages";
                return Err(reason.to_owned());
            }
        }
        self.prompt = None;
        self.rejected_messages = rejected[shared..].to_vec();
        self.shared_messages = shared;
        self.messages = chosen;
        Ok(())
    }

    /// The prompt with an answer. An answer may be text, messages that follow the prompt, or the
    /// whole conversation, which begins with a message that is no answer.
    fn continued(&self, answer: &str) -> Result<Vec<Value>, String> {
        let answers = if is_list(answer) {
            read_messages(answer)?
        } else {
            vec![message("assistant", answer)]
        };
        if answers
            .first()
            .is_some_and(|first| role(first) != "assistant")
        {
            return Ok(answers);
        }
        let prompt = self.prompt.as_deref().map(|text| message("user", text));
        let prompt = prompt.into_iter().chain(self.messages.iter().cloned());
        Ok(prompt.chain(answers).collect())
    }

    /// The conversation with the rejected answer; `None` if it is no preference.
    pub fn with_rejected(&self) -> Option<Self> {
        let kept = self.messages.get(..self.shared_messages).unwrap_or(&[]);
        let messages = kept.iter().chain(&self.rejected_messages);
        let is_preference = self.rejected.is_some() || !self.rejected_messages.is_empty();
        is_preference.then(|| Conversation {
            messages: messages.cloned().collect(),
            completion: self.rejected.clone(),
            rejected: None,
            rejected_messages: Vec::new(),
            shared_messages: 0,
            ..self.clone()
        })
    }

    fn check(&mut self, columns: &[ChatColumn]) -> Result<(), String> {
        let has = |column| columns.contains(&column);
        if !self.messages.is_empty() {
            if self.prompt.is_some() || self.completion.is_some() {
                return Err(
                    "the prompt and the completion must both be texts, or both be lists of messages"
                        .to_owned(),
                );
            }
            if let Some(system) = self.system.take() {
                let first = self.messages.first().map(role);
                if first.as_deref() != Some("system") {
                    self.messages.insert(0, message("system", &system));
                    self.shared_messages += usize::from(self.shared_messages > 0);
                }
            }
            let mut answers = self.messages.iter().filter(|message| is_answer(message));
            return match answers.next() {
                Some(_) => Ok(()),
                None => {
                    Err("the conversation has no answer of the assistant to learn from".to_owned())
                }
            };
        }
        let missing = |what: &str| Err(format!("the row has no {what}"));
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

/// What the user says first in a conversation with this canonical text, without white space around
/// it; `None` if the text is no conversation, or the user says nothing.
pub(crate) fn first_prompt(text: &str) -> Option<String> {
    let messages = Conversation::from_text(text)?.as_messages();
    let first = messages.iter().find(|message| role(message) == "user")?;
    let content = first.get_attr("content").ok()?;
    let content = content.as_str().map(str::trim);
    content.filter(|text| !text.is_empty()).map(str::to_owned)
}

/// The texts of a conversation, one per line, without the names of roles; of another text itself.
/// The rejected answer of a preference follows the chosen one.
pub(crate) fn plain_text(text: &str) -> Cow<'_, str> {
    let Some(found) = Conversation::from_text(text) else {
        return Cow::Borrowed(text);
    };
    let rejected = found.with_rejected();
    let rejected = rejected.map_or_else(Vec::new, |rejected| rejected.as_messages());
    let shared = if found.rejected_messages.is_empty() {
        // The answer to a prompt of text is the last message.
        rejected.len().saturating_sub(1)
    } else {
        found.shared_messages
    };
    let rejected = rejected.into_iter().skip(shared);
    let contents = found.as_messages().into_iter().chain(rejected);
    let contents = contents.filter_map(|message| {
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
            Some("the conversation has no answer of the assistant to learn from")
        );
        let silent = r#"[{"role":"user","content":"Hi"},{"role":"assistant","content":""}]"#;
        assert!(messages(silent).is_some());
        assert_eq!(messages("").as_deref(), Some("the row has no messages"));
        let pair = [ChatColumn::Prompt, ChatColumn::Completion];
        assert_eq!(
            read(&["", "b"], &pair).err().as_deref(),
            Some("the row has no prompt")
        );
        assert_eq!(
            read(&["a", ""], &pair).err().as_deref(),
            Some("the row has no completion to learn from")
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

    const PREFERENCE: [ChatColumn; 3] =
        [ChatColumn::Prompt, ChatColumn::Chosen, ChatColumn::Rejected];

    #[test]
    fn both_answers_of_a_preference_follow_its_prompt() {
        let list = |role: &str, text: &str| format!(r#"{{"role":"{role}","content":"{text}"}}"#);
        let (asked, good, bad) = (
            list("user", "Q"),
            list("assistant", "A"),
            list("assistant", "B"),
        );
        let listed = |messages: &[&str]| format!("[{}]", messages.join(","));
        let (asked_only, good_only, bad_only) =
            (listed(&[&asked]), listed(&[&good]), listed(&[&bad]));
        let (all_good, all_bad) = (listed(&[&asked, &good]), listed(&[&asked, &bad]));
        for cells in [
            ["Q", "A", "B"],
            [&*asked_only, "A", "B"],
            [&*asked_only, &*good_only, &*bad_only],
            ["Q", &*good_only, &*bad_only],
            ["Q", &*all_good, &*all_bad],
            ["", &*all_good, &*all_bad],
        ] {
            let found = read(&cells, &PREFERENCE).expect("it is complete");
            let text = found.to_text();
            let found = Conversation::from_text(&text).expect("it was written by us");
            assert_eq!(found.to_text(), text);
            assert_eq!(plain_text(&text), "Q\nA\nB", "{cells:?}");
            let rejected = found.with_rejected().expect("it is a preference");
            assert_eq!(plain_text(&rejected.to_text()), "Q\nB", "{cells:?}");
            assert!(rejected.with_rejected().is_none());
        }
        let columns = [&PREFERENCE[..], &[ChatColumn::System]].concat();
        for cells in [["Q", "A", "B", "S"], ["", &*all_good, &*all_bad, "S"]] {
            let found = read(&cells, &columns).expect("it is complete");
            assert_eq!(plain_text(&found.to_text()), "S\nQ\nA\nB", "{cells:?}");
            let rejected = found.with_rejected().expect("it is a preference");
            assert_eq!(plain_text(&rejected.to_text()), "S\nQ\nB", "{cells:?}");
        }
    }

    #[test]
    fn a_row_that_is_no_preference_gets_a_reason() {
        let reason = |cells: &[&str]| read(cells, &PREFERENCE).err().unwrap_or_default();
        assert_eq!(reason(&["Q", "", "B"]), "the row has no chosen answer");
        assert_eq!(reason(&["Q", "A", ""]), "the row has no rejected answer");
        assert_eq!(reason(&["", "A", "B"]), "the row has no prompt");
        assert_eq!(
            reason(&["Q", "A", "A"]),
            "the chosen and the rejected answer are the same"
        );
        let (good, other) = (
            r#"[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}]"#,
            r#"[{"role":"user","content":"R"},{"role":"assistant","content":"B"}]"#,
        );
        assert_eq!(
            reason(&["", good, good]),
            "the chosen and the rejected answer are the same"
        );
        assert!(reason(&["", good, other]).contains("different prompts"));
        let longer = good.replace(
            "}]",
            r#"},{"role":"user","content":"R"},{"role":"assistant","content":"B"}]"#,
        );
        assert!(reason(&["", good, &longer]).contains("do not follow the same messages"));
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
