//! Every sample is processed exactly once, whatever ranks do; and a simulated group comes close to
//! the shortest possible step.

mod simulation;

use super::*;
use crate::random::Random;

fn request(at_most: u32, ended: Option<Ended>) -> ClaimRequest {
    ClaimRequest {
        at_most,
        ended,
        stop: false,
    }
}

#[test]
fn shares_follow_the_speeds_and_lose_nothing() {
    assert_eq!(shares_by_speed(70, &[60.0, 10.0]), [60, 10]);
    assert_eq!(shares_by_speed(10, &[0.0, 0.0, 0.0]), [3, 4, 3]);
    assert_eq!(shares_by_speed(9, &[10.0, 0.0, 20.0]), [2, 3, 4]);
    assert_eq!(shares_by_speed(0, &[1.0, 2.0]), [0, 0]);
    assert_eq!(shares_by_speed(2, &[1.0; 5]).iter().sum::<u32>(), 2);
    let mut random = Random::new(1);
    for _ in 0..1000 {
        let count = 1 + random.below(40) as usize;
        let speeds: Vec<f64> = (0..count).map(|_| random.unit() * 1e6).collect();
        let samples = random.below(5000) as u32;
        assert_eq!(
            shares_by_speed(samples, &speeds).iter().sum::<u32>(),
            samples
        );
    }
}

/// Lets two ranks make a step of 16 samples in turns. A micro-batch takes `parts_s.0` seconds, and
/// `parts_s.1` more for each sample. Returns the sizes of the micro-batches of each rank.
fn step_in_turns(
    coordinator: &mut Coordinator,
    round: u64,
    at_most: u32,
    parts_s: [(f64, f64); 2],
) -> [Vec<u32>; 2] {
    let mut sizes = [vec![], vec![]];
    let mut free_at = [0.0, 1e-4];
    let mut ended = [None, None];
    loop {
        let rank = usize::from(free_at[1] < free_at[0]);
        let now_s = 1000.0 * round as f64 + free_at[rank];
        let asked = request(at_most, ended[rank].take());
        match coordinator.claim(rank, round, 16, asked, now_s).unwrap() {
            Claim::Samples { samples, .. } => {
                sizes[rank].push(len(&samples));
                let (constant, each) = parts_s[rank];
                free_at[rank] += constant + each * f64::from(len(&samples));
                ended[rank] = Some(Ended::Confirmed);
            }
            Claim::Wait => free_at[rank] += 2e-4,
            Claim::Complete if rank == 0 => return sizes,
            Claim::Complete => free_at[rank] = f64::INFINITY,
            Claim::Stop => panic!("no rank stops"),
        }
    }
}

/// Measured on an H200 with a language model of 85 million parameters.
const GPU: (f64, f64) = (0.005, 0.0045);

#[test]
fn ranks_of_steady_speed_process_their_ranges_in_one_micro_batch() {
    let mut coordinator = Coordinator::new(2);
    for round in 1..=40 {
        // The first step is slower, and one rank is a little faster than the other.
        let slow = if round == 1 { 3.0 } else { 1.0 };
        let parts_s = [1.0, 1.04].map(|factor| (slow * factor * GPU.0, slow * factor * GPU.1));
        let sizes = step_in_turns(&mut coordinator, round, 8, parts_s);
        if round > 10 {
            assert_eq!(sizes, [[8], [8]], "step {round}");
        }
    }
    // Micro-batches that do not hold the range are about equal.
    let sizes = step_in_turns(&mut coordinator, 41, 7, [GPU, GPU]);
    assert_eq!(sizes, [[4, 4], [4, 4]]);
}

