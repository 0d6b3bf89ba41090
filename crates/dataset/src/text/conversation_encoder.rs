//! Encodes conversations as tokens, and tells which of them are learned.

use super::tokenizer::Tokenizer;
use crate::chat::{ChatTemplate, Conversation, LearnedText, MARKS};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

/// Why a conversation without a known answer is not learned.
const HIDDEN_ANSWER: &str = "the output of the chat template does not show which part is the answer; learn all tokens instead (in the terminal: --loss-on all)";

/// The tokens of a conversation that a model learns to predict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LearnedTokens {
    /// Those of the assistant's answers, and the marks that end them.
    Answers,
    /// All of them.
    All,
}

/// Encodes conversations with the template and the vocabulary of one model.
#[derive(Debug)]
pub struct ConversationEncoder {
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
    learned: LearnedTokens,
    /// The model has embeddings for the tokens below this one.
    embeddings: u32,
    /// The token before a text without a template, and the one after it.
    first: Option<u32>,
    end: Option<u32>,
}

/// A conversation as tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedConversation {
    /// The text that the tokens stand for.
    pub text: String,
    /// Places of the learned parts of the text, in bytes and in order.
    pub learned_text: Vec<Range<usize>>,
    /// Token ids.
    pub tokens: Vec<u32>,
    /// Whether each token is learned. The first one never is.
    pub is_learned: Vec<bool>,
    /// Answers that are not learned, because the template does not show where they are.
    pub lost_answers: usize,
}

impl EncodedConversation {
    /// Bytes of the learned text.
    pub fn learned_bytes(&self) -> u64 {
        self.learned_text.iter().map(|part| part.len() as u64).sum()
    }
}

impl ConversationEncoder {
    /// An encoder for a model that has `embeddings` tokens. `template` is absent if the model has
    /// none; prompts and completions are then joined as they are.
    pub fn new(
        tokenizer: Tokenizer,
        template: Option<ChatTemplate>,
        learned: LearnedTokens,
        embeddings: u32,
    ) -> Self {
        ConversationEncoder {
            first: tokenizer.first_token(),
            end: tokenizer.boundary(),
            tokenizer: tokenizer.reading_special_tokens(),
            template,
            learned,
            embeddings,
        }
    }

