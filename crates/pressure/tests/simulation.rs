//! The controller against a machine of 36 GB with other apps on it, ten minutes a run: nine kinds of others on twenty
//! machines. The rules were tuned on machines 0 to 9; 10 to 19 are reported apart. The world is a model, not a Mac: work
//! slows above .92 of memory in use, the system kills at 1.06, and its own level is late.

mod world;

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use world::{END, Fixed, Flight, Outcome, Rounding, TRACES, Trace, Truth, Who, fly, others, run};

const TUNED: Range<u32> = 0..10;
const HELD_OUT: Range<u32> = 10..20;
/// The slow start is over, seconds.
const STARTED: f64 = 30.0;

/// All runs of these machines, worked off by all cores.
fn flights(seeds: Range<u32>, rounding: Rounding) -> Vec<(Trace, Flight)> {
    let jobs: Vec<_> = TRACES
        .into_iter()
        .flat_map(|trace| seeds.clone().map(move |seed| (trace, seed)))
        .collect();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(&(trace, seed)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let flight = fly(trace, seed, rounding);
            done.lock().expect("no run panics").push((trace, flight));
        }
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    done.into_inner().expect("no run panics")
}

/// One line of the table.
#[derive(Debug)]
struct Row {
    killed: u32,
    over_percent: f64,
    of_oracle: f64,
    worst: f64,
    reaction_s: f64,
    late_reaction_s: f64,
    voluntary: f64,
    in_a_minute: usize,
    changes: f64,
    recovery_s: f64,
    late_recovery_s: f64,
}

impl Row {
    fn of(flights: &[&Flight]) -> Self {
        let runs = flights.len() as f64;
        let minutes = runs * END / 60.0;
        let total = |of: fn(&Flight) -> f64| flights.iter().map(|flight| of(flight)).sum::<f64>();
        let mut reactions: Vec<f64> = flights
            .iter()
            .flat_map(|flight| flight.ebb.reactions_s.iter().copied())
            .collect();
        reactions.sort_by(f64::total_cmp);
        let reaction = |share: f64| {
            let index = (share * reactions.len() as f64) as usize;
            let index = index.min(reactions.len().saturating_sub(1));
            reactions.get(index).copied().unwrap_or(0.0)
        };
        let recoveries: Vec<f64> = flights.iter().filter_map(|f| f.recovery_s).collect();
        Self {
            killed: flights.iter().map(|flight| flight.ebb.killed).sum(),
            over_percent: 100.0 * total(|flight| flight.ebb.over_s) / (runs * END),
            of_oracle: total(|flight| flight.of_oracle) / runs,
            worst: flights.iter().map(|f| f.of_oracle).fold(9.0, f64::min),
            reaction_s: reaction(0.5),
            late_reaction_s: reaction(0.99),
            voluntary: total(|flight| flight.ebb.voluntary.len() as f64) / minutes,
            in_a_minute: flights
                .iter()
                .map(|flight| flight.ebb.most_in_a_minute())
                .max()
                .unwrap_or(0),
            changes: total(|flight| f64::from(flight.ebb.changes)) / minutes,
            recovery_s: recoveries.iter().sum::<f64>() / recoveries.len().max(1) as f64,
            late_recovery_s: recoveries.iter().copied().fold(0.0, f64::max),
        }
    }

    fn print(&self, of: &str, seeds: &Range<u32>) {
        println!(
            "{of:9} {:>2}-{:<2} {:6} {:6.2} {:8.3} {:5.2} {:7.2} {:5.2} {:9.2} {:5} {:6.2} {:8.1} {:5.1}",
            seeds.start,
            seeds.end - 1,
            self.killed,
            self.over_percent,
            self.of_oracle,
            self.worst,
            self.reaction_s,
            self.late_reaction_s,
            self.voluntary,
            self.in_a_minute,
            self.changes,
            self.recovery_s,
            self.late_recovery_s
        );
    }
}

/// Prints the table of these machines and gives its last line.
fn table(seeds: Range<u32>, rounding: Rounding) -> Row {
    println!(
        "{:9} seeds killed over % oracle-> worst react50   p99 voluntary in-60 chg/m recovery worst",
        "trace"
    );
    let flights = flights(seeds.clone(), rounding);
    for trace in TRACES {
        let of = flights.iter().filter(|(t, _)| *t == trace);
        let of: Vec<_> = of.map(|(_, flight)| flight).collect();
        Row::of(&of).print(&format!("{trace:?}"), &seeds);
    }
    let all: Vec<_> = flights.iter().map(|(_, flight)| flight).collect();
    let row = Row::of(&all);
    row.print("all", &seeds);
    tell_more(&all);
    row
}

