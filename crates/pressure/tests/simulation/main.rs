//! The controller on a simulated machine of 36 GB with other apps, ten minutes per run: nine
//! patterns of other apps on twenty machines. The rules were tuned on machines 0 to 9; 10 to 19
//! are held out. The world is a model, not a Mac: work slows down above 0.92 of memory in use, the
//! system kills at 1.06, and its own level is late.

mod world;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use world::{
    ARRIVALS, Comparison, END, Fixed, MemoryPattern, Outcome, PATTERNS, Rounding, Samples, Truth,
    Who, World, compare, compare_in, others, run,
};

const TUNED: Range<u32> = 0..10;
const HELD_OUT: Range<u32> = 10..20;
/// The slow start is over, seconds.
const STARTED: f64 = 30.0;

/// All runs of these machines, on all cores. `machine` makes the machine of a seed.
fn compare_all(
    patterns: &[MemoryPattern],
    seeds: Range<u32>,
    machine: impl Fn(u32) -> Truth + Sync,
    world: World,
) -> Vec<(MemoryPattern, Comparison)> {
    let jobs: Vec<_> = patterns
        .iter()
        .flat_map(|pattern| seeds.clone().map(move |seed| (*pattern, seed)))
        .collect();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(&(pattern, seed)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let comparison = compare_in(world, &machine(seed), pattern, seed);
            done.lock()
                .expect("no run panics")
                .push((pattern, comparison));
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
    fn new(runs: &[&Comparison]) -> Self {
        let count = runs.len() as f64;
        let minutes = count * END / 60.0;
        let total = |of: fn(&Comparison) -> f64| runs.iter().map(|run| of(run)).sum::<f64>();
        let mut reactions: Vec<f64> = runs
            .iter()
            .flat_map(|run| run.ebb.reactions_s.iter().copied())
            .collect();
        reactions.sort_by(f64::total_cmp);
        let reaction = |share: f64| {
            let index = (share * reactions.len() as f64) as usize;
            let index = index.min(reactions.len().saturating_sub(1));
            reactions.get(index).copied().unwrap_or(0.0)
        };
        let recoveries: Vec<f64> = runs.iter().filter_map(|f| f.recovery_s).collect();
        Self {
            killed: runs.iter().map(|run| run.ebb.killed).sum(),
            over_percent: 100.0 * total(|run| run.ebb.over_s) / (count * END),
            of_oracle: total(|run| run.of_oracle) / count,
            worst: runs.iter().map(|f| f.of_oracle).fold(9.0, f64::min),
            reaction_s: reaction(0.5),
            late_reaction_s: reaction(0.99),
            voluntary: total(|run| run.ebb.voluntary.len() as f64) / minutes,
            in_a_minute: runs
                .iter()
                .map(|run| run.ebb.most_in_a_minute())
                .max()
                .unwrap_or(0),
            changes: total(|run| f64::from(run.ebb.changes)) / minutes,
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

/// Prints the table of these machines and returns its last line.
fn table(seeds: Range<u32>, rounding: Rounding) -> Row {
    println!(
        "{:9} seeds killed over % oracle-> worst react50   p99 voluntary in-60 chg/m recovery worst",
        "pattern"
    );
    let machine = |seed| Truth::new(seed, rounding);
    let runs = compare_all(&PATTERNS, seeds.clone(), machine, World::PLAIN);
    for pattern in PATTERNS {
        let of = runs.iter().filter(|(t, _)| *t == pattern);
        let of: Vec<_> = of.map(|(_, run)| run).collect();
        Row::new(&of).print(&format!("{pattern:?}"), &seeds);
    }
    let all: Vec<_> = runs.iter().map(|(_, run)| run).collect();
    let row = Row::new(&all);
    row.print("all", &seeds);
    print_details(&all);
    row
}

/// Prints other events per run, and the errors of the predicted footprints after the first twelve
/// micro-batches.
fn print_details(runs: &[&Comparison]) {
    let mean = |of: fn(&Outcome) -> f64| {
        runs.iter().map(|run| of(&run.ebb)).sum::<f64>() / runs.len() as f64
    };
    let mut errors: Vec<f64> = runs
        .iter()
        .flat_map(|run| run.ebb.peaks.iter().skip(12))
        .map(|(predicted, measured)| (predicted / measured - 1.0).abs())
        .collect();
    errors.sort_by(f64::total_cmp);
    let quantile = |q: f64| 100.0 * errors[(q * (errors.len() - 1) as f64) as usize];
    println!(
        "per run: critical {:.2} s, {:.1} cancels, {:.2} refused, {:.2} suspensions, {:.1} checkpoints, {:.1} s paused; peaks predicted within {:.1} % (median), {:.1} % (p95)",
        mean(|o| o.critical_s),
        mean(|o| f64::from(o.cancels)),
        mean(|o| f64::from(o.refused)),
        mean(|o| f64::from(o.suspensions)),
        mean(|o| f64::from(o.checkpoints)),
        mean(|o| o.paused_s),
        quantile(0.5),
        quantile(0.95)
    );
}

/// The words of an environment variable, between commas.
fn list(variable: &str) -> Option<Vec<String>> {
    let text = std::env::var(variable).ok()?;
    Some(text.split(',').map(str::to_owned).collect())
}

/// Prints the runs with the smallest shares, and how their sizes changed, if `EBB_WORST` says how
/// many.
fn print_worst(runs: &[(MemoryPattern, Comparison)]) {
    let count =
        std::env::var("EBB_WORST").map_or(0, |count| count.parse().expect("EBB_WORST is a number"));
    let mut worst: Vec<_> = runs.iter().collect();
    worst.sort_by(|a, b| a.1.of_oracle.total_cmp(&b.1.of_oracle));
    for (pattern, run) in worst.into_iter().take(count) {
        let ebb = &run.ebb;
        println!(
            "  {pattern:?} {}: {:.3} of the oracle; {} killed, {} refused, {} cancels, {} suspensions, {} checkpoints, {:.0} s paused, {:.1} s over",
            run.seed,
            run.of_oracle,
            ebb.killed,
            ebb.refused,
            ebb.cancels,
            ebb.suspensions,
            ebb.checkpoints,
            ebb.paused_s,
            ebb.over_s
        );
        let mut sizes = ebb.sizes.clone();
        sizes.dedup_by_key(|(_, size)| *size);
        let sizes = sizes.iter().map(|(t, size)| format!("{t:.1}:{size}"));
        println!("    {}", sizes.collect::<Vec<_>>().join(" "));
        println!("    best {:?}", run.best_sizes);
        println!("    {}", describe_lost(&run.lost));
    }
}

/// Prints the mean losses against the oracle if `EBB_LOST` is set.
fn print_lost(runs: &[(MemoryPattern, Comparison)]) {
    if std::env::var_os("EBB_LOST").is_none() {
        return;
    }
    let mut mean: BTreeMap<&str, f64> = BTreeMap::new();
    for (cause, lost) in runs.iter().flat_map(|(_, run)| &run.lost) {
        *mean.entry(cause).or_default() += lost / runs.len() as f64;
    }
    let mut mean: Vec<_> = mean.into_iter().map(|(c, l)| (c.to_owned(), l)).collect();
    mean.sort_by(|a, b| b.1.total_cmp(&a.1));
    println!("  lost: {}", describe_lost(&mean));
}

/// Losses in percent of the oracle's samples.
fn describe_lost(lost: &[(String, f64)]) -> String {
    let large = lost.iter().filter(|(_, lost)| lost.abs() >= 0.0005);
    let parts = large.map(|(cause, lost)| format!("{cause} {:.1} %", 100.0 * lost));
    parts.collect::<Vec<_>>().join("; ")
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
fn the_tuned_machines_reach_their_targets() {
    check(TUNED, Rounding::Exact);
}

#[test]
fn the_held_out_machines_reach_their_targets() {
    check(HELD_OUT, Rounding::Exact);
}

/// The class edges of the allocator must be learned on the way and not forgotten. One straight
/// line reached only 0.805.
#[test]
fn a_power_of_two_allocator_reaches_the_targets() {
    check(0..3, Rounding::PowerOfTwo);
}

/// Half of a sample's memory is in classes of a sixteenth of its capacity, as the outputs of
/// kernels are.
#[test]
fn a_mixed_allocator_reaches_the_targets() {
    check(0..3, Rounding::Mixed);
}

/// Throughput in samples per second, from the time `since` to the end.
fn pace(done: &[(f64, f64)], since: f64) -> f64 {
    let after: f64 = done.iter().filter(|d| d.0 >= since).map(|d| d.1).sum();
    after / (END - since)
}

/// The reference is the best fixed size that never crosses the line and is never refused. The
/// controller can be faster if a few heavy samples limit that size, since it uses smaller
/// micro-batches only for those.
#[test]
fn without_pressure_ebb_reaches_99_percent_of_the_best_size() {
    let (mut steady, mut complete) = (Vec::new(), Vec::new());
    for seed in TUNED.start..HELD_OUT.end {
        let truth = Truth::new(seed, Rounding::Exact);
        let calm = others(truth.ram, MemoryPattern::Calm, seed);
        let ebb = compare(MemoryPattern::Calm, seed, Rounding::Exact).ebb;
        let fixed = (1..=64).rev().map(|count| 64u32.div_ceil(count));
        let safe = fixed.filter_map(|size| {
            let fixed = run(Who::Strategy(&mut Fixed(size)), &truth, &calm, seed);
            let is_safe = fixed.refused == 0 && fixed.killed == 0 && fixed.over_s == 0.0;
            is_safe.then_some((size, fixed.finished))
        });
        let safe: Vec<_> = safe.collect();
        let of_best = |since| {
            let paces = safe.iter().map(|(size, done)| (*size, pace(done, since)));
            let best = paces.fold((0, 0.0), |a, b| if b.1 > a.1 { b } else { a });
            (best.0, pace(&ebb.finished, since) / best.1)
        };
        let ((size, after), (_, all)) = (of_best(STARTED), of_best(0.0));
        println!(
            "machine {seed}: {after:.3} of the throughput of the best fixed size ({size}); with the slow start: {all:.3}"
        );
        steady.push(after);
        complete.push(all);
    }
    for shares in [steady, complete] {
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        println!("mean {mean:.3}");
        assert!(mean >= 0.99, "{mean}");
    }
}

/// Results of an independent implementation in Python: pattern, seed, mean use of others in GB,
/// samples done by the oracle, and for a fixed micro-batch of 16 samples done, kills and seconds
/// over the line.
const ELSEWHERE: [(MemoryPattern, u32, f64, f64, f64, u32, f64); 27] = [
    (MemoryPattern::Calm, 0, 7.0802, 44416.0, 42064.0, 0, 0.00),
    (MemoryPattern::Calm, 1, 7.0799, 34496.0, 30400.0, 0, 0.00),
    (MemoryPattern::Calm, 13, 7.0794, 40384.0, 35056.0, 0, 0.00),
    (MemoryPattern::Step, 0, 13.4666, 44080.0, 42064.0, 0, 0.00),
    (MemoryPattern::Step, 1, 13.4664, 33888.0, 30400.0, 0, 0.00),
    (MemoryPattern::Step, 13, 13.4658, 40512.0, 35056.0, 0, 0.00),
    (
        MemoryPattern::HogLeaves,
        0,
        11.2565,
        43328.0,
        32720.0,
        0,
        177.90,
    ),
    (
        MemoryPattern::HogLeaves,
        1,
        11.2562,
        33344.0,
        30400.0,
        0,
        0.55,
    ),
    (
        MemoryPattern::HogLeaves,
        13,
        11.2557,
        39936.0,
        35056.0,
        0,
        0.00,
    ),
    (MemoryPattern::Ramp, 0, 14.3096, 36384.0, 28520.0, 1, 208.25),
    (MemoryPattern::Ramp, 1, 14.3093, 24448.0, 22560.0, 0, 186.90),
    (
        MemoryPattern::Ramp,
        13,
        14.3088,
        38400.0,
        34416.0,
        0,
        185.35,
    ),
    (
        MemoryPattern::Sawtooth,
        0,
        13.0747,
        43920.0,
        41520.0,
        0,
        58.15,
    ),
    (
        MemoryPattern::Sawtooth,
        1,
        13.0744,
        34048.0,
        30400.0,
        0,
        0.00,
    ),
    (
        MemoryPattern::Sawtooth,
        13,
        13.0739,
        40448.0,
        35056.0,
        0,
        0.00,
    ),
    (MemoryPattern::Spike, 0, 7.4801, 44384.0, 42064.0, 0, 0.00),
    (MemoryPattern::Spike, 1, 7.4798, 34496.0, 30400.0, 0, 0.00),
    (MemoryPattern::Spike, 13, 7.4793, 40384.0, 35056.0, 0, 0.00),
    (MemoryPattern::Noise, 0, 13.7658, 43776.0, 40704.0, 0, 56.95),
    (MemoryPattern::Noise, 1, 13.2579, 34048.0, 30256.0, 0, 9.20),
    (MemoryPattern::Noise, 13, 12.7187, 40416.0, 35056.0, 0, 0.00),
    (MemoryPattern::Leak, 0, 16.5802, 38347.0, 29616.0, 1, 212.80),
    (MemoryPattern::Leak, 1, 16.5799, 28890.0, 25328.0, 0, 111.20),
    (MemoryPattern::Leak, 13, 16.5794, 38728.0, 33168.0, 0, 83.00),
    (
        MemoryPattern::NoWayOut,
        0,
        9.4483,
        40256.0,
        21354.0,
        3,
        2.05,
    ),
    (
        MemoryPattern::NoWayOut,
        1,
        9.4480,
        30736.0,
        15070.0,
        3,
        0.95,
    ),
    (
        MemoryPattern::NoWayOut,
        13,
        9.4475,
        36352.0,
        26504.0,
        1,
        1.05,
    ),
];

#[test]
fn an_independent_implementation_gives_the_same_results() {
    for (pattern, seed, used, oracle, done, killed, over_s) in ELSEWHERE {
        let truth = Truth::new(seed, Rounding::Exact);
        let others = others(truth.ram, pattern, seed);
        let mean = others.iter().sum::<f64>() / others.len() as f64;
        let best = run(Who::Oracle, &truth, &others, seed);
        let fixed = run(Who::Strategy(&mut Fixed(16)), &truth, &others, seed);
        let near = |got: f64, expected: f64| (got - expected).abs() <= 0.002 * expected + 0.05;
        assert!(
            near(mean, used) && near(best.done, oracle) && near(fixed.done, done),
            "{pattern:?} {seed}: others {mean}, oracle {}, fixed {}",
            best.done,
            fixed.done
        );
        assert_eq!(fixed.killed, killed, "{pattern:?} {seed}");
        assert!(
            near(fixed.over_s, over_s),
            "{pattern:?} {seed}: {}",
            fixed.over_s
        );
    }
}

#[test]
fn a_step_of_8_gb_is_answered_before_memory_is_critical() {
    for seed in 0..3 {
        let comparison = compare(MemoryPattern::StepAndBack, seed, Rounding::Exact);
        let o = comparison.ebb;
        let before = o.size_at(119.0);
        let shrunk = o
            .first_size_below(before, 120.0)
            .expect("8 GB more of others need a smaller size");
        let critical = o.first_critical_s.unwrap_or(f64::INFINITY);
        assert!(
            shrunk < critical,
            "seed {seed}: shrunk at {shrunk} s, critical at {critical} s"
        );
        let back = comparison.recovery_s.expect("others leave at 301 s");
        assert!(back <= 8.0, "seed {seed}: .90 of the speed after {back} s");
    }
}

/// Memory of the machines of the last test, in GB. With `EBB_ALL_MACHINES` set, more sizes run.
const SIZES: [f64; 3] = [8.0, 36.0, 128.0];
const MORE_SIZES: [f64; 7] = [16.0, 18.0, 24.0, 64.0, 96.0, 192.0, 512.0];

/// Memory of the machines to run, in GB: those of `EBB_SIZES`, or the usual ones.
fn sizes() -> Vec<f64> {
    if let Some(only) = list("EBB_SIZES") {
        let size = |text: &String| text.parse().expect("EBB_SIZES are numbers");
        return only.iter().map(size).collect();
    }
    let mut sizes = SIZES.to_vec();
    if std::env::var_os("EBB_ALL_MACHINES").is_some() {
        sizes.extend(MORE_SIZES);
    }
    sizes
}

/// The seeds to run: `EBB_SEEDS` of them, from `tuning` on if `EBB_TUNING` is set.
fn seeds(judging: Range<u32>, tuning: u32) -> Range<u32> {
    let count = std::env::var("EBB_SEEDS").map_or(judging.len() as u32, |seeds| {
        seeds.parse().expect("EBB_SEEDS is a number")
    });
    let first = match std::env::var_os("EBB_TUNING") {
        Some(_) => tuning,
        None => judging.start,
    };
    first..first + count
}

/// Machines of all sizes, with trainings of 3 to 60 % of their memory, and also other apps that no
/// rule was tuned for. Large machines are killed in a few runs: another app takes all memory faster
/// than their training state can be written to the disk.
#[test]
fn machines_of_all_sizes_reach_their_targets() {
    let patterns: Vec<_> = PATTERNS.into_iter().chain(ARRIVALS).collect();
    let seeds = seeds(0..4, 100);
    for ram in sizes() {
        let machine = |seed| Truth::with_ram(ram, seed);
        let runs = compare_all(&patterns, seeds.clone(), machine, World::PLAIN);
        let all: Vec<_> = runs.iter().map(|(_, run)| run).collect();
        let row = Row::new(&all);
        row.print(&format!("{ram} GB"), &seeds);
        print_worst(&runs);
        print_lost(&runs);
        if ram < 64.0 {
            assert!(
                row.killed == 0 && row.of_oracle >= 0.86,
                "{ram} GB: {row:?}"
            );
        }
        assert!(
            row.killed <= 5 && row.of_oracle >= 0.75,
            "{ram} GB: {row:?}"
        );
        assert!(
            row.late_reaction_s <= 1.5 && row.over_percent <= 0.5,
            "{ram} GB: {row:?}"
        );
    }
}

/// Seeds on which nothing was tuned; the rules were tuned on seeds 0 to 7.
const JUDGED: Range<u32> = 1_000..1_002;
const IMAGES: World = World {
    samples: Samples::Equal,
    trims: true,
    ..World::PLAIN
};
/// The worlds of the last test, and the fraction of the oracle's samples that Ebb must reach on
/// machines below 64 GB and on larger ones.
const WORLDS: [(&str, World, [f64; 2]); 4] = [
    ("images", IMAGES, [0.86, 0.80]),
    (
        "texts",
        World {
            samples: Samples::Texts,
            ..IMAGES
        },
        [0.80, 0.72],
    ),
    (
        "macOS",
        World {
            compresses: true,
            ..IMAGES
        },
        [0.86, 0.80],
    ),
    (
        "beats",
        World {
            compresses: true,
            misses_beats: true,
            ..IMAGES
        },
        [0.86, 0.80],
    ),
];

/// Machines that no rule was tuned on: samples of equal and of unequal cost, a system that
/// compresses, and a monitor that misses beats. With `EBB_ALL_MACHINES` set, more sizes run;
/// `EBB_SEEDS` is the number of seeds, and with `EBB_TUNING` they are those for tuning. `EBB_SIZES`
/// and `EBB_WORLDS` name the only machines and worlds to run. `EBB_WORST` prints that many of the
/// worst runs, and `EBB_LOST` where samples are lost on average.
#[test]
fn unseen_worlds_reach_their_targets() {
    let patterns: Vec<_> = PATTERNS.into_iter().chain(ARRIVALS).collect();
    let (sizes, seeds) = (sizes(), seeds(JUDGED, 0));
    let only = list("EBB_WORLDS");
    let runs = |name: &str| {
        only.as_ref()
            .is_none_or(|only| only.iter().any(|it| it == name))
    };
    let mut missed = Vec::new();
    for (name, world, targets) in WORLDS.into_iter().filter(|(name, ..)| runs(name)) {
        for &ram in &sizes {
            let runs = compare_all(
                &patterns,
                seeds.clone(),
                |seed| Truth::with_ram(ram, seed),
                world,
            );
            let all: Vec<_> = runs.iter().map(|(_, run)| run).collect();
            let row = Row::new(&all);
            row.print(&format!("{name} {ram}"), &seeds);
            print_worst(&runs);
            print_lost(&runs);
            let target = targets[usize::from(ram >= 64.0)];
            let fast = ram > 128.0 || row.of_oracle >= target;
            if !fast || row.killed > 0 || row.over_percent > 0.5 {
                missed.push(format!("{name} {ram} GB: {row:?}"));
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}
