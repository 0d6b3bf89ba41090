//! When a piece gets larger again, how often, and when that is not worth it.

use crate::bench::{Bench, GB, TRAIN};
use pressure::{Change, sentence};

#[test]
fn it_grows_back_after_calm_in_a_jump_or_two() {
    let mut bench = Bench::settled();
    bench.others = 20 * GB;
    bench.turns(20);
    assert!(bench.state.micro_batch(TRAIN) < 64);
    bench.others = 6 * GB;
    let decisions = bench.turns(120);
    let grown: Vec<_> = decisions
        .iter()
        .filter(|d| d.change == Change::Grow)
        .collect();
    assert!(grown.len() <= 2, "{grown:?}");
    assert_eq!(grown.last().map(|d| d.micro_batch), Some(64));
    assert!(
        grown[0].reason.starts_with("memory has been free for "),
        "{}",
        grown[0].reason
    );
    let waited = decisions
        .iter()
        .position(|d| d.change == Change::Grow)
        .expect("it grew");
    assert!(waited <= 80, "8 s at most, not {waited} tenths");
}

#[test]
fn growth_that_is_undone_at_once_asks_for_twice_the_calm() {
    // Little is to be won, so the calm is waited for in full.
    let mut bench = Bench {
        pace: |m| 10.0 * f64::from(m) - f64::from(m * m) / 100.0,
        ..Bench::default()
    };
    bench.turns(700);
    let mut calms = Vec::new();
    for _ in 0..3 {
        bench.others = 20 * GB;
        bench.turns(10);
        bench.others = 6 * GB;
        let turns = (0..400)
            .position(|_| bench.turn().change == Change::Grow)
            .expect("it grows back");
        calms.push(turns);
    }
    assert!(
        calms[1] > calms[0] + 30 && calms[2] > calms[1] + 60,
        "{calms:?}"
    );
}

#[test]
fn where_much_is_to_be_won_less_calm_is_waited_for() {
    let mut bench = Bench {
        pace: |m| 200.0 + f64::from(m),
        ..Bench::default()
    };
    bench.turns(700);
    bench.others = 20 * GB;
    bench.turns(50);
    bench.others = 6 * GB;
    let turns = (0..400)
        .position(|_| bench.turn().change == Change::Grow)
        .expect("it grows back");
    assert!((10..25).contains(&turns), "{turns} tenths of a second");
}

#[test]
fn a_size_that_is_no_faster_is_not_kept() {
    let mut bench = Bench {
        pace: |m| 40.0 + 10.0 * f64::from(m.max(8)) + 60.0 * f64::from(m.saturating_sub(8)),
        ..Bench::default()
    };
    let decisions = bench.turns(900);
    let last = decisions.last().expect("there were decisions");
    assert_eq!(bench.state.micro_batch(TRAIN), 8);
    assert_eq!(
        sentence(8, last),
        "Holding at 8: a larger micro-batch is no faster here"
    );
}

#[test]
fn however_others_move_there_are_at_most_six_voluntary_changes_a_minute() {
    let mut bench = Bench::settled();
    // Growth that waits for next to nothing would change twenty times a minute.
    (
        bench.policy.grow_after_ms,
        bench.policy.grow_after_most_ms,
        bench.policy.grow_apart_ms,
    ) = (200, 200, 0);
    let mut grown = Vec::new();
    for second in 0..240 {
        bench.others = if second % 6 < 1 { 20 * GB } else { 6 * GB };
        for _ in 0..10 {
            bench.remaining = 64;
            let decision = bench.turn();
            if decision.change == Change::Grow {
                grown.push(bench.at_ms);
            }
        }
    }
    let within = |from: &u64| {
        grown
            .iter()
            .filter(|at| (*from..=from + 60_000).contains(at))
            .count()
    };
    assert_eq!(grown.iter().map(within).max(), Some(6));
}