#[test]
fn the_ranges_of_ranks_follow_a_large_change_of_speeds() {
    let mut coordinator = Coordinator::new(2);
    let mut sizes = [vec![], vec![]];
    for round in 1..=60 {
        let slow = if round > 30 { 3.0 } else { 1.0 };
        let parts_s = [GPU, (slow * GPU.0, slow * GPU.1)];
        sizes = step_in_turns(&mut coordinator, round, 16, parts_s);
    }
    let [fast, slow] = sizes.map(|sizes| sizes.iter().sum::<u32>());
    assert!(fast >= 11, "{fast} and {slow}");
}

#[test]
fn a_rank_that_rests_gets_a_smaller_range() {
    let mut coordinator = Coordinator::new(2);
    for round in 1..=20 {
        step_in_turns(&mut coordinator, round, 16, [GPU, GPU]);
    }
    for round in 21..=23 {
        // Rank 1 asks for nothing.
        let (mut ended, mut now_s) = (None, 1000.0 * round as f64);
        loop {
            let claim = coordinator.claim(0, round, 16, request(16, ended.take()), now_s);
            match claim.unwrap() {
                Claim::Samples { samples, .. } => {
                    now_s += GPU.0 + GPU.1 * f64::from(len(&samples));
                    ended = Some(Ended::Confirmed);
                }
                Claim::Complete => break,
                other => panic!("{other:?}"),
            }
        }
    }
    // The next step has not begun yet.
    let shares: Vec<u32> = coordinator.ranks.iter().map(|rank| rank.share).collect();
    assert!(shares[1] <= 6 && shares[0] + shares[1] == 16, "{shares:?}");
}

#[test]
fn ranks_of_changing_speed_claim_less_at_once() {
    let mut coordinator = Coordinator::new(2);
    let mut random = Random::new(3);
    let mut changing = || {
        let factor = 0.5 + random.unit();
        (factor * GPU.0, factor * GPU.1)
    };
    let mut divided = 0;
    for round in 1..=40 {
        let sizes = step_in_turns(&mut coordinator, round, 16, [changing(), changing()]);
        divided += u32::from(sizes.iter().any(|sizes| sizes.len() > 1));
    }
    assert!(divided >= 38, "{divided}");
}

#[test]
fn shares_are_capped_only_if_the_others_have_room() {
    assert_eq!(capped(&[9, 7], &[8, 8]), [8, 8]);
    assert_eq!(capped(&[9, 7], &[8, 7]), [9, 7]);
    assert_eq!(capped(&[3, 20, 1], &[8, 10, 10]), [8, 10, 6]);
    assert_eq!(capped(&[5, 5], &[8, 8]), [5, 5]);
}

/// A rank in the random schedules below: what it holds.
#[derive(Clone, Default)]
struct Simulated {
    held: Option<Range<u32>>,
    confirmed: Vec<u32>,
    is_complete: bool,
}

/// One step with random claims, give-backs, rests and retractions. Returns how often each sample
/// was confirmed.
fn random_step(coordinator: &mut Coordinator, round: u64, samples: u32, seed: u64) -> Vec<u32> {
    random_schedule(coordinator, round, samples, seed, true)
}

/// The same in a step that repeats a recorded one, whose claims may be larger than what is asked
/// for.
fn replayed_step(coordinator: &mut Coordinator, round: u64, samples: u32, seed: u64) -> Vec<u32> {
    random_schedule(coordinator, round, samples, seed, false)
}

