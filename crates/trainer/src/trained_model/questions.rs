//! Evaluates a language model on questions, as lm-evaluation-harness does: of several choices, the
//! one with the highest log-likelihood after the question is the model's answer; other answers are
//! generated greedily in a conversation.

use super::chat::{Chat, ChatModel};
use super::generation_options::GenerationOptions;
use super::language_weights::{FolderWeights, LanguageWeights, open_folder};
use super::wait_for_memory::MemoryGate;
use super::{MICRO_BATCH, Progress, TrainedModel};
use crate::error::{Result, TrainError};
use crate::machine_sources::Machine;
use crate::pretrained::{bits_of, config_of};
use dataset::{
    Expected, Question, QuestionFile, QuestionOptions, QuestionScores, Task, Tokenizer, letter,
};
use models::Pretrained;
use runlog::{Quantize, RunFolder, format_count};
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;
use tape::device::{DevicePreference, trim_old, with_autorelease_pool};
use tape::inplace::to_f64;
use tape::{Cancel, IGNORED, Tape};

/// Most tokens of a question with one of its choices.
const CONTEXT: u32 = 4_096;
/// Most tokens of a micro-batch with more than one text.
const MICRO_BATCH_TOKENS: usize = 8_192;

/// A language model that is evaluated on questions.
pub struct QuestionModel {
    source: Source,
    tokenizer: Tokenizer,
    /// The token before a question. Published weights get the one that their tokenizer puts before
    /// every text, as in lm-evaluation-harness; a model that was trained from random weights gets
    /// the token that separates documents.
    first: Option<u32>,
    /// Most tokens that it reads.
    limit: usize,
    /// The device and why it was chosen.
    pub device: String,
    /// How far an evaluation is.
    pub progress: Arc<Progress>,
}

enum Source {
    /// For questions that have to be answered in a conversation.
    Chat(Box<ChatModel>),
    Weights(LanguageWeights),
}

/// A question with its choices as texts for the model.
struct EncodedQuestion {
    right: usize,
    choices: Vec<EncodedChoice>,
}

/// A question followed by one of its choices.
struct EncodedChoice {
    /// All tokens.
    ids: Vec<u32>,
    /// The place of the first token of the choice, at least 1.
    start: usize,
    /// Bytes of the choice.
    bytes: usize,
}

impl QuestionModel {
    /// Loads the best checkpoint of a run for the questions of `file`.
    ///
    /// # Errors
    /// The run cannot be loaded or is no language model. If there are questions to answer: it
    /// cannot chat.
    pub fn from_run(
        run: &RunFolder,
        file: &QuestionFile,
        device: DevicePreference,
        device_check_path: Option<&Path>,
    ) -> Result<Self> {
        if file.answers > 0 {
            let chat = ChatModel::from_run(run, device, device_check_path, None)?;
            let device = chat.device.clone();
            return QuestionModel::with_source(Source::Chat(Box::new(chat)), None, device);
        }
        let model = TrainedModel::load(run, device, device_check_path)?;
        if model.task() != Task::LanguageModel {
            return Err(model.wrong_task("answer questions"));
        }
        let device = model.device.clone();
        let weights = LanguageWeights::Run(Box::new(model));
        QuestionModel::with_source(Source::Weights(weights), None, device)
    }

    /// Loads the weights of a folder, whose matrices are quantized, if asked for.
    ///
    /// # Errors
    /// The folder has no language model with a tokenizer. If there are questions to answer: it has
    /// no chat template.
    pub fn from_folder(
        folder: &Path,
        quantize: Option<Quantize>,
        file: &QuestionFile,
        device: DevicePreference,
        device_check_path: Option<&Path>,
    ) -> Result<Self> {
        let pretrained = open_folder(folder, quantize.map(bits_of), "answer questions")?;
        if file.answers > 0 {
            let chat = ChatModel::from_folder(folder, quantize, device, device_check_path, None)?;
            let device = chat.device.clone();
            let source = Source::Chat(Box::new(chat));
            return QuestionModel::with_source(source, Some(&pretrained), device);
        }
        let (weights, device) = FolderWeights::load(&pretrained, device, device_check_path)?;
        let weights = LanguageWeights::Folder(Box::new(weights));
        QuestionModel::with_source(Source::Weights(weights), Some(&pretrained), device)
    }

