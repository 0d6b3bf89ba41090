//! The samples of an effective batch that still have to be processed. A micro-batch borrows samples
//! and removes them only once it is confirmed, so a failed or cancelled micro-batch loses nothing.

use crate::data::LoadedSample;
use dataset::SampleError;
use std::collections::VecDeque;

/// Samples in order: some have arrived, the others are being loaded.
pub struct SampleQueue<S> {
    ready: VecDeque<S>,
    remaining: usize,
}

impl<S> SampleQueue<S> {
    /// An empty queue that waits for `expected` samples.
    pub fn new(expected: usize) -> Self {
        SampleQueue {
            ready: VecDeque::new(),
            remaining: expected,
        }
    }

    /// Samples that are not processed yet, whether or not they have arrived.
    pub fn remaining(&self) -> usize {
        self.remaining
    }

    /// Waits for `count` more samples.
    pub(crate) fn expect(&mut self, count: usize) {
        self.remaining += count;
    }

    /// Drops all samples, and expects no others.
    pub(crate) fn clear(&mut self) {
        self.ready.clear();
        self.remaining = 0;
    }

    /// Samples that must arrive before a micro-batch of `size` can be taken.
    pub fn missing(&self, size: usize) -> usize {
        size.min(self.remaining).saturating_sub(self.ready.len())
    }

    /// Appends loaded samples and returns the errors of those that could not be read; these are no
    /// longer expected.
    pub fn deliver(&mut self, loaded: Vec<LoadedSample<S>>) -> Vec<SampleError> {
        let mut errors = Vec::new();
        for result in loaded {
            match result {
                Ok(sample) => self.ready.push_back(sample),
                Err(error) => errors.push(error),
            }
        }
        self.remaining -= errors.len();
        errors
    }

    /// The next samples that have arrived, at most `size`.
    pub fn micro_batch(&mut self, size: usize) -> &[S] {
        let size = size.min(self.ready.len());
        &self.ready.make_contiguous()[..size]
    }

    /// Removes the first `count` samples, which have been processed.
    pub fn done(&mut self, count: usize) {
        self.ready.drain(..count);
        self.remaining -= count;
    }
}
