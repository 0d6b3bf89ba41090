//! Decisions as sentences: the action, then its reason with numbers. Everything that shows a
//! decision uses these sentences.

use crate::decision::{Action, Change, Decision, Moments, Prefetch};

/// The sentence of a decision: "Micro-batch reduced from 16 to 8: another app took 6.1 GB in 20 s".
/// `previous` is the micro-batch before.
pub fn describe_decision(previous: u32, decision: &Decision) -> String {
    let (size, reason) = (decision.micro_batch, &decision.reason);
    match (decision.change, decision.action) {
        (Change::Pause, _) | (Change::Hold, Action::Pause) => format!("Paused: {reason}"),
        (Change::Suspend, _) | (Change::Hold, Action::Suspend) => format!("Suspended: {reason}"),
        (Change::Start, _) => format!("Starting with a micro-batch of {size}: {reason}"),
        (Change::Hold, Action::Run) => format!("Holding at a micro-batch of {size}: {reason}"),
        (Change::Shrink | Change::Grow, _) => {
            let resized = describe_resize(decision.change, previous, size);
            format!("{resized}: {reason}")
        }
        (Change::Cancel, _) => {
            format!(
                "Cancelled one micro-batch; retrying with a micro-batch of {size} (nothing was lost): {reason}"
            )
        }
        (Change::Continue, _) => format!("Continuing with a micro-batch of {size}: {reason}"),
        (Change::Prefetch, _) => match decision.prefetch {
            Prefetch::Short => format!("Decoding fewer samples in advance: {reason}"),
            Prefetch::Long => format!("Decoding more samples in advance again: {reason}"),
        },
        (Change::CheckpointMore | Change::CheckpointLess, _) => {
            format!("{}: {reason}", describe_checkpointing(decision))
        }
        (Change::Moments, _) => match decision.moments {
            Moments::Mapped => format!("Moving the optimizer's moments to a file: {reason}"),
            Moments::Resident => {
                format!("Moving the optimizer's moments back to memory: {reason}")
            }
        },
        (Change::Stop, _) | (Change::Hold, Action::Stop) => format!("Stopping: {reason}"),
    }
}

/// The sentence of a decision during an evaluation. Its micro-batches are not those of training.
/// `previous` is the micro-batch of training.
pub fn describe_evaluation_decision(previous: u32, decision: &Decision) -> String {
    let (size, reason) = (decision.micro_batch, &decision.reason);
    match (decision.change, decision.action) {
        (Change::Continue, _) => {
            format!("Continuing the evaluation with a micro-batch of {size}: {reason}")
        }
        (Change::Cancel, _) => format!(
            "Cancelled one micro-batch of the evaluation; retrying with a micro-batch of {size} (nothing was lost): {reason}"
        ),
        (Change::Start | Change::Shrink | Change::Grow | Change::Hold, Action::Run) => {
            format!("Evaluating with a micro-batch of {size}: {reason}")
        }
        _ => describe_decision(previous, decision),
    }
}

/// A new size of the micro-batch: "Micro-batch reduced from 16 to 8". `change` is `Shrink` or
/// `Grow`.
pub fn describe_resize(change: Change, from: u32, to: u32) -> String {
    let done = match change {
        Change::Shrink => "reduced",
        _ => "increased",
    };
    format!("Micro-batch {done} from {from} to {to}")
}

fn describe_checkpointing(decision: &Decision) -> String {
    match decision.checkpoint_blocks {
        0 => "Keeping all activations in memory again".to_owned(),
        1 => "Recomputing the activations of 1 block to save memory".to_owned(),
        blocks => format!("Recomputing the activations of {blocks} blocks to save memory"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // tidy: table
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
            (
                Change::Start,
                Action::Run,
                "Starting with a micro-batch of 8: because",
            ),
            (
                Change::Hold,
                Action::Run,
                "Holding at a micro-batch of 8: because",
            ),
            (
                Change::Shrink,
                Action::Run,
                "Micro-batch reduced from 16 to 8: because",
            ),
            (
                Change::Grow,
                Action::Run,
                "Micro-batch increased from 16 to 8: because",
            ),
            (
                Change::Cancel,
                Action::Run,
                "Cancelled one micro-batch; retrying with a micro-batch of 8 (nothing was lost): because",
            ),
            (
                Change::Continue,
                Action::Run,
                "Continuing with a micro-batch of 8: because",
            ),
            (
                Change::Prefetch,
                Action::Run,
                "Decoding more samples in advance again: because",
            ),
            (
                Change::CheckpointLess,
                Action::Run,
                "Keeping all activations in memory again: because",
            ),
            (
                Change::Moments,
                Action::Run,
                "Moving the optimizer's moments back to memory: because",
            ),
            (Change::Stop, Action::Stop, "Stopping: because"),
            (Change::Pause, Action::Pause, "Paused: because"),
            (Change::Hold, Action::Pause, "Paused: because"),
            (Change::Suspend, Action::Suspend, "Suspended: because"),
            (Change::Hold, Action::Suspend, "Suspended: because"),
        ] {
            let sentence = describe_decision(16, &decision(change, action, 8));
            assert_eq!(sentence, expected);
        }
    }
}
