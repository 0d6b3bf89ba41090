//! A few conversations as a model reads them, for people to look at.

use super::conversation_encoder::{ConversationEncoder, EncodedConversation};
use super::read_samples::read_chosen;
use super::text_inspection::TextInspection;
use crate::chat::first_prompt;
use crate::error::DatasetError;
use crate::types::Split;

/// A conversation that is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationExample {
    /// The conversation as tokens, or why it cannot be learned, as the end of a sentence.
    pub encoded: Result<EncodedConversation, String>,
    /// The conversation with the rejected answer, if it is a preference.
    pub rejected: Option<EncodedConversation>,
}

/// A part of a rendered conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExamplePart<'a> {
    /// The text, with its line breaks.
    pub text: &'a str,
    /// Whether the model learns to write it.
    pub is_learned: bool,
}

impl EncodedConversation {
    /// Number of tokens that are learned.
    pub fn learned_count(&self) -> usize {
        self.is_learned
            .iter()
            .filter(|is_learned| **is_learned)
            .count()
    }

    /// The text in parts that are learned, and parts that are not.
    pub fn parts(&self) -> Vec<ExamplePart<'_>> {
        let mut parts = Vec::new();
        let mut done = 0;
        let mut push = |range: std::ops::Range<usize>, is_learned| {
            let text = &self.text[range];
            if !text.is_empty() {
                parts.push(ExamplePart { text, is_learned });
            }
        };
        for learned in &self.learned_text {
            push(done..learned.start, false);
            push(learned.clone(), true);
            done = learned.end;
        }
        push(done..self.text.len(), false);
        parts
    }
}

/// The first `count` training conversations of a dataset, encoded.
///
/// # Errors
/// A file is missing or has changed since the inspection.
pub fn conversation_examples(
    found: &TextInspection,
    encoder: &ConversationEncoder,
    count: usize,
) -> Result<Vec<ConversationExample>, DatasetError> {
    let samples = found.samples.iter().enumerate();
    let trained = samples.filter(|(_, sample)| sample.split == Split::Train);
    let chosen: Vec<usize> = trained.map(|(index, _)| index).take(count).collect();
    let mut examples = Vec::new();
    read_chosen(found, &chosen, &mut |_, text| {
        let (encoded, rejected) = match encoder.encode_answers(text) {
            Ok(found) => {
                let mut found = found.into_iter();
                let chosen = found.next().ok_or_else(String::new);
                (chosen, found.next())
            }
            Err(reason) => (Err(reason), None),
        };
        examples.push(ConversationExample { encoded, rejected });
        Ok(())
    })?;
    Ok(examples)
}

/// What the user says first in the first `conversations` conversations of a split, each text once.
///
/// # Errors
/// A file is missing or has changed since the inspection.
pub fn first_prompts(
    found: &TextInspection,
    split: Split,
    conversations: usize,
) -> Result<Vec<String>, DatasetError> {
    let samples = found.samples.iter().enumerate();
    let of_split = samples.filter(|(_, sample)| sample.split == split);
    let chosen: Vec<usize> = of_split
        .map(|(index, _)| index)
        .take(conversations)
        .collect();
    let mut prompts: Vec<String> = Vec::new();
    read_chosen(found, &chosen, &mut |_, text| {
        let prompt = first_prompt(text).filter(|prompt| !prompts.contains(prompt));
        prompts.extend(prompt);
        Ok(())
    })?;
    Ok(prompts)
}
