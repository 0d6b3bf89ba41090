//! Conversations as tokens: the encoder of a run, and what is told about those that are cut or left
//! out.

use super::WindowSource;
use crate::error::Result;
use crate::plan::Plan;
use dataset::{
    ChatTemplate, ConversationCounts, ConversationEncoder, ConversationExample, DatasetError,
    LearnedTokens, LeftOut, TextInspection, Tokenizer, conversation_examples,
};
use runlog::{counted, format_count};

/// The encoder of a run: the vocabulary and the chat template of its model, or ChatML if the model
/// starts from random weights.
///
/// # Errors
/// The chat template cannot be used.
pub(crate) fn conversation_encoder(
    plan: &Plan,
    tokenizer: &Tokenizer,
) -> Result<ConversationEncoder> {
    let learned = plan
        .conversations
        .map_or(LearnedTokens::Answers, |options| options.learned);
    let Some(pretrained) = &plan.pretrained else {
        let rows = tokenizer.vocabulary() as u32;
        let template = Some(ChatTemplate::chatml());
        return Ok(ConversationEncoder::new(
            tokenizer.clone(),
            template,
            learned,
            rows,
        ));
    };
    let rows = pretrained
        .text_limits()
        .map_or(0, |limits| limits.vocabulary);
    let template = ChatTemplate::from_folder(pretrained.path())?;
    Ok(ConversationEncoder::new(
        tokenizer.clone(),
        template,
        learned,
        rows,
    ))
}

impl Plan {
    /// The first `count` training conversations as the model reads them. A vocabulary that is
    /// learned when the run starts is not known yet; its tokens count as bytes.
    ///
    /// # Errors
    /// The tokenizer or the chat template cannot be used, or a file has changed since the
    /// inspection.
    pub fn conversation_examples(
        &self,
        found: &TextInspection,
        count: usize,
    ) -> Result<Vec<ConversationExample>> {
        let tokenizer = match &self.pretrained {
            Some(pretrained) => crate::pretrained::tokenizer(pretrained)?,
            None => Tokenizer::bytes(),
        };
        let encoder = conversation_encoder(self, &tokenizer)?;
        Ok(conversation_examples(found, &encoder, count)?)
    }
}

/// Refuses conversations of which none can be used.
///
/// # Errors
/// The training split has no window.
pub(super) fn expect_windows(train: &WindowSource, left_out: &LeftOut) -> Result<()> {
    let counts = train.counts().unwrap_or_default();
    if counts.used > 0 {
        return Ok(());
    }
    let reason = match left_out.main_reason() {
        Some(reason) if counts.too_long == 0 => reason.to_owned(),
        _ => {
            "their answers begin beyond the maximum length; set a larger one (--tokens in the terminal)".to_owned()
        }
    };
    Err(DatasetError::Conversations { reason }.into())
}

/// What is told about conversations that are cut or left out; `None` if all are used whole.
pub(super) fn describe_cut(
    counts: ConversationCounts,
    left_out: &LeftOut,
    tokens: u32,
) -> Option<String> {
    let mut sentences = Vec::new();
    let all = counts.used + counts.too_long + counts.unusable;
    if counts.truncated > 0 {
        sentences.push(format!(
            "{} of {} conversations are longer than {tokens} tokens and are cut; a larger maximum length (--tokens in the terminal) keeps more of each",
            format_count(counts.truncated),
            format_count(all)
        ));
    }
    if counts.too_long > 0 {
        sentences.push(format!(
            "{} left out, because no answer begins within the first {tokens} tokens",
            counted(counts.too_long, "conversation is", "conversations are")
        ));
    }
    let reasons = left_out.describe();
    // Tokens that an earlier run stored come without reasons.
    if counts.unusable > 0 && reasons.is_empty() {
        sentences.push(format!(
            "{} left out, because the model cannot learn them; ebb plan shows the first ones",
            counted(counts.unusable, "conversation is", "conversations are")
        ));
    }
    sentences.extend(reasons);
    (!sentences.is_empty()).then(|| sentences.join(". "))
}
