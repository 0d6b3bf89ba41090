//! Which micro-batches make sense, and the largest that fits. A batch of B samples in n pieces needs m = ceil(B / n): sizes
//! between those save no piece and cost memory. Knows no time.

use crate::decision::PieceKind;
use crate::memory_model::MemoryModel;
use crate::policy::Policy;
use crate::state::Track;

/// A size must have been tried this often before its speed counts.
pub(crate) const TRIES: u32 = 3;
/// Sizes that must have been tried before there is a knee.
const KNEE_SIZES: usize = 3;
/// The two sizes that are measured before anything is predicted.
pub(crate) const PROBE: u32 = 2;

/// Sizes of a batch, largest first: ceil(batch / n) for n = 1, 2, …
pub(crate) fn sizes(batch: u32) -> impl Iterator<Item = u32> {
    let below = move |m: &u32| (*m > 1).then(|| batch.div_ceil(batch.div_ceil(m - 1)));
    std::iter::successors(Some(batch.max(1)), below)
}

/// The largest of those sizes that is not above `most`; at least 1.
pub(crate) fn at_most(batch: u32, most: u32) -> u32 {
    sizes(batch).find(|&m| m <= most).unwrap_or(1)
}

/// The largest size whose predicted peak is within `limit_bytes`; 0 when not even one sample is. Sizes that nothing is known
/// about are taken up to the probes only.
pub(crate) fn largest_within(
    model: &MemoryModel,
    kind: PieceKind,
    track: &Track,
    limit_bytes: u64,
) -> u32 {
    let probe = if track.pieces == 0 { 1 } else { PROBE };
    let fits = |m: &u32| match model.upper_bytes(kind, cost(track, *m)) {
        Some(upper) => upper <= limit_bytes,
        None => *m <= probe,
    };
    sizes(track.batch).find(fits).unwrap_or(0)
}

/// Cost of `micro_batch` ordinary samples.
pub(crate) fn cost(track: &Track, micro_batch: u32) -> u64 {
    (f64::from(micro_batch) * track.sample_cost).round() as u64
}

/// How far growth may go beyond what memory allows: the model's reach, refused sizes, the knee. Says which one speaks.
pub(crate) fn ceiling(
    policy: &Policy,
    model: &MemoryModel,
    kind: PieceKind,
    track: &Track,
    at_ms: u64,
) -> (u32, Ceiling) {
    let reach = match model.largest(kind) {
        0 => PROBE,
        largest => largest.saturating_mul(policy.grow_factor),
    };
    let refused = track
        .refused
        .filter(|(_, when)| at_ms < when + policy.refused_ms);
    let refused = refused.map_or(u32::MAX, |(size, _)| size.saturating_sub(1).max(1));
    let knee = knee(track, policy.knee_fraction).unwrap_or(u32::MAX);
    [
        (reach, Ceiling::Reach),
        (refused, Ceiling::Refused),
        (knee, Ceiling::Knee),
    ]
    .into_iter()
    .min_by_key(|(size, _)| *size)
    .map_or((1, Ceiling::Reach), |(size, why)| {
        (at_most(track.batch, size), why)
    })
}

/// What keeps a micro-batch from growing although memory would allow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ceiling {
    /// The model has not seen enough yet.
    Reach,
    /// A larger size was refused lately.
    Refused,
    /// Larger is no faster here.
    Knee,
}

/// The smallest size within `tolerance` of the best speed, once sizes at least twice as large were tried; larger ones cost
/// memory for nothing.
pub(crate) fn knee(track: &Track, tolerance: f64) -> Option<u32> {
    let tried: Vec<_> = track
        .speeds
        .iter()
        .filter(|speed| speed.pieces >= TRIES)
        .collect();
    let best = tried
        .iter()
        .map(|speed| speed.ms_per_cost)
        .reduce(f64::min)?;
    let largest = tried.iter().map(|speed| speed.size).max()?;
    let good = tried
        .iter()
        .filter(|speed| speed.ms_per_cost * (1.0 - tolerance) <= best);
    let knee = good.map(|speed| speed.size).min()?;
    (tried.len() >= KNEE_SIZES && largest >= 2 * knee).then_some(knee)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Speed;

    #[test]
    fn sizes_are_the_splits_that_save_a_piece() {
        let of = |batch| sizes(batch).collect::<Vec<_>>();
        assert_eq!(of(64), [64, 32, 22, 16, 13, 11, 10, 8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(of(7), [7, 4, 3, 2, 1]);
        assert_eq!(of(1), [1]);
        assert_eq!(of(0), [1]);
        for batch in 1u32..300 {
            let mut slow: Vec<u32> = (1..=batch).map(|n| batch.div_ceil(n)).collect();
            slow.dedup();
            assert_eq!(of(batch), slow, "{batch}");
        }
    }

    #[test]
    fn the_knee_needs_something_larger_to_have_been_tried() {
        let track = |speeds: &[(u32, f64, u32)]| Track {
            batch: 64,
            speeds: speeds
                .iter()
                .map(|&(size, ms_per_cost, pieces)| Speed {
                    size,
                    ms_per_cost,
                    pieces,
                })
                .collect(),
            ..Track::default()
        };
        let knee = |speeds: &[_]| super::knee(&track(speeds), 0.03);
        assert_eq!(knee(&[(2, 3.0, 3), (8, 1.0, 3), (32, 0.99, 3)]), Some(8));
        assert_eq!(
            knee(&[(2, 3.0, 3), (8, 1.0, 3), (32, 0.9, 3)]),
            None,
            "the largest is the best"
        );
        assert_eq!(
            knee(&[(2, 3.0, 3), (8, 1.0, 3), (11, 1.0, 3)]),
            None,
            "11 is not twice 8"
        );
        assert_eq!(
            knee(&[(2, 3.0, 3), (8, 1.0, 3), (32, 1.0, 2)]),
            None,
            "32 was tried too seldom"
        );
        assert_eq!(
            knee(&[(8, 1.0, 3), (32, 1.5, 3)]),
            None,
            "two sizes say nothing"
        );
    }
}