    /// Loads the weights that a run started from, stored as in the run; `None` if it started from
    /// random weights.
    ///
    /// # Errors
    /// As [`QuestionModel::from_folder`].
    pub fn from_run_base(
        run: &RunFolder,
        file: &QuestionFile,
        device: DevicePreference,
        device_check_path: Option<&Path>,
    ) -> Result<Option<Self>> {
        let config = config_of(run)?;
        let Some(folder) = config.from else {
            return Ok(None);
        };
        QuestionModel::from_folder(&folder, config.quantize, file, device, device_check_path)
            .map(Some)
    }

    /// `pretrained` is the folder of the weights, if they are not those of a run.
    fn with_source(
        source: Source,
        pretrained: Option<&Pretrained>,
        device: String,
    ) -> Result<Self> {
        let weights = match &source {
            Source::Chat(chat) => chat.weights(),
            Source::Weights(weights) => weights,
        };
        let limit = |pretrained: &Pretrained| {
            let limits = pretrained.text_limits();
            limits.map_or(CONTEXT, |limits| limits.tokens.min(CONTEXT))
        };
        let (tokenizer, limit, progress) = match (weights, pretrained) {
            (LanguageWeights::Run(model), _) => {
                let most = model.plan.pretrained.as_deref().map(limit);
                let most = most.unwrap_or(model.plan.input_size);
                (model.tokenizer.clone(), most, Arc::clone(&model.progress))
            }
            (LanguageWeights::Folder(_), Some(pretrained)) => {
                let tokenizer = crate::pretrained::tokenizer(pretrained)?;
                (tokenizer, limit(pretrained), Arc::default())
            }
            (LanguageWeights::Folder(_), None) => (Tokenizer::bytes(), CONTEXT, Arc::default()),
        };
        let first = match weights {
            LanguageWeights::Run(model) if model.plan.pretrained.is_none() => tokenizer.boundary(),
            _ => tokenizer.first_token(),
        };
        Ok(QuestionModel {
            source,
            tokenizer,
            first,
            limit: limit as usize,
            device,
            progress,
        })
    }

    /// Bytes of its weights.
    pub fn weights_bytes(&self) -> u64 {
        self.weights().bytes()
    }

    fn weights(&self) -> &LanguageWeights {
        match &self.source {
            Source::Chat(chat) => chat.weights(),
            Source::Weights(weights) => weights,
        }
    }

    /// Asks all questions of a file. The memory does not grow with the file.
    ///
    /// # Errors
    /// The file can no longer be read, or the device fails.
    pub fn evaluate(
        &self,
        file: &QuestionFile,
        options: &QuestionOptions,
    ) -> Result<QuestionScores> {
        let mut scores = QuestionScores::default();
        let mut waiting: Vec<EncodedQuestion> = Vec::new();
        let mut gate = MemoryGate::open(&Machine::default(), self.weights().device())?;
        let mut chat = match &self.source {
            Source::Chat(model) => Some(model.start(None, options.tokens)?),
            Source::Weights(_) => None,
        };
        self.progress.begin(file.questions() as usize);
        for row in file.rows()? {
            let row = row?;
            // The first reading has reported the rows that cannot be used.
            let Ok(question) = row.question else { continue };
            self.progress.expect_uncancelled()?;
            match &question.expected {
                Expected::Choice { choices, right } => {
                    match self.encode(&question, choices, *right, options)? {
                        Ok(encoded) => waiting.push(encoded),
                        Err(reason) => scores.skip(row.line, reason),
                    }
                    let texts: usize = waiting.iter().map(|q| q.choices.len()).sum();
                    if texts >= MICRO_BATCH {
                        self.judge(&mut waiting, &mut gate, &mut scores)?;
                    }
                }
                Expected::Answers(_) | Expected::Pattern(_) => {
                    let answer = answer(chat.as_mut(), &question, options)?;
                    match answer {
                        Ok(answer) => {
                            let is_right = options.rule.is_right(&question.expected, &answer);
                            scores.answers += 1;
                            scores.right_answers += u64::from(is_right);
                        }
                        Err(reason) => scores.skip(row.line, reason),
                    }
                }
            }
            self.progress.add(1);
        }
        self.judge(&mut waiting, &mut gate, &mut scores)?;
        Ok(scores)
    }

