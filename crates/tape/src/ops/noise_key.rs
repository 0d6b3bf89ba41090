//! Keys of an operation's random numbers: seed, step, site, sample, and the element's own
//! coordinates. They never depend on call order, on the other samples of the micro-batch, or on
//! padding.

use super::misfit;
use crate::error::{Result, TapeError};
use crate::rng::Rng;
use crate::tape::Value;

/// The positions of tokens.
#[derive(Debug, Clone, Copy)]
pub enum Positions<'a> {
    /// The index along axis 1: for images, and for sequences that begin at their first token.
    Counted,
    /// Given for every token, [samples, tokens]: for sequences that are padded at the front, cut or
    /// packed.
    Given(&'a [u64]),
}

/// The key of the random numbers of one operation on a value [samples, ..].
#[derive(Debug, Clone, Copy)]
pub struct NoiseKey<'a> {
    /// Seed of the run.
    pub seed: u64,
    /// Optimizer step, or the epoch if each epoch sees a sample once.
    pub step: u64,
    /// Name of the operation in the model: `blocks.0.dropout`. No two operations may share one.
    pub site: &'a str,
    /// The index of each sample in the dataset.
    pub samples: &'a [u64],
    /// The position of each token.
    pub positions: Positions<'a>,
}

/// A key in the form that the backward pass holds: a few numbers per sample, no tensor.
pub(super) struct Noise {
    site: Rng,
    samples: Vec<u64>,
    positions: Option<Vec<u64>>,
}

impl Noise {
    /// Checks that the key covers every sample and token of `x`.
    pub fn new(op: &'static str, x: &Value, key: &NoiseKey) -> Result<Self> {
        let samples = key.samples.len();
        let positions = match key.positions {
            Positions::Counted => None,
            Positions::Given(positions) => Some(positions.to_vec()),
        };
        let tokens = x.dims().get(1).copied().unwrap_or(1);
        let fits = x.dims().first() == Some(&samples)
            && positions
                .as_ref()
                .is_none_or(|p| x.dims().len() > 2 && p.len() == samples * tokens);
        if !fits {
            let positions = positions.map_or(String::new(), |p| {
                format!(" and tokens for {} positions", p.len())
            });
            let expected = format!(
                "a first axis of size {samples}, for the samples in the noise key{positions}"
            );
            return Err(misfit(op, "x", expected, x));
        }
        Ok(Noise {
            site: Rng::new(key.seed).at(key.step).site(key.site),
            samples: key.samples.to_vec(),
            positions,
        })
    }

    /// One stream per sample.
    pub fn by_sample(&self) -> impl Iterator<Item = Rng> + '_ {
        self.samples.iter().map(|&sample| self.site.at(sample))
    }

    /// One stream per row of the last axis. An element draws the number at its place in the row.
    pub fn by_row(&self, dims: &[usize]) -> Vec<Rng> {
        let mut streams: Vec<Rng> = self.by_sample().collect();
        for (axis, &size) in dims.iter().enumerate().take(dims.len() - 1).skip(1) {
            let given = self.positions.as_ref().filter(|_| axis == 1);
            streams = streams
                .iter()
                .enumerate()
                .flat_map(|(row, stream)| {
                    (0..size).map(move |i| match given {
                        Some(positions) => stream.at(positions[row * size + i]),
                        None => stream.at(i as u64),
                    })
                })
                .collect();
        }
        streams
    }
}

/// Fails for a fraction outside `0.0..1.0`.
pub(super) fn expect_fraction(op: &'static str, fraction: f64) -> Result<()> {
    if (0.0..1.0).contains(&fraction) {
        return Ok(());
    }
    Err(TapeError::Number {
        op,
        what: "the fraction".to_owned(),
        expected: "a number of at least 0 and below 1",
        found: fraction,
    })
}
