//! What is offered, in which order, and in which words.

use super::*;

fn rungs(stuck: Stuck) -> Vec<Rung> {
    suggest_recovery(&stuck)
        .into_iter()
        .map(|(recovery, _)| recovery.rung)
        .collect()
}

const STUCK: Stuck = Stuck {
    missing_bytes: 400,
    cached_bytes: 100,
    prefetched_bytes: 10,
    activations_bytes: 1_000,
    moments_bytes: 800,
    loss_scores_bytes: 0,
    own_bytes: 3_000,
    micro_batch: 8,
    checkpointed_blocks: 0,
    element_bytes: 4,
};

#[test]
fn what_changes_the_result_stands_last() {
    let first = LADDER
        .iter()
        .position(|recovery| !recovery.keeps_mathematics)
        .expect("some do");
    assert!(
        LADDER[first..]
            .iter()
            .all(|recovery| !recovery.keeps_mathematics)
    );
}

#[test]
fn the_cheapest_rung_that_frees_enough_comes_first() {
    assert_eq!(rungs(STUCK)[0], Rung::ShrinkMicroBatch);
    assert_eq!(
        rungs(Stuck {
            missing_bytes: 50,
            ..STUCK
        })[0],
        Rung::ReleaseCaches
    );
    assert_eq!(
        rungs(Stuck {
            missing_bytes: 600,
            micro_batch: 1,
            ..STUCK
        })[0],
        Rung::Pause
    );
}

#[test]
fn used_up_rungs_are_not_offered_again() {
    let used = rungs(Stuck {
        micro_batch: 1,
        checkpointed_blocks: 6,
        ..STUCK
    });
    for rung in [
        Rung::ShrinkMicroBatch,
        Rung::CancelPiece,
        Rung::CheckpointBlocks,
    ] {
        assert!(!used.contains(&rung), "{used:?}");
    }
}

#[test]
fn small_moments_are_offered_where_they_would_do() {
    assert!(rungs(STUCK).contains(&Rung::ShrinkOptimizerState));
    let small = Stuck {
        moments_bytes: 400,
        ..STUCK
    };
    assert!(!rungs(small).contains(&Rung::ShrinkOptimizerState));
}

#[test]
fn a_loss_in_chunks_is_no_rung_and_scores_that_exist_whole_are() {
    assert!(!rungs(STUCK).contains(&Rung::ChunkLoss));
    let whole = Stuck {
        loss_scores_bytes: 500,
        ..STUCK
    };
    assert!(rungs(whole).contains(&Rung::ChunkLoss));
}

#[test]
fn what_would_help_names_settings_with_what_each_frees() {
    const MB: u64 = 1 << 20;
    let stuck = Stuck {
        missing_bytes: 300 * MB,
        activations_bytes: 600 * MB,
        moments_bytes: 500 * MB,
        own_bytes: 2_000 * MB,
        micro_batch: 1,
        ..Stuck::default()
    };
    assert_eq!(
        what_would_help(&stuck).as_deref(),
        Some(
            "what would help: --checkpoint-blocks all frees 0.4 GB; a smaller --image-size frees 0.3 GB; \
             --precision bf16 on a GPU frees 0.3 GB; --optimizer adamw8bit frees 0.4 GB"
        )
    );
    let hopeless = Stuck {
        missing_bytes: u64::MAX,
        ..stuck
    };
    assert_eq!(what_would_help(&hopeless), None);
}

#[test]
fn there_is_always_a_next_move() {
    assert_eq!(
        rungs(Stuck {
            missing_bytes: u64::MAX,
            ..STUCK
        }),
        [Rung::Stop]
    );
}