    /// The tokens of a question with each of its choices, or why it cannot be asked.
    fn encode(
        &self,
        question: &Question,
        choices: &[String],
        right: usize,
        options: &QuestionOptions,
    ) -> Result<std::result::Result<EncodedQuestion, String>> {
        let context = context(question, choices, options.letters);
        let before = self.tokenizer.encode(&context)?;
        let mut encoded = EncodedQuestion {
            right,
            choices: Vec::with_capacity(choices.len()),
        };
        for (index, choice) in choices.iter().enumerate() {
            let continuation = if options.letters {
                letter(index).to_string()
            } else {
                choice.trim().to_owned()
            };
            let all = self
                .tokenizer
                .encode(&format!("{context} {continuation}"))?;
            // A token may span the end of the question.
            let shared = all.iter().zip(&before).take_while(|(a, b)| a == b).count();
            let start = shared.min(all.len().saturating_sub(1)) + usize::from(self.first.is_some());
            // The first token of a text is not predicted.
            let start = start.max(1);
            let mut ids: Vec<u32> = self.first.into_iter().chain(all).collect();
            // The last token is only predicted, so one more than the limit fits. Of a longer text
            // the beginning is left out.
            let excess = ids.len().saturating_sub(self.limit + 1);
            if start <= excess {
                let limit = format_count(self.limit as u64);
                let choice = letter(index);
                return Ok(Err(format!(
                    "has a choice {choice} with more tokens than the {limit} that the model reads"
                )));
            }
            ids.drain(..excess);
            encoded.choices.push(EncodedChoice {
                start: start - excess,
                bytes: continuation.len().max(1),
                ids,
            });
        }
        Ok(Ok(encoded))
    }

    /// Counts the answers to the waiting questions, which are removed.
    fn judge(
        &self,
        waiting: &mut Vec<EncodedQuestion>,
        gate: &mut MemoryGate,
        scores: &mut QuestionScores,
    ) -> Result<()> {
        let all: Vec<&EncodedChoice> = waiting.iter().flat_map(|q| &q.choices).collect();
        let mut likelihoods = Vec::with_capacity(all.len());
        while likelihoods.len() < all.len() {
            let weights = self.weights();
            let most = gate.next_micro_batch(&self.progress, || weights.free_unused_memory());
            let rest = &all[likelihoods.len()..];
            let batch = &rest[self.micro_batch(rest, most)?];
            likelihoods.extend(with_autorelease_pool(|| {
                let found = self.log_likelihoods(batch);
                // Texts of other lengths need other buffers.
                trim_old(weights.device());
                found
            })?);
        }
        let mut from = 0;
        for question in waiting.drain(..) {
            let found = &likelihoods[from..from + question.choices.len()];
            from += question.choices.len();
            let pairs = found.iter().zip(&question.choices);
            let per_byte: Vec<f64> = pairs.map(|(sum, c)| sum / c.bytes as f64).collect();
            scores.choices += 1;
            scores.right += u64::from(best(found) == question.right);
            scores.right_normalized += u64::from(best(&per_byte) == question.right);
        }
        Ok(())
    }

