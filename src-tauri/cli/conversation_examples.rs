//! Shows a few conversations as a model reads them, with the learned parts marked.

use super::failure::Failure;
use super::output::out;
use crate::example_parts::{EXAMPLES, learned_text, shown_parts};
use dataset::{ConversationExample, DetectedDataset, EncodedConversation};
use runlog::{RunConfig, format_count};
use serde_json::{Value, json};
use trainer::Plan;

/// Marks around learned text. No chat template writes them.
const MARKS: (&str, &str) = ("⟦", "⟧");

/// The first conversations as the model that a config names reads them; none if the samples are no
/// conversations or cannot be trained on.
///
/// # Errors
/// A setting does not work, the chat template cannot be used, or a file has changed.
pub fn examples(
    found: &DetectedDataset,
    config: &RunConfig,
) -> Result<Vec<ConversationExample>, Failure> {
    match found {
        DetectedDataset::Texts(texts) if texts.has_conversations() && texts.refusal.is_none() => {
            examples_for(found, &Plan::resolve(config, found)?)
        }
        _ => Ok(Vec::new()),
    }
}

/// The first conversations as the model of a plan reads them.
///
/// # Errors
/// The chat template cannot be used, or a file has changed.
pub fn examples_for(
    found: &DetectedDataset,
    plan: &Plan,
) -> Result<Vec<ConversationExample>, Failure> {
    match found {
        DetectedDataset::Texts(found) if found.has_conversations() => {
            Ok(plan.conversation_examples(found, EXAMPLES)?)
        }
        _ => Ok(Vec::new()),
    }
}

/// Prints examples.
pub fn describe(examples: &[ConversationExample]) {
    if examples.is_empty() {
        return;
    }
    let (before, after) = MARKS;
    out!("Examples; the learned text is between {before} and {after}:");
    for (number, example) in (1..).zip(examples) {
        match &example.encoded {
            Ok(found) => {
                out!(
                    "  Conversation {number}: {} tokens, {} of them learned",
                    format_count(found.tokens.len() as u64),
                    format_count(found.learned_count() as u64)
                );
                for line in marked(found).lines() {
                    out!("    {line}");
                }
                if let Some(rejected) = &example.rejected {
                    out!("    The rejected answer:");
                    for line in learned_text(rejected).lines() {
                        out!("      {line}");
                    }
                }
                if found.lost_answers > 0 {
                    out!(
                        "    {} of the answers cannot be learned, because the chat template does not show where they are.",
                        format_count(found.lost_answers as u64)
                    );
                }
            }
            Err(reason) => out!("  Conversation {number} is left out: {reason}."),
        }
    }
}

/// The text of a conversation with marks around what is learned. Long texts are shortened.
fn marked(found: &EncodedConversation) -> String {
    let mut text = String::new();
    for part in shown_parts(found) {
        if part.is_learned {
            // The line break after an answer is learned too, but the mark is easier to see before.
            let line = part.text.trim_end_matches('\n');
            text.push_str(MARKS.0);
            text.push_str(line);
            text.push_str(MARKS.1);
            text.push_str(&part.text[line.len()..]);
        } else {
            text.push_str(&part.text);
        }
    }
    text
}

/// The examples as JSON: the text, the places of learned parts in bytes, and numbers of tokens; or
/// the reason why a conversation is left out. A preference also has its rejected answer.
pub fn as_json(examples: &[ConversationExample]) -> Value {
    let encoded = |found: &EncodedConversation| {
        let learned = found.learned_text.iter();
        json!({
            "text": found.text,
            "learned": learned.map(|part| [part.start, part.end]).collect::<Vec<_>>(),
            "tokens": found.tokens.len(),
            "learned_tokens": found.learned_count(),
        })
    };
    let example = |example: &ConversationExample| match &example.encoded {
        Ok(found) => {
            let mut line = encoded(found);
            if let Some(rejected) = &example.rejected {
                line["rejected"] = encoded(rejected);
            }
            line
        }
        Err(reason) => json!({"left_out": reason}),
    };
    examples.iter().map(example).collect()
}
