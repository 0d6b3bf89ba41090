//! What the controller answers, situation by situation. A `Bench` works real pieces of a machine whose truth is known.

use pressure::{
    Action, Ask, Change, Component, Decision, Level, MemoryModel, MemorySample, Outcome, Phase,
    Piece, PieceKind, Policy, SampleCost, State, decide, observe, sentence, should_cancel,
};

const GB: u64 = 1 << 30;
const TRAIN: PieceKind = PieceKind {
    phase: Phase::Train,
    checkpoint_blocks: 0,
    element_bytes: 4,
    resolution: 64,
};
const EVALUATE: PieceKind = PieceKind {
    phase: Phase::Evaluate,
    ..TRAIN
};

/// A machine of 32 GB, others at 6 GB, a state of 2 GB and a quarter of a GB for each sample; 100 ms a decision.
struct Bench {
    policy: Policy,
    state: State,
    model: MemoryModel,
    batch: usize,
    remaining: usize,
    others: u64,
    level: Option<Level>,
    blind: bool,
    measured: bool,
    /// Milliseconds of a piece of so many samples.
    pace: fn(u32) -> f64,
    at_ms: u64,
    own: u64,
    kind: PieceKind,
}

impl Default for Bench {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            state: State::default(),
            model: MemoryModel::default(),
            batch: 64,
            remaining: 64,
            others: 6 * GB,
            level: None,
            blind: false,
            measured: true,
            pace: |m| 10.0 + 10.0 * f64::from(m) - f64::from(m * m) / 100.0,
            at_ms: 0,
            own: 2 * GB,
            kind: TRAIN,
        }
    }
}

impl Bench {
    fn sample(&self) -> MemorySample {
        let read = MemorySample {
            at_ms: self.at_ms,
            own_bytes: self.own,
            kernel_level: self.level,
            ..MemorySample::default()
        };
        match self.blind {
            true => read,
            false => MemorySample {
                total_bytes: 32 * GB,
                available_bytes: (32 * GB).saturating_sub(self.others + self.own),
                ..read
            },
        }
    }

    fn decide(&mut self) -> Decision {
        let costs = vec![SampleCost(4096); self.remaining];
        let ask = Ask {
            sample: self.sample(),
            remaining: &costs,
            kind: self.kind,
        };
        let (state, decision) = decide(
            &self.policy,
            std::mem::take(&mut self.state),
            &ask,
            &self.model,
        );
        self.state = state;
        if decision.release_caches {
            self.own = 2 * GB;
        }
        decision
    }

    fn end(&mut self, micro_batch: u32, outcome: Outcome) {
        let peak = 2 * GB + u64::from(micro_batch) * GB / 4;
        self.own = self.own.max(peak);
        let piece = Piece {
            at_ms: self.at_ms,
            kind: self.kind,
            micro_batch,
            cost: u64::from(micro_batch) * 4096,
            peak_bytes: if self.measured { peak } else { 0 },
            ms: (self.pace)(micro_batch),
            outcome,
        };
        let (state, model) = observe(
            &self.policy,
            std::mem::take(&mut self.state),
            std::mem::take(&mut self.model),
            &piece,
        );
        (self.state, self.model) = (state, model);
    }

    /// One decision and, if it says so, one piece.
    fn turn(&mut self) -> Decision {
        let decision = self.decide();
        if decision.action == Action::Run {
            self.end(decision.micro_batch, Outcome::Ok);
            self.remaining -= decision.micro_batch as usize;
            if self.remaining == 0 {
                self.remaining = self.batch;
            }
        }
        self.at_ms += 100;
        decision
    }

    fn turns(&mut self, count: usize) -> Vec<Decision> {
        (0..count).map(|_| self.turn()).collect()
    }

    /// A bench that has reached its size in calm, more than a minute ago.
    fn settled() -> Self {
        let mut bench = Self::default();
        bench.turns(700);
        bench
    }
}

