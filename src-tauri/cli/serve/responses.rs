//! Answers in the form of the OpenAI chat API.

use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// What all parts of one answer have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerHead {
    id: String,
    /// Seconds since 1970.
    created: u64,
    model: String,
}

/// Numbers of tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the conversation.
    pub prompt: usize,
    /// Tokens of the answer.
    pub answer: usize,
}

/// Seconds since 1970.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// The list of models, which has one.
pub fn models(name: &str, created: u64) -> Value {
    let model = json!({"id": name, "object": "model", "created": created, "owned_by": "ebb"});
    json!({"object": "list", "data": [model]})
}

impl Usage {
    fn to_json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.answer,
            "total_tokens": self.prompt + self.answer,
        })
    }
}

impl AnswerHead {
    /// The head of an answer with this number.
    pub fn new(number: u64, model: &str) -> Self {
        let created = now();
        AnswerHead {
            id: format!("chatcmpl-{created}-{number}"),
            created,
            model: model.to_owned(),
        }
    }

    /// A whole answer.
    pub fn answer(&self, text: &str, is_cut: bool, usage: Usage) -> Value {
        let choice = json!({
            "index": 0,
            "message": {"role": "assistant", "content": text, "refusal": null},
            "logprobs": null,
            "finish_reason": finish_reason(is_cut),
        });
        self.object("chat.completion", json!([choice]), usage.to_json())
    }

    /// The first part of a streamed answer.
    pub fn begin(&self) -> Value {
        self.part(json!({"role": "assistant", "content": ""}), Value::Null)
    }

    /// A part of a streamed answer.
    pub fn text(&self, text: &str) -> Value {
        self.part(json!({"content": text}), Value::Null)
    }

    /// The last part of a streamed answer.
    pub fn end(&self, is_cut: bool) -> Value {
        self.part(json!({}), json!(finish_reason(is_cut)))
    }

    /// The numbers of tokens after a streamed answer.
    pub fn usage(&self, usage: Usage) -> Value {
        self.object("chat.completion.chunk", json!([]), usage.to_json())
    }

    fn part(&self, delta: Value, finish_reason: Value) -> Value {
        let choice = json!({
            "index": 0,
            "delta": delta,
            "logprobs": null,
            "finish_reason": finish_reason,
        });
        self.object("chat.completion.chunk", json!([choice]), Value::Null)
    }

    fn object(&self, kind: &str, choices: Value, usage: Value) -> Value {
        json!({
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
            "usage": usage,
        })
    }
}

fn finish_reason(is_cut: bool) -> &'static str {
    if is_cut { "length" } else { "stop" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_and_its_parts_have_the_form_of_the_api() {
        let head = AnswerHead::new(2, "chats");
        let usage = Usage {
            prompt: 5,
            answer: 3,
        };
        let whole = head.answer("Hi", false, usage);
        assert_eq!(whole["object"], "chat.completion");
        assert_eq!(whole["choices"][0]["message"]["content"], "Hi");
        assert_eq!(whole["choices"][0]["finish_reason"], "stop");
        assert_eq!(whole["usage"]["total_tokens"], 8);
        let part = head.text("Hi");
        assert_eq!(part["object"], "chat.completion.chunk");
        assert_eq!(part["choices"][0]["delta"], json!({"content": "Hi"}));
        assert_eq!(part["choices"][0]["finish_reason"], Value::Null);
        assert_eq!(part["id"], whole["id"]);
        assert_eq!(head.end(true)["choices"][0]["finish_reason"], "length");
        assert_eq!(head.usage(usage)["choices"], json!([]));
    }
}
