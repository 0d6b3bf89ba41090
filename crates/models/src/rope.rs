//! Frequencies of rotary position embeddings (Su et al. 2021), and the ways to stretch them to
//! longer texts than a model was trained with.

use candle_core::{DType, Device};
use std::f64::consts::TAU;
use std::ops::Range;
use tape::{Result, Rotation};

/// The rotary embedding of a layer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rope {
    /// Values of a head that are rotated.
    pub rotated: usize,
    pub theta: f64,
    pub scaling: RopeScaling,
    /// Radians per position, by pair of values.
    frequencies: Vec<f64>,
    /// For sequences of more tokens than the first number.
    long: Option<(usize, Vec<f64>)>,
    /// Factor on queries and keys.
    factor: f64,
}

/// How frequencies are stretched.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RopeScaling {
    /// Not at all.
    None,
    /// All by the same factor (Chen et al. 2023).
    Linear(f64),
    /// Low frequencies by a factor, high ones not at all (Llama 3.1).
    Llama3 {
        factor: f64,
        low: f64,
        high: f64,
        /// Tokens of the texts that the model was trained with before.
        original: f64,
    },
    /// By a ramp between two frequencies (Peng et al. 2023).
    Yarn {
        factor: f64,
        /// Turns over `original` tokens at which the ramp begins and ends.
        beta: (f64, f64),
        original: f64,
        /// Factor on queries and keys.
        attention: f64,
        /// Whether the ramp begins and ends at whole pairs.
        truncate: bool,
    },
    /// Each by a factor of its own, which depends on the length of the sequence (Ding et al. 2024).
    Long {
        short: Vec<f64>,
        long: Vec<f64>,
        /// Most tokens for the short factors.
        original: usize,
        /// Factor on queries and keys.
        attention: f64,
    },
}

impl Rope {
    /// The embedding of heads of which `rotated` values are rotated, with wavelengths up to about
    /// `2 pi theta`.
    pub fn new(rotated: usize, theta: f64, scaling: &RopeScaling) -> Self {
        let base = |pair: usize| theta.powf(-((2 * pair) as f64) / rotated as f64);
        let plain: Vec<f64> = (0..rotated / 2).map(base).collect();
        let divided = |factors: &[f64]| -> Vec<f64> {
            plain.iter().zip(factors).map(|(f, by)| f / by).collect()
        };
        let with = |frequencies: Vec<f64>| Rope {
            rotated,
            theta,
            scaling: scaling.clone(),
            frequencies,
            long: None,
            factor: 1.0,
        };
        match scaling {
            RopeScaling::None => with(plain),
            RopeScaling::Linear(factor) => with(plain.iter().map(|f| f / factor).collect()),
            RopeScaling::Llama3 {
                factor,
                low,
                high,
                original,
            } => with(
                plain
                    .iter()
                    .map(|&f| {
                        let turns = original * f / TAU;
                        let share = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                        (1.0 - share) * f / factor + share * f
                    })
                    .collect(),
            ),
            RopeScaling::Yarn {
                factor,
                beta,
                original,
                attention,
                truncate,
            } => {
                let ramp = yarn_ramp(rotated, theta, *beta, *original, *truncate);
                let pairs = plain.iter().enumerate();
                let mixed = pairs.map(|(i, f)| f / factor * ramp(i) + f * (1.0 - ramp(i)));
                Rope {
                    factor: *attention,
                    ..with(mixed.collect())
                }
            }
            RopeScaling::Long {
                short,
                long,
                original,
                attention,
            } => Rope {
                long: Some((*original, divided(long))),
                factor: *attention,
                ..with(divided(short))
            },
        }
    }

    /// Radians per position, by pair of values, for sequences that need no long factors.
    pub fn frequencies(&self) -> &[f64] {
        &self.frequencies
    }

    /// The longest sequence that needs no long factors, if longer ones do. These rotate all tokens
    /// by other angles, so keys that were cached in a shorter sequence are wrong for them.
    pub fn longest_unstretched(&self) -> Option<usize> {
        self.long.as_ref().map(|(original, _)| *original)
    }

    /// The rotation of tokens at `positions`, which end the sequence.
    pub fn rotation(
        &self,
        positions: Range<usize>,
        dtype: DType,
        device: &Device,
    ) -> Result<Rotation> {
        let frequencies = match &self.long {
            Some((original, long)) if positions.end > *original => long,
            _ => &self.frequencies,
        };
        Rotation::new(frequencies, self.factor, positions, dtype, device)
    }
}

/// The share of the stretched frequency by pair.
fn yarn_ramp(
    rotated: usize,
    theta: f64,
    beta: (f64, f64),
    original: f64,
    truncate: bool,
) -> impl Fn(usize) -> f64 {
    let pair = |turns: f64| rotated as f64 * (original / (turns * TAU)).ln() / (2.0 * theta.ln());
    let (mut low, mut high) = (pair(beta.0), pair(beta.1));
    if truncate {
        (low, high) = (low.floor(), high.ceil());
    }
    let low = low.max(0.0);
    let mut high = high.min(rotated as f64 - 1.0);
    if low == high {
        // Two equal ends would divide by zero.
        high += 0.001;
    }
    move |i| ((i as f64 - low) / (high - low)).clamp(0.0, 1.0)
}