#[test]
fn in_calm_the_final_size_is_reached_within_the_first_steps_and_kept() {
    let mut bench = Bench::default();
    let decisions = bench.turns(60);
    let changes: Vec<_> = decisions
        .iter()
        .filter(|d| d.change != Change::Hold)
        .map(|d| (d.change, d.micro_batch))
        .collect();
    assert_eq!(
        changes,
        [
            (Change::Start, 1),
            (Change::Grow, 2),
            (Change::Grow, 8),
            (Change::Grow, 32),
            (Change::Grow, 64)
        ]
    );
    let samples: u32 = decisions
        .iter()
        .map(|d| d.micro_batch)
        .take_while(|&m| m < 64)
        .sum();
    assert!(samples <= 3 * 64, "three steps, not {samples} samples");
    assert!(
        decisions
            .iter()
            .all(|d| d.predicted_peak_bytes <= d.budget_bytes)
    );
}

#[test]
fn a_shorter_last_piece_is_no_change() {
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
        sizes.windows(3).any(|w| w == [22, 22, 20]),
        "64 in pieces of 22: {sizes:?}"
    );
    assert!(
        decisions
            .iter()
            .all(|d| d.reason == "a larger one would not fit")
    );
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

#[test]
fn others_that_grow_shrink_it_before_the_line_and_are_named() {
    let mut bench = Bench::settled();
    let mut told = None;
    for _ in 0..60 {
        bench.others += GB / 8;
        let decision = bench.turn();
        assert!(decision.predicted_peak_bytes <= decision.budget_bytes);
        assert!(
            bench.others + bench.own <= 32 * GB * 9 / 10,
            "over the line at {} ms",
            bench.at_ms
        );
        if decision.change == Change::Shrink {
            told.get_or_insert(sentence(64, &decision));
        }
    }
    let told = told.expect("7.5 GB more need a smaller piece");
    assert!(
        told.starts_with("Shrunk 64 to ")
            && told.contains("another app took ")
            && told.ends_with(" s"),
        "{told}"
    );
}

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
    let mut bench = Bench::settled();
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
fn a_critical_system_halves_at_once_and_again_each_second() {
    let mut bench = Bench::settled();
    bench.level = Some(Level::Critical);
    let first = bench.turn();
    assert_eq!(
        (first.change, first.micro_batch, first.cause),
        (Change::Shrink, 32, Component::System)
    );
    assert!(first.release_caches);
    assert_eq!(
        sentence(64, &first),
        "Shrunk 64 to 32: the system reports memory pressure"
    );
    let shrunk: Vec<u32> = bench
        .turns(25)
        .iter()
        .filter(|d| d.change == Change::Shrink)
        .map(|d| d.micro_batch)
        .collect();
    assert_eq!(shrunk, [16, 8], "two more seconds");
}

#[test]
fn a_cap_is_obeyed_and_named_but_never_waited_for() {
    let mut bench = Bench::settled();
    bench.policy.memory_cap_bytes = Some(6 * GB);
    let shrunk = bench.turn();
    assert!(shrunk.predicted_peak_bytes <= 6 * GB);
    assert_eq!(
        sentence(64, &shrunk),
        "Shrunk 64 to 13: the memory cap is 6.0 GB"
    );
    bench.policy.memory_cap_bytes = Some(GB);
    bench.turns(10);
    let decision = bench.turn();
    assert_eq!((decision.action, decision.micro_batch), (Action::Run, 1));
}

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
        .strip_prefix("other apps need the memory. Continues by itself at ");
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
fn a_cancelled_piece_is_retried_smaller() {
    let mut bench = Bench::settled();
    bench.own = 18 * GB;
    bench.others = 13 * GB;
    let reason = should_cancel(&bench.policy, &bench.state, &bench.sample());
    assert!(reason.is_some_and(|reason| !reason.is_empty()));
    bench.end(64, Outcome::Cancelled);
    let retry = bench.turn();
    assert_eq!(retry.change, Change::Cancel);
    assert!(retry.micro_batch <= 32 && retry.release_caches);
}

#[test]
fn a_running_piece_within_its_budget_is_left_alone() {
    let mut bench = Bench::settled();
    (bench.own, bench.others) = (18 * GB, 6 * GB);
    assert_eq!(
        should_cancel(&bench.policy, &bench.state, &bench.sample()),
        None
    );
    // Others alone are over the line, and Ebb holds next to nothing.
    (bench.own, bench.others) = (0, 31 * GB);
    assert_eq!(
        should_cancel(&bench.policy, &bench.state, &bench.sample()),
        None
    );
}

