//! A conversation with a language model: the best checkpoint of a run, or a folder of published
//! weights. The conversation is rendered with the model's own chat template.
//!
//! A conversation may be longer than the context. Its oldest messages are then left out, each with
//! its answer; the system prompt stays.

use super::TrainedModel;
use super::generate::{Generated, Generator, TextEnd};
use super::generation_options::GenerationOptions;
use super::language_weights::{FolderWeights, LanguageWeights, open_folder};
use crate::error::{Result, TrainError};
use crate::plan::Plan;
use crate::pretrained::bits_of;
use dataset::{AnswerEnd, ChatMessage, ChatTemplate, ChatTurn, PromptEncoder, Task, Tokenizer};
use models::Pretrained;
use models::export::ChatFormat;
use runlog::{Quantize, RunFolder, counted, format_count};
use std::ops::ControlFlow;
use std::path::Path;
use tape::Cancel;
use tape::device::DevicePreference;

/// Most tokens of a conversation, if nothing else is asked for. The memory of keys and values grows
/// with this number.
const CONTEXT: u32 = 4_096;

/// A language model that answers.
pub struct ChatModel {
    weights: LanguageWeights,
    prompts: PromptEncoder,
    /// The tokens that end an answer.
    ends: Vec<u32>,
    /// The text that ends an answer, if no token does.
    end_text: Option<String>,
    /// Most tokens of a conversation.
    context: usize,
    /// The device and why it was chosen.
    pub device: String,
}

/// A conversation.
pub struct Chat<'m> {
    model: &'m ChatModel,
    system: Option<String>,
    turns: Vec<ChatTurn>,
    /// Answers so far, also those that were left out.
    answers: u64,
}

/// What became of a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChatReply {
    /// Why there is no answer. The conversation is as before.
    pub refusal: Option<String>,
    /// The answer.
    pub answer: String,
    /// What the user should know about the answer, in sentences without a full stop.
    pub notes: Vec<String>,
}

/// An answer that was generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Its tokens.
    pub tokens: usize,
    /// Whether it was cut, because it had the most tokens that it may have.
    pub is_cut: bool,
}

/// Why a conversation cannot be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedConversation {
    /// The reason, as a sentence without a full stop.
    pub reason: String,
    /// Whether it has too many tokens.
    pub is_too_long: bool,
}

impl ChatModel {
    /// Loads the best checkpoint of a run. A conversation has at most `context` tokens, by default
    /// 4,096 or as many as the model reads. `device_check_path` is the file that remembers whether
    /// the GPU passed its check.
    ///
    /// # Errors
    /// The run cannot be loaded, is no language model, or has no chat template; the model reads
    /// fewer tokens.
    pub fn from_run(
        run: &RunFolder,
        device: DevicePreference,
        device_check_path: Option<&Path>,
        context: Option<u32>,
    ) -> Result<Self> {
        let model = TrainedModel::load(run, device, device_check_path)?;
        if model.task() != Task::LanguageModel {
            return Err(model.wrong_task("chat"));
        }
        let plan = &model.plan;
        let tokenizer = model.tokenizer.clone();
        let loaded = match (&plan.pretrained, plan.conversations) {
            (Some(pretrained), _) => Described::from_folder(pretrained, tokenizer)?,
            (None, Some(_)) => Described {
                embeddings: tokenizer.vocabulary() as u32,
                tokenizer,
                template: ChatTemplate::chatml(),
                ends: Vec::new(),
                most: plan.input_size,
            },
            (None, None) => {
                return Err(TrainError::NotTrainable {
                    message: "this run was trained on documents, not on conversations, so it cannot chat; continue a text with `ebb generate RUN --prompt \"a text\"`".to_owned(),
                });
            }
        };
        let device = model.device.clone();
        loaded.into_model(LanguageWeights::Run(Box::new(model)), context, device)
    }