    /// The vocabulary.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// A hash of everything that tokens depend on, besides the conversations.
    pub fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.tokenizer.to_json().hash(&mut hasher);
        let template = self.template.as_ref();
        template
            .map(|it| (it.source(), it.tokens()))
            .hash(&mut hasher);
        (self.learned, self.embeddings).hash(&mut hasher);
        hasher.finish()
    }

    /// Encodes a conversation, given as its canonical text; of a preference, the conversation with
    /// the chosen answer.
    ///
    /// # Errors
    /// The conversation cannot be learned. The error is the end of a sentence.
    pub fn encode(&self, conversation: &str) -> Result<EncodedConversation, String> {
        Ok(self.encode_answers(conversation)?.swap_remove(0))
    }

    /// Encodes a conversation, given as its canonical text; of a preference, the conversation with
    /// the chosen answer and then that with the rejected one. Of a preference, only the answers
    /// that differ are learned.
    ///
    /// # Errors
    /// As [`ConversationEncoder::encode`], for any of them.
    pub fn encode_answers(&self, conversation: &str) -> Result<Vec<EncodedConversation>, String> {
        if conversation.contains(MARKS) {
            return Err(
                "the text has the character U+FDD0 or U+FDD1, which Ebb does not allow".to_owned(),
            );
        }
        let found = Conversation::from_text(conversation).ok_or("the row is not a conversation")?;
        let (mut chosen, is_plain) = self.render(&found)?;
        let Some(rejected) = found.with_rejected() else {
            return Ok(vec![self.encode_rendered(chosen, is_plain)?]);
        };
        let (mut rejected, _) = self.render(&rejected)?;
        let bytes = chosen.text.bytes().zip(rejected.text.bytes());
        let shared = bytes.take_while(|(chosen, rejected)| chosen == rejected);
        let shared = shared.count();
        for rendered in [&mut chosen, &mut rejected] {
            keep_answers_after(rendered, shared)?;
        }
        [chosen, rejected]
            .into_iter()
            .map(|rendered| self.encode_rendered(rendered, is_plain))
            .collect()
    }

    fn encode_rendered(
        &self,
        rendered: LearnedText,
        is_plain: bool,
    ) -> Result<EncodedConversation, String> {
        let LearnedText {
            text,
            learned,
            lost,
        } = rendered;
        let learned_text = match self.learned {
            LearnedTokens::Answers => learned,
            LearnedTokens::All => std::iter::once(0..text.len()).collect(),
        };
        let encoded = self.tokenizer.encode_with_places(&text);
        let (mut tokens, places) = encoded.map_err(|error| error.to_string())?;
        let mut is_learned = learned_places(&places, &learned_text);
        if is_plain {
            // Without a template, nothing in the text marks its beginning and its end.
            if let Some(first) = self.first {
                tokens.insert(0, first);
                is_learned.insert(0, false);
            }
            tokens.extend(self.end);
            is_learned.extend(self.end.map(|_| true));
        }
        expect_embeddings(&self.tokenizer, self.embeddings, &tokens)
            .map_err(|reason| format!("the text {reason}"))?;
        if let Some(first) = is_learned.first_mut() {
            *first = false;
        }
        if !is_learned.contains(&true) {
            return Err(if lost > 0 {
                HIDDEN_ANSWER
            } else {
                "the conversation has no text to learn"
            }
            .to_owned());
        }
        Ok(EncodedConversation {
            text,
            learned_text,
            tokens,
            is_learned,
            lost_answers: lost,
        })
    }

    /// The text of a conversation, and whether it was written without a template.
    fn render(&self, found: &Conversation) -> Result<(LearnedText, bool), String> {
        if let Some(template) = &self.template {
            return Ok((LearnedText::render(template, found)?, false));
        }
        let Some((prompt, completion)) = found.as_plain_pair() else {
            return Err(
                "the model has no chat template for these messages; put the file chat_template.jinja of a chat model with the same vocabulary into the folder of the model, or choose a model that is made for chats"
                    .to_owned(),
            );
        };
        let start = prompt.len();
        let text = prompt + completion;
        let learned = LearnedText {
            learned: std::iter::once(start..text.len()).collect(),
            text,
            lost: 0,
        };
        Ok((learned, true))
    }
}

/// Leaves only the answers of a preference that differ from those of the other conversation. Both
/// texts begin with the same `shared` bytes.
///
/// # Errors
/// The template does not show where the last answer is. The error is the end of a sentence.
fn keep_answers_after(rendered: &mut LearnedText, shared: usize) -> Result<(), String> {
    let last = rendered.learned.last().cloned();
    let is_other = |place: &Range<usize>| place.end > shared || Some(place) == last.as_ref();
    rendered.learned.retain(is_other);
    // A shorter answer may be the beginning of a longer one. But if answers are lost, this is an
    // earlier answer.
    let is_hidden = rendered.learned.iter().all(|place| place.end <= shared);
    if is_hidden && rendered.lost > 0 {
        let reason = "the output of the chat template does not show which part is the answer";
        return Err(reason.to_owned());
    }
    Ok(())
}

/// Refuses tokens for which a model with `embeddings` tokens has no weights.
///
/// # Errors
/// The error is the end of a sentence about the text.
pub(super) fn expect_embeddings(
    tokenizer: &Tokenizer,
    embeddings: u32,
    tokens: &[u32],
) -> Result<(), String> {
    match tokens.iter().find(|token| **token >= embeddings) {
        None => Ok(()),
        Some(token) => Err(format!(
            "has the token {token}{}, for which the model has no weights; remove this token from the text",
            match tokenizer.name_of(*token) {
                Some(name) => format!(" ({name})"),
                None => String::new(),
            }
        )),
    }
}

