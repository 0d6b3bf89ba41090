//! The rungs beside the micro-batch: taken one by one where one sample a piece is all that fits, undone one by one in calm.

use crate::bench::{Bench, GB};
use pressure::{Action, Change, Decision, Moments, Outcome, Reserve, State, sentence};

/// A bench of four blocks that has settled in calm; a sample takes this much.
fn settled(sample_bytes: u64, moments_bytes: u64) -> Bench {
    let reserve = Reserve {
        blocks: 4,
        moments_bytes,
    };
    let mut bench = Bench {
        state: State::default().with_reserve(reserve),
        batch: 8,
        remaining: 8,
        sample_bytes,
        reserve,
        ..Bench::default()
    };
    bench.turns(900);
    assert_eq!((bench.blocks, bench.moments), (0, Moments::Resident));
    bench
}

/// Others rise or fall to `gigabytes`, slowly.
fn drift(bench: &mut Bench, gigabytes: f64) -> Vec<Decision> {
    let to = (gigabytes * GB as f64) as u64;
    let mut decisions = Vec::new();
    while bench.others != to {
        let step = bench.others.abs_diff(to).min(GB / 20);
        match bench.others < to {
            true => bench.others += step,
            false => bench.others -= step,
        }
        decisions.push(bench.turn());
    }
    decisions
}

fn rungs(decisions: &[Decision]) -> Vec<(Change, u32, Moments)> {
    let of_a_rung = |d: &&Decision| {
        matches!(
            d.change,
            Change::CheckpointMore | Change::CheckpointLess | Change::Moments
        )
    };
    decisions
        .iter()
        .filter(of_a_rung)
        .map(|d| (d.change, d.checkpoint_blocks, d.moments))
        .collect()
}

fn nothing_is_predicted_over_the_budget(decisions: &[Decision]) {
    for d in decisions {
        assert!(
            d.micro_batch <= 1 || d.predicted_peak_bytes <= d.budget_bytes,
            "{d:?}"
        );
    }
}

const MORE: fn(u32) -> (Change, u32, Moments) =
    |blocks| (Change::CheckpointMore, blocks, Moments::Resident);
const LESS: fn(u32) -> (Change, u32, Moments) =
    |blocks| (Change::CheckpointLess, blocks, Moments::Resident);

#[test]
fn blocks_are_checkpointed_one_by_one_after_half_a_minute_at_one_sample() {
    let mut bench = settled(2 * GB, 0);
    drift(&mut bench, 23.0);
    let begun = bench.at_ms;
    let mut decisions = Vec::new();
    while rungs(&decisions).is_empty() {
        decisions.push(bench.turn());
    }
    let waited = bench.at_ms - begun;
    assert!((25_000..=40_000).contains(&waited), "{waited} ms");
    let first = decisions.last().expect("the rung");
    assert_eq!((first.action, first.micro_batch), (Action::Run, 1));
    let told = sentence(1, first);
    assert!(
        told.starts_with(
            "Computing 1 block twice instead of keeping its activations: only one sample a piece has fitted for 3"
        ),
        "{told}"
    );
    decisions.extend(bench.turns(900));
    let taken = rungs(&decisions);
    assert_eq!(taken[..2], [MORE(1), MORE(2)]);
    nothing_is_predicted_over_the_budget(&decisions);
}

#[test]
fn it_stops_taking_rungs_once_two_samples_fit() {
    let mut bench = settled(2 * GB, 0);
    drift(&mut bench, 23.5);
    bench.turns(2_000);
    assert!((1..4).contains(&bench.blocks), "{} blocks", bench.blocks);
    assert!(bench.turns(20).iter().any(|d| d.micro_batch == 2));
}

#[test]
fn a_shortage_that_passes_within_half_a_minute_takes_no_rung() {
    let mut bench = settled(2 * GB, GB);
    let mut decisions = drift(&mut bench, 23.0);
    decisions.extend(bench.turns(100));
    assert!(decisions.iter().any(|d| d.micro_batch == 1));
    decisions.extend(drift(&mut bench, 6.0));
    decisions.extend(bench.turns(900));
    assert_eq!(rungs(&decisions), []);
}

#[test]
fn rungs_are_undone_one_by_one_after_long_calm_last_first() {
    let mut bench = settled(2 * GB, GB);
    drift(&mut bench, 26.9);
    bench.turns(1_500);
    assert_eq!((bench.blocks, bench.moments), (4, Moments::Mapped));
    let free = bench.at_ms;
    let mut decisions = drift(&mut bench, 6.0);
    while bench.moments == Moments::Mapped {
        decisions.push(bench.turn());
    }
    let waited = bench.at_ms - free;
    assert!((60_000..=100_000).contains(&waited), "{waited} ms");
    decisions.extend(bench.turns(3_000));
    let back = (Change::Moments, 4, Moments::Resident);
    assert_eq!(
        rungs(&decisions),
        [back, LESS(3), LESS(2), LESS(1), LESS(0)]
    );
    assert_eq!(bench.turn().micro_batch, 8);
    nothing_is_predicted_over_the_budget(&decisions);
}

