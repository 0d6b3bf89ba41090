//! A conversation with a language model: the best checkpoint of a run, or a folder of published
//! weights. The conversation is rendered with the model's own chat template.
//!
//! A conversation may be longer than the context. Its oldest messages are then left out, each with
//! its answer; the system prompt stays. While memory is short, the context is shorter.

use super::TrainedModel;
use super::context_memory::{ContextMemory, Room, WatchedText};
use super::generate::{Generated, Generator, TextEnd};
use super::generation_options::GenerationOptions;
use super::language_weights::{FolderWeights, LanguageWeights, open_folder};
use crate::error::{Result, TrainError};
use crate::machine_sources::Machine;
use crate::plan::Plan;
use crate::pretrained::{bits_of, config_of};
use dataset::{AnswerEnd, ChatMessage, ChatTemplate, ChatTurn, PromptEncoder, Task, Tokenizer};
use models::Pretrained;
use models::export::ChatFormat;
use models::hub_format::{find_gguf, unpack_gguf};
use runlog::{Quantize, RunFolder, counted, format_count};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
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
    /// Most tokens of a conversation, if there is memory for them.
    context: usize,
    memory: ContextMemory,
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
    is_without_adapters: bool,
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
    /// Whether the answer has the most tokens that were asked for. The last note says so.
    pub is_cut: bool,
}

/// An answer that was generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Its tokens.
    pub tokens: usize,
    /// Whether it was cut, because it had the most tokens that it may have, or because memory
    /// became short.
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

    /// The folder of the language model in a GGUF file, written below `home` unless it exists.
    /// `path` is the file, or a folder with one. `None` if the path names no such file.
    ///
    /// # Errors
    /// The file is damaged, or has a network, tensors or a tokenizer that Ebb does not know.
    pub fn unpack_gguf(path: &Path, home: &Path) -> Result<Option<PathBuf>> {
        let file = find_gguf(path)?;
        let folder = file.map(|file| unpack_gguf(&file, home));
        Ok(folder.transpose()?)
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

    /// Loads the weights that a run started from, stored as in the run; `None` if it started from
    /// random weights. [`Chat::without_adapters`] needs no second model. `context` is that of
    /// [`ChatModel::from_run`].
    ///
    /// # Errors
    /// As [`ChatModel::from_folder`].
    pub fn from_run_base(
        run: &RunFolder,
        device: DevicePreference,
        device_check_path: Option<&Path>,
        context: Option<u32>,
    ) -> Result<Option<Self>> {
        let config = config_of(run)?;
        let Some(folder) = config.from else {
            return Ok(None);
        };
        let quantize = config.quantize;
        ChatModel::from_folder(&folder, quantize, device, device_check_path, context).map(Some)
    }

    /// Bytes of its weights.
    pub fn weights_bytes(&self) -> u64 {
        self.weights.bytes()
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
                let next = "put a chat_template.jinja that accepts user messages into the folder of the model";
                return Err(refused("a conversation with this model", reason, next));
            }
        }
        if let Some(system) = system {
            let next = "remove the system prompt, or write another one";
            let prompt = self.prompts.encode(Some(system), &[], "Hello");
            let prompt = prompt.map_err(|reason| refused("the system prompt", reason, next))?;
            let room = self.room();
            let most = room_for_prompt(room, tokens);
            if prompt.len() > most {
                let reason = too_many_tokens(room, " with a short message", prompt.len(), most);
                let next = room.next_step("shorten it");
                return Err(TrainError::NotTrainable {
                    message: format!("the system prompt {reason}{next}"),
                });
            }
        }
        Ok(Chat {
            model: self,
            system: system.map(str::to_owned),
            turns: Vec::new(),
            answers: 0,
            is_without_adapters: false,
        })
    }

    /// The room for a conversation now.
    fn room(&self) -> Room {
        // Without weights there is nothing to limit; the answer reports the error.
        let parts = self.weights.parts();
        parts.map_or_else(
            |_| Room {
                tokens: self.context,
                limited_by_bytes: None,
            },
            |parts| self.memory.room(parts.network, self.context),
        )
    }

    /// What the user should know before a conversation: that memory shortens it.
    pub fn memory_note(&self) -> Option<String> {
        let room = self.room();
        room.limited_by_bytes.map(|_| {
            format!(
                "memory is short: a conversation may have {} instead of {}; close other apps for longer ones",
                counted(room.tokens as u64, "token", "tokens"),
                format_count(self.context as u64)
            )
        })
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
        let room = self.room();
        if prompt.len() >= room.tokens {
            return Err(RefusedConversation {
                reason: format!(
                    "this conversation has {} tokens, but with its answer it may have at most {}{}",
                    format_count(prompt.len() as u64),
                    format_count(room.tokens as u64),
                    room.next_step("shorten it")
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
        let options = self.limited(options, self.room(), prompt.len());
        let generator = self.generator(cancel)?;
        let mut watched = WatchedText::new(&self.memory, on_text);
        let Generated { tokens, end, .. } =
            generator.generate(prompt, &options, |text| watched.pass_on(text))?;
        Ok(Completion {
            tokens,
            is_cut: end == TextEnd::Limit || watched.is_short,
        })
    }

    /// Frees the memory that the device holds and no tensor uses, so that other apps can use it
    /// between two answers.
    pub fn free_unused_memory(&self) {
        self.weights.free_unused_memory();
    }

    /// The options for an answer to a prompt: it fits into the room, and ends where answers of this
    /// model end.
    fn limited(&self, options: &GenerationOptions, room: Room, prompt: usize) -> GenerationOptions {
        let stop = options.stop.iter().chain(&self.end_text);
        GenerationOptions {
            tokens: options.tokens.min(room.tokens.saturating_sub(prompt)),
            stop: stop.cloned().collect(),
            ..options.clone()
        }
    }

    fn generator(&self, cancel: &Cancel) -> Result<Generator<'_>> {
        let parts = self.weights.parts()?;
        Ok(Generator {
            network: parts.network,
            parameters: parts.parameters,
            kernels: parts.kernels,
            cancel: cancel.clone(),
            tokenizer: self.prompts.tokenizer(),
            limit: self.context,
            ends: &self.ends,
            is_without_adapters: false,
        })
    }
}

/// Most tokens of a prompt, so that an answer of `tokens` tokens fits, or one of half the room.
fn room_for_prompt(room: Room, tokens: usize) -> usize {
    room.tokens - tokens.min(room.tokens / 2)
}

/// The end of a sentence about a text that is too long. `with` names what else was counted.
fn too_many_tokens(room: Room, with: &str, needed: usize, most: usize) -> String {
    let [needed, most, all] = [needed, most, room.tokens].map(|it| it as u64);
    format!(
        "needs {} tokens{with}, but may have at most {}: a conversation and its answer together may have at most {} tokens",
        format_count(needed),
        format_count(most),
        format_count(all)
    )
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
        let memory = ContextMemory::open(&Machine::default(), weights.device())?;
        let most = context.unwrap_or(CONTEXT.min(self.most)) as usize;
        let network = weights.parts()?.network;
        let room = memory.room(network, most);
        room.expect_context(network, context)?;
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
            context: most,
            memory,
            device,
        })
    }
}

