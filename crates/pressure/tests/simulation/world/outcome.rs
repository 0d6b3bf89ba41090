//! The results of a run, and its sizes over time. Judges nothing.

use super::{END, TICK, lost_samples::Tick, true_micro_batch_cost::Truth};

/// The results of ten minutes.
#[derive(Debug, Default, Clone)]
pub struct Outcome {
    /// Samples done.
    pub done: f64,
    /// `(second, samples)` of every completed micro-batch.
    pub finished: Vec<(f64, f64)>,
    pub killed: u32,
    pub refused: u32,
    pub cancels: u32,
    pub suspensions: u32,
    pub checkpoints: u32,
    /// Changes of size for any reason.
    pub changes: u32,
    /// Times of the voluntary ones.
    pub voluntary: Vec<f64>,
    /// Seconds over the line while one sample would have fitted under it.
    pub over_s: f64,
    pub critical_s: f64,
    pub paused_s: f64,
    /// Durations of being over the line.
    pub reactions_s: Vec<f64>,
    pub first_critical_s: Option<f64>,
    /// `(second, micro-batch decided)`, 0 while waiting.
    pub sizes: Vec<(f64, u32)>,
    /// Samples of the running micro-batch, at every tick.
    pub working: Vec<u32>,
    /// What happened in every tick.
    pub ticks: Vec<Tick>,
    /// Reasons of decisions.
    pub reasons: Vec<String>,
    /// Samples that were done twice.
    pub repeated: f64,
    /// `(predicted, measured)` footprint of every completed micro-batch, in GB.
    pub peaks: Vec<(f64, f64)>,
}

impl Outcome {
    /// The index of a reason, which is added if it is new.
    pub fn reason(&mut self, reason: &str) -> usize {
        let known = self.reasons.iter().position(|known| known == reason);
        known.unwrap_or_else(|| {
            self.reasons.push(reason.to_owned());
            self.reasons.len() - 1
        })
    }

    pub fn size_at(&self, second: f64) -> u32 {
        let mut before = self.sizes.iter().rev().filter(|(t, _)| *t <= second);
        before.next().map_or(0, |(_, m)| *m)
    }
    pub fn first_size_below(&self, size: u32, from: f64) -> Option<f64> {
        let mut sizes = self.sizes.iter();
        sizes
            .find(|(t, m)| *t >= from && *m < size)
            .map(|(t, _)| *t)
    }

    /// The most voluntary changes in any 60 s.
    pub fn most_in_a_minute(&self) -> usize {
        let from = |start: &f64| {
            let within = |t: &&f64| **t >= *start && **t <= start + 60.0;
            self.voluntary.iter().filter(within).count()
        };
        self.voluntary.iter().map(from).max().unwrap_or(0)
    }

    /// Seconds from `free_s` until five seconds at 90 % of the oracle's speed; infinite if that
    /// never happens.
    pub fn recovery_s(&self, oracle: &Self, truth: &Truth, free_s: f64) -> f64 {
        let window = (5.0 / TICK) as usize;
        let speed = |sizes: &[u32], at: usize| {
            let sizes = &sizes[at..(at + window).min(sizes.len())];
            let speeds = sizes.iter().map(|&m| truth.speed(f64::from(m)));
            speeds.sum::<f64>() / window as f64
        };
        let mut ticks = ((free_s / TICK) as usize..(END / TICK) as usize - window).step_by(10);
        ticks
            .find(|&i| speed(&self.working, i) >= 0.90 * speed(&oracle.working, i))
            .map_or(f64::INFINITY, |i| i as f64 * TICK - free_s)
    }
}
