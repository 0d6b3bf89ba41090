//! What changes nothing: a shorter piece, and a size fixed by the person.

use crate::bench::{Bench, GB, TRAIN};
use pressure::{
    Action, Ask, Change, Level, MemorySample, Outcome, Policy, SampleCost, decide, should_cancel,
};

#[test]
fn what_is_left_goes_in_equal_pieces_and_a_shorter_one_is_no_change() {
    let mut bench = Bench {
        policy: Policy {
            memory_cap_bytes: Some(9 * GB),
            ..Policy::default()
        },
        ..Bench::default()
    };
    bench.turns(100);
    let decisions = bench.turns(30);
    assert!(
        decisions.iter().all(|d| d.change == Change::Hold),
        "nothing changes"
    );
    let sizes: Vec<u32> = decisions.iter().map(|d| d.micro_batch).collect();
    assert!(
        sizes.windows(3).any(|w| w == [22, 21, 21]),
        "64 in pieces of 22: {sizes:?}"
    );
    assert!(
        decisions
            .iter()
            .all(|d| d.reason == "a larger one would not fit")
    );
}

#[test]
fn heavy_samples_make_a_shorter_piece_and_no_change() {
    let mut bench = Bench {
        policy: Policy {
            memory_cap_bytes: Some(9 * GB),
            ..Policy::default()
        },
        ..Bench::default()
    };
    bench.turns(100);
    let costs: Vec<_> = (0..64)
        .map(|i| SampleCost(if i < 22 { 8192 } else { 2048 }))
        .collect();
    bench.remaining = 64;
    let ask = Ask {
        spare_bytes: 0,
        sample: bench.sample(),
        remaining: &costs,
        kind: TRAIN,
    };
    let (_, decision) = decide(&bench.policy, bench.state.clone(), &ask, &bench.model);
    assert_eq!(decision.change, Change::Hold);
    assert!((1..22).contains(&decision.micro_batch), "{decision:?}");
    assert!(decision.predicted_peak_bytes <= decision.budget_bytes);
}

#[test]
fn a_fixed_micro_batch_is_always_answered() {
    let policy = Policy {
        fixed_micro_batch: Some(6),
        ..Policy::default()
    };
    let mut bench = Bench {
        policy,
        ..Bench::default()
    };
    for (others, level) in [
        (6, None),
        (25, Some(Level::Critical)),
        (31, Some(Level::Critical)),
        (6, None),
    ] {
        (bench.others, bench.level) = (others * GB, level);
        for decision in bench.turns(22) {
            assert_eq!(decision.action, Action::Run);
            assert!(
                decision.micro_batch == 6 || decision.micro_batch == 4,
                "64 = 10 x 6 + 4"
            );
            assert!(matches!(decision.change, Change::Hold | Change::Start));
        }
    }
    bench.end(6, Outcome::Memory);
    assert_eq!(bench.turn().change, Change::Cancel);
    assert_eq!(
        should_cancel(
            &bench.policy,
            &bench.state,
            &MemorySample {
                available_bytes: 0,
                ..bench.sample()
            }
        ),
        None
    );
}
