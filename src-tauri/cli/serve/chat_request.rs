//! A request for an answer, in the form of the OpenAI chat API. What Ebb does not know is refused
//! by name, because it could change the answer.

use super::api_error::ApiError;
use dataset::{ChatMessage, ChatRole};
use serde_json::{Map, Value, json};
use std::ops::RangeInclusive;
use trainer::GenerationOptions;

/// Most texts that end an answer, as in the API.
const MAX_STOPS: usize = 4;
/// Parameters that do not change an answer.
const WITHOUT_EFFECT: [&str; 8] = [
    "metadata",
    "parallel_tool_calls",
    "prompt_cache_key",
    "safety_identifier",
    "service_tier",
    "store",
    "tool_choice",
    "user",
];

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    /// The model that the client wants.
    pub model: Option<String>,
    messages: Vec<(ChatRole, String)>,
    /// How the answer is generated. Its stop texts are those of the request.
    pub options: GenerationOptions,
    /// Whether the answer is sent while it is generated.
    pub is_streamed: bool,
    /// Whether a streamed answer ends with the numbers of tokens.
    pub has_usage: bool,
}

/// What a request leaves open.
#[derive(Debug, Clone, Copy)]
pub struct Defaults {
    /// Most tokens of an answer.
    pub tokens: usize,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// The parameters that were not read yet.
struct Parameters(Map<String, Value>);

impl ChatRequest {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// It is not JSON, or a parameter is missing, wrong or unknown.
    pub fn parse(body: &[u8], defaults: Defaults) -> Result<Self, ApiError> {
        let body: Value = serde_json::from_slice(body)
            .map_err(|error| ApiError::bad_request(format!("the body is not JSON: {error}")))?;
        let Value::Object(body) = body else {
            return Err(ApiError::bad_request("the body is not a JSON object"));
        };
        let mut parameters = Parameters(body);
        let messages = messages(parameters.take("messages"))?;
        // The newer name of the same parameter.
        let newer = parameters.count("max_completion_tokens")?;
        let tokens = newer.or(parameters.count("max_tokens")?);
        let stream_options = parameters.take("stream_options").unwrap_or_default();
        let request = ChatRequest {
            model: parameters.text("model")?,
            messages,
            options: GenerationOptions {
                tokens: tokens.unwrap_or(defaults.tokens),
                temperature: parameters.number("temperature", 0.0..=2.0)?.unwrap_or(1.0),
                top_p: parameters.number("top_p", 0.0..=1.0)?,
                stop: parameters.stops()?,
                seed: parameters.seed()?.unwrap_or(defaults.seed),
                ..GenerationOptions::default()
            },
            is_streamed: parameters.flag("stream")?,
            has_usage: stream_options["include_usage"].as_bool() == Some(true),
        };
        parameters.expect_only_neutral()?;
        Ok(request)
    }

    /// The conversation, which ends with a message of the user.
    pub fn messages(&self) -> Vec<ChatMessage<'_>> {
        let messages = self.messages.iter();
        messages
            .map(|(role, text)| ChatMessage { role: *role, text })
            .collect()
    }
}

