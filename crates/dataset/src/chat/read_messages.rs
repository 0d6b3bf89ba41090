//! Reads lists of messages as chat programs write them, and brings them into the form that chat
//! templates expect: roles and contents of OpenAI, contents as one text.

use minijinja::Value;
use minijinja::value::ValueKind;
use std::collections::BTreeMap;

/// Most messages of a conversation.
const MAX_MESSAGES: usize = 1_000;
/// Names of roles that ShareGPT and others write, and the names that templates expect.
const OTHER_ROLES: [(&str, &str); 9] = [
    ("human", "user"),
    ("gpt", "assistant"),
    ("chatgpt", "assistant"),
    ("bing", "assistant"),
    ("bard", "assistant"),
    ("model", "assistant"),
    ("bot", "assistant"),
    ("observation", "tool"),
    ("function_response", "tool"),
];
/// The roles that templates expect.
const ROLES: [&str; 6] = [
    "system",
    "developer",
    "user",
    "assistant",
    "tool",
    "function",
];

/// The messages of a cell. The error is the end of a sentence about the row.
pub(super) fn read_messages(cell: &str) -> Result<Vec<Value>, String> {
    let not_a_list =
        || "the messages are not a list of objects with a role and a content".to_owned();
    let list: Vec<Value> = serde_json::from_str(cell).map_err(|_| not_a_list())?;
    if list.is_empty() {
        return Err("the row has no messages".to_owned());
    }
    if list.len() > MAX_MESSAGES {
        return Err("the conversation has more than 1,000 messages".to_owned());
    }
    let messages = list.iter().enumerate();
    messages
        .map(|(n, message)| match message.kind() {
            ValueKind::Map => read_message(message, n + 1),
            _ => Err(not_a_list()),
        })
        .collect()
}

/// The tools of a cell. The error is the end of a sentence about the row.
pub(super) fn read_tools(cell: &str) -> Result<Vec<Value>, String> {
    let tools: Option<Vec<Value>> =
        serde_json::from_str(cell).map_err(|_| "the tools are not a list".to_owned())?;
    Ok(tools.unwrap_or_default())
}

/// One message, with the keys that templates expect first, and all others as they are.
fn read_message(message: &Value, number: usize) -> Result<Value, String> {
    let text = |key: &str| {
        let value = message.get_attr(key).ok()?;
        value.as_str().map(str::to_owned)
    };
    let Some(role) = text("role").or_else(|| text("from")) else {
        return Err(format!("message {number} has no role"));
    };
    let known = OTHER_ROLES.iter().find(|(theirs, _)| *theirs == role);
    let role = known.map_or(role.as_str(), |(_, ours)| ours);
    if !ROLES.contains(&role) {
        let role: String = role.chars().take(40).collect();
        return Err(format!(
            "message {number} has the role \"{role}\"; the roles are system, user, assistant and tool"
        ));
    }
    let content = content(message, number)?;
    let mut pairs = vec![
        ("role".to_owned(), Value::from(role)),
        ("content".to_owned(), content),
    ];
    for key in message.try_iter().into_iter().flatten() {
        let Some(name) = key.as_str() else { continue };
        if ["role", "from", "content", "value"].contains(&name) {
            continue;
        }
        let value = message.get_attr(name).unwrap_or_default();
        // Parquet files have every key in every message.
        if value.is_none() {
            continue;
        }
        let value = if name == "tool_calls" {
            tool_calls(&value)
        } else {
            value
        };
        pairs.push((name.to_owned(), value));
    }
    Ok(Value::from_pairs(pairs))
}

/// The content of a message: text, or nothing if the message only calls tools.
fn content(message: &Value, number: usize) -> Result<Value, String> {
    let found = ["content", "value"].into_iter().find_map(|key| {
        let value = message.get_attr(key).ok()?;
        (!value.is_undefined()).then_some(value)
    });
    let found = found.unwrap_or_default();
    match found.kind() {
        ValueKind::String => Ok(found),
        ValueKind::None | ValueKind::Undefined => Ok(Value::from("")),
        ValueKind::Seq => joined_parts(&found, number),
        _ => Err(format!("the content of message {number} is not text")),
    }
}

