//! The trainer on networks and datasets that are made for the tests. One topic per file, all in one
//! program, so that candle is linked once.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

#[path = "../../../models/tests/exports/mod.rs"]
mod exports;
#[path = "../../../models/tests/folders/mod.rs"]
mod folders;
#[path = "../support/noise_images.rs"]
mod noise_images;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/watchdog.rs"]
mod watchdog;

mod activation_checkpointing;
mod checkpoints;
mod device_out_of_memory;
mod divergence;
mod export_texts;
mod fine_tune;
mod fine_tune_choices;
mod distributed_training;
mod distributed_runs;
mod distributed_random_schedules;
mod distributed_bf16;
mod distributed_sharding;
mod half_precision;
mod kv_cache;
mod loss_scale;
mod memory_limits;
mod minilm_embeddings;
mod non_finite_loss;
mod optimizer_and_weight_average;
mod optimizer_step;
mod battery_and_sleep;
mod recovery_steps;
mod regression_target_loss;
mod split_equivalence;
mod split_equivalence_texts;
mod text_padding;
