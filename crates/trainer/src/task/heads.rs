//! The regression targets of image samples, as arrays for the loss.

use crate::error::Result;
use dataset::ImageSample;
use std::borrow::Borrow;

/// Number `k` of the samples, a mask of those that are there, and the factor of its loss: the same for a whole effective batch.
pub(super) fn targets<S: Borrow<ImageSample>>(
    samples: &[S],
    k: usize,
) -> (Vec<f32>, Vec<bool>, f64) {
    let at = |sample: &S| sample.borrow().targets.get(k).copied().flatten();
    let found: Vec<Option<f32>> = samples.iter().map(at).collect();
    let factor = samples
        .first()
        .and_then(|s| s.borrow().factors.get(k).copied());
    (
        found.iter().map(|value| value.unwrap_or(0.0)).collect(),
        found.iter().map(Option::is_some).collect(),
        factor.unwrap_or(1.0),
    )
}
