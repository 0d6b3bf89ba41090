//! How the memory of other apps moves over ten minutes. It knows nothing of the trainer.

use super::{END, TICK, mersenne_twister::Random};

const OTHERS: f64 = 7.0;

/// A pattern of other apps' use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Trace {
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
}

/// The nine traces of the targets.
pub const TRACES: [Trace; 9] = [
    Trace::Calm,
    Trace::Step,
    Trace::HogLeaves,
    Trace::Ramp,
    Trace::Sawtooth,
    Trace::Spike,
    Trace::Noise,
    Trace::Leak,
    Trace::NoWayOut,
];

impl Trace {
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

/// GB held by others at every tick.
pub fn others(trace: Trace, seed: u32) -> Vec<f64> {
    let mut random = Random::new(1000 + seed);
    let ramp = |t: f64, from: f64, to: f64, height: f64| {
        height * ((t - from) / (to - from)).clamp(0.0, 1.0)
    };
    let mut drift = 0.0;
    let at = |i: usize| {
        let t = i as f64 * TICK;
        drift += -drift / 20.0 * TICK + 0.9 * TICK.sqrt() * random.normal();
        let extra = match trace {
            Trace::Calm => 0.0,
            Trace::Step => ramp(t, 120.0, 122.0, 8.0),
            Trace::StepAndBack => ramp(t, 120.0, 122.0, 8.0) - ramp(t, 300.0, 301.0, 8.0),
            Trace::HogLeaves => ramp(t, 120.0, 123.0, 14.0) - ramp(t, 300.0, 301.0, 14.0),
            Trace::Ramp => ramp(t, 100.0, 220.0, 18.0) - ramp(t, 400.0, 402.0, 18.0),
            Trace::Sawtooth => 12.0 * (t % 60.0) / 60.0,
            Trace::Spike => 10.0 * (t % 90.0 - 85.0).min(90.0 - t % 90.0).clamp(0.0, 1.0),
            Trace::Noise => (6.0 + 1.1 * drift).clamp(0.0, 19.0),
            Trace::Leak => ramp(t, 30.0, 600.0, 20.0),
            Trace::NoWayOut => ramp(t, 200.0, 206.0, 24.5) - ramp(t, 260.0, 262.0, 24.5),
        };
        OTHERS + extra.max(0.0) + 0.10 * random.normal().abs()
    };
    (0..=(END / TICK) as usize).map(at).collect()
}
