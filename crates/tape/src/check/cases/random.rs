//! Cases of operations with random numbers, which are the same in every run of a case.

use super::Row;
use crate::error::Result;
use crate::ops::{Choice, KeepRule, NoiseKey, Positions, Quota};
use crate::tape::{Tape, Value};

/// A key for the samples of `x`.
pub(super) fn keyed(x: &Value, run: impl Fn(&NoiseKey) -> Result<Value>) -> Result<Value> {
    let samples: Vec<u64> = (0..x.dims()[0] as u64).map(|i| 100 + 7 * i).collect();
    run(&NoiseKey {
        seed: 5,
        step: 3,
        site: "case",
        samples: &samples,
        positions: Positions::Counted,
    })
}

/// Softly keeps `kept` tokens of each sample; each sample is one token shorter than the one before.
fn keep(t: &Tape, x: &Value, kept: Option<usize>) -> Result<Value> {
    let [samples, tokens] = [x.dims()[0], x.dims()[1]];
    let quotas: Vec<Quota> = (0..samples)
        .map(|i| Quota {
            tokens: tokens - i % 3,
            kept,
        })
        .collect();
    keyed(x, |key| {
        t.keep(
            x,
            &KeepRule {
                quotas: &quotas,
                temperature: 0.7,
                choice: Choice::Soft,
                noise: Some(*key),
            },
        )
    })
}

/// The cases for `n` samples.
pub(super) fn rows(n: usize) -> Vec<Row> {
    vec![
        ("dropout", vec![vec![n, 5, 7]], |t, v| {
            keyed(&v[0], |key| t.dropout(&v[0], 0.4, key))
        }),
        (
            "dropout of 16 values per row",
            vec![vec![n, 3, 16]],
            |t, v| keyed(&v[0], |key| t.dropout(&v[0], 0.4, key)),
        ),
        ("dropout of one row per sample", vec![vec![n, 9]], |t, v| {
            keyed(&v[0], |key| t.dropout(&v[0], 0.4, key))
        }),
        ("dropout of one value per sample", vec![vec![n]], |t, v| {
            keyed(&v[0], |key| t.dropout(&v[0], 0.2, key))
        }),
        (
            "linear after dropout after gelu_erf",
            vec![vec![n, 5, 7], vec![3, 7]],
            |t, v| {
                let y = t.gelu_erf(&v[0])?;
                let y = keyed(&y, |key| t.dropout(&y, 0.4, key))?;
                t.linear(&y, &v[1], None)
            },
        ),
        ("drop_path", vec![vec![n, 3, 5]], |t, v| {
            keyed(&v[0], |key| t.drop_path(&v[0], 0.4, key))
        }),
        ("gumbel_softmax", vec![vec![n, 3, 7]], |t, v| {
            keyed(&v[0], |key| t.gumbel_softmax(&v[0], 0.7, Choice::Soft, key))
        }),
        ("keep three tokens", vec![vec![n, 7]], |t, v| {
            keep(t, &v[0], Some(3))
        }),
        ("keep any number of tokens", vec![vec![n, 7]], |t, v| {
            keep(t, &v[0], None)
        }),
    ]
}
