//! Properties of recovery steps that hold on every machine and for every use of other apps.

use pressure::{
    Action, Change, ControllerState, Decision, DecisionInput, MemoryModel, MemorySample,
    MicroBatchKind, MicroBatchRecord, Moments, Outcome, Policy, RecoveryReserve, SampleCost,
    decide, observe,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const GB: f64 = (1u64 << 30) as f64;
const RAM: f64 = 16.0;
const BATCH: usize = 12;
const ASKED: MicroBatchKind = MicroBatchKind {
    phase: pressure::Phase::Train,
    checkpoint_blocks: 1,
    element_bytes: 4,
    input_size: 64,
};

/// Sizes in GB. Others move to an amount of GB over a number of decisions.
#[derive(Debug, Clone)]
struct World {
    state: f64,
    sample: f64,
    moments: f64,
    blocks: u32,
    others: Vec<(f64, usize)>,
}

fn world() -> impl Strategy<Value = World> {
    let others = proptest::collection::vec((1.0..15.9, 1usize..300), 2..12);
    (0.5..3.0, 0.05..3.0, 0.01..0.5, 1u32..8, others).prop_map(
        |(state, sample, moments, blocks, others): (f64, f64, f64, u32, _)| World {
            state,
            sample,
            moments: moments * state,
            blocks,
            others,
        },
    )
}

struct Observed {
    at_ms: u64,
    blocks_before: u32,
    moments_before: Moments,
    decision: Decision,
}

/// A run on a machine between two decisions. Amounts are GB.
struct Run<'a> {
    world: &'a World,
    reserve: RecoveryReserve,
    state: ControllerState,
    model: MemoryModel,
    blocks: u32,
    moments: Moments,
    others: f64,
    own: f64,
    at_ms: u64,
    /// Samples left of the effective batch.
    left: usize,
}

impl<'a> Run<'a> {
    fn new(world: &'a World) -> Self {
        let reserve = RecoveryReserve {
            blocks: world.blocks,
            moments_bytes: (world.moments * GB) as u64,
        };
        Run {
            world,
            reserve,
            state: ControllerState::default().with_reserve(reserve),
            model: MemoryModel::default(),
            blocks: ASKED.checkpoint_blocks,
            moments: Moments::Resident,
            others: 2.0,
            own: world.state,
            at_ms: 0,
            left: BATCH,
        }
    }

    /// Moves other apps towards `to`, asks for a decision and applies it.
    fn decide(&mut self, to: f64) -> Observed {
        self.others += (to - self.others).clamp(-0.2, 0.2);
        self.at_ms += 500;
        let costs = vec![SampleCost(100); self.left];
        let sample = MemorySample {
            at_ms: self.at_ms,
            total_bytes: (RAM * GB) as u64,
            available_bytes: ((RAM - self.others - self.own).max(0.0) * GB) as u64,
            own_bytes: (self.own * GB) as u64,
            ..MemorySample::default()
        };
        let ask = DecisionInput {
            sample,
            remaining: &costs,
            kind: ASKED,
            spare_bytes: 0,
        };
        let state = std::mem::take(&mut self.state);
        let (next, decision) = decide(&Policy::default(), state, &ask, &self.model);
        self.state = next;
        let observed = Observed {
            at_ms: self.at_ms,
            blocks_before: self.blocks,
            moments_before: self.moments,
            decision,
        };
        self.apply(&observed);
        observed
    }

    fn apply(&mut self, observed: &Observed) {
        let decision = &observed.decision;
        (self.blocks, self.moments) = (decision.checkpoint_blocks, decision.moments);
        let bytes = self.reserve.moments_bytes;
        match (observed.moments_before, self.moments) {
            (Moments::Resident, Moments::Mapped) => self.model.state_shrank(bytes),
            (Moments::Mapped, Moments::Resident) => self.model.state_grew(bytes),
            _ => {}
        }
        let held = match self.moments {
            Moments::Resident => self.world.state,
            Moments::Mapped => self.world.state - self.world.moments,
        };
        self.own = match decision.action {
            Action::Run if !decision.release_caches => self.own,
            Action::Run | Action::Pause => held,
            Action::Suspend | Action::Stop => 0.1,
        };
        if decision.action == Action::Run {
            self.process(decision.micro_batch, held);
        }
    }

