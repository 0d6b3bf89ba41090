//! Decisions in words: what was done, then why, with numbers. Everybody who shows a decision uses these sentences.
//! Knows no rule.

use crate::budget::Budget;
use crate::decision::{Action, Change, Decision, Moments, Prefetch};
use crate::policy::{GB, Policy};
use crate::sample::{Component, MemorySample};
use crate::state::State;

/// Less than this is called no growth of others, bytes.
const STORY_LEAST_BYTES: u64 = 64 << 20;

/// The whole sentence of a decision: "Shrunk 16 to 8: another app took 6.1 GB in 20 s". `previous` is the micro-batch before.
pub fn sentence(previous: u32, decision: &Decision) -> String {
    let (size, reason) = (decision.micro_batch, &decision.reason);
    match (decision.change, decision.action) {
        (Change::Pause, _) | (Change::Hold, Action::Pause) => format!("Paused: {reason}"),
        (Change::Park, _) | (Change::Hold, Action::Park) => format!("Parked: {reason}"),
        (Change::Start, _) => format!("Starting with {size}: {reason}"),
        (Change::Hold, Action::Run) => format!("Holding at {size}: {reason}"),
        (Change::Shrink, _) => format!("Shrunk {previous} to {size}: {reason}"),
        (Change::Grow, _) => format!("Grew {previous} to {size}: {reason}"),
        (Change::Cancel, _) => {
            format!("Cancelled one piece and trying {size}, nothing was lost: {reason}")
        }
        (Change::Continue, _) => format!("Continuing with {size}: {reason}"),
        (Change::Prefetch, _) => match decision.prefetch {
            Prefetch::Short => format!("Decoding fewer samples ahead: {reason}"),
            Prefetch::Long => format!("Decoding further ahead again: {reason}"),
        },
        (Change::CheckpointMore | Change::CheckpointLess, _) => {
            format!("{}: {reason}", computed_twice(decision.checkpoint_blocks))
        }
        (Change::Moments, _) => match decision.moments {
            Moments::Mapped => format!("Keeping the optimizer's moments in a file: {reason}"),
            Moments::Resident => {
                format!("Keeping the optimizer's moments in memory again: {reason}")
            }
        },
        (Change::Stop, _) | (Change::Hold, Action::Stop) => format!("Stopping: {reason}"),
    }
}

/// "Computing 2 blocks twice instead of keeping their activations".
fn computed_twice(blocks: u32) -> String {
    match blocks {
        0 => "Keeping all activations again".to_owned(),
        1 => "Computing 1 block twice instead of keeping its activations".to_owned(),
        blocks => format!("Computing {blocks} blocks twice instead of keeping their activations"),
    }
}

/// "6.1 GB", in GB of 2^30 bytes; small amounts in MB.
pub(crate) fn gb(bytes: u64) -> String {
    if bytes < GB / 10 {
        format!("{} MB", bytes >> 20)
    } else {
        format!("{:.1} GB", bytes as f64 / GB as f64)
    }
}

/// Why there is less than before: who speaks, and what there is to say.
pub(crate) fn why_less(
    policy: &Policy,
    state: &State,
    sample: &MemorySample,
    budget: &Budget,
) -> (Component, String) {
    let reading = state.memory_reading;
    match (reading.cause, budget.cause) {
        (Component::System, _) => (
            Component::System,
            "the system reports memory pressure".into(),
        ),
        (Component::Kernel, _) if reading.value >= 0.5 => match sample.stall_fraction {
            Some(stall) if stall > 0.0 => (
                Component::Kernel,
                format!(
                    "apps waited for memory {:.0} % of the last second",
                    100.0 * stall
                ),
            ),
            _ => (
                Component::Kernel,
                "the system is compressing other apps' memory".into(),
            ),
        },
        (_, Some(Component::Device)) => (
            Component::Device,
            format!(
                "the GPU works well up to {}",
                gb((policy.device_fraction * sample.device_limit_bytes as f64) as u64)
            ),
        ),
        (_, None) => (
            Component::Headroom,
            format!(
                "the memory cap is {}",
                gb(policy.cap_bytes(sample.total_bytes).unwrap_or(budget.bytes))
            ),
        ),
        _ => (
            Component::Headroom,
            others_story(state)
                .unwrap_or_else(|| format!("{} are free", gb(sample.available_bytes))),
        ),
    }
}

/// "another app took 6.1 GB in 20 s": from the last low of the history to now.
fn others_story(state: &State) -> Option<String> {
    let (now_ms, now) = *state.others.back()?;
    let low = state.others.iter().map(|(_, bytes)| *bytes).min()?;
    let taken = now.saturating_sub(low);
    if taken < STORY_LEAST_BYTES {
        return None;
    }
    let (since_ms, _) = *state
        .others
        .iter()
        .rev()
        .find(|(_, bytes)| *bytes <= low + taken / 10)?;
    let seconds = (now_ms - since_ms).div_ceil(1_000).max(1);
    Some(format!("another app took {} in {seconds} s", gb(taken)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_as_activity_monitor_counts_them() {
        for (bytes, shown) in [
            (0, "0 MB"),
            (50 << 20, "50 MB"),
            (GB / 2, "0.5 GB"),
            (6 * GB + GB / 10, "6.1 GB"),
        ] {
            assert_eq!(gb(bytes), shown);
        }
    }

    #[test]
    fn growth_of_others_is_told_from_its_last_low() {
        let mut state = State::default();
        assert_eq!(others_story(&state), None);
        for second in 0..=40u64 {
            let taken = u64::from(second > 20) * (second.saturating_sub(20)) * GB * 3 / 10;
            state.others.push_back((second * 1_000, 7 * GB + taken));
        }
        assert_eq!(
            others_story(&state).as_deref(),
            Some("another app took 6.0 GB in 18 s")
        );
    }

    #[test]
    fn every_change_has_its_sentence() {
        let decision = |change, action, micro_batch| Decision {
            change,
            action,
            micro_batch,
            reason: "because".into(),
            ..Decision::default()
        };
        for (change, action, expected) in [
            (Change::Start, Action::Run, "Starting with 8: because"),
            (Change::Hold, Action::Run, "Holding at 8: because"),
            (Change::Shrink, Action::Run, "Shrunk 16 to 8: because"),
            (Change::Grow, Action::Run, "Grew 16 to 8: because"),
            (
                Change::Cancel,
                Action::Run,
                "Cancelled one piece and trying 8, nothing was lost: because",
            ),
            (Change::Continue, Action::Run, "Continuing with 8: because"),
            (
                Change::Prefetch,
                Action::Run,
                "Decoding further ahead again: because",
            ),
            (
                Change::CheckpointLess,
                Action::Run,
                "Keeping all activations again: because",
            ),
            (
                Change::Moments,
                Action::Run,
                "Keeping the optimizer's moments in memory again: because",
            ),
            (Change::Stop, Action::Stop, "Stopping: because"),
            (Change::Pause, Action::Pause, "Paused: because"),
            (Change::Hold, Action::Pause, "Paused: because"),
            (Change::Park, Action::Park, "Parked: because"),
            (Change::Hold, Action::Park, "Parked: because"),
        ] {
            assert_eq!(sentence(16, &decision(change, action, 8)), expected);
        }
    }
}
