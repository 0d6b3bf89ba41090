//! Activation checkpointing changes no bit of losses and weights, and saves fewer bytes.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::support::{SIDE, build, plan, samples, train_state, values, whole};
use candle_core::{DType, Device, Tensor};
use tape::{Cancel, Kernels, Tape, Value};
use trainer::{ModelId, OptimizerKind};

fn blocks(kind: ModelId) -> u32 {
    kind.blocks()
}

/// Loss of each step, as bits, and all weights after three steps in micro-batches of 3, 3 and 1.
fn trained(kind: ModelId, dtype: DType, checkpointed: u32) -> (Vec<u64>, Vec<Vec<f64>>) {
    let mut plan = plan(kind, OptimizerKind::AdamW, dtype, 3);
    plan.checkpoint_blocks = checkpointed;
    let (mut train_state, samples) = (train_state(&plan), samples(7, 11));
    let mut losses = Vec::new();
    for step in 0..3 {
        let batch = whole(
            &train_state.forward_context(Cancel::default()),
            &samples,
            &[3, 3, 1],
        );
        losses.push(batch.loss.to_bits());
        assert_eq!(train_state.update(&batch, step).unwrap().skipped, None);
    }
    (losses, values(&train_state.parameters))
}

#[test]
fn checkpointing_changes_neither_losses_nor_weights() {
    for kind in ModelId::SMALL {
        for dtype in [DType::F32, DType::F64] {
            let expected = trained(kind, dtype, 0);
            for checkpointed in [1, blocks(kind)] {
                let found = trained(kind, dtype, checkpointed);
                let name = format!("{checkpointed} blocks of {} in {dtype:?}", kind.name());
                assert_eq!(found.0, expected.0, "{name}");
                assert!(found.1 == expected.1, "{name}");
            }
        }
    }
}

#[test]
fn checkpointing_saves_fewer_bytes() {
    for kind in ModelId::SMALL {
        let (network, parameters) = build(kind, DType::F32);
        let saved = |checkpointed: u32| {
            let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
            let images = Tensor::ones((2, 3, SIDE, SIDE), DType::F32, &Device::Cpu).unwrap();
            let images = Value::constant(images);
            let _scores = network
                .forward(&tape, &images, checkpointed as usize)
                .unwrap();
            tape.saved_bytes()
        };
        let bytes: Vec<u64> = (0..=blocks(kind)).map(saved).collect();
        let name = format!("{}: {bytes:?}", kind.name());
        // With equal blocks each checkpointed block reduces the bytes. A block that halves the
        // image must save its large input, which it would not need otherwise.
        let equal = kind == ModelId::VIT_MICRO;
        assert!(!equal || bytes.is_sorted_by(|a, b| a > b), "{name}");
        assert!(bytes.last() < bytes.first(), "{name}");
    }
}