impl Parameters {
    /// The value of a parameter. `null` is the same as none.
    fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name).filter(|value| !value.is_null())
    }

    /// The value of a parameter, read by `read`. `wanted` is what it must be.
    fn read<T>(
        &mut self,
        name: &str,
        wanted: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        match read(&value) {
            Some(found) => Ok(Some(found)),
            None => Err(ApiError::parameter(
                name,
                format!("{name} must be {wanted}"),
            )),
        }
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        self.read(name, "a text", |value| value.as_str().map(str::to_owned))
    }

    fn flag(&mut self, name: &str) -> Result<bool, ApiError> {
        let flag = self.read(name, "true or false", Value::as_bool)?;
        Ok(flag == Some(true))
    }

    fn number(&mut self, name: &str, range: RangeInclusive<f64>) -> Result<Option<f64>, ApiError> {
        let wanted = format!("a number from {} to {}", range.start(), range.end());
        self.read(name, &wanted, |value| {
            value.as_f64().filter(|number| range.contains(number))
        })
    }

    fn count(&mut self, name: &str) -> Result<Option<usize>, ApiError> {
        self.read(name, "a whole number of at least 1", |value| {
            let count = value.as_u64().filter(|count| *count >= 1);
            count.and_then(|count| usize::try_from(count).ok())
        })
    }

    /// The seed. Those below zero are seeds too.
    fn seed(&mut self) -> Result<Option<u64>, ApiError> {
        self.read("seed", "a whole number", |value| {
            let negative = || value.as_i64().map(i64::cast_unsigned);
            value.as_u64().or_else(negative)
        })
    }

    fn stops(&mut self) -> Result<Vec<String>, ApiError> {
        let wanted = format!("a text, or a list of at most {MAX_STOPS} texts, none of them empty");
        let stops = self.read("stop", &wanted, |value| {
            let listed = value.as_array().map(Vec::as_slice);
            let listed = listed.unwrap_or(std::slice::from_ref(value));
            let text = |stop: &Value| {
                let text = stop.as_str().filter(|text| !text.is_empty());
                text.map(str::to_owned)
            };
            let texts = listed.iter().map(text);
            texts
                .collect::<Option<Vec<String>>>()
                .filter(|texts| texts.len() <= MAX_STOPS)
        })?;
        Ok(stops.unwrap_or_default())
    }

    /// Refuses the other parameters, unless they change nothing.
    fn expect_only_neutral(&self) -> Result<(), ApiError> {
        let neutral = neutral_values();
        for (name, value) in &self.0 {
            let is_neutral = neutral.iter().any(|(known, neutral)| {
                known == name && (neutral == value || is_same_number(neutral, value))
            });
            if !is_neutral && !value.is_null() && !WITHOUT_EFFECT.contains(&name.as_str()) {
                let message =
                    format!("ebb serve does not know this value of {name}; leave {name} out");
                return Err(ApiError::parameter(name, message));
            }
        }
        Ok(())
    }
}

/// Parameters that Ebb does not know, with the value that changes nothing.
fn neutral_values() -> [(&'static str, Value); 10] {
    [
        ("frequency_penalty", json!(0)),
        ("functions", json!([])),
        ("logit_bias", json!({})),
        ("logprobs", json!(false)),
        ("modalities", json!(["text"])),
        ("n", json!(1)),
        ("presence_penalty", json!(0)),
        ("response_format", json!({"type": "text"})),
        ("tools", json!([])),
        ("top_logprobs", json!(0)),
    ]
}

fn is_same_number(a: &Value, b: &Value) -> bool {
    a.is_number() && a.as_f64() == b.as_f64()
}

/// The messages of a conversation.
fn messages(value: Option<Value>) -> Result<Vec<(ChatRole, String)>, ApiError> {
    let wrong = |message: &str| ApiError::parameter("messages", message);
    let listed = match value {
        Some(Value::Array(listed)) if !listed.is_empty() => listed,
        _ => return Err(wrong("messages must be a list of at least one message")),
    };
    let read: Result<Vec<_>, _> = listed.iter().enumerate().map(message).collect();
    let messages = read?;
    match messages.last() {
        Some((ChatRole::User, _)) => Ok(messages),
        _ => Err(wrong("the last message must have the role user")),
    }
}

fn message(numbered: (usize, &Value)) -> Result<(ChatRole, String), ApiError> {
    let (number, message) = numbered;
    let place = format!("messages[{number}]");
    let wrong = |key: &str, what: &str| {
        ApiError::parameter(format!("{place}.{key}"), format!("{place} {what}"))
    };
    let role = match message["role"].as_str() {
        // "developer" is the newer name of "system".
        Some("system" | "developer") => ChatRole::System,
        Some("user") => ChatRole::User,
        Some("assistant") => ChatRole::Assistant,
        Some(other) => {
            let what =
                format!("has the unknown role {other:?}; the roles are system, user and assistant");
            return Err(wrong("role", &what));
        }
        None => return Err(wrong("role", "has no role")),
    };
    for key in ["tool_calls", "function_call", "audio"] {
        if !message[key].is_null() {
            return Err(wrong(
                key,
                &format!("has {key}, which ebb serve does not know"),
            ));
        }
    }
    let text = match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts: Option<String> = parts.iter().map(part_text).collect();
            texts.ok_or_else(|| wrong("content", "has a part that is not a text"))?
        }
        _ => String::new(),
    };
    if text.trim().is_empty() {
        return Err(wrong("content", "is empty"));
    }
    Ok((role, text))
}