/// Why an answer has no more tokens, as the end of a sentence.
fn no_room(room: Room) -> &'static str {
    match room.limited_by_bytes {
        Some(_) => ", because no more memory is available",
        None => ", because the context is full",
    }
}

/// What the user should know about the oldest turns that were left out.
fn left_out_note(left_out: usize, room: Room) -> Option<String> {
    let limit = format_count(room.tokens as u64);
    let oldest = match left_out {
        0 => return None,
        1 => "the oldest message and its answer were".to_owned(),
        _ => {
            let count = format_count(left_out as u64);
            format!("the {count} oldest messages and their answers were")
        }
    };
    Some(match room.limited_by_bytes {
        None => format!(
            "{oldest} left out, because a conversation with this model has at most {limit} tokens"
        ),
        Some(_) => format!(
            "{oldest} left out, because the available memory suffices for {limit} tokens; close other apps for longer conversations"
        ),
    })
}

impl Chat<'_> {
    /// This conversation, in which these messages were answered before.
    #[must_use]
    pub fn after(mut self, turns: Vec<ChatTurn>) -> Self {
        self.answers += turns.len() as u64;
        self.turns.extend(turns);
        self
    }

    /// This conversation with the network as if it had no adapters.
    #[must_use]
    pub fn without_adapters(mut self) -> Self {
        self.is_without_adapters = true;
        self
    }

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
        let room = self.model.room();
        let (prompt, left_out) = match self.prompt(message, room, options.tokens) {
            Ok(found) => found,
            Err(reason) => return Ok(refused(reason)),
        };
        let chosen = GenerationOptions {
            // Otherwise every answer would draw the same random numbers.
            seed: options.seed.wrapping_add(self.answers),
            ..self.model.limited(options, room, prompt.len())
        };
        let generator = Generator {
            is_without_adapters: self.is_without_adapters,
            ..self.model.generator(cancel)?
        };
        let mut watched = WatchedText::new(&self.model.memory, on_text);
        let Generated { text, tokens, end } =
            generator.generate(prompt, &chosen, |text| watched.pass_on(text))?;
        self.turns.drain(..left_out);
        self.answers += 1;
        if !(text.is_empty() && end == TextEnd::Interrupted) {
            self.turns.push(ChatTurn {
                message: message.to_owned(),
                answer: text.clone(),
            });
        }
        let mut notes: Vec<String> = left_out_note(left_out, room).into_iter().collect();
        let is_cut = end == TextEnd::Limit && chosen.tokens == options.tokens;
        let reason = match end {
            _ if watched.is_short => Some(", because other apps need the memory"),
            TextEnd::Limit if is_cut => Some(""),
            TextEnd::Limit => Some(no_room(room)),
            TextEnd::Complete | TextEnd::Interrupted => None,
        };
        notes.extend(reason.map(|reason| {
            let limit = counted(tokens as u64, "token", "tokens");
            format!("the answer was cut after {limit}{reason}")
        }));
        Ok(ChatReply {
            refusal: None,
            answer: text,
            notes,
            is_cut,
        })
    }

    /// The tokens of the conversation up to the answer to `message`, and how many of its oldest
    /// turns are left out so that an answer of `tokens` tokens fits, or one of half the room.
    fn prompt(
        &self,
        message: &str,
        room: Room,
        tokens: usize,
    ) -> std::result::Result<(Vec<u32>, usize), String> {
        let most = room_for_prompt(room, tokens);
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
        let reason = too_many_tokens(room, with, least, most);
        Err(format!("{reason}{}", room.next_step(next)))
    }
}

#[cfg(test)]
mod tests;
