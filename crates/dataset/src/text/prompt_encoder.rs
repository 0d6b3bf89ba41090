//! Encodes a conversation up to the next answer, for a model that answers.

use super::conversation_encoder::expect_embeddings;
use super::tokenizer::Tokenizer;
use crate::chat::{ChatTemplate, MARKS, MAX_BYTES, message};
use format::format_bytes;
use minijinja::Value;

/// Stands for an answer, to see what the template writes after it.
const PROBE: &str = "ebb-asks-where-this-answer-ends";

/// Encodes the prompt for the next answer with the template and the vocabulary of one model.
#[derive(Debug)]
pub struct PromptEncoder {
    tokenizer: Tokenizer,
    template: ChatTemplate,
    /// The model has embeddings for the tokens below this one.
    embeddings: u32,
}

/// A message of the user with its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatTurn {
    /// What the user wrote.
    pub message: String,
    /// What the model answered.
    pub answer: String,
}

/// Who wrote a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatRole {
    /// What the model should know or follow in the whole conversation.
    System,
    /// The person, or the program, that asks.
    User,
    /// The model.
    Assistant,
}

/// A message of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChatMessage<'t> {
    /// Who wrote it.
    pub role: ChatRole,
    /// What it says.
    pub text: &'t str,
}

/// How an answer ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerEnd {
    /// With this token.
    Token(u32),
    /// With this text, because the vocabulary has no token for it.
    Text(String),
}

impl ChatRole {
    /// Its name in chat templates.
    fn name(self) -> &'static str {
        match self {
            ChatRole::System => "system",
            ChatRole::User => "user",
            ChatRole::Assistant => "assistant",
        }
    }
}

impl PromptEncoder {
    /// An encoder for a model that has `embeddings` tokens.
    pub fn new(tokenizer: Tokenizer, template: ChatTemplate, embeddings: u32) -> Self {
        PromptEncoder {
            tokenizer: tokenizer.reading_special_tokens(),
            template,
            embeddings,
        }
    }

    /// The vocabulary.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The tokens of the conversation up to the answer to `message`.
    ///
    /// # Errors
    /// The message is too long or cannot be encoded, or the template refuses the conversation. The
    /// error is the end of a sentence that begins with "this message".
    pub fn encode(
        &self,
        system: Option<&str>,
        turns: &[ChatTurn],
        message_text: &str,
    ) -> Result<Vec<u32>, String> {
        for text in system.into_iter().chain([message_text]) {
            check_text(text)?;
        }
        let system = system.map(|text| message("system", text)).into_iter();
        let turns = turns.iter().flat_map(|turn| {
            [
                message("user", &turn.message),
                message("assistant", &turn.answer),
            ]
        });
        let asked = message("user", message_text);
        let messages: Vec<_> = system.chain(turns).chain([asked]).collect();
        self.render_and_encode(&messages)
    }

    /// The tokens of a conversation up to the answer to its last message.
    ///
    /// # Errors
    /// A message is too long or cannot be encoded, or the template refuses the conversation. The
    /// error is the end of a sentence that begins with "this conversation".
    pub fn encode_messages(&self, messages: &[ChatMessage]) -> Result<Vec<u32>, String> {
        for message in messages {
            check_text(message.text).map_err(|reason| format!("has a message that {reason}"))?;
        }
        let values = messages
            .iter()
            .map(|it| message(it.role.name(), it.text))
            .collect::<Vec<_>>();
        self.render_and_encode(&values)
    }

    fn render_and_encode(&self, messages: &[Value]) -> Result<Vec<u32>, String> {
        let rendered = self.template.render(messages, &[], true);
        let rendered =
            rendered.map_err(|reason| format!("is refused by the chat template: {reason}"))?;
        let encoded = self
            .tokenizer
            .encode_with_places(&rendered.replace(MARKS, ""));
        let (tokens, _) = encoded.map_err(|error| format!("cannot be encoded: {error}"))?;
        if tokens.is_empty() {
            return Err("is rendered by the chat template as an empty text".to_owned());
        }
        expect_embeddings(&self.tokenizer, self.embeddings, &tokens)?;
        Ok(tokens)
    }

