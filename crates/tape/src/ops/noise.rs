//! Where an operation's random numbers come from: seed, step, site, sample, and the element's own coordinates. Never from
//! call order, from the other samples of the piece, or from how far rows are padded.

use crate::error::{Result, TapeError};
use crate::rng::Rng;
use crate::tape::Value;

/// What position each token has.
#[derive(Debug, Clone, Copy)]
pub enum Positions<'a> {
    /// Its place along axis 1: images, and sequences that begin at their first token.
    Counted,
    /// Given for every token of every sample, [samples, tokens]: sequences padded at the front, cut or packed.
    Given(&'a [u64]),
}

/// Names the random numbers of one operation on a value [samples, ..].
#[derive(Debug, Clone, Copy)]
pub struct NoiseKey<'a> {
    /// The run's.
    pub seed: u64,
    /// Optimizer step, or epoch where each is to see a sample once.
    pub step: u64,
    /// Where in the model: `blocks.0.dropout`. No two operations share one.
    pub site: &'a str,
    /// What each sample of the piece is called in the data set.
    pub samples: &'a [u64],
    /// What position each token has.
    pub positions: Positions<'a>,
}

/// A key that backward may hold: a few numbers a sample, no tensor.
pub(super) struct Noise {
    site: Rng,
    samples: Vec<u64>,
    positions: Option<Vec<u64>>,
}

impl Noise {
    /// Refuses a key that does not name every sample and token of `x`.
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
            return Err(TapeError::Shape {
                op,
                what: "x".to_owned(),
                expected: format!("a first axis of {samples} named samples{positions}"),
                found: x.tensor().shape().clone(),
            });
        }
        Ok(Noise {
            site: Rng::new(key.seed).at(key.step).site(key.site),
            samples: key.samples.to_vec(),
            positions,
        })
    }

    /// One stream for each sample.
    pub fn by_sample(&self) -> impl Iterator<Item = Rng> + '_ {
        self.samples.iter().map(|&sample| self.site.at(sample))
    }

    /// One stream for each row of the last axis; the element's own number within is its place in the row.
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

/// Refuses a share outside `0.0..1.0`.
pub(super) fn expect_fraction(op: &'static str, fraction: f64) -> Result<()> {
    if (0.0..1.0).contains(&fraction) {
        return Ok(());
    }
    Err(TapeError::Number {
        op,
        what: "the fraction".to_owned(),
        expected: "a number from 0 to below 1",
        found: fraction,
    })
}
