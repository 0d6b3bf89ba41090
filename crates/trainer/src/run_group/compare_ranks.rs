//! Before the first step, all ranks compare what they are about to train. The first difference is
//! named: the setting, sample or parameter, and its value at both ranks.

use super::RunGroup;
use crate::error::{Result, TrainError};
use distributed::GroupError;
use sha2::{Digest, Sha256};
use tape::Parameters;
use tape::inplace::to_f64;

/// Something that must be the same on all ranks: lines of text in an order.
pub(crate) struct Subject {
    /// What the lines are, in the singular: "setting".
    pub(crate) noun: &'static str,
    pub(crate) lines: Vec<String>,
}

impl Subject {
    fn hash(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for line in &self.lines {
            hash.update((line.len() as u64).to_le_bytes());
            hash.update(line);
        }
        hash.finalize().into()
    }
}

/// A checksum of all trained values.
///
/// # Errors
/// The device failed.
pub(crate) fn checksum(parameters: &Parameters) -> Result<u64> {
    let mut hash = Sha256::new();
    for parameter in parameters.iter() {
        for value in to_f64(&parameter.tensor)? {
            hash.update(value.to_le_bytes());
        }
    }
    let hash: [u8; 32] = hash.finalize().into();
    let (first, _) = hash.split_at(8);
    Ok(first
        .iter()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

/// Compares the subjects of all ranks by their hashes. Only if some differ, rank 0 sends its lines.
///
/// # Errors
/// A subject differs between rank 0 and another rank. All ranks get the same error.
pub(crate) fn agree(group: &RunGroup, subjects: &[Subject]) -> Result<()> {
    if group.is_alone() {
        return Ok(());
    }
    let mine: Vec<u8> = subjects.iter().flat_map(Subject::hash).collect();
    let all = group.gather(mine)?;
    for (index, subject) in subjects.iter().enumerate() {
        let hash = |of_rank: &Vec<u8>| {
            of_rank
                .get(32 * index..32 * (index + 1))
                .map(<[u8]>::to_vec)
        };
        let odd = (1..all.len()).find(|&rank| hash(&all[rank]) != hash(&all[0]));
        if let Some(odd) = odd {
            return Err(difference(group, subject, odd)?);
        }
    }
    Ok(())
}

/// The first line of `subject` that differs between rank 0 and the rank `odd`. All ranks call it.
fn difference(group: &RunGroup, subject: &Subject, odd: usize) -> Result<TrainError> {
    let of_rank_0 = if group.rank() == 0 {
        subject.lines.join("\n").into_bytes()
    } else {
        Vec::new()
    };
    let of_rank_0 = group.gather(of_rank_0)?.swap_remove(0);
    let text = String::from_utf8_lossy(&of_rank_0);
    let theirs: Vec<&str> = text.split('\n').collect();
    let count = theirs.len().max(subject.lines.len());
    let line = |lines: &[&str], index: usize| lines.get(index).map_or("missing", |l| *l).to_owned();
    let mine: Vec<&str> = subject.lines.iter().map(String::as_str).collect();
    let first = (0..count).find(|&index| theirs.get(index) != mine.get(index));
    let found = first.map_or_else(String::new, |index| {
        format!(
            "`{}` at {}, but `{}` at {}",
            line(&theirs, index),
            group.member(0),
            line(&mine, index),
            group.member(odd)
        )
    });
    let found = group.gather(found.into_bytes())?.swap_remove(odd);
    let found = String::from_utf8_lossy(&found);
    Ok(GroupError::Disagreement(format!(
        "the first {} that differs is {found}",
        subject.noun
    ))
    .into())
}
