//! Seeded samples, plans and splits for the trainer's tests.

#![allow(dead_code)]

use candle_core::{DType, Device};
use dataset::ImageSample;
use models::{Balance, Heads, Network};
use runlog::{CheckpointInterval, RunConfig};
use tape::inplace::to_f64;
use tape::{Cancel, Kernels, Parameters, Rng};
use trainer::internals::{
    AccumulatedBatch, Augmentation, EffectiveBatch, ForwardContext, TrainState,
};
use trainer::{DevicePreference, ModelId, OptimizerKind, Plan, Precision};

/// Side of the images in pixels: twice the smallest that every model accepts.
pub const SIDE: usize = 16;
/// Number of classes.
pub const CLASSES: usize = 5;

/// Noise with a brightness that depends on the class.
pub fn samples(count: usize, seed: u64) -> Vec<ImageSample> {
    (0..count as u32)
        .map(|index| {
            let stream = Rng::new(seed).at(u64::from(index));
            let label = (stream.uniform(0) * CLASSES as f64) as u32;
            let pixel = |i| (stream.uniform(i + 1) * 155.0) as u8 + 20 * label as u8;
            let pixels = (0..(3 * SIDE * SIDE) as u64).map(pixel).collect();
            ImageSample {
                index,
                label,
                pixels,
                ..ImageSample::default()
            }
        })
        .collect()
}

/// Micro-batch sizes that add up to `count`: one, all ones, a size that does not divide, then
/// random ones.
pub fn splits(count: usize, seed: u64, random: usize) -> Vec<Vec<usize>> {
    let mut splits = vec![vec![count], vec![1; count]];
    let uneven = count / 2 + 1;
    splits.push(vec![uneven, count - uneven]);
    splits.extend((0..random as u64).map(|i| random_split(count, Rng::new(seed).at(i))));
    splits
}

/// Random sizes that make up `count`.
pub fn random_split(count: usize, stream: Rng) -> Vec<usize> {
    let (mut left, mut split) = (count, Vec::new());
    while left > 0 {
        let size = 1 + (stream.uniform(split.len() as u64) * left as f64) as usize;
        split.push(size.min(left));
        left -= size.min(left);
    }
    split
}

/// Processes one effective batch in micro-batches of these sizes, as the training loop does.
pub fn whole(
    context: &ForwardContext,
    samples: &[ImageSample],
    split: &[usize],
) -> AccumulatedBatch {
    let mut batch = EffectiveBatch::new(samples.len());
    let lost = batch
        .pending
        .deliver(samples.iter().cloned().map(Ok).collect());
    assert!(lost.is_empty());
    for &size in split {
        let result = context.gradients(batch.pending.micro_batch(size));
        batch.add(result.unwrap()).unwrap();
    }
    assert_eq!(batch.pending.remaining(), 0);
    batch.finish().unwrap()
}

/// A network with its parameters.
pub fn build(kind: ModelId, dtype: DType) -> (Network, Parameters) {
    Network::build(kind, SIDE, CLASSES, 7, dtype, &Device::Cpu).unwrap()
}

/// The context of a training micro-batch on them.
pub fn task<'a>(
    model: &'a (Network, Parameters),
    dtype: DType,
    cancel: Cancel,
) -> ForwardContext<'a> {
    let (network, parameters) = model;
    ForwardContext {
        pixels: Default::default(),
        class_weights: None,
        preference_beta: None,
        compression: None,
        network,
        parameters,
        input_size: SIDE,
        label_smoothing: 0.1,
        heads: Heads::for_classes(CLASSES),
        checkpointed: 0,
        dtype,
        loss_factor: 1.0,
        device: &Device::Cpu,
        cancel,
        seed: 7,
        step: 0,
        kernels: Kernels::Fused,
        limit_bytes: None,
        kinks: None,
        without_adapters: false,
    }
}

/// The precision with this element type.
pub fn precision(dtype: DType) -> Precision {
    let mut all = Precision::ALL.into_iter();
    all.find(|p| p.dtype() == dtype).unwrap()
}

/// A plan for training on these samples.
pub fn plan(model: ModelId, optimizer: OptimizerKind, dtype: DType, steps: u64) -> Plan {
    Plan {
        folder: "images".into(),
        name: "images".to_owned(),
        model,
        input_size: SIDE as u32,
        classes: (0..CLASSES).map(|i| format!("class {i}")).collect(),
        columns: Vec::new(),
        balance: Balance::Fixed(1.0),
        class_weights: None,
        train_samples: 60,
        held_out_samples: 0,
        held_out_copies: 0,
        texts_bytes: 0,
        effective_batch: 6,
        effective_batch_tokens: None,
        fixed_micro_batch: None,
        steps,
        requested_epochs: None,
        max_samples_seen: None,
        steps_per_epoch: 10,
        optimizer,
        learning_rate: 1e-3,
        weight_decay: 0.05,
        lr_schedule: trainer::internals::LrSchedule::Cosine,
        warmup_steps: (steps / 20).max(1),
        label_smoothing: 0.1,
        token_dropout: 0.0,
        clip_norm: 1.0,
        ema_decay: None,
        conversations: None,
        preference_beta: None,
        compression: None,
        augment: Augmentation::None,
        mix: dataset::Mix::None,
        precision: precision(dtype),
        checkpoint_blocks: 0,
        device: DevicePreference::Cpu,
        threads: 2,
        workers: None,
        memory_cap_bytes: None,
        memory_cap_fraction: None,
        whole_state: None,
        max_system_fraction: None,
        max_suspended_ms: None,
        courtesy: Default::default(),
        seed: 7,
        dev_samples: None,
        checkpoint_every: CheckpointInterval::Automatic,
        keep_checkpoints: 2,
        keep_every: None,
        evaluate_every_epochs: Some(1),
        pretrained: None,
        config: RunConfig::default(),
    }
}

/// The state of such a plan before the first step.
pub fn train_state(plan: &Plan) -> TrainState {
    TrainState::new(plan, &Device::Cpu).unwrap()
}

/// The values of all parameters.
pub fn values(parameters: &Parameters) -> Vec<Vec<f64>> {
    parameters
        .iter()
        .map(|p| to_f64(&p.tensor).unwrap())
        .collect()
}

/// Euclidean norm.
pub fn norm<'a>(values: impl IntoIterator<Item = &'a f64>) -> f64 {
    values.into_iter().map(|v| v * v).sum::<f64>().sqrt()
}

/// Norm of the difference.
pub fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).powi(2))
        .sum::<f64>()
        .sqrt()
}