fn random_schedule(
    coordinator: &mut Coordinator,
    round: u64,
    samples: u32,
    seed: u64,
    is_limited: bool,
) -> Vec<u32> {
    let mut random = Random::new(seed);
    let size = coordinator.ranks.len();
    let mut ranks = vec![Simulated::default(); size];
    let mut now_s = 0.0;
    while !ranks.iter().all(|rank| rank.is_complete) {
        let index = random.below(size as u64) as usize;
        let rank = &mut ranks[index];
        if rank.is_complete {
            continue;
        }
        now_s += random.unit();
        let ended = rank.held.take().map(|held| {
            if random.unit() < 0.2 {
                return Ended::GivenBack;
            }
            rank.confirmed.extend(held);
            Ended::Confirmed
        });
        if random.unit() < 0.05 {
            let retracted = request(0, Some(Ended::Retracted));
            // What it has just processed is not confirmed, but given back with the rest.
            match coordinator.claim(index, round, samples, retracted, now_s) {
                Ok(Claim::Complete) => rank.is_complete = true,
                Ok(_) => rank.confirmed.clear(),
                Err(error) => panic!("{error}"),
            }
            continue;
        }
        let at_most = random.below(9) as u32;
        let claim = coordinator.claim(index, round, samples, request(at_most, ended), now_s);
        match claim.expect("the ranks are at the same step") {
            Claim::Samples { samples, .. } => {
                assert!(!samples.is_empty() && (len(&samples) <= at_most || !is_limited));
                rank.held = Some(samples);
            }
            Claim::Complete => rank.is_complete = true,
            Claim::Wait => {}
            Claim::Stop => panic!("no rank asked for it"),
        }
    }
    let mut confirmed = vec![0; samples as usize];
    for sample in ranks.iter().flat_map(|rank| &rank.confirmed) {
        confirmed[*sample as usize] += 1;
    }
    confirmed
}

#[test]
fn random_schedules_process_every_sample_once() {
    for seed in 0..300 {
        let size = 1 + (seed % 8) as usize;
        let mut coordinator = Coordinator::new(size);
        for round in 1..=4 {
            let samples = 1 + ((seed * 7 + round) % 61) as u32;
            let confirmed = random_step(&mut coordinator, round, samples, seed * 100 + round);
            assert!(confirmed.iter().all(|count| *count == 1), "seed {seed}");
            let ledger = coordinator.ledger();
            let total: u32 = ledger.iter().map(|share| len(&share.samples)).sum();
            assert_eq!(total, samples, "seed {seed}");
        }
    }
}

/// Each rank's claims in a step, as the ledger records them.
fn claims_of(ledger: &[Share], size: usize) -> Vec<Vec<Range<u32>>> {
    let claims = |rank| {
        let own = ledger.iter().filter(|share| share.rank == rank);
        own.map(|share| share.samples.clone()).collect()
    };
    (0..size).map(claims).collect()
}

#[test]
fn replayed_steps_repeat_the_claims_of_every_rank() {
    for seed in 0..100 {
        let size = 1 + (seed % 8) as usize;
        let samples = 1 + (seed * 7 % 61) as u32;
        let mut first = Coordinator::new(size);
        let steps: Vec<Vec<Share>> = (1..=3)
            .map(|round| {
                random_step(&mut first, round, samples, seed * 100 + round);
                first.ledger().to_vec()
            })
            .collect();
        let mut second = Coordinator::new(size);
        second.replay(steps.clone());
        for (round, recorded) in (1..).zip(&steps) {
            // Other claims, give-backs and retractions than those of the recorded step.
            let confirmed = replayed_step(&mut second, round, samples, seed * 900 + round);
            assert!(confirmed.iter().all(|count| *count == 1), "seed {seed}");
            let (found, expected) = (second.ledger(), recorded);
            assert_eq!(
                claims_of(found, size),
                claims_of(expected, size),
                "seed {seed}"
            );
        }
        // A step that was not recorded is distributed as usual.
        random_step(&mut second, 4, samples, seed);
    }
}

#[test]
fn a_replay_on_another_group_or_batch_is_refused() {
    let share = |rank, samples| Share { rank, samples };
    for (ledger, part) in [
        (
            vec![share(0, 0..4), share(2, 4..8)],
            "rank 2 of the recorded run is missing",
        ),
        (
            vec![share(0, 0..4), share(1, 4..7)],
            "this run, whose step has 8 samples",
        ),
        (
            vec![share(0, 0..5), share(1, 4..8)],
            "this run, whose step has 8 samples",
        ),
        (
            vec![share(0, 0..4), share(1, 4..u32::MAX)],
            "this run, whose step has 8 samples",
        ),
    ] {
        let mut coordinator = Coordinator::new(2);
        coordinator.replay(vec![ledger]);
        let refused = coordinator.claim(0, 1, 8, request(4, None), 0.0);
        let refused = refused
            .expect_err("the recorded step does not fit")
            .to_string();
        assert!(refused.contains(part), "{refused}");
    }
}

