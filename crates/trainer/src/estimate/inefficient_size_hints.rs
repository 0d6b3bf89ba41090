//! Notes on sizes that cost more than expected: heads whose width is not a multiple of a vector,
//! and micro-batches just above a size class of the allocator.

use super::MemoryEstimate;
use pressure::Allocator;
use runlog::format_bytes;

/// Values per vector register, at least. Rows of other lengths leave lanes idle.
const LANES: usize = 8;
/// A size class is mentioned if the next one raises the footprint by this factor.
const NOTABLE_FACTOR: f64 = 1.1;

/// Width and heads of a transformer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionSize {
    /// Channels of a token, over all heads.
    pub width: usize,
    /// Number of attention heads.
    pub heads: usize,
}

impl MemoryEstimate {
    /// Notes on the sizes of a suggested micro-batch, without a full stop. Empty if no other size
    /// is better.
    pub fn size_notes(
        &self,
        checkpointed: u32,
        micro_batch: u32,
        effective_batch: u32,
    ) -> Vec<String> {
        let heads = self.attention.and_then(head_note);
        let size_class = size_class_note(self, checkpointed, micro_batch, effective_batch);
        heads.into_iter().chain(size_class).collect()
    }
}

/// A note if the heads do not divide the width, or not into whole vectors.
fn head_note(AttentionSize { width, heads }: AttentionSize) -> Option<String> {
    if heads == 0 || !width.is_multiple_of(heads) {
        return Some(format!(
            "the width {width} is not divisible by the number of heads, {heads}; choose a width that is a multiple of {heads}"
        ));
    }
    let head_width = width / heads;
    (!head_width.is_multiple_of(LANES)).then(|| {
        format!(
            "Attention heads of width {head_width} leave a part of each {LANES}-value vector unused; rounding the width up to a multiple of {LANES} takes no more time"
        )
    })
}

/// A note for an allocator that rounds up to powers of two: the largest size in the same class, and
/// what one sample more costs.
fn size_class_note(
    estimate: &MemoryEstimate,
    checkpointed: u32,
    micro_batch: u32,
    effective_batch: u32,
) -> Option<String> {
    if estimate.target.allocator != Allocator::PowerOfTwo {
        return None;
    }
    let peak = |samples: u32| estimate.peak_bytes(checkpointed, samples, effective_batch);
    let here = peak(micro_batch)?;
    let mut edge = micro_batch;
    while edge < effective_batch && (peak(edge + 1)? as f64) < NOTABLE_FACTOR * here as f64 {
        edge += 1;
    }
    if edge == effective_batch {
        return None;
    }
    Some(format!(
        "Metal rounds buffers up to powers of two, so a micro-batch of up to {edge} samples needs about {}, but a micro-batch of {} samples needs {}",
        format_bytes(here),
        edge + 1,
        format_bytes(peak(edge + 1)?)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use models::VitShape;

    #[test]
    fn heads_that_cost_time_are_explained_and_others_are_not() {
        let check = |width, heads, words: &[&str]| {
            let note = head_note(AttentionSize { width, heads }).unwrap_or_default();
            assert!(
                words.iter().all(|word| note.contains(word)) && note.is_empty() == words.is_empty(),
                "{note}"
            );
        };
        check(384, 6, &[]);
        check(192, 3, &[]);
        check(
            128,
            5,
            &["the width 128 is not divisible by the number of heads, 5"],
        );
        check(120, 10, &["width 12", "multiple of 8"]);
    }

    #[test]
    fn the_small_vision_transformer_is_aligned() {
        let VitShape { width, heads, .. } = VitShape::micro(64);
        assert_eq!(head_note(AttentionSize { width, heads }), None);
    }
}
