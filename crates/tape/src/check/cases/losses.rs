//! Cases of losses: labels, probabilities, weights and missing targets.

use super::{Row, labels};
use crate::error::Result;
use crate::ops::{ClassRule, ClassTargets, IGNORED, RegressionTargets};
use crate::tape::{Tape, Value};

const WEIGHTS: [f64; 6] = [0.5, 2.0, 1.0, 0.0, 3.0, 1.5];
const WEIGHTED: ClassRule = ClassRule {
    smoothing: 0.1,
    class_weights: Some(&WEIGHTS),
};

/// Labels with every third one ignored, but not the first.
fn with_gaps(rows: usize) -> Vec<u32> {
    let mut labels = labels(rows, 6);
    labels
        .iter_mut()
        .skip(1)
        .step_by(3)
        .for_each(|label| *label = IGNORED);
    labels
}

/// Rows of six probabilities with two classes mixed; every third row, but not the first, is zero.
fn mixed(rows: usize) -> Vec<f32> {
    let share = |row: usize, class: usize| match class {
        _ if row % 3 == 1 => 0.0,
        class if class == row * 5 % 6 => 0.75,
        class if class == (row * 5 + 2) % 6 => 0.25,
        _ => 0.0,
    };
    (0..rows * 6).map(|i| share(i / 6, i % 6)).collect()
}

fn shares(t: &Tape, v: &[Value], rule: &ClassRule) -> Result<Value> {
    let shares = mixed(v[0].dims()[0]);
    let targets = ClassTargets::Probabilities(&shares);
    Ok(t.class_cross_entropy(&v[0], targets, rule)?.sum)
}

/// Targets in 0..1 for outputs in -1.5..1.5; every fourth is missing.
fn with_targets(x: &Value, run: impl Fn(RegressionTargets) -> Result<Value>) -> Result<Value> {
    let count = x.tensor().elem_count();
    let values: Vec<f32> = (0..count).map(|i| (i * 7 % 11) as f32 / 10.0).collect();
    let present: Vec<bool> = (0..count).map(|i| i % 4 != 3).collect();
    run(RegressionTargets {
        values: &values,
        present: Some(&present),
    })
}

/// The cases for `n` samples.
pub(super) fn rows(n: usize) -> Vec<Row> {
    vec![
        (
            "cross_entropy with ignored rows",
            vec![vec![n, 6]],
            |t, v| Ok(t.cross_entropy(&v[0], &with_gaps(v[0].dims()[0]), 0.1)?.sum),
        ),
        (
            "cross_entropy with class weights",
            vec![vec![n, 6]],
            |t, v| {
                let labels = with_gaps(v[0].dims()[0]);
                let targets = ClassTargets::Labels(&labels);
                Ok(t.class_cross_entropy(&v[0], targets, &WEIGHTED)?.sum)
            },
        ),
        (
            "cross_entropy with soft labels",
            vec![vec![n, 6]],
            |t, v| shares(t, v, &ClassRule::default()),
        ),
        (
            "cross_entropy with soft labels and class weights",
            vec![vec![n, 6]],
            |t, v| shares(t, v, &WEIGHTED),
        ),
        ("binary_cross_entropy", vec![vec![n, 3, 5]], |t, v| {
            with_targets(&v[0], |targets| {
                Ok(t.binary_cross_entropy(&v[0], targets)?.sum)
            })
        }),
        ("squared_error", vec![vec![n, 3, 5]], |t, v| {
            with_targets(&v[0], |targets| Ok(t.squared_error(&v[0], targets)?.sum))
        }),
        ("huber", vec![vec![n, 3, 5]], |t, v| {
            with_targets(&v[0], |targets| Ok(t.huber(&v[0], targets, 0.6)?.sum))
        }),
    ]
}