#[test]
fn moments_go_to_a_file_only_where_that_lets_a_sample_in() {
    for (moments_bytes, expected) in [(GB / 64, Moments::Resident), (GB, Moments::Mapped)] {
        let mut bench = settled(2 * GB, moments_bytes);
        drift(&mut bench, 26.9);
        bench.turns(1_500);
        assert_eq!((bench.blocks, bench.moments), (4, expected));
    }
}

#[test]
fn moments_stay_where_the_disk_has_no_room_for_them() {
    let mut bench = settled(2 * GB, GB);
    bench.disk = Some(5 * GB / 2);
    drift(&mut bench, 26.9);
    bench.turns(1_500);
    assert_eq!((bench.blocks, bench.moments), (4, Moments::Resident));
}

#[test]
fn a_training_that_waits_takes_rungs_until_one_sample_fits() {
    let mut bench = settled(4 * GB, 0);
    let decisions = drift(&mut bench, 24.9);
    let last = decisions.last().expect("it drifted");
    assert_eq!(last.action, Action::Pause);
    let waited = bench.turns(900);
    let first = waited
        .iter()
        .find(|d| d.change == Change::CheckpointMore)
        .expect("a rung");
    let told = sentence(0, first);
    assert!(
        told.contains(": not even one sample a piece has fitted for 3"),
        "{told}"
    );
    assert_eq!(waited.last().map(|d| d.action), Some(Action::Run));
}

#[test]
fn the_first_sample_after_a_rung_tells_what_the_next_needs() {
    let mut bench = settled(2 * GB, 0);
    drift(&mut bench, 23.0);
    while bench.blocks == 0 {
        bench.turn();
    }
    bench.turn();
    let next = bench.turn();
    let truth = bench.held() + u64::from(next.micro_batch) * bench.each();
    let off = next.predicted_peak_bytes as f64 / truth as f64;
    assert!((1.0..1.05).contains(&off), "{off} of the truth");
}

#[test]
fn small_pieces_that_are_much_slower_take_a_rung_too() {
    /// Milliseconds of a piece by its size.
    type Pace = fn(u32) -> f64;
    let paces: [(Pace, bool); 2] = [
        (|m| 400.0 + 10.0 * f64::from(m), true),
        (|m| 20.0 + 400.0 * f64::from(m), false),
    ];
    for (pace, expected) in paces {
        let mut bench = settled(2 * GB, 0);
        bench.pace = pace;
        bench.state = State::default().with_reserve(bench.reserve);
        bench.turns(900);
        drift(&mut bench, 20.0);
        let decisions = bench.turns(600);
        assert!(decisions.iter().all(|d| d.micro_batch > 1));
        assert_eq!(!rungs(&decisions).is_empty(), expected);
    }
}

#[test]
fn a_single_sample_that_is_refused_takes_a_rung_at_once() {
    let mut bench = settled(2 * GB, 0);
    drift(&mut bench, 23.0);
    bench.turns(5);
    bench.end(1, Outcome::Memory);
    let first = bench.turn();
    assert_eq!(
        (first.change, first.micro_batch),
        (Change::CheckpointMore, 1)
    );
    assert_eq!(
        sentence(1, &first),
        "Computing 1 block twice instead of keeping its activations: even one sample was refused"
    );
    assert!(bench.turns(20).iter().all(|d| d.change == Change::Hold));
}

#[test]
fn a_fixed_micro_batch_and_a_machine_that_cannot_be_read_take_no_rung() {
    for blind in [true, false] {
        let mut bench = settled(2 * GB, GB);
        bench.blind = blind;
        bench.policy.fixed_micro_batch = (!blind).then_some(8);
        let mut decisions = drift(&mut bench, 26.9);
        decisions.extend(bench.turns(1_500));
        assert_eq!(rungs(&decisions), []);
    }
}

#[test]
fn a_rung_taken_again_soon_after_it_was_undone_waits_twice_as_long_to_be_undone() {
    let mut bench = settled(2 * GB, 0);
    let calm_until_undone = |bench: &mut Bench| {
        drift(bench, 23.0);
        while bench.blocks == 0 {
            bench.turn();
        }
        drift(bench, 6.0);
        let begun = bench.at_ms;
        while bench.blocks > 0 {
            bench.turn();
        }
        bench.at_ms - begun
    };
    let first = calm_until_undone(&mut bench);
    let second = calm_until_undone(&mut bench);
    assert!(second > first + 50_000, "{first} ms, then {second} ms");
}
