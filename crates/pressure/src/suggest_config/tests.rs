//! A hypothetical model on hypothetical machines: 1 GB of state, 100 MB per sample, 40 MB with
//! every block checkpointed.

use super::*;
use crate::policy::GB;

const MB: u64 = 1 << 20;

fn variant(checkpoint_blocks: u32, sample_bytes: u64, batch: u32) -> ModelVariant {
    let peak = |micro_batch| Peak {
        micro_batch,
        peak_bytes: GB + u64::from(micro_batch) * sample_bytes,
    };
    ModelVariant {
        checkpoint_blocks,
        extra_time_fraction: if checkpoint_blocks > 0 { 0.33 } else { 0.0 },
        peaks: sensible_sizes(batch).into_iter().map(peak).collect(),
    }
}

fn model(batch: u32) -> ModelNeed {
    ModelNeed {
        state_bytes: GB,
        precision: "f32".to_owned(),
        variants: vec![variant(0, 100 * MB, batch), variant(12, 40 * MB, batch)],
    }
}

fn data(effective_batch: u32) -> BatchConfig {
    BatchConfig {
        effective_batch,
        fixed_micro_batch: None,
    }
}

/// A machine with a cap, which is then the budget.
fn capped(bytes: u64) -> DeviceLimits {
    DeviceLimits {
        total_bytes: 64 * GB,
        limit_bytes: 0,
        memory_cap_bytes: Some(bytes),
        max_system_fraction: 0.9,
    }
}

fn check(cap_bytes: u64, expected: (u32, u32, u32)) {
    let found = suggest_config(
        &model(32),
        &data(32),
        &capped(cap_bytes),
        &Processes::default(),
    );
    let found = found.expect("it fits");
    let plan = (
        found.micro_batch,
        found.accumulation,
        found.checkpoint_blocks,
    );
    assert_eq!(plan, expected, "{} MB", cap_bytes / MB);
    assert!(found.predicted_peak_bytes <= cap_bytes);
    assert_eq!(found.headroom_bytes, cap_bytes - found.predicted_peak_bytes);
}

#[test]
fn the_largest_micro_batch_that_fits_is_suggested() {
    check(16 * GB, (32, 1, 0));
    check(GB + 3200 * MB, (32, 1, 0));
    check(GB + 3199 * MB, (16, 2, 0));
    check(GB + 799 * MB, (7, 5, 0));
    check(GB + 100 * MB, (1, 32, 0));
}

#[test]
fn blocks_are_checkpointed_only_if_one_sample_needs_it() {
    check(GB + 99 * MB, (2, 16, 12));
    check(GB + 40 * MB, (1, 32, 12));
}

#[test]
fn a_refusal_names_a_cap_that_would_be_enough() {
    let refused = suggest_config(&model(32), &data(32), &capped(GB), &Processes::default());
    let refused = refused.expect_err("nothing fits");
    assert_eq!((refused.micro_batch, refused.budget_bytes), (1, GB));
    assert_eq!(refused.predicted_peak_bytes, GB + 100 * MB);
    assert_eq!(refused.least, (GB + 40 * MB, 12));
    assert!(refused.enough_bytes >= refused.least.0 + refused.least.0 / 10);
    // The margin for the estimate's error is enough for one sample without checkpointing.
    check(refused.enough_bytes, (1, 32, 0));
}

#[test]
fn a_fixed_micro_batch_is_accepted_or_refused() {
    let mut model = model(32);
    model.variants.truncate(1);
    let fixed = BatchConfig {
        fixed_micro_batch: Some(8),
        ..data(32)
    };
    let ask = |cap| suggest_config(&model, &fixed, &capped(cap), &Processes::default());
    assert_eq!(ask(4 * GB).map(|plan| plan.micro_batch), Ok(8));
    assert_eq!(ask(GB + 700 * MB).map_err(|no| no.micro_batch), Err(8));
}

#[test]
fn other_apps_and_the_gpu_limit_reduce_the_budget() {
    let machine = |others: u64, limit_bytes| {
        let device = DeviceLimits {
            total_bytes: 16 * GB,
            limit_bytes,
            memory_cap_bytes: None,
            max_system_fraction: 0.9,
        };
        device.budget_bytes(&Processes {
            others_bytes: others * GB,
        }) as f64
            / GB as f64
    };
    // 16, less a tenth for the budget line, the initial margin of 3 % and the use of others.
    assert!((machine(4, 0) - (16.0 - 1.6 - 0.48 - 4.0)).abs() < 0.01);
    assert!((machine(8, 0) - (16.0 - 1.6 - 0.48 - 8.0)).abs() < 0.01);
    assert!((machine(0, 10 * GB) - 9.5).abs() < 0.01);
    assert_eq!(machine(16, 0), 0.0);
}

#[test]
fn the_most_memory_is_what_machine_gpu_and_cap_allow_without_other_apps() {
    let machine = DeviceLimits {
        memory_cap_bytes: None,
        total_bytes: 40 * GB,
        ..capped(0)
    };
    assert_eq!(machine.most_bytes() / MB, 36 * GB / MB);
    let gpu = DeviceLimits {
        limit_bytes: 30 * GB,
        ..machine
    };
    assert_eq!(gpu.most_bytes(), 30 * GB);
    let capped = DeviceLimits {
        memory_cap_bytes: Some(7 * GB),
        ..gpu
    };
    assert_eq!(capped.most_bytes(), 7 * GB);
    let unknown = DeviceLimits {
        total_bytes: 0,
        ..machine
    };
    assert_eq!(unknown.most_bytes(), 0);
}
