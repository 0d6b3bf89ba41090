//! Operations with random numbers, and losses.

use super::{KEY, LABELS, N, Row, SHARES, T, V, W, row};
use tape::{Choice, ClassRule, ClassTargets, KeepRule, Quota, RegressionTargets};

pub fn random_operations() -> Vec<Row> {
    let shape: &[&[usize]] = &[&[N, T, W]];
    vec![
        row(
            "dropout: nothing",
            shape,
            |t, v| t.dropout(&v[0], 0.5, &KEY),
            0,
        ),
        row(
            "drop_path: nothing",
            shape,
            |t, v| t.drop_path(&v[0], 0.5, &KEY),
            0,
        ),
        row(
            "gumbel_softmax: p",
            shape,
            |t, v| t.gumbel_softmax(&v[0], 0.5, Choice::Soft, &KEY),
            N * T * W,
        ),
        row(
            "gumbel_softmax straight through: p",
            shape,
            |t, v| t.gumbel_softmax(&v[0], 0.5, Choice::Hard, &KEY),
            N * T * W,
        ),
        row(
            "keep straight through: the slopes",
            &[&[N, W]],
            |t, v| {
                let rule = KeepRule {
                    quotas: &[Quota {
                        tokens: W,
                        kept: Some(2),
                    }; N],
                    temperature: 0.5,
                    choice: Choice::Hard,
                    noise: Some(KEY),
                };
                t.keep(&v[0], &rule)
            },
            N * W,
        ),
        row(
            "linear after dropout after gelu_erf: the first x and the weight",
            &[&[N, T, W], &[V, W]],
            |t, v| {
                let y = t.dropout(&t.gelu_erf(&v[0])?, 0.5, &KEY)?;
                t.linear(&y, &v[1], None)
            },
            N * T * W + V * W,
        ),
    ]
}

pub fn losses() -> Vec<Row> {
    let shape: &[&[usize]] = &[&[N, W]];
    const TARGETS: RegressionTargets = RegressionTargets {
        values: &SHARES,
        present: None,
    };
    vec![
        row(
            "cross_entropy: dz",
            shape,
            |t, v| Ok(t.cross_entropy(&v[0], &LABELS, 0.1)?.sum),
            N * W,
        ),
        row(
            "cross_entropy of shares: dz",
            shape,
            |t, v| {
                let targets = ClassTargets::Probabilities(&SHARES);
                Ok(
                    t.class_cross_entropy(&v[0], targets, &ClassRule::default())?
                        .sum,
                )
            },
            N * W,
        ),
        row(
            "binary_cross_entropy: dz",
            shape,
            |t, v| Ok(t.binary_cross_entropy(&v[0], TARGETS)?.sum),
            N * W,
        ),
        row(
            "squared_error: dx",
            shape,
            |t, v| Ok(t.squared_error(&v[0], TARGETS)?.sum),
            N * W,
        ),
        row(
            "huber: dx",
            shape,
            |t, v| Ok(t.huber(&v[0], TARGETS, 1.0)?.sum),
            N * W,
        ),
    ]
}
