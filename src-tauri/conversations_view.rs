//! The conversations that the plan page shows as the chosen model reads them, with the learned text
//! marked.

use crate::example_parts::{EXAMPLES, ShownPart, learned_text, shown_parts};
use dataset::{ConversationExample, DetectedDataset, EncodedConversation};
use runlog::RunConfig;
use serde::Serialize;
use trainer::Plan;
use ts_rs::TS;

/// One conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, TS)]
pub struct ConversationView {
    /// Number of its tokens; 0 if it is left out.
    pub tokens: u64,
    /// Number of the tokens that are learned.
    pub learned_tokens: u64,
    /// Its text, which may be shortened.
    pub parts: Vec<ConversationPartView>,
    /// The learned text of the rejected answer, if it is a preference.
    pub rejected: Option<String>,
    /// Number of answers that are not learned, because the template does not show where they are.
    pub lost_answers: u64,
    /// Why it is left out, as the end of a sentence.
    pub problem: Option<String>,
}

/// A part of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, TS)]
pub struct ConversationPartView {
    /// The text, with its line breaks.
    pub text: String,
    /// Whether the model learns to write it.
    pub is_learned: bool,
}

/// The first training conversations as the model of a config reads them; none if the samples are
/// no conversations.
///
/// # Errors
/// A setting does not work, the tokenizer or the chat template cannot be used, or a file has
/// changed.
pub fn views(
    found: &DetectedDataset,
    config: &RunConfig,
) -> trainer::Result<Vec<ConversationView>> {
    let DetectedDataset::Texts(texts) = found else {
        return Ok(Vec::new());
    };
    if !texts.has_conversations() || texts.refusal.is_some() {
        return Ok(Vec::new());
    }
    let plan = Plan::resolve(config, found)?;
    let examples = plan.conversation_examples(texts, EXAMPLES)?;
    Ok(examples.iter().map(view).collect())
}

fn view(example: &ConversationExample) -> ConversationView {
    let part = |part: ShownPart| ConversationPartView {
        text: part.text,
        is_learned: part.is_learned,
    };
    let shown = |found: &EncodedConversation| ConversationView {
        tokens: found.tokens.len() as u64,
        learned_tokens: found.learned_count() as u64,
        parts: shown_parts(found).into_iter().map(part).collect(),
        rejected: example.rejected.as_ref().map(learned_text),
        lost_answers: found.lost_answers as u64,
        problem: None,
    };
    match &example.encoded {
        Ok(found) => shown(found),
        Err(reason) => ConversationView {
            problem: Some(reason.clone()),
            ..ConversationView::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window_types::tests::current_types;
    use dataset::{InspectOptions, TextOptions, detect};
    use std::path::{Path, PathBuf};

    #[test]
    fn the_types_of_the_conversations_are_current() {
        current_types(ConversationView::export_all);
    }

    /// The folder with a file of these rows, and what is found in it.
    fn found(rows: &str) -> (tempfile::TempDir, DetectedDataset) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("chats.jsonl");
        std::fs::write(&path, rows).expect("it can be written");
        let (options, texts) = (InspectOptions::default(), TextOptions::default());
        let found = detect(&path, &options, &texts, &|_| {}).expect("it can be read");
        (folder, found)
    }

    fn learned(view: &ConversationView) -> String {
        let parts = view.parts.iter().filter(|part| part.is_learned);
        parts.map(|part| part.text.as_str()).collect()
    }

    #[test]
    fn conversations_are_rendered_with_the_template_of_the_chosen_model() {
        let row = |n: usize| {
            format!(
                "{{\"messages\":[{{\"role\":\"user\",\"content\":\"What is {n}?\"}},{{\"role\":\"assistant\",\"content\":\"It is {n}.\"}}]}}\n"
            )
        };
        let (_folder, found) = found(&(0..40).map(row).collect::<String>());
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let fixture = here.join("crates/models/tests/fixtures/published/chat");
        let model = tempfile::tempdir().expect("a temporary folder");
        for entry in std::fs::read_dir(fixture)
            .expect("the fixture exists")
            .flatten()
        {
            let to = model.path().join(entry.file_name());
            std::fs::copy(entry.path(), to).expect("it can be copied");
        }
        let template = "{% for m in messages %}[{{ m.role }}] {{ m.content }}!\n{% endfor %}";
        std::fs::write(model.path().join("chat_template.jinja"), template).expect("it fits");
        let config = |from: Option<PathBuf>| RunConfig {
            from,
            ..RunConfig::default()
        };
        let own = views(&found, &config(Some(model.path().to_owned()))).expect("it renders");
        assert_eq!(own.len(), EXAMPLES);
        let text: String = own[0].parts.iter().map(|part| part.text.as_str()).collect();
        assert!(text.starts_with("[user] What is "), "{text}");
        let learned = learned(&own[0]);
        assert!(
            learned.contains("It is ") && !learned.contains("What is"),
            "{own:?}"
        );
        assert!(own[0].learned_tokens > 0 && own[0].learned_tokens < own[0].tokens);
        let random = views(&found, &config(None)).expect("it renders");
        assert!(
            random[0].parts[0].text.contains("<|im_start|>user"),
            "{random:?}"
        );
    }

    #[test]
    fn documents_are_no_conversations() {
        let (_folder, found) = found(&"{\"text\":\"It rained all day.\"}\n".repeat(40));
        let config = RunConfig::default();
        assert_eq!(views(&found, &config).ok(), Some(Vec::new()));
    }
}
