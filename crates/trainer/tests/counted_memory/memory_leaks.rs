//! Memory stays flat over thousands of micro-batches.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::support::{self, plan, samples};
use candle_core::{DType, Device};
use models::{Network, ParameterBuilder, ResNet, ResNetShape};
use pressure::own_footprint_bytes;
use std::sync::Arc;
use tape::counting_allocator::live_bytes;
use tape::{Cancel, Parameters};
use trainer::internals::{EffectiveBatch, MicroBatchResult, OptimizerState, TrainState};
use trainer::{ModelId, OptimizerKind};

/// Micro-batches of the whole measurement.
const MICRO_BATCHES: usize = 5_000;
/// Micro-batches between two readings.
const READING: usize = 1_000;
/// Growth of the footprint that is allowed between two readings.
const MB: i64 = 1 << 20;

/// A train state with a network so small that a micro-batch takes a millisecond.
fn tiny() -> TrainState {
    let plan = plan(ModelId::CONV_NET, OptimizerKind::AdamW, DType::F32, 10_000);
    let mut train_state = TrainState::new(&plan, &Device::Cpu).unwrap();
    let mut parameters = Parameters::default();
    let shape = ResNetShape {
        channels: 4,
        blocks: vec![(4, 2), (8, 2)],
        groups: 2,
        ..ResNetShape::convnet()
    };
    let mut builder = ParameterBuilder::new(&mut parameters, 7, DType::F32, &Device::Cpu);
    let network = ResNet::build(&mut builder, &shape, support::CLASSES).unwrap();
    train_state.optimizer = OptimizerState::new(OptimizerKind::AdamW, 0.05, &parameters).unwrap();
    (train_state.network, train_state.parameters) = (Network::Image(Arc::new(network)), parameters);
    train_state
}

/// Growth of the counted heap and of the footprint, in bytes, between the readings of
/// `micro_batches` micro-batches. Three make a step, and one more per step is cancelled. `see`
/// gets each one before it is added.
fn growth(micro_batches: usize, mut see: impl FnMut(&MicroBatchResult)) -> Vec<(i64, i64)> {
    let (mut train_state, samples) = (tiny(), samples(6, 2));
    let (mut done, mut step, mut readings) = (0, 0, Vec::new());
    while done < micro_batches + READING {
        let mut batch = EffectiveBatch::new(samples.len());
        batch
            .pending
            .deliver(samples.iter().cloned().map(Ok).collect());
        for size in [3, 1, 2] {
            let cancel = Cancel::new((size == 1).into());
            let cancelled = train_state
                .forward_context(cancel)
                .gradients(batch.pending.micro_batch(size));
            assert_eq!(
                cancelled.is_err_and(|error| error.is_cancelled()),
                size == 1
            );
            let task = train_state.forward_context(Cancel::default());
            let result = task.gradients(batch.pending.micro_batch(size)).unwrap();
            see(&result);
            batch.add(result).unwrap();
            done += 1;
            if done % READING == 0 {
                readings.push((live_bytes() as i64, own_footprint_bytes() as i64));
            }
        }
        let update = train_state.update(&batch.finish().unwrap(), step).unwrap();
        assert_eq!(update.skipped, None);
        step += 1;
    }
    // At the first reading caches and thread pools have reached their size.
    let grown = |pair: &[(i64, i64)]| (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1);
    readings.windows(2).map(grown).collect()
}

#[test]
fn five_thousand_micro_batches_leak_nothing() {
    let flat = growth(MICRO_BATCHES, |_| {});
    println!("heap and footprint: {flat:?}");
    assert_eq!(flat.len(), MICRO_BATCHES / READING);
    for (heap, footprint) in &flat {
        // The heap is counted in bytes; the system counts pages and does not return all freed
        // ones.
        assert!(*heap <= MB / 16, "the heap grew by {heap} bytes: {flat:?}");
        assert!(
            *footprint <= MB,
            "the footprint grew by {footprint} bytes: {flat:?}"
        );
    }

    // Leak one gradient per micro-batch: the measurement must detect it.
    let mut leaked = Vec::new();
    let grown = growth(READING, |result| {
        leaked.extend(result.gradients.last().cloned())
    });
    let (heap, _) = grown[0];
    assert!(
        heap > MB / 16,
        "{} leaked tensors were not detected: {heap} bytes",
        leaked.len()
    );
    assert_eq!(leaked.len(), 2 * READING + 1);
}