fn part_text(part: &Value) -> Option<&str> {
    (part["type"] == "text").then(|| part["text"].as_str())?
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULTS: Defaults = Defaults {
        tokens: 100,
        seed: 3,
    };

    fn parse(body: &Value) -> Result<ChatRequest, ApiError> {
        ChatRequest::parse(body.to_string().as_bytes(), DEFAULTS)
    }

    fn with(name: &str, value: Value) -> Value {
        let mut body = json!({"messages": [{"role": "user", "content": "Hi"}]});
        body[name] = value;
        body
    }

    #[test]
    fn a_request_is_read_with_its_defaults() {
        let request = parse(&with("model", json!("chats"))).expect("it is valid");
        assert_eq!(request.model.as_deref(), Some("chats"));
        assert_eq!(
            request.messages(),
            [ChatMessage {
                role: ChatRole::User,
                text: "Hi"
            }]
        );
        let options = &request.options;
        assert_eq!((options.tokens, options.seed), (100, 3));
        assert_eq!((options.temperature, options.top_p), (1.0, None));
        assert!(!request.is_streamed && !request.has_usage);
    }

    #[test]
    fn every_parameter_is_read() {
        let request = parse(&json!({
            "messages": [
                {"role": "developer", "content": "Be kind."},
                {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                {"role": "assistant", "content": "c"},
                {"role": "user", "content": "d", "name": "Ada"},
            ],
            "temperature": 0, "top_p": 0.5, "max_tokens": 7, "stop": ["x", "y"], "seed": -1,
            "stream": true, "stream_options": {"include_usage": true},
            "n": 1, "presence_penalty": 0.0, "user": "ada", "tools": null, "logprobs": false,
        }));
        let request = request.expect("it is valid");
        let roles: Vec<ChatRole> = request.messages().iter().map(|it| it.role).collect();
        let (user, assistant) = (ChatRole::User, ChatRole::Assistant);
        assert_eq!(roles, [ChatRole::System, user, assistant, user]);
        assert_eq!(request.messages()[1].text, "ab");
        assert_eq!(
            request.options,
            GenerationOptions {
                tokens: 7,
                temperature: 0.0,
                top_p: Some(0.5),
                stop: vec!["x".to_owned(), "y".to_owned()],
                seed: u64::MAX,
                ..GenerationOptions::default()
            }
        );
        assert!(request.is_streamed && request.has_usage);
        let newer = parse(&with("max_completion_tokens", json!(9))).expect("it is valid");
        assert_eq!(newer.options.tokens, 9);
        let one = parse(&with("stop", json!("x"))).expect("it is valid");
        assert_eq!(one.options.stop, ["x"]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let message = |message: Value| with("messages", json!([message]));
        for (body, name) in [
            (with("temperature", json!(3)), "temperature"),
            (with("top_p", json!("high")), "top_p"),
            (with("max_tokens", json!(0)), "max_tokens"),
            (with("stop", json!(["a", ""])), "stop"),
            (with("stop", json!(["a", "b", "c", "d", "e"])), "stop"),
            (with("seed", json!(0.5)), "seed"),
            (with("stream", json!("yes")), "stream"),
            (with("n", json!(2)), "n"),
            (with("tools", json!([{"type": "function"}])), "tools"),
            (with("planted", json!(1)), "planted"),
            (with("messages", json!([])), "messages"),
            (with("messages", json!("Hi")), "messages"),
            (json!({}), "messages"),
            (message(json!({"content": "Hi"})), "messages[0].role"),
            (
                message(json!({"role": "tool", "content": "Hi"})),
                "messages[0].role",
            ),
            (
                message(json!({"role": "user", "content": " \n"})),
                "messages[0].content",
            ),
            (message(json!({"role": "user"})), "messages[0].content"),
            (
                message(json!({"role": "user", "content": [{"type": "image_url"}]})),
                "messages[0].content",
            ),
            (
                message(json!({"role": "assistant", "content": "Hi"})),
                "messages",
            ),
            (message(json!("Hi")), "messages[0].role"),
        ] {
            let error = parse(&body).expect_err(name).to_json();
            assert_eq!(error["error"]["param"], name, "{body}");
        }
        for body in ["", "{", "[]", "\"Hi\""] {
            let error = ChatRequest::parse(body.as_bytes(), DEFAULTS).expect_err(body);
            assert!(error.to_json().to_string().contains("JSON"), "{body}");
        }
    }
}
