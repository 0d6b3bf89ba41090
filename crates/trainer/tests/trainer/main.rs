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
#[path = "../support/temporary_folder.rs"]
mod temporary_folder;
#[path = "../support/watchdog.rs"]
mod watchdog;

mod activation_checkpointing;
mod checkpoints;
mod default_length;
mod device_out_of_memory;
mod divergence;
mod export_texts;
mod fine_tune;
mod fine_tune_choices;
mod gguf_base;
mod distributed_training;
mod distributed_runs;
mod distributed_random_schedules;
mod distributed_bf16;
mod distributed_evaluation;
mod distributed_sharding;
mod distributed_deaths;
mod distributed_device_exchange;
mod distributed_sync_every;
mod half_precision;
mod kv_cache;
mod loss_scale;
mod memory_limits;
mod minilm_embeddings;
mod non_finite_loss;
mod optimizer_and_weight_average;
mod optimizer_step;
mod preferences;
mod battery_and_sleep;
mod recovery_steps;
mod regression_target_loss;
mod split_equivalence;
mod split_equivalence_texts;
mod text_padding;

/// The allocator of the program. glibc's returns large blocks to the system at once, which costs a
/// third of the time of some tests.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