/// The texts of a content that consists of parts.
fn joined_parts(parts: &Value, number: usize) -> Result<Value, String> {
    let mut joined = String::new();
    for part in parts.try_iter().into_iter().flatten() {
        let text = part.get_attr("text").unwrap_or_default();
        match text.as_str().or(part.as_str()) {
            Some(text) => joined.push_str(text),
            None => {
                return Err(format!(
                    "message {number} contains something that is not text, such as an image"
                ));
            }
        }
    }
    Ok(Value::from(joined))
}

/// Calls of tools. Arguments that are JSON in a string, as OpenAI writes them, become the values
/// that templates expect.
fn tool_calls(calls: &Value) -> Value {
    let with = |object: &Value, key: &str, value: Value| {
        let mut pairs: Vec<(Value, Value)> = Vec::new();
        for name in object.try_iter().into_iter().flatten() {
            let old = object.get_item(&name).unwrap_or_default();
            let is_changed = name.as_str() == Some(key);
            pairs.push((name, if is_changed { value.clone() } else { old }));
        }
        Value::from_pairs(pairs)
    };
    let parsed = |arguments: &Value| {
        let object: BTreeMap<String, Value> = serde_json::from_str(arguments.as_str()?).ok()?;
        // The map only shows that it is an object; the value keeps the order of its keys.
        drop(object);
        serde_json::from_str::<Value>(arguments.as_str()?).ok()
    };
    let calls = calls.try_iter().into_iter().flatten().map(|call| {
        let function = call.get_attr("function").unwrap_or_default();
        let (holder, is_nested) = match function.kind() {
            ValueKind::Map => (function, true),
            _ => (call.clone(), false),
        };
        let arguments = holder.get_attr("arguments").unwrap_or_default();
        let Some(arguments) = parsed(&arguments) else {
            return call;
        };
        let changed = with(&holder, "arguments", arguments);
        if is_nested {
            with(&call, "function", changed)
        } else {
            changed
        }
    });
    Value::from_iter(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(cell: &str) -> Result<String, String> {
        read_messages(cell).map(|found| serde_json::to_string(&found).expect("plain JSON"))
    }

    #[test]
    fn messages_of_share_gpt_and_of_parts_become_those_of_templates() {
        let found = text(
            r#"[{"from":"human","value":"Hi"},{"from":"gpt","value":"Hello","weight":1},
                {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
                {"role":"assistant","content":null,"tool_calls":[{"type":"function","function":
                    {"name":"f","arguments":"{\"z\":1,\"a\":[2]}"}}]}]"#,
        );
        assert_eq!(
            found.as_deref(),
            Ok(concat!(
                r#"[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello","weight":1},"#,
                r#"{"role":"user","content":"ab"},{"role":"assistant","content":"","tool_calls":[{"type":"#,
                r#""function","function":{"name":"f","arguments":{"z":1,"a":[2]}}}]}]"#
            ))
        );
    }

    #[test]
    fn what_is_no_message_is_named() {
        for (cell, reason) in [
            (
                "{}",
                "the messages are not a list of objects with a role and a content",
            ),
            (
                "[1]",
                "the messages are not a list of objects with a role and a content",
            ),
            ("[]", "the row has no messages"),
            (r#"[{"content":"a"}]"#, "message 1 has no role"),
            (
                r#"[{"role":"user","content":"a"},{"role":"narrator","content":"b"}]"#,
                "message 2 has the role \"narrator\"; the roles are system, user, assistant and tool",
            ),
            (
                r#"[{"role":"user","content":[{"type":"image","url":"x"}]}]"#,
                "message 1 contains something that is not text, such as an image",
            ),
            (
                r#"[{"role":"user","content":5}]"#,
                "the content of message 1 is not text",
            ),
        ] {
            assert_eq!(text(cell).err().as_deref(), Some(reason), "{cell}");
        }
        let many = format!(
            "[{}]",
            vec![r#"{"role":"user","content":"a"}"#; 1_001].join(",")
        );
        assert_eq!(
            text(&many).err().as_deref(),
            Some("the conversation has more than 1,000 messages")
        );
        assert_eq!(read_tools("null").map(|tools| tools.len()), Ok(0));
        assert!(read_tools("{}").is_err());
    }
}
