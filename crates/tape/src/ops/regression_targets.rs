//! Numbers that outputs should meet, some of which may be missing, and the weight that they add up to. A missing target is
//! said by a mask, never by NaN, and what stands in its place is never read.

use crate::error::{Result, TapeError};

/// Targets for a value [samples, ..], one a number.
#[derive(Debug, Clone, Copy)]
pub struct RegressionTargets<'a> {
    /// What each output should be.
    pub values: &'a [f32],
    /// Which targets are there; all of them where this is none.
    pub present: Option<&'a [bool]>,
}

impl<'a> RegressionTargets<'a> {
    /// Targets of which none is missing.
    pub fn all(values: &'a [f32]) -> Self {
        RegressionTargets {
            values,
            present: None,
        }
    }

    /// What a sum of losses over these targets is divided by: the targets that are there.
    pub fn weight(&self) -> f64 {
        match self.present {
            None => self.values.len() as f64,
            Some(present) => present.iter().filter(|there| **there).count() as f64,
        }
    }

    /// Target `i`, if it is there.
    #[inline(always)]
    pub(super) fn at(&self, i: usize) -> Option<f32> {
        let there = self.present.is_none_or(|present| present[i]);
        there.then(|| self.values[i])
    }

    /// Refuses a mask of another length, and targets outside `allowed`.
    pub(super) fn expect_valid(
        &self,
        op: &'static str,
        each: usize,
        (allowed, expected): (fn(f32) -> bool, &'static str),
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
            return refuse(what, present.len() as f64, "one entry a target");
        }
        let bad = (0..self.values.len()).find(|&i| self.at(i).is_some_and(|v| !allowed(v)));
        match bad {
            None => Ok(()),
            Some(i) => {
                let what = format!("target {} of sample {}", i % each, i / each);
                refuse(what, f64::from(self.values[i]), expected)
            }
        }
    }
}
