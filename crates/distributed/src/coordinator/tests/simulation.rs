//! Steps of a simulated group, compared with the shortest possible step. A claim takes 0.7 ms, each
//! micro-batch costs 0.15 of a sample besides its samples, and speeds vary by 5 %. Other apps slow
//! some ranks to a fifth or more for a while, or make them rest. The exchange of sums is left out.

use super::request;
use crate::coordinator::{Coordinator, len};
use crate::group::{Claim, Ended};
use crate::random::Random;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const CLAIM_S: f64 = 0.0007;
const MICRO_BATCH_COST: f64 = 0.15;
const NOISE: f64 = 0.05;
/// Probabilities per step that a rank is slowed, and that it rests.
const PRESSURE: (f64, f64) = (0.003, 0.0005);
/// A rank that got no samples asks again after this time.
const ASK_AGAIN_S: f64 = 0.001;

struct Rank {
    base: f64,
    micro_batch: u32,
    steps_left: u32,
    factor: f64,
    rests: bool,
    /// Samples per second in this step; 0 while it rests.
    speed: f64,
}

impl Rank {
    fn begin_step(&mut self, random: &mut Random) {
        if self.steps_left > 0 {
            self.steps_left -= 1;
        } else {
            (self.factor, self.rests) = (1.0, false);
            let event = random.unit();
            let mut lasts = |mean: f64| (-mean * (1.0 - random.unit()).ln()) as u32 + 1;
            if event < PRESSURE.0 {
                self.steps_left = lasts(20.0);
                self.factor = 0.2 + 0.4 * random.unit();
            } else if event < PRESSURE.0 + PRESSURE.1 {
                self.steps_left = lasts(30.0);
                self.rests = true;
            }
        }
        let noise = 1.0 + NOISE * (2.0 * random.unit() - 1.0) * 3f64.sqrt();
        self.speed = if self.rests {
            0.0
        } else {
            self.base * self.factor * noise
        };
    }

    fn seconds(&self, samples: u32) -> f64 {
        f64::from(samples) / self.speed + MICRO_BATCH_COST / self.base
    }

    /// Samples per second in micro-batches of full size.
    fn full_speed(&self) -> f64 {
        let cost = MICRO_BATCH_COST * self.speed / self.base / f64::from(self.micro_batch);
        self.speed / (1.0 + cost)
    }
}

/// The duration of one step, in seconds.
fn step_s(coordinator: &mut Coordinator, ranks: &[Rank], round: u64, batch: u32) -> f64 {
    // Nanoseconds order the heap exactly.
    let at = |seconds: f64| Reverse((seconds * 1e9) as u64);
    let working = ranks.iter().enumerate().filter(|(_, rank)| !rank.rests);
    let mut waiting: BinaryHeap<_> = working
        .map(|(index, _)| (at(0.0), Reverse(index)))
        .collect();
    let mut ended: Vec<Option<Ended>> = vec![None; ranks.len()];
    let (mut confirmed, mut last_s) = (0, 0.0);
    let mut held = vec![0; ranks.len()];
    while let Some((Reverse(now), Reverse(index))) = waiting.pop() {
        let (now_s, rank) = (now as f64 / 1e9, &ranks[index]);
        confirmed += std::mem::take(&mut held[index]);
        if confirmed == batch {
            last_s = now_s;
        }
        let asked = request(rank.micro_batch, ended[index].take());
        match coordinator.claim(index, round, batch, asked, now_s) {
            Ok(Claim::Samples { samples, .. }) => {
                held[index] = len(&samples);
                ended[index] = Some(Ended::Confirmed);
                let end_s = now_s + CLAIM_S + rank.seconds(held[index]);
                waiting.push((at(end_s), Reverse(index)));
            }
            Ok(Claim::Wait) if confirmed < batch => {
                waiting.push((at(now_s + ASK_AGAIN_S), Reverse(index)));
            }
            Ok(Claim::Wait | Claim::Complete) => {}
            other => panic!("{other:?}"),
        }
    }
    // Rank 0 learns of the end even if it rests.
    let asked = request(0, None);
    let complete = coordinator.claim(0, round, batch, asked, last_s);
    assert_eq!(complete, Ok(Claim::Complete));
    last_s
}

/// The share of the ideal: the time that all ranks together need at full speed, over the time that
/// the group takes.
fn efficiency(speeds: &[f64], micro_batches: &[u32], batch: u32, steps: u64) -> f64 {
    let mut random = Random::new(1);
    let mut ranks: Vec<Rank> = (speeds.iter().zip(micro_batches))
        .map(|(base, micro_batch)| Rank {
            base: *base,
            micro_batch: *micro_batch,
            steps_left: 0,
            factor: 1.0,
            rests: false,
            speed: *base,
        })
        .collect();
    let mut coordinator = Coordinator::new(ranks.len());
    let (mut ideal_s, mut real_s, mut round) = (0.0, 0.0, 0);
    for step in 0..steps + 5 {
        ranks
            .iter_mut()
            .for_each(|rank| rank.begin_step(&mut random));
        let together: f64 = ranks.iter().map(Rank::full_speed).sum();
        if together == 0.0 {
            continue;
        }
        round += 1;
        let seconds = step_s(&mut coordinator, &ranks, round, batch);
        // The first steps measure the speeds.
        if step >= 5 {
            ideal_s += f64::from(batch) / together;
            real_s += seconds;
        }
    }
    ideal_s / real_s
}

/// A group, and the share of the ideal that it must reach.
struct Case {
    name: &'static str,
    speeds: Vec<f64>,
    micro_batches: Vec<u32>,
    batch: u32,
    bar: f64,
}

impl Case {
    /// A group of `speeds.len()` ranks with micro-batches of 16.
    fn new(name: &'static str, speeds: &[f64], batch: u32, bar: f64) -> Self {
        Case {
            name,
            speeds: speeds.to_vec(),
            micro_batches: vec![16; speeds.len()],
            batch,
            bar,
        }
    }

    fn with_micro_batches(self, micro_batches: &[u32]) -> Self {
        let micro_batches = micro_batches.to_vec();
        Case {
            micro_batches,
            ..self
        }
    }
}

#[test]
fn a_group_under_some_pressure_comes_close_to_the_ideal() {
    let spread: Vec<f64> = (0..32)
        .map(|i| 40.0 * 3f64.powf(f64::from(i) / 31.0))
        .collect();
    let (unequal, four) = ([120.0, 20.0], [120.0, 120.0, 20.0, 20.0]);
    let cases = [
        Case::new("a fast and a slow one, 64", &unequal, 64, 0.92).with_micro_batches(&[16, 4]),
        Case::new("a fast and a slow one, 512", &unequal, 512, 0.95).with_micro_batches(&[16, 4]),
        Case::new("2 alike", &[120.0; 2], 128, 0.95),
        Case::new("2 fast, 2 slow ones", &four, 256, 0.95).with_micro_batches(&[16, 16, 4, 4]),
        Case::new("8 alike", &[100.0; 8], 512, 0.95),
        Case::new("32 different ones", &spread, 2048, 0.95).with_micro_batches(&[8; 32]),
        Case::new("128 alike", &[100.0; 128], 8192, 0.92),
        Case::new("1024 alike", &[100.0; 1024], 65536, 0.85),
    ];
    let mut missed = Vec::new();
    for case in cases {
        let steps = if case.speeds.len() > 200 { 30 } else { 300 };
        let share = efficiency(&case.speeds, &case.micro_batches, case.batch, steps);
        let result = format!("{}: {share:.3} of the ideal, bar {}", case.name, case.bar);
        println!("{result}");
        if share < case.bar {
            missed.push(result);
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}
