//! How the memory of other apps moves over ten minutes. It knows nothing of the trainer.

use super::{END, TICK, first_touch, mersenne_twister::Random};

/// The machine on which the heights of the patterns were chosen, and what other apps always use
/// there.
const RAM: f64 = 36.0;
const OTHERS: f64 = 7.0;
/// What the system and a few apps use on the smallest machine, GB.
const SYSTEM: f64 = 2.0;
/// Other apps never take more than this fraction of the memory.
const MOST: f64 = 0.93;

/// A pattern of other apps' use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MemoryPattern {
    Calm,
    Step,
    HogLeaves,
    Ramp,
    Sawtooth,
    Spike,
    Noise,
    Leak,
    NoWayOut,
    /// Not among the nine: a step of 8 GB that ends again.
    StepAndBack,
    /// Apps of heavy-tailed sizes come and go at random.
    Apps,
    /// Builds: bursts of several compilers.
    Builds,
    /// Half of the memory is taken for 20 s, and free for 20 s.
    Square,
    /// Two large programs begin within 2 s.
    TwoHogs,
}

/// The nine patterns of the targets.
pub const PATTERNS: [MemoryPattern; 9] = [
    MemoryPattern::Calm,
    MemoryPattern::Step,
    MemoryPattern::HogLeaves,
    MemoryPattern::Ramp,
    MemoryPattern::Sawtooth,
    MemoryPattern::Spike,
    MemoryPattern::Noise,
    MemoryPattern::Leak,
    MemoryPattern::NoWayOut,
];

/// Other apps that no rule was tuned for.
pub const ARRIVALS: [MemoryPattern; 4] = [
    MemoryPattern::Apps,
    MemoryPattern::Builds,
    MemoryPattern::Square,
    MemoryPattern::TwoHogs,
];

impl MemoryPattern {
    /// The second at which the memory that was taken is free again.
    pub fn free_again_s(self) -> Option<f64> {
        match self {
            Self::HogLeaves | Self::StepAndBack => Some(301.0),
            Self::Ramp => Some(402.0),
            Self::NoWayOut => Some(262.0),
            _ => None,
        }
    }
}

/// GB held by others at every tick, on a machine with `ram` GB.
pub fn others(ram: f64, pattern: MemoryPattern, seed: u32) -> Vec<f64> {
    let mut random = Random::new(1000 + seed);
    let always = SYSTEM + (OTHERS - SYSTEM) * ram / RAM;
    let room = ram - always;
    let scale = room / (RAM - OTHERS);
    let arrivals = arrivals(ram, pattern, &mut random);
    let ramp = |t: f64, from: f64, to: f64, height: f64| {
        height * ((t - from) / (to - from)).clamp(0.0, 1.0)
    };
    let (mut drift, mut taken) = (0.0, 0.0);
    // No program takes memory faster than it can touch it, however high the pattern is.
    let fastest = match ram {
        ram if ram > RAM => first_touch(ram) * TICK,
        _ => f64::INFINITY,
    };
    let at = |i: usize| {
        let t = i as f64 * TICK;
        drift += -drift / 20.0 * TICK + 0.9 * TICK.sqrt() * random.normal();
        let extra = match pattern {
            MemoryPattern::Calm => 0.0,
            MemoryPattern::Step => ramp(t, 120.0, 122.0, 8.0),
            MemoryPattern::StepAndBack => ramp(t, 120.0, 122.0, 8.0) - ramp(t, 300.0, 301.0, 8.0),
            MemoryPattern::HogLeaves => ramp(t, 120.0, 123.0, 14.0) - ramp(t, 300.0, 301.0, 14.0),
            MemoryPattern::Ramp => ramp(t, 100.0, 220.0, 18.0) - ramp(t, 400.0, 402.0, 18.0),
            MemoryPattern::Sawtooth => 12.0 * (t % 60.0) / 60.0,
            MemoryPattern::Spike => 10.0 * (t % 90.0 - 85.0).min(90.0 - t % 90.0).clamp(0.0, 1.0),
            MemoryPattern::Noise => (6.0 + 1.1 * drift).clamp(0.0, 19.0),
            MemoryPattern::Leak => ramp(t, 30.0, 600.0, 20.0),
            MemoryPattern::NoWayOut => ramp(t, 200.0, 206.0, 24.5) - ramp(t, 260.0, 262.0, 24.5),
            MemoryPattern::Apps
            | MemoryPattern::Builds
            | MemoryPattern::Square
            | MemoryPattern::TwoHogs => arrivals.iter().map(|app| app.held(t)).sum::<f64>() / scale,
        };
        taken = (scale * extra.max(0.0)).min(taken + fastest);
        let held = always + taken + scale * 0.10 * random.normal().abs();
        held.min(MOST * ram)
    };
    (0..=(END / TICK) as usize).map(at).collect()
}

/// A program that takes memory for a while.
struct App {
    /// From when to when, in seconds.
    from: f64,
    to: f64,
    /// Seconds until it has all of it.
    rise: f64,
    gb: f64,
}

impl App {
    fn held(&self, t: f64) -> f64 {
        let rises = ((t - self.from) / self.rise).clamp(0.0, 1.0);
        let falls = ((t - self.to) / 0.5).clamp(0.0, 1.0);
        self.gb * (rises - falls).max(0.0)
    }
}

/// The programs that come and go in a pattern; none in a pattern without programs.
fn arrivals(ram: f64, pattern: MemoryPattern, random: &mut Random) -> Vec<App> {
    let mut apps = Vec::new();
    let mut t = 20.0;
    while t < END {
        match pattern {
            MemoryPattern::Apps => {
                // Half of them take under 2 % of the memory, a few take a quarter.
                let gb = (0.02 * (1.2 * random.normal()).exp()).min(0.25) * ram;
                let (rise, stays) = (random.between(0.3, 4.0), -90.0 * (1.0 - random.unit()).ln());
                let to = t + rise + stays;
                apps.push(App {
                    from: t,
                    to,
                    rise,
                    gb,
                });
                t -= 15.0 * (1.0 - random.unit()).ln();
            }
            MemoryPattern::Builds => {
                for _ in 0..8 {
                    let from = t + random.between(0.0, 25.0);
                    let (rise, gb) = (random.between(1.0, 5.0), random.between(0.01, 0.08) * ram);
                    let to = from + rise + random.between(1.0, 8.0);
                    apps.push(App { from, to, rise, gb });
                }
                t += random.between(45.0, 90.0);
            }
            MemoryPattern::Square => {
                let (from, to, rise) = (t, t + 20.0, 1.0);
                apps.push(App {
                    from,
                    to,
                    rise,
                    gb: 0.3 * ram,
                });
                t += 40.0;
            }
            MemoryPattern::TwoHogs => {
                let (rise, gb) = (random.between(1.5, 6.0), random.between(0.15, 0.3) * ram);
                let (from, to) = (100.0 + t / 10.0, random.between(200.0, 400.0));
                apps.push(App { from, to, rise, gb });
                t += END / 2.0 - 10.0;
            }
            _ => return apps,
        }
    }
    apps
}