    /// What the template writes after an answer; `None` if it writes only white space.
    pub fn answer_end(&self) -> Option<AnswerEnd> {
        let messages = [message("user", "Hi"), message("assistant", PROBE)];
        let rendered = self.template.render(&messages, &[], false).ok()?;
        let (_, after) = rendered.rsplit_once(PROBE)?;
        let after = after.replace(MARKS, "");
        let after = after.trim();
        if after.is_empty() {
            return None;
        }
        let (tokens, _) = self.tokenizer.encode_with_places(after).ok()?;
        let added = tokens
            .first()
            .filter(|token| self.tokenizer.is_added(**token));
        Some(match added {
            Some(token) => AnswerEnd::Token(*token),
            None => AnswerEnd::Text(after.to_owned()),
        })
    }

    /// The name of the token, or the text, that ends an answer.
    pub fn answer_end_name(&self) -> Option<String> {
        match self.answer_end()? {
            AnswerEnd::Token(token) => self.tokenizer.name_of(token),
            AnswerEnd::Text(text) => Some(text),
        }
    }

    /// The end-of-text token that the files of the template name.
    pub fn end_of_text(&self) -> Option<u32> {
        let name = self.template.tokens().get("eos_token")?;
        self.tokenizer.token(name)
    }
}

/// Refuses a text that is too long, or has characters that mark answers. The error is the end of a
/// sentence.
fn check_text(text: &str) -> Result<(), String> {
    if text.len() > MAX_BYTES {
        let limit = format_bytes(MAX_BYTES as u64);
        return Err(format!("is longer than {limit}"));
    }
    if text.contains(MARKS) {
        return Err(
            "has the character U+FDD0 or U+FDD1, which Ebb does not allow in a text".to_owned(),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn turn(message: &str, answer: &str) -> ChatTurn {
        ChatTurn {
            message: message.to_owned(),
            answer: answer.to_owned(),
        }
    }

    fn encoder(source: &str) -> PromptEncoder {
        let template = ChatTemplate::new(source, None, &BTreeMap::new()).expect("it is valid");
        PromptEncoder::new(Tokenizer::bytes(), template, 257)
    }

    const CHATML: &str = "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}</>\n{% endgeneration %}{% else %}{{ m.content }}</>\n{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

    #[test]
    fn a_prompt_is_the_conversation_and_the_beginning_of_an_answer() {
        let tokens = encoder(CHATML).encode(Some("Be kind."), &[turn("Hi", "Hello")], "Why?");
        let bytes: Vec<u8> = tokens
            .expect("it renders")
            .iter()
            .map(|t| *t as u8)
            .collect();
        assert_eq!(
            String::from_utf8_lossy(&bytes),
            "<system>Be kind.</>\n<user>Hi</>\n<assistant>Hello</>\n<user>Why?</>\n<assistant>"
        );
    }

    #[test]
    fn messages_of_any_roles_are_rendered_in_their_order() {
        let message = |role, text| ChatMessage { role, text };
        let messages = [
            message(ChatRole::System, "Be kind."),
            message(ChatRole::User, "Hi"),
            message(ChatRole::Assistant, "Hello"),
            message(ChatRole::User, "Why?"),
        ];
        let encoder = encoder(CHATML);
        let turns = [turn("Hi", "Hello")];
        assert_eq!(
            encoder.encode_messages(&messages),
            encoder.encode(Some("Be kind."), &turns, "Why?")
        );
        let error = encoder.encode_messages(&[message(ChatRole::User, "a\u{FDD0}")]);
        assert!(
            error.is_err_and(|error| error.starts_with("has a message that has the character"))
        );
    }

    #[test]
    fn an_answer_ends_with_what_the_template_writes_after_it() {
        let end = |source: &str| encoder(source).answer_end();
        assert_eq!(end(CHATML), Some(AnswerEnd::Text("</>".to_owned())));
        let open = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
        assert_eq!(end(open), None);
        assert_eq!(end("{{ raise_exception('no') }}"), None);
    }

    #[test]
    fn what_cannot_be_asked_is_named() {
        let refusal = |source: &str, message: &str| {
            let refused = encoder(source).encode(None, &[], message);
            refused.expect_err("it is refused")
        };
        assert_eq!(
            refusal(CHATML, &"x".repeat(MAX_BYTES + 1)),
            "is longer than 1.0 MB"
        );
        assert!(refusal(CHATML, "a\u{FDD1}").contains("U+FDD0"));
        assert!(
            refusal("{{ raise_exception('Roles must alternate.') }}", "a")
                .starts_with("is refused by the chat template: Roles must alternate")
        );
        assert!(refusal("", "a").contains("empty text"));
        let template = ChatTemplate::chatml();
        let small = PromptEncoder::new(Tokenizer::bytes(), template, 100);
        let error = small.encode(None, &[], "a").expect_err("no embeddings");
        assert!(error.contains("has no weights"), "{error}");
    }
}