#[test]
fn a_refused_allocation_halves_and_the_size_is_not_tried_again_soon() {
    let mut bench = Bench::settled();
    bench.end(64, Outcome::Memory);
    let retry = bench.turn();
    assert_eq!((retry.change, retry.micro_batch), (Change::Cancel, 32));
    assert_eq!(retry.reason, "an allocation was refused");
    let later = bench.turns(600);
    assert!(later.iter().all(|d| d.micro_batch <= 32), "within a minute");
}

#[test]
fn evaluation_is_learnt_apart_under_the_same_pilot() {
    let mut bench = Bench::settled();
    (bench.kind, bench.batch, bench.remaining) = (EVALUATE, 256, 256);
    let first = bench.turn();
    assert_eq!((first.change, first.micro_batch), (Change::Start, 1));
    bench.turns(4);
    (bench.kind, bench.batch, bench.remaining) = (TRAIN, 64, 64);
    let back = bench.turn();
    assert_eq!((back.change, back.micro_batch), (Change::Start, 64));
    assert!(
        back.release_caches,
        "buffers of the other phase are of no use"
    );
}

#[test]
fn a_taught_model_starts_at_its_answer() {
    let mut taught = Bench {
        model: Bench::settled().model,
        ..Bench::default()
    };
    let first = taught.turn();
    assert_eq!((first.change, first.micro_batch), (Change::Start, 64));
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
fn blind_it_gives_caches_back_every_five_training_and_three_evaluation_pieces() {
    for (kind, every) in [(TRAIN, 5), (EVALUATE, 3)] {
        let mut bench = Bench {
            blind: true,
            kind,
            batch: 4,
            remaining: 4,
            ..Bench::default()
        };
        let released: Vec<usize> = bench
            .turns(16)
            .iter()
            .enumerate()
            .filter(|(_, decision)| decision.release_caches)
            .map(|(index, _)| index)
            .collect();
        assert_eq!(released[..2], [every, 2 * every], "{kind:?}");
    }
}

#[test]
fn blind_it_shrinks_by_a_fifth_and_by_half_and_grows_by_one_split() {
    let mut bench = Bench {
        blind: true,
        policy: Policy {
            blind_start: 32,
            ..Policy::default()
        },
        ..Bench::default()
    };
    assert_eq!(bench.turn().micro_batch, 32);
    bench.level = Some(Level::Warning);
    assert_eq!(
        bench.decide().micro_batch,
        32,
        "not within five seconds of the last step"
    );
    bench.at_ms += 5_000;
    bench.remaining = 64;
    assert_eq!(
        bench.turn().micro_batch,
        22,
        "a fifth less than 32 is 25, and 64 in pieces of 25 are three pieces of 22"
    );
    bench.level = Some(Level::Critical);
    bench.at_ms += 1_000;
    bench.remaining = 64;
    assert_eq!(bench.turn().micro_batch, 11);
    bench.end(11, Outcome::Memory);
    bench.remaining = 64;
    assert_eq!(bench.turn().micro_batch, 5);
    bench.level = None;
    bench.remaining = 64;
    let sizes: Vec<u32> = (0..3)
        .map(|_| {
            bench.at_ms += 10_000;
            bench.remaining = 64;
            bench.turn().micro_batch
        })
        .collect();
    assert_eq!(sizes, [6, 7, 8]);
}

#[test]
fn without_measured_peaks_the_rules_take_over() {
    let mut bench = Bench {
        measured: false,
        ..Bench::default()
    };
    bench.turns(10);
    bench.level = Some(Level::Critical);
    let before = bench.state.micro_batch(TRAIN);
    bench.at_ms += 2_000;
    assert_eq!(bench.turn().micro_batch, before / 2);
    bench.level = None;
    bench.at_ms += 20_000;
    bench.remaining = 64;
    assert!(bench.turns(200).iter().any(|d| d.change == Change::Grow));
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
