//! Steps of a simulated group, compared with the shortest possible step. A claim takes 0.7 ms, each
//! micro-batch costs 0.15 of a sample besides its samples, and speeds vary by 5 %. On GPUs of one
//! machine, claims take less time, micro-batches cost more, and speeds vary less. Other apps slow
//! some ranks to a fifth or more for a while, or make them rest. The exchange of sums is left out.

use super::request;
use crate::coordinator::{Coordinator, len};
use crate::group::{Claim, Ended};
use crate::random::Random;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The time of a claim, the time after which a rank that got no samples asks again, the cost of a
/// micro-batch in samples, and by how much speeds vary.
#[derive(Clone, Copy)]
struct Device {
    claim_s: f64,
    ask_again_s: f64,
    micro_batch_cost: f64,
    noise: f64,
}
const USUAL: Device = Device {
    claim_s: 0.0007,
    ask_again_s: 0.001,
    micro_batch_cost: 0.15,
    noise: 0.05,
};
/// Probabilities per step that a rank is slowed, and that it rests.
const PRESSURE: (f64, f64) = (0.003, 0.0005);

struct Rank {
    base: f64,
    device: Device,
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
        let noise = 1.0 + self.device.noise * (2.0 * random.unit() - 1.0) * 3f64.sqrt();
        self.speed = if self.rests {
            0.0
        } else {
            self.base * self.factor * noise
        };
    }

    fn seconds(&self, samples: u32) -> f64 {
        f64::from(samples) / self.speed + self.device.micro_batch_cost / self.base
    }

    /// Samples per second in micro-batches of full size.
    fn full_speed(&self) -> f64 {
        let cost =
            self.device.micro_batch_cost * self.speed / self.base / f64::from(self.micro_batch);
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
                let end_s = now_s + rank.device.claim_s + rank.seconds(held[index]);
                waiting.push((at(end_s), Reverse(index)));
            }
            Ok(Claim::Wait) if confirmed < batch => {
                waiting.push((at(now_s + rank.device.ask_again_s), Reverse(index)));
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

/// The duration of a step that is split equally beforehand. A rank that rests comes back after a
/// second.
fn equal_split_s(ranks: &[Rank], batch: u32) -> f64 {
    let share = f64::from(batch) / ranks.len() as f64;
    let seconds = |rank: &Rank| {
        let speed = if rank.rests { rank.base } else { rank.speed };
        let micro_batches = share / f64::from(rank.micro_batch);
        let rest_s = if rank.rests { 1.0 } else { 0.0 };
        rest_s + share / speed + micro_batches * rank.device.micro_batch_cost / rank.base
    };
    ranks.iter().map(seconds).fold(0.0, f64::max)
}

/// The share of the ideal: the time that all ranks together need at full speed, over the time that
/// the group takes.
#[derive(Debug, Clone, Copy)]
struct Efficiency {
    group: f64,
    /// If each step is split equally beforehand.
    equal: f64,
}

/// Equal or unequal ranks of one kind of device.
struct Ranks<'a> {
    speeds: &'a [f64],
    device: Device,
    micro_batches: &'a [u32],
}

fn efficiency(group: Ranks, batch: u32, steps: u64) -> Efficiency {
    let Ranks {
        speeds,
        device,
        micro_batches,
    } = group;
    let mut random = Random::new(1);
    let mut ranks: Vec<Rank> = (speeds.iter().zip(micro_batches))
        .map(|(base, micro_batch)| Rank {
            base: *base,
            device,
            micro_batch: *micro_batch,
            steps_left: 0,
            factor: 1.0,
            rests: false,
            speed: *base,
        })
        .collect();
    let mut coordinator = Coordinator::new(ranks.len());
    let (mut ideal_s, mut real_s, mut equal_s, mut round) = (0.0, 0.0, 0.0, 0);
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
            equal_s += equal_split_s(&ranks, batch);
        }
    }
    Efficiency {
        group: ideal_s / real_s,
        equal: ideal_s / equal_s,
    }
}

