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
            "what would help: --checkpoint-blocks all frees 0.4 GB; a smaller --image-size or --tokens frees 0.3 GB; \
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

#[test]
fn what_changes_the_result_is_offered_in_order_whether_or_not_it_is_enough() {
    let offers = |stuck: &Stuck| -> Vec<(Rung, u64)> {
        let all = offered(stuck).into_iter();
        all.map(|(recovery, freed)| (recovery.rung, freed))
            .collect()
    };
    let hopeless = Stuck {
        missing_bytes: u64::MAX,
        ..STUCK
    };
    let all = [
        (Rung::LowerResolution, 550),
        (Rung::HalvePrecision, 500),
        (Rung::ShrinkOptimizerState, 592),
        (Rung::ShrinkEffectiveBatch, 0),
        (Rung::FreezeBlocks, 900),
    ];
    assert_eq!(offers(&hopeless), all);
    let taken = Stuck {
        moments_bytes: 0,
        element_bytes: 2,
        ..STUCK
    };
    let left = [
        Rung::LowerResolution,
        Rung::ShrinkEffectiveBatch,
        Rung::FreezeBlocks,
    ];
    let rungs: Vec<_> = offers(&taken).into_iter().map(|(rung, _)| rung).collect();
    assert_eq!(rungs, left);
}

#[test]
fn the_first_help_is_the_first_setting_that_would_do() {
    assert_eq!(
        first_help(&STUCK).as_deref(),
        Some("a smaller --micro-batch, or auto frees 0 MB")
    );
    let one = Stuck {
        micro_batch: 1,
        missing_bytes: 560,
        ..STUCK
    };
    let help = first_help(&one).expect("checkpointing frees 650");
    assert!(help.starts_with("--checkpoint-blocks all"), "{help}");
}
