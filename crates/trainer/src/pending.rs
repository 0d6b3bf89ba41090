//! Samples of a batch that are still to be worked off. A piece borrows them and they leave only when it is confirmed, so a
//! failed or cancelled piece loses nothing.

use dataset::{ImageSample, SampleError};
use std::collections::VecDeque;

/// Samples to do, in order; some have arrived, some are on their way.
pub struct Pending<S = ImageSample> {
    ready: VecDeque<S>,
    expected: usize,
}

impl<S> Pending<S> {
    /// `expected` samples are on their way.
    pub fn new(expected: usize) -> Self {
        Pending {
            ready: VecDeque::new(),
            expected,
        }
    }

    /// Samples still to be worked off.
    pub fn remaining(&self) -> usize {
        self.expected
    }

    /// Samples that must arrive before a piece of `size` can be taken.
    pub fn missing(&self, size: usize) -> usize {
        size.min(self.expected).saturating_sub(self.ready.len())
    }

    /// Takes what arrived; gives back the files that could not be read and will never come.
    pub fn deliver(&mut self, arrived: Vec<Result<S, SampleError>>) -> Vec<SampleError> {
        let mut lost = Vec::new();
        for result in arrived {
            match result {
                Ok(sample) => self.ready.push_back(sample),
                Err(error) => lost.push(error),
            }
        }
        self.expected -= lost.len();
        lost
    }

    /// The next samples, at most `size`.
    pub fn piece(&mut self, size: usize) -> &[S] {
        let size = size.min(self.ready.len());
        &self.ready.make_contiguous()[..size]
    }

    /// The first `count` samples are done.
    pub fn done(&mut self, count: usize) {
        self.ready.drain(..count);
        self.expected -= count;
    }
}
