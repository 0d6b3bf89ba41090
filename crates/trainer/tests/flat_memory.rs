//! Memory is flat: thousands of pieces leave nothing behind. In a process of its own, so that nobody else's memory counts.

// Helpers of tests are tests: what fails here fails the claim.
#![allow(clippy::unwrap_used)]

mod support;

use candle_core::{DType, Device};
use models::{Builder, Network, ResNet, ResNetShape};
use pressure::own_footprint_bytes;
use support::{plan, samples};
use tape::memory::{Counting, live_bytes};
use tape::{Cancel, Parameters};
use trainer::models::{Builder, Network, ResNet, ResNetShape};
use trainer::rooms::{EffectiveBatch, MicroBatchResult, OptimizerState, TrainState};
use trainer::{ModelKind, OptimizerKind};

#[global_allocator]
static ALLOCATOR: Counting<std::alloc::System> = Counting(std::alloc::System);

/// Pieces of the whole measurement, and of one reading.
const PIECES: usize = 5_000;
const READING: usize = 1_000;
/// Growth allowed in one reading.
const MB: i64 = 1 << 20;

/// The real learner around a network so small that a piece takes a millisecond.
fn tiny() -> TrainState {
    let plan = plan(ModelKind::ConvNet, OptimizerKind::AdamW, DType::F32, 10_000);
    let mut learner = TrainState::new(&plan, &Device::Cpu).unwrap();
    let mut parameters = Parameters::default();
    let shape = ResNetShape {
        channels: 4,
        blocks: vec![(4, 2), (8, 2)],
        groups: 2,
        ..ResNetShape::convnet()
    };
    let mut builder = Builder::new(&mut parameters, 7, DType::F32, &Device::Cpu);
    let network = ResNet::build(&mut builder, &shape, support::CLASSES).unwrap();
    learner.optimizer = OptimizerState::new(OptimizerKind::AdamW, 0.05, &parameters).unwrap();
    (learner.network, learner.parameters) = (Network::ResNet(network), parameters);
    learner
}

/// Growth of the counted heap and of the footprint, in bytes, over each reading of `pieces` pieces. Three pieces make a step,
/// one of them is cancelled on the way; `see` is shown every piece before it is added.
fn growth(pieces: usize, mut see: impl FnMut(&MicroBatchResult)) -> Vec<(i64, i64)> {
    let (mut learner, samples) = (tiny(), samples(6, 2));
    let (mut done, mut step, mut readings) = (0, 0, Vec::new());
    while done < pieces + READING {
        let mut batch = EffectiveBatch::new(samples.len());
        batch
            .pending
            .deliver(samples.iter().cloned().map(Ok).collect());
        for size in [3, 1, 2] {
            let cancel = Cancel::new((size == 1).into());
            let cancelled = learner
                .forward_context(cancel)
                .gradients(batch.pending.micro_batch(size));
            assert_eq!(
                cancelled.is_err_and(|error| error.is_cancelled()),
                size == 1
            );
            let task = learner.forward_context(Cancel::default());
            let piece = task.gradients(batch.pending.micro_batch(size)).unwrap();
            see(&piece);
            batch.add(piece).unwrap();
            done += 1;
            if done % READING == 0 {
                readings.push((live_bytes() as i64, own_footprint_bytes() as i64));
            }
        }
        let update = learner.update(&batch.finish().unwrap(), step).unwrap();
        assert_eq!(update.skipped, None);
        step += 1;
    }
    // The first reading is where the caches and the thread pool have their size.
    let grown = |pair: &[(i64, i64)]| (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1);
    readings.windows(2).map(grown).collect()
}

#[test]
fn five_thousand_pieces_leave_nothing_behind() {
    let flat = growth(PIECES, |_| {});
    println!("heap and footprint: {flat:?}");
    assert_eq!(flat.len(), PIECES / READING);
    for (heap, footprint) in &flat {
        // The heap is counted to the byte; the system counts pages and keeps what was freed.
        assert!(*heap <= MB / 16, "the heap grew by {heap} bytes: {flat:?}");
        assert!(
            *footprint <= MB,
            "the footprint grew by {footprint} bytes: {flat:?}"
        );
    }

    // The same measurement where one gradient of every piece is kept: it must be seen, or the claim above is empty.
    let mut kept = Vec::new();
    let grown = growth(READING, |piece| {
        kept.extend(piece.gradients.last().cloned())
    });
    let (heap, _) = grown[0];
    assert!(
        heap > MB / 16,
        "{} kept tensors were not seen: {heap} bytes",
        kept.len()
    );
    assert_eq!(kept.len(), 2 * READING + 1);
}
