//! Tokenizes the conversations of a split. A conversation that cannot be learned becomes an empty
//! document, so that it is counted but never trained on.

use super::conversation_encoder::{ConversationEncoder, EncodedConversation};
use super::read_samples::read_samples;
use super::text_inspection::TextInspection;
use super::tokenize_documents::TokenSink;
use crate::error::DatasetError;
use crate::types::Split;
use format::{counted, format_count};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// The bit of a stored token that says whether the token is learned.
pub(super) const LEARNED: u32 = 1 << 31;
/// Bytes of conversations that are encoded at once.
const BATCH_BYTES: usize = 1 << 20;
/// Different reasons that are listed.
const LISTED_REASONS: usize = 3;

/// Conversations that are not learned, or only in part.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Number of conversations for each reason.
    reasons: BTreeMap<String, u64>,
    /// Answers whose place the template does not show.
    lost_answers: u64,
}

impl LeftOut {
    /// Adds those of another split.
    pub fn add(&mut self, other: &LeftOut) {
        for (reason, count) in &other.reasons {
            *self.reasons.entry(reason.clone()).or_default() += count;
        }
        self.lost_answers += other.lost_answers;
    }

    /// The most frequent reason.
    pub fn main_reason(&self) -> Option<&str> {
        let most = self.reasons.iter().max_by_key(|(_, count)| **count);
        most.map(|(reason, _)| reason.as_str())
    }

    /// "2 conversations are left out: the chat template reports an error: …", one line per reason.
    pub fn describe(&self) -> Vec<String> {
        let mut reasons: Vec<_> = self.reasons.iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let listed = reasons.iter().take(LISTED_REASONS).map(|(reason, count)| {
            let conversations = counted(**count, "conversation is", "conversations are");
            format!("{conversations} left out: {reason}")
        });
        let mut lines: Vec<String> = listed.collect();
        let others: u64 = reasons
            .iter()
            .skip(LISTED_REASONS)
            .map(|(_, count)| **count)
            .sum();
        if others > 0 {
            lines.push(format!(
                "{} more are left out for other reasons",
                format_count(others)
            ));
        }
        if self.lost_answers > 0 {
            lines.push(format!(
                "{} not learned, because the chat template writes earlier answers differently from the last one",
                counted(self.lost_answers, "answer is", "answers are")
            ));
        }
        lines
    }

    fn count(&mut self, encoded: &Encoded) {
        match encoded {
            Ok(found) => {
                let lost = found.iter().map(|found| found.lost_answers as u64);
                self.lost_answers += lost.sum::<u64>();
            }
            Err(reason) => {
                // Hostile data could have a new reason in every row.
                let is_known = self.reasons.contains_key(reason) || self.reasons.len() < 100;
                let reason = if is_known {
                    reason.as_str()
                } else {
                    "various reasons"
                };
                *self.reasons.entry(reason.to_owned()).or_default() += 1;
            }
        }
    }
}

/// Reads and tokenizes the conversations of a split, in the order of the inspection, on up to
/// `threads` threads. Each token has the bit [`LEARNED`] if it is learned. A document counts the
/// bytes of its learned text. A preference becomes two documents: the chosen and the rejected one.
/// `goes_on` gets the number of bytes that are read, and returns false to stop.
///
/// # Errors
/// A file is missing or has changed since the inspection, or `sink` fails;
/// [`DatasetError::Stopped`] after a stop.
pub fn tokenize_conversations(
    inspection: &TextInspection,
    split: Split,
    encoder: &ConversationEncoder,
    threads: usize,
    goes_on: &dyn Fn(u64) -> bool,
    sink: &mut dyn TokenSink,
) -> Result<LeftOut, DatasetError> {
    let mut left_out = LeftOut::default();
    let (mut batch, mut bytes, mut done) = (Vec::<Conversation>::new(), 0, 0);
    let files = &inspection.files;
    let documents = if inspection.has_preferences() { 2 } else { 1 };
    let mut end_batch = |batch: &mut Vec<Conversation>, bytes: usize| {
        let encoded = encode_all(&|text| encoder.encode_answers(text), batch, threads);
        let encoded = encoded
            .map_err(|failed| failed.error(batch, |file| files[file as usize].path.as_path()))?;
        for encoded in encoded {
            left_out.count(&encoded);
            let mut found = encoded.unwrap_or_default().into_iter();
            for _ in 0..documents {
                let (tokens, bytes) = found.next().as_ref().map_or((Vec::new(), 0), stored);
                sink.tokens(&tokens)?;
                sink.end_document(bytes)?;
            }
        }
        batch.clear();
        done += bytes as u64;
        if goes_on(done) {
            Ok(())
        } else {
            Err(DatasetError::Stopped)
        }
    };
    read_samples(inspection, split, &mut |sample, text| {
        batch.push(Conversation {
            file: sample.file,
            row: sample.row,
            text: text.to_owned(),
        });
        bytes += text.len();
        if bytes < BATCH_BYTES {
            return Ok(());
        }
        end_batch(&mut batch, std::mem::take(&mut bytes))
    })?;
    end_batch(&mut batch, bytes)?;
    Ok(left_out)
}

