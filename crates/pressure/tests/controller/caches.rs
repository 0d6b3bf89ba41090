//! When caches are given back, and how long pieces keep them small.

use crate::bench::{Bench, GB, TRAIN};
use pressure::{Ask, Change, Decision, MemorySample, SampleCost, decide};

/// The next answer to a bench whose device holds `allocated` of a working set of `limit`, with samples of this cost.
fn asked(bench: &Bench, allocated: u64, limit: u64, cost: u64) -> Decision {
    let costs = vec![SampleCost(cost); 64];
    let sample = MemorySample {
        own_bytes: allocated,
        available_bytes: 32 * GB - bench.others - allocated,
        device_limit_bytes: limit,
        device_allocated_bytes: allocated,
        device_live_bytes: 2 * GB,
        ..bench.sample()
    };
    let ask = Ask {
        spare_bytes: 0,
        sample,
        remaining: &costs,
        kind: TRAIN,
    };
    decide(&bench.policy, bench.state.clone(), &ask, &bench.model).1
}

#[test]
fn above_the_soft_share_what_no_piece_of_late_has_needed_is_given_back() {
    // Pieces of 64 need 18 GB.
    let bench = Bench::settled();
    for (allocated, limit, given_back) in [
        (18, 24, false), // above .70 of 24, but the next piece takes it again
        (21, 26, true),
        (21, 32, false), // below .70 of 32, and nobody wants it
    ] {
        let decision = asked(&bench, allocated * GB, limit * GB, 4096);
        assert_eq!(
            decision.release_caches, given_back,
            "{allocated} of {limit} GB: {decision:?}"
        );
        assert_eq!(decision.change, Change::Hold, "{decision:?}");
    }
}

#[test]
fn samples_twice_as_long_go_in_smaller_pieces() {
    let decision = asked(&Bench::settled(), 18 * GB, 0, 8192);
    assert_eq!(
        (decision.change, decision.micro_batch),
        (Change::Hold, 32),
        "{decision:?}"
    );
}