/// What else happened, a run, and how well footprints were predicted after twelve pieces.
fn tell_more(flights: &[&Flight]) {
    let mean = |of: fn(&Outcome) -> f64| {
        flights.iter().map(|flight| of(&flight.ebb)).sum::<f64>() / flights.len() as f64
    };
    let mut errors: Vec<f64> = flights
        .iter()
        .flat_map(|flight| flight.ebb.peaks.iter().skip(12))
        .map(|(predicted, measured)| (predicted / measured - 1.0).abs())
        .collect();
    errors.sort_by(f64::total_cmp);
    let quantile = |q: f64| 100.0 * errors[(q * (errors.len() - 1) as f64) as usize];
    println!(
        "a run: critical {:.2} s, {:.1} cancels, {:.2} refused, {:.2} parks, {:.1} checkpoints for one, {:.1} s paused; peaks predicted within {:.1} % (median), {:.1} % (p95)",
        mean(|o| o.critical_s),
        mean(|o| f64::from(o.cancels)),
        mean(|o| f64::from(o.refused)),
        mean(|o| f64::from(o.parks)),
        mean(|o| f64::from(o.checkpoints)),
        mean(|o| o.paused_s),
        quantile(0.5),
        quantile(0.95)
    );
}

fn check(seeds: Range<u32>, rounding: Rounding) {
    let row = table(seeds, rounding);
    assert_eq!(row.killed, 0, "{row:?}");
    assert!(row.of_oracle >= 0.92 && row.worst >= 0.75, "{row:?}");
    assert!(row.over_percent <= 0.5, "{row:?}");
    assert!(
        row.reaction_s <= 0.25 && row.late_reaction_s <= 1.5,
        "{row:?}"
    );
    assert!(row.voluntary <= 3.0 && row.in_a_minute <= 6, "{row:?}");
    assert!(row.late_recovery_s <= 8.0, "{row:?}");
}

#[test]
fn nobody_is_killed_and_the_work_goes_on_on_the_machines_that_the_rules_were_tuned_on() {
    check(TUNED, Rounding::Exact);
}

#[test]
fn and_on_machines_that_they_were_not() {
    check(HELD_OUT, Rounding::Exact);
}

/// Where the edges of the allocator's classes must be found out on the way, and not forgotten; the rule of one straight line made .805.
#[test]
fn an_allocator_of_powers_of_two_is_flown_as_well() {
    check(0..3, Rounding::PowerOfTwo);
}

/// Half of a sample's memory in classes of a sixteenth of the room for it, as kernels' own outputs lie.
#[test]
fn and_one_of_powers_of_two_beside_finer_classes() {
    check(0..3, Rounding::Mixed);
}

/// Samples a second from `since` on.
fn pace(done: &[(f64, f64)], since: f64) -> f64 {
    let after: f64 = done.iter().filter(|d| d.0 >= since).map(|d| d.1).sum();
    after / (END - since)
}

/// Whoever had known the machine would have chosen the best size that never crosses the line and is never refused. Above 1 are
/// machines where that size is spoilt by a few heavy samples, of which the pilot takes fewer at a time.
#[test]
fn without_pressure_the_pilot_costs_a_hundredth_of_the_best_fixed_size() {
    let (mut steady, mut whole) = (Vec::new(), Vec::new());
    for seed in TUNED.start..HELD_OUT.end {
        let truth = Truth::of(seed, Rounding::Exact);
        let calm = others(Trace::Calm, seed);
        let ebb = fly(Trace::Calm, seed, Rounding::Exact).ebb;
        let fixed = (1..=64).rev().map(|pieces| 64u32.div_ceil(pieces));
        let kept = fixed.filter_map(|size| {
            let fixed = run(Who::Flyer(&mut Fixed(size)), &truth, &calm, seed);
            let kept = fixed.refused == 0 && fixed.killed == 0 && fixed.over_s == 0.0;
            kept.then_some((size, fixed.finished))
        });
        let kept: Vec<_> = kept.collect();
        let of_best = |since| {
            let paces = kept.iter().map(|(size, done)| (*size, pace(done, since)));
            let best = paces.fold((0, 0.0), |a, b| if b.1 > a.1 { b } else { a });
            (best.0, pace(&ebb.finished, since) / best.1)
        };
        let ((size, after), (_, all)) = (of_best(STARTED), of_best(0.0));
        println!(
            "machine {seed}: {after:.3} of the best fixed size, {size}; {all:.3} with the slow start"
        );
        steady.push(after);
        whole.push(all);
    }
    for shares in [steady, whole] {
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        println!("mean {mean:.3}");
        assert!(mean >= 0.99, "{mean}");
    }
}