    /// Processes a micro-batch with `held` GB of state.
    fn process(&mut self, micro_batch: u32, held: f64) {
        let World { sample, blocks, .. } = self.world;
        let each = sample * (1.0 - 0.8 * f64::from(self.blocks) / f64::from(*blocks));
        let peak = held + each * f64::from(micro_batch);
        self.own = self.own.max(peak);
        let record = MicroBatchRecord {
            at_ms: self.at_ms,
            kind: MicroBatchKind {
                checkpoint_blocks: self.blocks,
                ..ASKED
            },
            micro_batch,
            cost: 100 * u64::from(micro_batch),
            peak_bytes: (peak * GB) as u64,
            ms: 20.0 + 30.0 * f64::from(micro_batch),
            outcome: Outcome::Ok,
        };
        let state = std::mem::take(&mut self.state);
        let model = std::mem::take(&mut self.model);
        (self.state, self.model) = observe(&Policy::default(), state, model, &record);
        self.left -= micro_batch as usize;
        if self.left == 0 {
            self.left = BATCH;
        }
    }
}

/// A decision every half second until one stops the run. Others change by at most 0.2 GB between
/// two.
fn play(world: &World) -> Vec<Observed> {
    let (mut run, mut observed) = (Run::new(world), Vec::new());
    for &(to, count) in &world.others {
        for _ in 0..count {
            observed.push(run.decide(to));
            let last = observed.last();
            if last.is_some_and(|last| last.decision.action == Action::Stop) {
                return observed;
            }
        }
    }
    observed
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, rng_seed: RngSeed::Fixed(11), ..ProptestConfig::default() })]

    #[test]
    fn blocks_change_one_at_a_time_and_every_change_is_reported(world in world()) {
        for Observed { blocks_before, moments_before, decision, .. } in play(&world) {
            let blocks = decision.checkpoint_blocks;
            prop_assert!((1..=world.blocks).contains(&blocks), "{decision:?}");
            let expected = match decision.change {
                Change::CheckpointMore => blocks_before + 1,
                Change::CheckpointLess => blocks_before - 1,
                _ => blocks_before,
            };
            let ends = matches!(decision.change, Change::Suspend | Change::Stop);
            prop_assert!(blocks == expected || ends, "{blocks_before}: {decision:?}");
            let moved = decision.moments != moments_before;
            prop_assert!(moved == (decision.change == Change::Moments) || ends, "{decision:?}");
        }
    }

    #[test]
    fn moments_move_after_all_blocks_and_return_before_any(world in world()) {
        for Observed { decision, .. } in play(&world) {
            let mapped = decision.moments == Moments::Mapped;
            prop_assert!(!mapped || decision.checkpoint_blocks == world.blocks, "{decision:?}");
        }
    }

    #[test]
    fn a_step_is_taken_only_after_half_a_minute_of_shortage(world in world()) {
        let mut larger_ms = 0;
        let mut before = 0;
        for Observed { at_ms, decision, .. } in play(&world) {
            let taken = decision.change == Change::CheckpointMore
                || (decision.change == Change::Moments && decision.moments == Moments::Mapped);
            let slow = decision.reason.starts_with("micro-batches of ");
            prop_assert!(!taken || slow || at_ms >= larger_ms + 30_000, "{at_ms} after {larger_ms}: {decision:?}");
            // The last micro-batch of a batch may be a single sample without a shortage.
            if decision.micro_batch > 1 && before > 1 {
                larger_ms = at_ms;
            }
            before = decision.micro_batch;
        }
    }

    #[test]
    fn predictions_fit_the_budget_after_every_step(world in world()) {
        for Observed { decision, .. } in play(&world) {
            let fits = decision.predicted_peak_bytes <= decision.budget_bytes;
            prop_assert!(fits || decision.micro_batch <= 1, "{decision:?}");
        }
    }
}
