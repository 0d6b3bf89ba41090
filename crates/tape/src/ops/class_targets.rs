//! What class each row is, or should be to which share, how much each class counts, and the weight that all this adds up to.
//! The weight is a function of the targets alone: it is record_loss before the first piece.

use super::IGNORED;
use crate::error::{Result, TapeError};

/// What is wanted of each row.
#[derive(Debug, Clone, Copy)]
pub enum ClassTargets<'a> {
    /// One class a row. A row that says [`IGNORED`] costs nothing and weighs nothing.
    Labels(&'a [u32]),
    /// Shares of each class, [rows, classes], each row adding up to 1: samples mixed of several. A row of zeros is ignored.
    Probabilities(&'a [f32]),
}

/// How targets are read.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClassRule<'a> {
    /// Share of each target that goes to all classes alike, `0.0..1.0`.
    pub smoothing: f64,
    /// How much each class counts; all alike where there are none.
    pub class_weights: Option<&'a [f64]>,
}

const OP: &str = "cross_entropy";
/// How far the shares of a row may be from adding up to 1: f32 rounding of many classes.
const SLACK: f64 = 1e-3;

impl ClassRule<'_> {
    /// Weight of a class.
    fn of(&self, class: usize) -> f64 {
        self.class_weights.map_or(1.0, |weights| weights[class])
    }

    fn expect_valid(&self, classes: usize) -> Result<()> {
        if !(0.0..1.0).contains(&self.smoothing) {
            return refuse(
                "the smoothing",
                self.smoothing,
                "a number from 0 to below 1",
            );
        }
        let Some(weights) = self.class_weights else {
            return Ok(());
        };
        if weights.len() != classes {
            let what = format!("the number of class weights beside {classes} classes");
            return refuse(&what, weights.len() as f64, "one a class");
        }
        match weights.iter().position(|w| !(w.is_finite() && *w >= 0.0)) {
            None => Ok(()),
            Some(class) => {
                let what = format!("the weight of class {class}");
                refuse(&what, weights[class], "a finite number from 0")
            }
        }
    }
}

fn refuse(what: &str, found: f64, expected: &'static str) -> Result<()> {
    Err(TapeError::Number {
        op: OP,
        what: what.to_owned(),
        expected,
        found,
    })
}

impl ClassTargets<'_> {
    /// What a sum of cross-entropies over these targets is divided by: rows that count, each by the weight of its class.
    /// Smoothing does not change it.
    pub fn weight(&self, rule: &ClassRule, classes: usize) -> Result<f64> {
        self.expect_valid(rule, classes)?;
        Ok((0..self.rows(classes))
            .map(|row| self.row_weight(rule, classes, row))
            .sum())
    }

    /// Number of rows, where a row of shares is whole.
    pub(super) fn rows(&self, classes: usize) -> usize {
        match self {
            ClassTargets::Labels(labels) => labels.len(),
            ClassTargets::Probabilities(shares) => shares.len() / classes.max(1),
        }
    }

    fn row_weight(&self, rule: &ClassRule, classes: usize, row: usize) -> f64 {
        match self {
            ClassTargets::Labels(labels) if labels[row] == IGNORED => 0.0,
            ClassTargets::Labels(labels) => rule.of(labels[row] as usize),
            ClassTargets::Probabilities(shares) => {
                let shares = &shares[row * classes..][..classes];
                if rule.class_weights.is_none() {
                    // Exactly one a row: the rounding of the shares must not reach the denominator.
                    return f64::from(u8::from(shares.iter().any(|&share| share != 0.0)));
                }
                let weighted = shares.iter().enumerate();
                weighted
                    .map(|(k, &share)| rule.of(k) * f64::from(share))
                    .sum()
            }
        }
    }

    /// Refuses labels outside the classes, and shares that are none.
    pub(super) fn expect_valid(&self, rule: &ClassRule, classes: usize) -> Result<()> {
        rule.expect_valid(classes)?;
        match self {
            ClassTargets::Labels(labels) => {
                let bad = |&label: &u32| label != IGNORED && label as usize >= classes;
                match labels.iter().position(bad) {
                    None => Ok(()),
                    Some(row) => Err(TapeError::Label {
                        row,
                        label: labels[row],
                        classes,
                    }),
                }
            }
            ClassTargets::Probabilities(shares) => {
                for (row, shares) in shares.chunks(classes.max(1)).enumerate() {
                    expect_shares(row, shares)?;
                }
                Ok(())
            }
        }
    }

    /// Fills `wanted` with what row `row` wants of each class, weighted and smoothed; returns its sum.
    pub(super) fn fill(&self, rule: &ClassRule, row: usize, wanted: &mut [f64]) -> f64 {
        let classes = wanted.len();
        wanted.fill(0.0);
        match self {
            ClassTargets::Labels(labels) if labels[row] == IGNORED => return 0.0,
            ClassTargets::Labels(labels) => wanted[labels[row] as usize] = 1.0,
            ClassTargets::Probabilities(shares) => {
                let shares = &shares[row * classes..][..classes];
                if shares.iter().all(|&share| share == 0.0) {
                    return 0.0;
                }
                let wanted = wanted.iter_mut().zip(shares);
                wanted.for_each(|(w, &share)| *w = f64::from(share));
            }
        }
        for (class, wanted) in wanted.iter_mut().enumerate() {
            let smoothed = (1.0 - rule.smoothing) * *wanted + rule.smoothing / classes as f64;
            *wanted = rule.of(class) * smoothed;
        }
        wanted.iter().sum()
    }
}

fn expect_shares(row: usize, shares: &[f32]) -> Result<()> {
    let bad = shares.iter().position(|p| !(p.is_finite() && *p >= 0.0));
    if let Some(class) = bad {
        let what = format!("the probability of class {class} in row {row}");
        return refuse(&what, f64::from(shares[class]), "a finite number from 0");
    }
    let sum: f64 = shares.iter().map(|&share| f64::from(share)).sum();
    if sum == 0.0 || (sum - 1.0).abs() <= SLACK {
        return Ok(());
    }
    refuse(
        &format!("the sum of the probabilities of row {row}"),
        sum,
        "1",
    )
}