    /// The first of these texts that are processed at once: at most `most`, and few enough tokens.
    fn micro_batch(&self, texts: &[&EncodedChoice], most: usize) -> Result<Range<usize>> {
        // Padding would rotate the tokens of a short text by the angles of a long one.
        if self
            .weights()
            .parts()?
            .network
            .longest_unstretched()
            .is_some()
        {
            return Ok(0..1);
        }
        let (mut count, mut longest) = (0, 0);
        for text in texts.iter().take(most) {
            longest = longest.max(text.ids.len());
            if count > 0 && (count + 1) * longest > MICRO_BATCH_TOKENS {
                break;
            }
            count += 1;
        }
        Ok(0..count)
    }

    /// The log-likelihood of each choice after its question, summed over its tokens, in nats.
    fn log_likelihoods(&self, texts: &[&EncodedChoice]) -> Result<Vec<f64>> {
        let longest = texts.iter().map(|text| text.ids.len()).max();
        let length = longest.unwrap_or(2).saturating_sub(1).max(1);
        let (mut ids, mut targets) = (Vec::new(), Vec::new());
        for text in texts {
            let inputs = &text.ids[..text.ids.len() - 1];
            let padding = std::iter::repeat_n(0, length - inputs.len());
            ids.extend(inputs.iter().copied().chain(padding));
            let target = |place: usize| match text.ids.get(place + 1) {
                Some(next) if place + 1 >= text.start => *next,
                _ => IGNORED,
            };
            targets.extend((0..length).map(target));
        }
        let parts = self.weights().parts()?;
        let tape = Tape::forward_only(parts.parameters, parts.cancel, parts.kernels);
        let loss = parts.network.loss(&tape, &ids, &targets, texts.len(), 0)?;
        let per_token = to_f64(&loss.per_sample)?;
        let sums = per_token.chunks_exact(length);
        let sums: Vec<f64> = sums.map(|row| -row.iter().sum::<f64>()).collect();
        if sums.iter().any(|sum| sum.is_nan()) {
            return Err(TrainError::NotTrainable {
                message: "the scores of the model are NaN: its weights are damaged, or too large for this precision".to_owned(),
            });
        }
        Ok(sums)
    }
}

/// The greedy answer to a question, or why there is none.
fn answer(
    chat: Option<&mut Chat<'_>>,
    question: &Question,
    options: &QuestionOptions,
) -> Result<std::result::Result<String, String>> {
    let Some(chat) = chat else {
        return Ok(Err("was added while the file was read".to_owned()));
    };
    let greedy = GenerationOptions {
        tokens: options.tokens,
        temperature: 0.0,
        ..GenerationOptions::default()
    };
    chat.reset();
    let cancel = Cancel::default();
    let reply = chat.answer(&question.text, &greedy, &cancel, |_| {
        ControlFlow::Continue(())
    })?;
    Ok(match reply.refusal {
        None => Ok(reply.answer),
        Some(reason) => Err(format!("cannot be asked: {reason}")),
    })
}

/// What stands before a choice: the prompt of ARC in lm-evaluation-harness, or with letters that of
/// MMLU.
fn context(question: &Question, choices: &[String], letters: bool) -> String {
    let text = &question.text;
    if !letters {
        return format!("Question: {text}\nAnswer:");
    }
    let listed = choices.iter().enumerate();
    let listed = listed.map(|(index, choice)| format!("{}. {}\n", letter(index), choice.trim()));
    format!("{text}\n{}Answer:", listed.collect::<String>())
}

/// The index of the highest value; of equal ones the first.
fn best(values: &[f64]) -> usize {
    let first = (0, f64::NEG_INFINITY);
    let better = |a: (usize, f64), b: (usize, f64)| if b.1 > a.1 { b } else { a };
    values.iter().copied().enumerate().fold(first, better).0
}

#[cfg(test)]
mod tests;
