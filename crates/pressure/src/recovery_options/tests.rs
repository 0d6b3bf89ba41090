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
    lighter_tuning: LighterTuning {
        adapters_bytes: 0,
        eight_bits_bytes: 0,
        nf4_bytes: 0,
        trains_all: false,
    },
    reads_texts: false,
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
            "one of these settings is enough: --checkpoint-blocks all frees 390 MB; a smaller --image-size frees 330 MB; \
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
        can_freeze: true,
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

const GB: u64 = 1 << 30;

/// A language model whose weights all train in f32, and lack memory.
const FINE_TUNING: Shortage = Shortage {
    missing_bytes: 9 * GB,
    activations_bytes: 3 * GB,
    moments_bytes: 8 * GB,
    own_bytes: 20 * GB,
    can_freeze: true,
    lighter_tuning: LighterTuning {
        adapters_bytes: 12 * GB,
        eight_bits_bytes: 14 * GB,
        nf4_bytes: 15 * GB,
        trains_all: true,
    },
    reads_texts: true,
    micro_batch: 1,
    checkpointed_blocks: 4,
    element_bytes: 4,
    ..SHORTAGE
};

#[test]
fn lighter_fine_tuning_is_suggested_in_order_of_price() {
    let offers = options_needing_consent(&FINE_TUNING).into_iter();
    let offers: Vec<_> = offers
        .map(|(option, freed)| (option.step, freed / GB))
        .collect();
    let expected = [
        (RecoveryStep::LowerResolution, 0),
        (RecoveryStep::HalvePrecision, 1),
        (RecoveryStep::ShrinkOptimizerState, 5),
        (RecoveryStep::TrainAdapters, 12),
        (RecoveryStep::QuantizeTo8Bits, 14),
        (RecoveryStep::QuantizeToNf4, 15),
        (RecoveryStep::ShrinkEffectiveBatch, 0),
        (RecoveryStep::FreezeBlocks, 5),
    ];
    assert_eq!(offers, expected);
}

#[test]
fn the_cheapest_fine_tuning_that_fits_names_all_its_settings() {
    let cheapest = |missing_bytes: u64, trains_all: bool| {
        cheapest_setting(&Shortage {
            missing_bytes,
            lighter_tuning: LighterTuning {
                trains_all,
                ..FINE_TUNING.lighter_tuning
            },
            ..FINE_TUNING
        })
    };
    for (missing_gb, expected) in [
        (5, "--optimizer adamw8bit frees 5.9 GB"),
        (9, "--adapter 8 frees 12.0 GB"),
        (13, "--adapter 8 --quantize 8 frees 14.0 GB"),
        (15, "--adapter 8 --quantize nf4 frees 15.0 GB"),
    ] {
        let help = cheapest(missing_gb * GB, true);
        assert_eq!(help.as_deref(), Some(expected), "{missing_gb} GB");
    }
    // With frozen weights, adapters are nothing new.
    let help = cheapest(13 * GB, false);
    assert_eq!(help.as_deref(), Some("--quantize 8 frees 14.0 GB"));
    assert_eq!(cheapest(16 * GB, true), None);
}

#[test]
fn a_text_is_shortened_and_not_made_smaller() {
    let texts = Shortage {
        missing_bytes: 300,
        moments_bytes: 0,
        checkpointed_blocks: 4,
        micro_batch: 1,
        reads_texts: true,
        ..SHORTAGE
    };
    assert_eq!(
        cheapest_setting(&texts).as_deref(),
        Some("fewer --tokens frees 330 bytes")
    );
    let (option, _) = &options_needing_consent(&texts)[0];
    assert_eq!(option.description, "Shorten the sequences by a third");
}

#[test]
fn quantized_weights_with_adapters_cost_less_time_than_without() {
    let time = |trains_all| {
        let tuning = LighterTuning {
            trains_all,
            ..FINE_TUNING.lighter_tuning
        };
        let options = options_needing_consent(&Shortage {
            lighter_tuning: tuning,
            ..FINE_TUNING
        });
        let nf4 = options
            .iter()
            .find(|(option, _)| option.step == RecoveryStep::QuantizeToNf4);
        nf4.expect("it is listed").0.extra_time_fraction
    };
    assert!((0.1..0.2).contains(&time(true)), "{}", time(true));
    assert_eq!(time(false), QUANTIZED_TIME_FRACTION);
}
