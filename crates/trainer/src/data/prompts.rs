//! The prompts of a run as tokens, for the answers after each evaluation.

use super::expect_texts;
use super::tokenizer::{on_tokenizer_thread, open_tokenizer};
use crate::error::{Result, TrainError};
use crate::plan::Plan;
use crate::prompt_choice::PromptChoice;
use dataset::{
    AnswerEnd, ChatTemplate, DetectedDataset, PromptEncoder, Split, TextInspection, Tokenizer,
    first_prompts,
};
use runlog::{RunFolder, format_count};

/// Most tokens of an answer.
const MAX_ANSWER_TOKENS: usize = 64;
/// Held-out conversations whose first messages become prompts, unless the user chooses others.
const HELD_OUT_PROMPTS: usize = 3;
/// Held-out conversations in which Ebb looks for prompts that are short enough.
const SEARCHED_CONVERSATIONS: usize = 50;

/// The prompts of a run, and where their answers end. The same in all sessions of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptSet {
    /// At least one.
    pub prompts: Vec<EncodedPrompt>,
    /// The tokens that end an answer.
    pub ends: Vec<u32>,
    /// The text that ends an answer, if no token does.
    pub stop: Vec<String>,
    /// Most tokens of a prompt with its answer.
    pub context: usize,
}

/// A prompt as tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedPrompt {
    /// What the model is asked.
    pub text: String,
    /// The same as the model reads it, up to the answer. At least one token.
    pub tokens: Vec<u32>,
    /// Most tokens of the answer.
    pub answer_tokens: usize,
}

impl PromptSet {
    /// The prompts of a run: those that the user chose, or the first messages of held-out
    /// conversations. `None` if there are none. Prompts of a run on documents are continued.
    ///
    /// # Errors
    /// The prompts that the user chose cannot be read, or the model cannot read them. The tokenizer
    /// or the chat template cannot be used, or a file of the dataset has changed.
    pub fn open(plan: &Plan, found: &DetectedDataset, run: &RunFolder) -> Result<Option<Self>> {
        let found = &*expect_texts(plan, found)?;
        let (texts, most, are_chosen) = match PromptChoice::from_run(run, &plan.config)? {
            PromptChoice::None => return Ok(None),
            PromptChoice::HeldOut if !found.has_conversations() => return Ok(None),
            PromptChoice::HeldOut => {
                let texts = first_prompts(found, Split::HeldOut, SEARCHED_CONVERSATIONS)?;
                (texts, HELD_OUT_PROMPTS, false)
            }
            PromptChoice::Texts(texts) => {
                let most = texts.len();
                (texts, most, true)
            }
        };
        if texts.is_empty() {
            return Ok(None);
        }
        on_tokenizer_thread(|| {
            let reader = PromptReader::open(plan, found, run)?;
            let mut prompts = Vec::new();
            for text in texts {
                match reader.encode(&text) {
                    Ok(prompt) => prompts.push(prompt),
                    Err(reason) if are_chosen => return Err(unusable(&text, &reason)),
                    Err(_) => {}
                }
                if prompts.len() == most {
                    break;
                }
            }
            Ok((!prompts.is_empty()).then(|| reader.into_set(prompts)))
        })
    }
}

/// The error for a prompt that the user chose.
fn unusable(prompt: &str, reason: &str) -> TrainError {
    TrainError::Setting {
        key: "prompts",
        value: prompt.chars().take(60).collect(),
        allowed: format!("this prompt {reason}; change it or remove it from the file"),
    }
}

/// Encodes prompts for the model of a run.
struct PromptReader {
    tokenizer: Tokenizer,
    /// Renders conversations; absent if prompts are continued.
    chat: Option<PromptEncoder>,
    /// Tokens that end an answer, besides those that the template and the tokenizer know.
    ends: Vec<u32>,
    context: usize,
}

impl PromptReader {
    fn open(plan: &Plan, found: &TextInspection, run: &RunFolder) -> Result<Self> {
        let tokenizer = open_tokenizer(plan, found, run)?;
        let pretrained = plan.pretrained.as_ref();
        let template = match pretrained {
            _ if !found.has_conversations() => None,
            Some(pretrained) => ChatTemplate::from_folder(pretrained.path())?,
            None => Some(ChatTemplate::chatml()),
        };
        let embeddings = match pretrained {
            Some(pretrained) => (pretrained.text_limits()).map_or(0, |limits| limits.vocabulary),
            None => tokenizer.vocabulary() as u32,
        };
        let chat =
            template.map(|template| PromptEncoder::new(tokenizer.clone(), template, embeddings));
        Ok(PromptReader {
            ends: match pretrained {
                Some(pretrained) if chat.is_some() => pretrained.end_tokens(),
                _ => Vec::new(),
            },
            tokenizer,
            chat,
            context: plan.input_size as usize,
        })
    }

    /// The prompt with room for an answer. The error is the end of a sentence that begins with
    /// "this prompt".
    fn encode(&self, text: &str) -> std::result::Result<EncodedPrompt, String> {
        let tokens = match &self.chat {
            Some(chat) => chat.encode(None, &[], text)?,
            None => {
                let encoded = self.tokenizer.encode(text);
                let encoded = encoded.map_err(|error| format!("cannot be encoded: {error}"))?;
                self.tokenizer
                    .boundary()
                    .into_iter()
                    .chain(encoded)
                    .collect()
            }
        };
        let most = self.context - MAX_ANSWER_TOKENS.min(self.context / 2);
        if tokens.is_empty() {
            return Err("has no tokens".to_owned());
        }
        if tokens.len() > most {
            return Err(format!(
                "has {} tokens, but may have at most {}, because the model is trained with {}",
                format_count(tokens.len() as u64),
                format_count(most as u64),
                format_count(self.context as u64)
            ));
        }
        Ok(EncodedPrompt {
            text: text.to_owned(),
            answer_tokens: MAX_ANSWER_TOKENS.min(self.context - tokens.len()),
            tokens,
        })
    }

    fn into_set(self, prompts: Vec<EncodedPrompt>) -> PromptSet {
        let (mut ends, mut stop) = (self.ends, Vec::new());
        ends.extend(self.tokenizer.boundary());
        if let Some(chat) = &self.chat {
            ends.extend(chat.end_of_text());
            match chat.answer_end() {
                Some(AnswerEnd::Token(token)) => ends.push(token),
                Some(AnswerEnd::Text(text)) => stop.push(text),
                None => {}
            }
        }
        PromptSet {
            prompts,
            ends,
            stop,
            context: self.context,
        }
    }
}