/// The tokens as they are stored, and the bytes of the learned text.
fn stored(found: &EncodedConversation) -> (Vec<u32>, u64) {
    let tokens = found.tokens.iter().zip(&found.is_learned);
    let tokens = tokens.map(|(id, is_learned)| if *is_learned { id | LEARNED } else { *id });
    (tokens.collect(), found.learned_bytes())
}

/// A conversation as tokens, or the two of a preference.
type Encoded = Result<Vec<EncodedConversation>, String>;

/// A conversation and its place in the data.
struct Conversation {
    file: u32,
    row: u32,
    text: String,
}

/// The conversation with this index in its batch cannot be encoded.
#[derive(Debug, PartialEq)]
struct Failed {
    index: usize,
    reason: String,
}

impl Failed {
    /// The error that names the file and the row.
    fn error<'f>(self, batch: &[Conversation], path: impl Fn(u32) -> &'f Path) -> DatasetError {
        let error = DatasetError::Encode {
            text: "a conversation".to_owned(),
            reason: self.reason,
        };
        match batch.get(self.index) {
            Some(failed) => error.in_text(path(failed.file), failed.row),
            None => error,
        }
    }
}

/// Encodes conversations in order, on threads that end afterwards, and with them the caches of the
/// tokenizers library. A panic is an error of its conversation.
fn encode_all(
    encode: &(dyn Fn(&str) -> Encoded + Sync),
    batch: &[Conversation],
    threads: usize,
) -> Result<Vec<Encoded>, Failed> {
    let encode_one = |(index, conversation): (usize, &Conversation)| {
        let encoded = catch_unwind(AssertUnwindSafe(|| encode(&conversation.text)));
        encoded.map_err(|_| Failed {
            index,
            reason: "Ebb has a fault here; please report it".to_owned(),
        })
    };
    let share = batch.len().div_ceil(threads.max(1)).max(1);
    std::thread::scope(|scope| {
        let mut started = Vec::new();
        for (number, part) in batch.chunks(share).enumerate() {
            let first = number * share;
            let work = move || -> Result<Vec<Encoded>, Failed> {
                (first..).zip(part).map(encode_one).collect()
            };
            let thread = std::thread::Builder::new().name("tokens".to_owned());
            let thread = thread.spawn_scoped(scope, work);
            started.push(thread.map_err(|error| Failed {
                index: first,
                reason: format!("no thread could be started: {error}"),
            })?);
        }
        let mut all = Vec::with_capacity(batch.len());
        for thread in started {
            all.extend(thread.join().expect("its panics are caught")?);
        }
        Ok(all)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_panic_names_the_conversation() {
        let batch: Vec<Conversation> = (0..7)
            .map(|row| Conversation {
                file: 0,
                row,
                text: row.to_string(),
            })
            .collect();
        let refused = |text: &str| Err(format!("{text} is refused"));
        for threads in [1, 2, 3, 9] {
            let all = encode_all(&refused, &batch, threads).expect("nothing panics");
            let reasons: Vec<_> = all.into_iter().map(|encoded| encoded.err()).collect();
            assert_eq!(reasons.len(), 7);
            assert_eq!(reasons[4].as_deref(), Some("4 is refused"), "{threads}");
            let failing = |text: &str| {
                assert_ne!(text, "5", "on purpose");
                refused(text)
            };
            let failed = encode_all(&failing, &batch, threads).err();
            assert_eq!(failed.map(|failed| failed.index), Some(5), "{threads}");
        }
        let failed = Failed {
            index: 5,
            reason: "Ebb failed on it".to_owned(),
        };
        let error = failed.error(&batch, |_| Path::new("chats.jsonl"));
        let error = error.to_string();
        assert!(error.contains("text 6 of chats.jsonl"), "{error}");
    }
}