/// A group, and the share of the ideal that it must reach.
struct Case {
    name: &'static str,
    speeds: Vec<f64>,
    device: Device,
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
            device: USUAL,
            micro_batches: vec![16; speeds.len()],
            batch,
            bar,
        }
    }

    fn ranks(&self) -> Ranks<'_> {
        Ranks {
            speeds: &self.speeds,
            device: self.device,
            micro_batches: &self.micro_batches,
        }
    }

    /// GPUs on which a micro-batch costs this many samples, and whose speeds vary by 1 %.
    fn with_gpus(self, micro_batch_cost: f64, micro_batch: u32) -> Self {
        let micro_batches = vec![micro_batch; self.speeds.len()];
        let device = Device {
            claim_s: 0.0002,
            ask_again_s: 0.0002,
            micro_batch_cost,
            noise: 0.01,
        };
        Case {
            device,
            ..self.with_micro_batches(&micro_batches)
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
        Case::new("3 alike", &[100.0; 3], 192, 0.95),
        Case::new("8 alike", &[100.0; 8], 512, 0.95),
        Case::new("16 alike", &[100.0; 16], 1024, 0.95),
        Case::new("32 different ones", &spread, 2048, 0.95).with_micro_batches(&[8; 32]),
        Case::new("64 alike", &[100.0; 64], 4096, 0.92),
        Case::new("128 alike", &[100.0; 128], 8192, 0.92),
        Case::new("256 alike", &[100.0; 256], 16384, 0.85),
        Case::new("1024 alike", &[100.0; 1024], 65536, 0.85),
        // Measured on H200s with language models of 85 and 11 million parameters.
        Case::new("2 GPUs", &[220.0; 2], 16, 0.95).with_gpus(1.1, 8),
        Case::new("2 GPUs, a small model", &[3000.0; 2], 32, 0.9).with_gpus(8.0, 16),
        Case::new("8 GPUs", &[220.0; 8], 64, 0.9).with_gpus(1.1, 8),
        Case::new("a fast and a slow GPU", &[220.0, 100.0], 48, 0.92).with_gpus(1.1, 32),
    ];
    let mut missed = Vec::new();
    for case in cases {
        let steps = if case.speeds.len() > 200 { 30 } else { 300 };
        let share = efficiency(case.ranks(), case.batch, steps);
        let Efficiency { group, equal } = share;
        let result = format!(
            "{}: {group:.3} of the ideal, bar {}; {equal:.3} with equal shares",
            case.name, case.bar
        );
        println!("{result}");
        if group < case.bar {
            missed.push(result);
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}

/// Bytes of the gradients of a model with 10.8 million parameters, which the ranks add up.
const GRADIENT_BYTES: f64 = 4.0 * 10.8e6;

/// Seconds to add the gradients up: each value travels to its owner and back.
fn exchange_s(ranks: f64, bytes_per_s: f64, latency_s: f64) -> f64 {
    let bytes = 2.0 * (ranks - 1.0) / ranks * GRADIENT_BYTES;
    bytes / bytes_per_s + 2.0 * ranks.log2() * latency_s
}

/// Prints the table of the guide: what part of the speed of N machines a group reaches, each of
/// which processes 100 samples per second and gets 64 of a step on average.
#[test]
fn predicted_efficiency_falls_slowly() {
    let links = [(10e9 / 8.0 * 0.92, 1e-4), (1e9 / 8.0 * 0.94, 2e-4)];
    let mut last = 1.0f64;
    for ranks in (1..=10).map(|power| 1usize << power) {
        let batch = 64 * ranks as u32;
        let steps = if ranks > 200 { 30 } else { 300 };
        let alike = Ranks {
            speeds: &vec![100.0; ranks],
            device: USUAL,
            micro_batches: &vec![16; ranks],
        };
        let balance = efficiency(alike, batch, steps).group;
        let ideal_s = 64.0 / 100.0;
        let with = |(bytes_per_s, latency_s): (f64, f64)| {
            let exchange_s = exchange_s(ranks as f64, bytes_per_s, latency_s);
            ideal_s / (ideal_s / balance + exchange_s)
        };
        let [fast, slow] = links.map(with);
        println!(
            "{ranks} machines: {balance:.2} without exchange, {fast:.2} over 10 Gbit/s, {slow:.2} over 1 Gbit/s"
        );
        assert!(slow < fast && fast < balance && balance <= 1.0);
        assert!(balance > last - 0.1, "{ranks}: {balance} after {last}");
        last = balance;
    }
}
