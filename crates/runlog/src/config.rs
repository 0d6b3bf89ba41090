//! What the user asked for, as written: TOML or JSON, unknown keys refused. Checked into a `Plan` by the trainer;
//! this file only parses and knows no data set.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A run's configuration. Every key may be absent; `None` means "Ebb chooses".
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunConfig {
    /// The dropped folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// `image-classification`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// `convnet` or `vit_micro`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Side of the square image in pixels, 16..=1024.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_size: Option<u32>,
    /// Epochs, 1..=100000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<u64>,
    /// Steps; overrides `epochs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// Samples a step, 1..=65536. Never changed by pressure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective_batch: Option<u32>,
    /// Fixed micro-batch; absent means automatic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micro_batch: Option<u32>,
    /// `adamw` or `sgd`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optimizer: Option<String>,
    /// Peak learning rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learning_rate: Option<f64>,
    /// Decoupled weight decay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight_decay: Option<f64>,
    /// Steps of linear warm-up as a fraction of all steps, `0.0..=1.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warmup_fraction: Option<f64>,
    /// Label smoothing, `0.0..1.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_smoothing: Option<f64>,
    /// Largest global gradient norm; absent means 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_norm: Option<f64>,
    /// `none` or `standard` (crop, flip, colour).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub augment: Option<String>,
    /// Share of each class held out when the folder has no split, `0.0..1.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_out_fraction: Option<f64>,
    /// `auto`, `metal`, `cuda` or `cpu`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// `f32` or `f64` (CPU only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precision: Option<String>,
    /// Threads of the CPU kernels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Decoding workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
    /// Largest footprint, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_cap_bytes: Option<u64>,
    /// Where the budget line stands, as a share of all memory, `0.5..=0.95`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub politeness: Option<f64>,
    /// Seed of everything random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Train on this many samples only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dev_samples: Option<u64>,
    /// `10min`, `2epochs` or `500steps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_every: Option<String>,
    /// Evaluate after this many epochs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluate_every_epochs: Option<u64>,
}
