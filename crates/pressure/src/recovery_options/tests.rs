//! Which steps are suggested, in which order, and how they are described.

use super::*;

fn steps(shortage: Shortage) -> Vec<RecoveryStep> {
    suggest_recovery(&shortage)
        .into_iter()
        .map(|(option, _)| option.step)
        .collect()
}

const SHORTAGE: Shortage = Shortage {
    missing_bytes: 400,
    cached_bytes: 100,
    prefetched_bytes: 10,
    can_freeze: false,
    activations_bytes: 1_000,
    moments_bytes: 800,
    own_bytes: 3_000,
    micro_batch: 8,
    checkpointed_blocks: 0,
    element_bytes: 4,
};

#[test]
fn steps_that_change_the_result_come_last() {
    let first = RECOVERY_STEPS
        .iter()
        .position(|option| !option.keeps_result)
        .expect("some do");
    assert!(
        RECOVERY_STEPS[first..]
            .iter()
            .all(|option| !option.keeps_result)
    );
}

#[test]
fn the_cheapest_step_that_frees_enough_comes_first() {
    assert_eq!(steps(SHORTAGE)[0], RecoveryStep::ShrinkMicroBatch);
    assert_eq!(
        steps(Shortage {
            missing_bytes: 50,
            ..SHORTAGE
        })[0],
        RecoveryStep::ReleaseCaches
    );
    assert_eq!(
        steps(Shortage {
            missing_bytes: 600,
            micro_batch: 1,
            ..SHORTAGE
        })[0],
        RecoveryStep::Pause
    );
}

#[test]
fn steps_that_were_taken_are_not_suggested_again() {
    let used = steps(Shortage {
        micro_batch: 1,
        checkpointed_blocks: 6,
        ..SHORTAGE
    });
    for step in [
        RecoveryStep::ShrinkMicroBatch,
        RecoveryStep::CancelMicroBatch,
        RecoveryStep::CheckpointBlocks,
    ] {
        assert!(!used.contains(&step), "{used:?}");
    }
}

#[test]
fn eight_bit_moments_are_suggested_if_that_frees_enough() {
    assert!(steps(SHORTAGE).contains(&RecoveryStep::ShrinkOptimizerState));
    let small = Shortage {
        moments_bytes: 400,
        ..SHORTAGE
    };
    assert!(!steps(small).contains(&RecoveryStep::ShrinkOptimizerState));
}

#[test]
fn settings_that_help_name_the_memory_they_free() {
    const MB: u64 = 1 << 20;
    let shortage = Shortage {
        missing_bytes: 300 * MB,
        activations_bytes: 600 * MB,
        moments_bytes: 500 * MB,
        own_bytes: 2_000 * MB,
        micro_batch: 1,
        ..Shortage::default()
    };
    assert_eq!(
        settings_that_help(&shortage).as_deref(),
        Some(
            "one of these settings is enough: --checkpoint-blocks all frees 390 MB; a smaller --image-size or --tokens frees 330 MB; \
             --precision bf16 on a GPU frees 300 MB; --optimizer adamw8bit frees 370 MB"
        )
    );
    let pretrained = Shortage {
        can_freeze: true,
        ..shortage
    };
    let help = settings_that_help(&pretrained).expect("settings help");
    assert!(
        help.ends_with("; --train-only last:N frees 550 MB"),
        "{help}"
    );
    let hopeless = Shortage {
        missing_bytes: u64::MAX,
        ..shortage
    };
    assert_eq!(settings_that_help(&hopeless), None);
}

#[test]
fn every_step_that_only_the_user_may_choose_names_its_setting() {
    for option in RECOVERY_STEPS {
        let step = option.step;
        assert!(option.keeps_result || step.setting().is_some(), "{step:?}");
    }
}

#[test]
fn there_is_always_a_next_step() {
    assert_eq!(
        steps(Shortage {
            missing_bytes: u64::MAX,
            ..SHORTAGE
        }),
        [RecoveryStep::Stop]
    );
}

#[test]
fn options_needing_consent_are_listed_even_if_not_enough() {
    let offers = |shortage: &Shortage| -> Vec<(RecoveryStep, u64)> {
        let all = options_needing_consent(shortage).into_iter();
        all.map(|(option, freed)| (option.step, freed)).collect()
    };
    let hopeless = Shortage {
        missing_bytes: u64::MAX,
        ..SHORTAGE
    };
    let all = [
        (RecoveryStep::LowerResolution, 550),
        (RecoveryStep::HalvePrecision, 500),
        (RecoveryStep::ShrinkOptimizerState, 592),
        (RecoveryStep::ShrinkEffectiveBatch, 0),
        (RecoveryStep::FreezeBlocks, 900),
    ];
    assert_eq!(offers(&hopeless), all);
    let taken = Shortage {
        moments_bytes: 0,
        element_bytes: 2,
        ..SHORTAGE
    };
    let left = [
        RecoveryStep::LowerResolution,
        RecoveryStep::ShrinkEffectiveBatch,
        RecoveryStep::FreezeBlocks,
    ];
    let steps: Vec<_> = offers(&taken).into_iter().map(|(step, _)| step).collect();
    assert_eq!(steps, left);
}

#[test]
fn the_cheapest_setting_is_the_first_that_frees_enough() {
    assert_eq!(
        cheapest_setting(&SHORTAGE).as_deref(),
        Some("a smaller --micro-batch, or auto frees 500 bytes")
    );
    let one = Shortage {
        micro_batch: 1,
        missing_bytes: 560,
        ..SHORTAGE
    };
    let help = cheapest_setting(&one).expect("checkpointing frees 650");
    assert!(help.starts_with("--checkpoint-blocks all"), "{help}");
}
