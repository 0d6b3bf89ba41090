//! Classification targets: labels or probabilities, class weights, and the total weight of the
//! targets. The total depends on the targets alone, so it is known before the first micro-batch.

use super::IGNORED;
use crate::error::{Result, TapeError};

/// The targets of all rows.
#[derive(Debug, Clone, Copy)]
pub enum ClassTargets<'a> {
    /// One class per row. A row with [`IGNORED`] has no loss and no weight.
    Labels(&'a [u32]),
    /// Class probabilities [rows, classes], each row adding up to 1, for mixed samples. A row of
    /// zeros is ignored.
    Probabilities(&'a [f32]),
}

/// Smoothing and class weights.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClassRule<'a> {
    /// Label smoothing: the fraction `0.0..1.0` of each target that is spread over all classes.
    pub smoothing: f64,
    /// One weight per class; `None` means equal weights.
    pub class_weights: Option<&'a [f64]>,
}

const OP: &str = "cross_entropy";
/// Allowed error of a row's sum: f32 rounding over many classes.
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
                "a number of at least 0 and below 1",
            );
        }
        let Some(weights) = self.class_weights else {
            return Ok(());
        };
        if weights.len() != classes {
            let what = format!("the number of class weights for {classes} classes");
            return refuse(&what, weights.len() as f64, "one per class");
        }
        match weights.iter().position(|w| !(w.is_finite() && *w >= 0.0)) {
            None => Ok(()),
            Some(class) => {
                let what = format!("the weight of class {class}");
                refuse(&what, weights[class], "a finite number of at least 0")
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
    /// The divisor of the sum of cross-entropies over these targets: the rows that count, each with
    /// the weight of its class. Smoothing does not change it.
    pub fn weight(&self, rule: &ClassRule, classes: usize) -> Result<f64> {
        self.expect_valid(rule, classes)?;
        Ok((0..self.rows(classes))
            .map(|row| self.row_weight(rule, classes, row))
            .sum())
    }

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
                    // Exactly one per row: the rounding of the probabilities must not reach the
                    // denominator.
                    return f64::from(u8::from(shares.iter().any(|&share| share != 0.0)));
                }
                let weighted = shares.iter().enumerate();
                weighted
                    .map(|(k, &share)| rule.of(k) * f64::from(share))
                    .sum()
            }
        }
    }

    /// Fails if a label is outside the classes, or probabilities are out of range.
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

    /// Fills `wanted` with the weighted and smoothed target of row `row` and returns its sum.
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
        return refuse(
            &what,
            f64::from(shares[class]),
            "a finite number of at least 0",
        );
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
