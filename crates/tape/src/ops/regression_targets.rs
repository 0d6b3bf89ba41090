//! Regression targets, some of which may be missing, and their total weight. A mask marks missing
//! targets, never NaN, and their values are never read.

use crate::error::{Result, TapeError};

/// The targets that a loss allows, as a test and in words.
#[derive(Clone, Copy)]
pub(super) struct AllowedTargets {
    pub test: fn(f32) -> bool,
    pub words: &'static str,
}

/// Targets for a value [samples, ..], one per element.
#[derive(Debug, Clone, Copy)]
pub struct RegressionTargets<'a> {
    /// The target of each output.
    pub values: &'a [f32],
    /// True for the targets that are present; `None` if all are.
    pub present: Option<&'a [bool]>,
}

impl<'a> RegressionTargets<'a> {
    /// Targets without missing ones.
    pub fn all(values: &'a [f32]) -> Self {
        RegressionTargets {
            values,
            present: None,
        }
    }

    /// The divisor of the sum of losses over these targets: the number of present targets.
    pub fn weight(&self) -> f64 {
        match self.present {
            None => self.values.len() as f64,
            Some(present) => present.iter().filter(|there| **there).count() as f64,
        }
    }

    /// Target `i` if it is present.
    #[inline(always)]
    pub(super) fn at(&self, i: usize) -> Option<f32> {
        let there = self.present.is_none_or(|present| present[i]);
        there.then(|| self.values[i])
    }

    /// Fails if the lengths differ, or a target is not allowed.
    pub(super) fn expect_valid(
        &self,
        op: &'static str,
        each: usize,
        allowed: AllowedTargets,
    ) -> Result<()> {
        let refuse = |what: String, found: f64, expected| {
            Err(TapeError::Number {
                op,
                what,
                expected,
                found,
            })
        };
        if let Some(present) = self.present.filter(|p| p.len() != self.values.len()) {
            let what = format!("the length of the mask of {} targets", self.values.len());
            return refuse(what, present.len() as f64, "one entry per target");
        }
        let bad = (0..self.values.len()).find(|&i| self.at(i).is_some_and(|v| !(allowed.test)(v)));
        match bad {
            None => Ok(()),
            Some(i) => {
                let what = format!("target {} of sample {}", i % each, i / each);
                refuse(what, f64::from(self.values[i]), allowed.words)
            }
        }
    }
}