    /// Loads the weights of a folder, whose matrices are quantized, if asked for.
    ///
    /// # Errors
    /// The folder has no language model with a tokenizer and a chat template that Ebb can read; the
    /// model reads fewer than `context` tokens.
    pub fn from_folder(
        folder: &Path,
        quantize: Option<Quantize>,
        device: DevicePreference,
        device_check_path: Option<&Path>,
        context: Option<u32>,
    ) -> Result<Self> {
        let pretrained = open_folder(folder, quantize.map(bits_of), "chat")?;
        let loaded =
            Described::from_folder(&pretrained, crate::pretrained::tokenizer(&pretrained)?)?;
        let (weights, device) = FolderWeights::load(&pretrained, device, device_check_path)?;
        loaded.into_model(LanguageWeights::Folder(Box::new(weights)), context, device)
    }

    /// Its weights.
    pub(super) fn weights(&self) -> &LanguageWeights {
        &self.weights
    }

    /// Begins a conversation with answers of at most `tokens` tokens.
    ///
    /// # Errors
    /// The template refuses the system prompt, or any conversation; the system prompt leaves no
    /// room for a message.
    pub fn start(&self, system: Option<&str>, tokens: usize) -> Result<Chat<'_>> {
        let refused = |subject: &str, reason: String, next: &str| TrainError::NotTrainable {
            message: format!("{subject} {reason}; {next}"),
        };
        if let Err(reason) = self.prompts.encode(None, &[], "Hello") {
            // Some templates ask for a system prompt.
            if system.is_none_or(|system| self.prompts.encode(Some(system), &[], "Hello").is_err())
            {
                let next = "put a chat_template.jinja that renders a message of the user into the folder of the model";
                return Err(refused("a conversation with this model", reason, next));
            }
        }
        if let Some(system) = system {
            let next = "remove --system, or write another system prompt";
            let prompt = self.prompts.encode(Some(system), &[], "Hello");
            let prompt = prompt.map_err(|reason| refused("the system prompt", reason, next))?;
            let most = self.room_for_prompt(tokens);
            if prompt.len() > most {
                let reason = self.too_many_tokens(" with a short message", prompt.len(), most);
                return Err(refused("the system prompt", reason, "shorten it"));
            }
        }
        Ok(Chat {
            model: self,
            system: system.map(str::to_owned),
            turns: Vec::new(),
            answers: 0,
        })
    }

    /// Most tokens of a prompt, so that an answer of `tokens` tokens fits, or one of half the
    /// context.
    fn room_for_prompt(&self, tokens: usize) -> usize {
        self.context - tokens.min(self.context / 2)
    }

    /// The end of a sentence about a text that is too long. `with` names what else was counted.
    fn too_many_tokens(&self, with: &str, needed: usize, most: usize) -> String {
        let [needed, most, context] = [needed, most, self.context].map(|it| it as u64);
        format!(
            "needs {} tokens{with}, but only {} of the {} tokens of a conversation are free for it",
            format_count(needed),
            format_count(most),
            format_count(context)
        )
    }

    /// The tokens of a conversation up to the answer to its last message, for
    /// [`ChatModel::complete`].
    ///
    /// # Errors
    /// A message cannot be used, the template refuses the conversation, or it leaves no room for an
    /// answer.
    pub fn prompt(
        &self,
        messages: &[ChatMessage],
    ) -> std::result::Result<Vec<u32>, RefusedConversation> {
        let prompt = self.prompts.encode_messages(messages);
        let prompt = prompt.map_err(|reason| RefusedConversation {
            reason: format!("this conversation {reason}"),
            is_too_long: false,
        })?;
        if prompt.len() >= self.context {
            return Err(RefusedConversation {
                reason: format!(
                    "this conversation has {} tokens, but with its answer it may have at most {}; shorten it",
                    format_count(prompt.len() as u64),
                    format_count(self.context as u64)
                ),
                is_too_long: true,
            });
        }
        Ok(prompt)
    }

    /// Answers a conversation. Calls `on_text` with each part of the answer as soon as it is
    /// certain. The answer ends early if `on_text` breaks or `cancel` is raised.
    ///
    /// # Errors
    /// The device fails.
    pub fn complete(
        &self,
        prompt: Vec<u32>,
        options: &GenerationOptions,
        cancel: &Cancel,
        on_text: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<Completion> {
        let options = self.limited(options, prompt.len());
        let Generated { tokens, end, .. } = self.generate(prompt, &options, cancel, on_text)?;
        Ok(Completion {
            tokens,
            is_cut: end == TextEnd::Limit,
        })
    }

    /// Frees the memory that the device holds and no tensor uses, so that other apps can use it
    /// between two answers.
    pub fn free_unused_memory(&self) {
        self.weights.free_unused_memory();
    }

    /// The options for an answer to a prompt: it fits into the context, and ends where answers of
    /// this model end.
    fn limited(&self, options: &GenerationOptions, prompt: usize) -> GenerationOptions {
        let stop = options.stop.iter().chain(&self.end_text);
        GenerationOptions {
            tokens: options.tokens.min(self.context.saturating_sub(prompt)),
            stop: stop.cloned().collect(),
            ..options.clone()
        }
    }

    fn generate(
        &self,
        prompt: Vec<u32>,
        options: &GenerationOptions,
        cancel: &Cancel,
        on_text: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<Generated> {
        let parts = self.weights.parts()?;
        let generator = Generator {
            network: parts.network,
            parameters: parts.parameters,
            kernels: parts.kernels,
            cancel: cancel.clone(),
            tokenizer: self.prompts.tokenizer(),
            limit: self.context,
            ends: &self.ends,
        };
        generator.generate(prompt, options, on_text)
    }
}

/// How the model of a plan chats, for exports. A template that cannot be used is left out.
pub(super) fn format(plan: &Plan, tokenizer: &Tokenizer) -> ChatFormat {
    let pretrained = plan.pretrained.as_ref();
    let template = pretrained.and_then(|it| ChatTemplate::from_folder(it.path()).ok()?);
    let Some(template) = template else {
        return ChatFormat::default();
    };
    ChatFormat {
        template: Some(template.default_source().to_owned()),
        answer_end: PromptEncoder::new(tokenizer.clone(), template, u32::MAX).answer_end_name(),
    }
}

/// What a conversation with a model needs besides its weights.
struct Described {
    tokenizer: Tokenizer,
    template: ChatTemplate,
    embeddings: u32,
    /// Tokens that end a text, besides those that the tokenizer and the template know.
    ends: Vec<u32>,
    /// Most tokens that the model reads.
    most: u32,
}

impl Described {
    fn from_folder(pretrained: &Pretrained, tokenizer: Tokenizer) -> Result<Self> {
        let path = pretrained.path();
        let Some(template) = ChatTemplate::from_folder(path)? else {
            return Err(TrainError::NotTrainable {
                message: format!(
                    "{} has no chat template; put the file chat_template.jinja of a chat model with the same vocabulary into it, choose a model that is made for chats, or continue a text with `ebb generate`",
                    path.display()
                ),
            });
        };
        let limits = pretrained.text_limits();
        Ok(Described {
            tokenizer,
            template,
            embeddings: limits.map_or(0, |limits| limits.vocabulary),
            ends: pretrained.end_tokens(),
            most: limits.map_or(0, |limits| limits.tokens),
        })
    }

    fn into_model(
        self,
        weights: LanguageWeights,
        context: Option<u32>,
        device: String,
    ) -> Result<ChatModel> {
        if let Some(wanted) = context.filter(|wanted| *wanted > self.most) {
            return Err(TrainError::Setting {
                key: "context",
                value: wanted.to_string(),
                allowed: format!(
                    "this model reads at most {} tokens",
                    format_count(self.most.into())
                ),
            });
        }
        let boundary = self.tokenizer.boundary();
        let prompts = PromptEncoder::new(self.tokenizer, self.template, self.embeddings);
        let (mut ends, mut end_text) = (self.ends, None);
        ends.extend(boundary);
        ends.extend(prompts.end_of_text());
        match prompts.answer_end() {
            Some(AnswerEnd::Token(token)) => ends.push(token),
            Some(AnswerEnd::Text(text)) => end_text = Some(text),
            None => {}
        }
        Ok(ChatModel {
            weights,
            prompts,
            ends,
            end_text,
            context: context.unwrap_or(CONTEXT.min(self.most)) as usize,
            device,
        })
    }
}

impl Chat<'_> {
    /// Forgets the conversation, but not the system prompt.
    pub fn reset(&mut self) {
        self.turns.clear();
    }

    /// Answers a message. Calls `on_text` with each part of the answer as soon as it is certain.
    /// The answer ends early if `on_text` breaks or `cancel` is raised.
    ///
    /// # Errors
    /// The device fails. The conversation is as before.
    pub fn answer(
        &mut self,
        message: &str,
        options: &GenerationOptions,
        cancel: &Cancel,
        on_text: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<ChatReply> {
        let refused = |reason: String| ChatReply {
            refusal: Some(format!("this message {reason}")),
            ..ChatReply::default()
        };
        if message.trim().is_empty() {
            return Ok(refused("is empty; write a text".to_owned()));
        }
        let (prompt, left_out) = match self.prompt(message, options.tokens) {
            Ok(found) => found,
            Err(reason) => return Ok(refused(reason)),
        };
        let chosen = GenerationOptions {
            // Otherwise every answer would draw the same random numbers.
            seed: options.seed.wrapping_add(self.answers),
            ..self.model.limited(options, prompt.len())
        };
        let generated = self.model.generate(prompt, &chosen, cancel, on_text)?;
        let Generated { text, end, .. } = generated;
        self.turns.drain(..left_out);
        self.answers += 1;
        if !(text.is_empty() && end == TextEnd::Interrupted) {
            self.turns.push(ChatTurn {
                message: message.to_owned(),
                answer: text.clone(),
            });
        }
        let mut notes: Vec<String> = self.left_out_note(left_out).into_iter().collect();
        if end == TextEnd::Limit {
            let limit = counted(chosen.tokens as u64, "token", "tokens");
            notes.push(if chosen.tokens < options.tokens {
                format!("the answer was cut after {limit}, because the context is full")
            } else {
                format!("the answer was cut after {limit}; --tokens sets this limit")
            });
        }
        Ok(ChatReply {
            refusal: None,
            answer: text,
            notes,
        })
    }

    /// What the user is told about the oldest turns that were left out.
    fn left_out_note(&self, left_out: usize) -> Option<String> {
        let limit = format_count(self.model.context as u64);
        let oldest = match left_out {
            0 => return None,
            1 => "the oldest message and its answer were".to_owned(),
            _ => {
                let count = format_count(left_out as u64);
                format!("the {count} oldest messages and their answers were")
            }
        };
        Some(format!(
            "{oldest} left out, because a conversation with this model has at most {limit} tokens"
        ))
    }

    /// The tokens of the conversation up to the answer to `message`, and how many of its oldest
    /// turns are left out so that an answer of `tokens` tokens fits, or one of half the context.
    fn prompt(
        &self,
        message: &str,
        tokens: usize,
    ) -> std::result::Result<(Vec<u32>, usize), String> {
        let most = self.model.room_for_prompt(tokens);
        let system = self.system.as_deref();
        let mut least = 0;
        for left_out in 0..=self.turns.len() {
            let turns = &self.turns[left_out..];
            let prompt = self.model.prompts.encode(system, turns, message)?;
            if prompt.len() <= most {
                return Ok((prompt, left_out));
            }
            least = prompt.len();
        }
        let alone = self.model.prompts.encode(None, &[], message);
        let fits_alone = alone.is_ok_and(|alone| alone.len() <= most);
        let (with, next) = match system {
            Some(_) if fits_alone => (" with the system prompt", "shorten one of them"),
            _ => ("", "shorten it"),
        };
        let reason = self.model.too_many_tokens(with, least, most);
        Err(format!("{reason}; {next}"))
    }
}