/// Of the same machine written independently in Python: trace, seed, mean use of others in GB, and for the oracle the samples
/// done, for a fixed micro-batch of 16 the samples done, kills and seconds over the line.
const ELSEWHERE: [(Trace, u32, f64, f64, f64, u32, f64); 27] = [
    (Trace::Calm, 0, 7.0802, 44416.0, 42064.0, 0, 0.00),
    (Trace::Calm, 1, 7.0799, 34496.0, 30400.0, 0, 0.00),
    (Trace::Calm, 13, 7.0794, 40384.0, 35056.0, 0, 0.00),
    (Trace::Step, 0, 13.4666, 44080.0, 42064.0, 0, 0.00),
    (Trace::Step, 1, 13.4664, 33888.0, 30400.0, 0, 0.00),
    (Trace::Step, 13, 13.4658, 40512.0, 35056.0, 0, 0.00),
    (Trace::HogLeaves, 0, 11.2565, 43328.0, 32720.0, 0, 177.90),
    (Trace::HogLeaves, 1, 11.2562, 33344.0, 30400.0, 0, 0.55),
    (Trace::HogLeaves, 13, 11.2557, 39936.0, 35056.0, 0, 0.00),
    (Trace::Ramp, 0, 14.3096, 36384.0, 28520.0, 1, 208.25),
    (Trace::Ramp, 1, 14.3093, 24448.0, 22560.0, 0, 186.90),
    (Trace::Ramp, 13, 14.3088, 38400.0, 34416.0, 0, 185.35),
    (Trace::Sawtooth, 0, 13.0747, 43920.0, 41520.0, 0, 58.15),
    (Trace::Sawtooth, 1, 13.0744, 34048.0, 30400.0, 0, 0.00),
    (Trace::Sawtooth, 13, 13.0739, 40448.0, 35056.0, 0, 0.00),
    (Trace::Spike, 0, 7.4801, 44384.0, 42064.0, 0, 0.00),
    (Trace::Spike, 1, 7.4798, 34496.0, 30400.0, 0, 0.00),
    (Trace::Spike, 13, 7.4793, 40384.0, 35056.0, 0, 0.00),
    (Trace::Noise, 0, 13.7658, 43776.0, 40704.0, 0, 56.95),
    (Trace::Noise, 1, 13.2579, 34048.0, 30256.0, 0, 9.20),
    (Trace::Noise, 13, 12.7187, 40416.0, 35056.0, 0, 0.00),
    (Trace::Leak, 0, 16.5802, 38347.0, 29616.0, 1, 212.80),
    (Trace::Leak, 1, 16.5799, 28890.0, 25328.0, 0, 111.20),
    (Trace::Leak, 13, 16.5794, 38728.0, 33168.0, 0, 83.00),
    (Trace::NoWayOut, 0, 9.4483, 40256.0, 21354.0, 3, 2.05),
    (Trace::NoWayOut, 1, 9.4480, 30736.0, 15070.0, 3, 0.95),
    (Trace::NoWayOut, 13, 9.4475, 36352.0, 26504.0, 1, 1.05),
];

#[test]
fn another_implementation_of_the_machine_does_the_same_work() {
    for (trace, seed, used, oracle, done, killed, over_s) in ELSEWHERE {
        let (truth, others) = (Truth::of(seed, Rounding::Exact), others(trace, seed));
        let mean = others.iter().sum::<f64>() / others.len() as f64;
        let best = run(Who::Oracle, &truth, &others, seed);
        let fixed = run(Who::Flyer(&mut Fixed(16)), &truth, &others, seed);
        let near = |got: f64, expected: f64| (got - expected).abs() <= 0.002 * expected + 0.05;
        assert!(
            near(mean, used) && near(best.done, oracle) && near(fixed.done, done),
            "{trace:?} {seed}: others {mean}, oracle {}, fixed {}",
            best.done,
            fixed.done
        );
        assert_eq!(fixed.killed, killed, "{trace:?} {seed}");
        assert!(
            near(fixed.over_s, over_s),
            "{trace:?} {seed}: {}",
            fixed.over_s
        );
    }
}

#[test]
fn a_step_of_8_gb_is_answered_before_the_first_critical_sample_and_speed_returns() {
    for seed in 0..3 {
        let flight = fly(Trace::StepAndBack, seed, Rounding::Exact);
        let o = flight.ebb;
        let before = o.size_at(119.0);
        let shrunk = o
            .first_size_below(before, 120.0)
            .expect("8 GB more of others need an answer");
        let critical = o.first_critical_s.unwrap_or(f64::INFINITY);
        assert!(
            shrunk < critical,
            "seed {seed}: shrunk at {shrunk} s, critical at {critical} s"
        );
        let back = flight.recovery_s.expect("others leave at 301 s");
        assert!(back <= 8.0, "seed {seed}: .90 of the speed after {back} s");
    }
}