/// Whether each token is learned: it is, if a part of its text is.
fn learned_places(places: &[Range<usize>], learned: &[Range<usize>]) -> Vec<bool> {
    let mut rest = learned;
    let is_learned = |place: &Range<usize>| {
        while let [first, others @ ..] = rest {
            if first.end > place.start {
                break;
            }
            rest = others;
        }
        // A token may have no text of its own.
        rest.first()
            .is_some_and(|part| part.start < place.end.max(place.start + 1))
    };
    places.iter().map(is_learned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_learned_if_a_part_of_its_text_is() {
        let places = [0..3, 3..4, 4..9, 9..9, 9..12, 12..14];
        let found = learned_places(&places, &[2..4, 9..12]);
        assert_eq!(found, [true, true, false, true, true, false]);
        assert_eq!(learned_places(&places, &[]), [false; 6]);
    }

    #[test]
    fn bytes_of_the_answer_and_its_end_are_learned() {
        let template = Some(ChatTemplate::chatml());
        let encoder =
            ConversationEncoder::new(Tokenizer::bytes(), template, LearnedTokens::Answers, 257);
        let text =
            r#"{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Yes"}]}"#;
        let found = encoder.encode(text).expect("it is complete");
        assert_eq!(
            found.text,
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes<|im_end|>\n"
        );
        let learned = found.tokens.iter().zip(&found.is_learned);
        let learned: Vec<u8> = learned
            .filter(|(_, is)| **is)
            .map(|(id, _)| *id as u8)
            .collect();
        assert_eq!(String::from_utf8_lossy(&learned), "Yes<|im_end|>\n");
        assert_eq!(found.learned_bytes(), 14);
        let no_rows = ConversationEncoder::new(
            Tokenizer::bytes(),
            Some(ChatTemplate::chatml()),
            LearnedTokens::All,
            100,
        );
        let error = no_rows
            .encode(text)
            .expect_err("the weights lack most bytes");
        assert!(error.contains("has no weights"), "{error}");
        let marked = text.replace("Yes", "\u{FDD0}Yes\u{FDD1}");
        let error = encoder.encode(&marked).expect_err("it looks like a mark");
        assert!(error.contains("U+FDD0"), "{error}");
    }

    #[test]
    fn of_a_preference_only_the_answers_that_differ_are_learned() {
        let learned = |encoder: &ConversationEncoder, text: &str| -> Vec<String> {
            let found = encoder.encode_answers(text).expect("it is complete");
            let learned = |found: &EncodedConversation| {
                let parts = found.parts().into_iter().filter(|part| part.is_learned);
                parts.map(|part| part.text).collect::<Vec<_>>().join("|")
            };
            found.iter().map(learned).collect()
        };
        let template = Some(ChatTemplate::chatml());
        let encoder =
            ConversationEncoder::new(Tokenizer::bytes(), template, LearnedTokens::Answers, 257);
        let message = |role: &str, text: &str| format!(r#"{{"role":"{role}","content":"{text}"}}"#);
        let shared = [
            message("user", "Hi"),
            message("assistant", "Hello"),
            message("user", "Sure?"),
        ];
        let text = format!(
            r#"{{"messages":[{},{}],"rejected_messages":[{}],"shared_messages":3}}"#,
            shared.join(","),
            message("assistant", "Yes"),
            message("assistant", "Yesterday")
        );
        let (yes, yesterday) = ("Yes<|im_end|>\n", "Yesterday<|im_end|>\n");
        assert_eq!(learned(&encoder, &text), [yes, yesterday]);
        let encoder =
            ConversationEncoder::new(Tokenizer::bytes(), None, LearnedTokens::Answers, 257);
        let text = r#"{"prompt":"2+2=","completion":"4","rejected":"42"}"#;
        assert_eq!(learned(&encoder, text), ["4", "42"]);
    }

    #[test]
    fn without_a_template_a_prompt_and_its_completion_are_joined() {
        let encoder =
            ConversationEncoder::new(Tokenizer::bytes(), None, LearnedTokens::Answers, 257);
        let found = encoder
            .encode(r#"{"prompt":"2+2=","completion":"4"}"#)
            .expect("a pair");
        assert_eq!(found.tokens, [50, 43, 50, 61, 52, 256]);
        assert_eq!(found.is_learned, [false, false, false, false, true, true]);
        let chat = r#"{"messages":[{"role":"assistant","content":"Yes"}]}"#;
        let error = encoder.encode(chat).expect_err("there is no template");
        assert!(error.contains("chat_template.jinja"), "{error}");
    }
}
