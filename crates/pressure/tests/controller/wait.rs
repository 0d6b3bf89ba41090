//! Pausing and parking when one sample does not fit, and coming back.

use crate::bench::{Bench, GB};
use pressure::{Action, Change, Outcome};

#[test]
fn it_pauses_when_one_sample_does_not_fit_and_continues_at_the_named_amount() {
    let mut bench = Bench::settled();
    while bench.others < 28 * GB {
        bench.others += GB / 10; // slowly: a faster rise would be answered by parking
        bench.turn();
    }
    let paused = bench.turn();
    assert_eq!((paused.action, paused.micro_batch()), (Action::Pause, None));
    assert_eq!(paused.change, Change::Hold, "it began earlier");
    bench.turns(700); // others hold still for a minute: no slope and no sudden growth are left
    let paused = bench.turn();
    let named = paused
        .reason
        .strip_prefix("other apps need the memory. Continues by itself at about ");
    let named = named
        .and_then(|rest| rest.strip_suffix(" GB free"))
        .expect("the amount is named");
    let free: f64 = named.parse().expect("a number");
    let with_free = |free: f64| 32 * GB - bench.own - (free * GB as f64) as u64;
    let (less, more) = (with_free(free - 0.2), with_free(free + 0.2));
    bench.others = less;
    assert_eq!(bench.turn().action, Action::Pause);
    bench.others = more;
    let waited = bench.turns(25);
    let back = waited
        .iter()
        .find(|d| d.action == Action::Run)
        .expect("it continues once its slope is forgotten");
    assert_eq!((back.change, back.micro_batch), (Change::Continue, 1));
    bench.others = 6 * GB;
    assert!(
        bench
            .turns(150)
            .iter()
            .any(|d| d.change == Change::Grow && d.micro_batch == 64)
    );
}

#[test]
fn it_parks_when_the_state_itself_will_not_fit_and_comes_back() {
    let mut bench = Bench::settled();
    let mut changes = Vec::new();
    for others in [28, 29, 30, 31, 31, 31] {
        bench.others = others * GB;
        let decision = bench.turn();
        if decision.action == Action::Park {
            bench.own = GB / 4;
        }
        changes.push(decision.change);
    }
    assert!(changes.contains(&Change::Park), "{changes:?}");
    assert_eq!(bench.decide().action, Action::Park);
    bench.others = 6 * GB;
    bench.at_ms += 3_000;
    assert_eq!(bench.turn().change, Change::Continue);
}

#[test]
fn a_run_of_one_sample_a_step_parks_and_comes_back() {
    let mut bench = Bench {
        batch: 1,
        remaining: 1,
        ..Bench::default()
    };
    bench.turns(700);
    let (mut changes, mut kept) = (Vec::new(), false);
    for others in [28, 29, 30, 31, 31, 31] {
        bench.others = others * GB;
        let decision = bench.turn();
        kept |= decision.checkpoint_first;
        if decision.action == Action::Park {
            bench.own = GB / 4;
        }
        changes.push(decision.change);
    }
    let at = |change| changes.iter().position(|it| *it == change);
    let (paused, parked) = (at(Change::Pause), at(Change::Park));
    assert!(parked.is_some() && paused < parked, "{changes:?}");
    assert!(kept, "a park rests on a checkpoint");
    assert_eq!(bench.decide().action, Action::Park);
    // A pause that follows finds the state dropped: what it reads is not the state.
    bench.others = 29 * GB;
    bench.turns(60);
    bench.others = 31 * GB;
    bench.turns(20);
    assert_ne!(bench.turn().action, Action::Run);
    bench.others = 6 * GB;
    bench.at_ms += 3_000;
    let back = bench.turn();
    assert_eq!(
        (back.change, back.micro_batch()),
        (Change::Continue, Some(1))
    );
    bench.others = 31 * GB;
    let again = bench.turns(5);
    assert_eq!(again[4].action, Action::Park, "{:?}", again[4]);
}

#[test]
fn a_single_sample_that_was_cancelled_waits_until_it_fits_properly() {
    let mut bench = Bench::settled();
    let drift = |bench: &mut Bench, to: f64| {
        for _ in 0..700 {
            let step =
                (to * GB as f64 - bench.others as f64).clamp(-0.05 * GB as f64, 0.05 * GB as f64);
            bench.others = (bench.others as f64 + step) as u64;
            bench.turn();
        }
    };
    drift(&mut bench, 27.0);
    assert_eq!(
        bench.turn().micro_batch,
        1,
        "between the budget line and the pause line"
    );
    bench.end(1, Outcome::Cancelled);
    assert_eq!(bench.turn().change, Change::Pause);
    drift(&mut bench, 26.7);
    assert_eq!(bench.turn().action, Action::Pause);
    drift(&mut bench, 25.5);
    assert_eq!(bench.turn().action, Action::Run);
}