#[test]
fn a_rank_that_rests_is_not_waited_for() {
    let mut coordinator = Coordinator::new(2);
    let mut ended = None;
    let mut processed = 0;
    loop {
        match coordinator.claim(0, 1, 16, request(4, ended), f64::from(processed)) {
            Ok(Claim::Samples { samples, .. }) => {
                processed += len(&samples);
                ended = Some(Ended::Confirmed);
            }
            Ok(Claim::Complete) => break,
            other => panic!("{other:?} after {processed} samples"),
        }
    }
    assert_eq!(processed, 16);
    let answer = coordinator.claim(1, 1, 16, request(4, None), 99.0);
    assert_eq!(answer, Ok(Claim::Complete));
}

#[test]
fn rank_0_learns_first_that_a_step_is_complete_and_then_cannot_stop_it() {
    let mut coordinator = Coordinator::new(2);
    let all = coordinator.claim(1, 1, 1, request(8, None), 0.0);
    assert!(matches!(all, Ok(Claim::Samples { .. })));
    let done = request(8, Some(Ended::Confirmed));
    assert_eq!(coordinator.claim(1, 1, 1, done, 1.0), Ok(Claim::Wait));
    assert_eq!(
        coordinator.claim(0, 1, 1, request(8, None), 1.0),
        Ok(Claim::Complete)
    );
    let stop = ClaimRequest {
        stop: true,
        ..request(8, None)
    };
    assert_eq!(coordinator.claim(1, 1, 1, stop, 2.0), Ok(Claim::Complete));
    // The request takes effect in the next step.
    assert_eq!(
        coordinator.claim(0, 2, 1, request(8, None), 3.0),
        Ok(Claim::Stop)
    );
}

#[test]
fn a_stop_reaches_all_ranks() {
    let mut coordinator = Coordinator::new(3);
    let begin = coordinator.claim(2, 1, 30, request(4, None), 0.0);
    assert!(matches!(begin, Ok(Claim::Samples { .. })));
    let stop = ClaimRequest {
        stop: true,
        ..request(4, Some(Ended::Confirmed))
    };
    assert_eq!(coordinator.claim(2, 1, 30, stop, 1.0), Ok(Claim::Stop));
    for rank in [0, 1] {
        assert_eq!(
            coordinator.claim(rank, 1, 30, request(4, None), 2.0),
            Ok(Claim::Stop)
        );
    }
}

#[test]
fn claims_of_another_step_or_batch_are_refused() {
    let mut coordinator = Coordinator::new(2);
    assert!(coordinator.claim(0, 1, 8, request(4, None), 0.0).is_ok());
    let other_batch = coordinator.claim(1, 1, 9, request(4, None), 0.0);
    let message = other_batch.expect_err("9 is not 8").to_string();
    assert!(message.contains("8 samples, but 9 at rank 1"), "{message}");
    assert!(coordinator.claim(1, 2, 8, request(4, None), 0.0).is_err());
    let nothing_claimed = request(4, Some(Ended::Confirmed));
    assert!(coordinator.claim(1, 1, 8, nothing_claimed, 0.0).is_err());
}

#[test]
fn the_next_samples_of_a_rank_follow_its_claim() {
    let mut coordinator = Coordinator::new(2);
    let Ok(Claim::Samples { samples, next }) = coordinator.claim(0, 1, 32, request(4, None), 0.0)
    else {
        panic!("there are samples");
    };
    assert_eq!((samples, next), (0..4, 4..16));
}
