//! Windows of documents or conversations. Each epoch packs the documents in a new order.

use super::windows::{WindowSource, Windows};
use super::{DocumentData, EvalLoader, LoadedSample, TrainLoader};
use crate::plan::Plan;
use dataset::{Buckets, CachedOrder, Order, TokenBatches, Window};
use runlog::format_count;
use std::ops::Range;

/// Lengths of micro-batches are multiples of this many tokens, so that few lengths occur.
const LENGTH_STEP: usize = 32;

/// The length to which windows of at most `longest` tokens are padded, if no window has more than
/// `most`.
pub(crate) fn padded_length(longest: usize, most: usize) -> usize {
    longest.next_multiple_of(LENGTH_STEP).min(most)
}

/// Where a window was cut.
#[derive(Debug, Clone, Copy)]
pub struct WindowPlace {
    /// Its number in the epoch, or among the held-out windows.
    pub index: u32,
    /// The optimizer step that uses it; 0 for held-out windows.
    pub step: u64,
}

/// Which windows belong to which step.
enum WindowOrder {
    /// Windows of any lengths.
    Shuffled(CachedOrder),
    /// Windows of similar lengths, the longest one of a step first.
    ByLength {
        buckets: Buckets,
        windows: u32,
        effective_batch: usize,
        /// The epoch of the last step, and its order.
        epoch: Option<(u64, Vec<u32>)>,
    },
    /// Windows with at most a number of tokens together.
    ByTokens(TokenBatches),
}

impl WindowOrder {
    fn new(plan: &Plan, source: &WindowSource) -> Self {
        if let Some(batches) = source.token_batches(plan) {
            return WindowOrder::ByTokens(batches);
        }
        let (seed, effective_batch) = (plan.seed, plan.effective_batch);
        if plan.conversations.is_some_and(|options| options.by_length) {
            let windows = source.in_order(plan.input_size);
            let lengths = (0..windows.len()).map(|index| windows.size_of(index) as u32);
            return WindowOrder::ByLength {
                windows: windows.len() as u32,
                buckets: Buckets::new(seed, effective_batch, lengths.collect()),
                effective_batch: effective_batch.max(1) as usize,
                epoch: None,
            };
        }
        WindowOrder::Shuffled(CachedOrder::new(Order {
            seed,
            len: source.count(plan.input_size) as u32,
            effective_batch,
        }))
    }

    /// Windows per epoch.
    fn len(&self) -> u32 {
        match self {
            WindowOrder::Shuffled(order) => order.order().len,
            WindowOrder::ByLength { windows, .. } => *windows,
            WindowOrder::ByTokens(batches) => batches.len() as u32,
        }
    }

    /// The epoch and the windows of a step. Steps are counted from 0 over the whole run.
    fn step(&mut self, step: u64) -> (u64, Vec<u32>) {
        match self {
            WindowOrder::Shuffled(order) => {
                let (epoch, places) = order.step(step);
                (epoch, places.to_vec())
            }
            WindowOrder::ByLength {
                buckets,
                effective_batch,
                epoch: cached,
                ..
            } => {
                let steps = buckets.steps_per_epoch().max(1);
                let epoch = step / steps;
                let (_, order) = match cached.take().filter(|(of, _)| *of == epoch) {
                    Some(known) => cached.insert(known),
                    None => cached.insert((epoch, buckets.epoch(epoch))),
                };
                let first = (step % steps) as usize * *effective_batch;
                let places = order.iter().skip(first).take(*effective_batch);
                (epoch, places.copied().collect())
            }
            WindowOrder::ByTokens(batches) => {
                let (epoch, places) = batches.step(step);
                (epoch, places.to_vec())
            }
        }
    }
}

/// Turns a window into a task's sample.
pub type MakeSample<S> = Box<dyn Fn(Window, WindowPlace) -> S + Send + Sync>;

/// Training windows, step by step.
pub struct WindowLoader<S> {
    source: WindowSource,
    tokens: u32,
    seed: u64,
    order: WindowOrder,
    /// The epoch of the last step, and its windows.
    windows: Option<(u64, Windows)>,
    make_sample: MakeSample<S>,
    step: u64,
    /// The windows of the step, and the positions of those that have not been fetched.
    places: Vec<u32>,
    remaining: Range<usize>,
}

impl<S> WindowLoader<S> {
    /// Loads windows of the training documents for a plan.
    pub fn new(plan: &Plan, data: &DocumentData, make_sample: MakeSample<S>) -> Self {
        WindowLoader {
            source: data.train.clone(),
            tokens: plan.input_size,
            seed: plan.seed,
            order: WindowOrder::new(plan, &data.train),
            windows: None,
            make_sample,
            step: 0,
            places: Vec::new(),
            remaining: 0..0,
        }
    }
}

impl<S> TrainLoader for WindowLoader<S> {
    type Sample = S;

    fn begin(&mut self, step: u64) -> usize {
        let (epoch, places) = self.order.step(step);
        let current = self.windows.take().filter(|(of, _)| *of == epoch);
        let windows = || self.source.shuffled(self.tokens, self.seed, epoch);
        self.windows = Some(current.unwrap_or_else(|| (epoch, windows())));
        self.step = step;
        self.places = places;
        self.remaining = 0..self.places.len();
        self.places.len()
    }

    fn fetch(&mut self, count: usize) -> Vec<LoadedSample<S>> {
        let Some((_, windows)) = &self.windows else {
            return Vec::new();
        };
        let next = self.remaining.by_ref().take(count);
        let sample = |position: usize| {
            let (index, step) = (self.places[position], self.step);
            let window = windows.window(index as usize);
            (self.make_sample)(window, WindowPlace { index, step })
        };
        next.map(|position| Ok(sample(position))).collect()
    }

    fn select(&mut self, samples: Range<usize>, _ahead: Range<usize>) {
        self.remaining = samples;
    }

    fn describe(&self) -> String {
        let documents = self.source.documents();
        let place = if documents.is_in_memory() {
            "in memory"
        } else {
            "in a file"
        };
        let (noun, count) = match self.source.counts() {
            Some(counts) if self.source.are_pairs() => ("Preferences", counts.used),
            Some(counts) => ("Conversations", counts.used),
            None => ("Documents", documents.len() as u64),
        };
        format!(
            "{noun}: {} with {} tokens {place}, {} windows per epoch",
            format_count(count),
            format_count(documents.token_count() as u64),
            format_count(u64::from(self.order.len()))
        )
    }

    fn sample_cost(&self, default: u64) -> u64 {
        let Some((_, windows)) = &self.windows else {
            return default;
        };
        let sizes = self
            .places
            .iter()
            .map(|index| windows.size_of(*index as usize));
        let longest = sizes
            .max()
            .map(|size| padded_length(size, self.tokens as usize));
        longest.map_or(default, |tokens| default.min(tokens as u64))
    }

    fn sample_costs(&self, remaining: usize) -> Option<Vec<u64>> {
        // The two texts of a preference are padded apart.
        let (_, windows) = self.windows.as_ref().filter(|_| !self.source.are_pairs())?;
        let first = self.places.len().checked_sub(remaining)?;
        let sizes = self.places[first..].iter().map(|index| {
            let size = windows.size_of(*index as usize);
            padded_length(size, self.tokens as usize) as u64
        });
        Some(sizes.collect())
    }
}

/// Held-out windows, from the first token to the last; all, or an evenly spread selection.
pub struct WindowEvalLoader<S> {
    windows: Windows,
    make_sample: MakeSample<S>,
    /// Number of windows that are loaded.
    len: usize,
    /// Windows that have not been fetched.
    remaining: Range<usize>,
}

impl<S> WindowEvalLoader<S> {
    /// Loads windows of `tokens` tokens.
    pub fn new(source: &WindowSource, tokens: u32, make_sample: MakeSample<S>) -> Self {
        let windows = source.in_order(tokens);
        WindowEvalLoader {
            len: windows.len(),
            windows,
            make_sample,
            remaining: 0..0,
        }
    }

    /// The same with at most `tokens` tokens in windows that are spread evenly over the documents.
    #[must_use]
    pub fn with_token_limit(self, tokens: usize) -> Self {
        let windows = self.windows.len();
        let of_window = self.windows.window_tokens().max(1);
        WindowEvalLoader {
            len: windows.min(tokens.div_ceil(of_window)),
            ..self
        }
    }
}

impl<S> EvalLoader for WindowEvalLoader<S> {
    type Sample = S;

    fn len(&self) -> usize {
        self.len
    }

    fn split_len(&self) -> usize {
        self.windows.len()
    }

    fn begin(&mut self) {
        self.remaining = 0..self.len();
    }

    fn fetch(&mut self, count: usize) -> Vec<LoadedSample<S>> {
        let next = self.remaining.by_ref().take(count);
        let sample = |place: usize| {
            let index = place * self.windows.len() / self.len;
            let place = WindowPlace {
                index: index as u32,
                step: 0,
            };
            (self.make_sample)(self.windows.window(index), place)
        };
        next.map(|index| Ok(sample(index))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dataset::{Documents, InspectOptions, Split, TextOptions, Tokenizer, detect};
    use std::sync::Arc;

    #[test]
    fn a_limited_evaluation_reads_windows_from_all_over_the_documents() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for name in ["a", "b", "c"] {
            let text = format!("{name} day of rain. ").repeat(200);
            std::fs::write(folder.path().join(format!("{name}.txt")), text).expect("a document");
        }
        let found = detect(
            folder.path(),
            &InspectOptions::default(),
            &TextOptions::default(),
            &|_| {},
        );
        let dataset::DetectedDataset::Texts(found) = found.expect("it is inspected") else {
            panic!("the folder has documents");
        };
        let documents = Documents::open(&found, Split::Train, &Tokenizer::bytes());
        let source = WindowSource::joined(Arc::new(documents.expect("no file changed")), 256);
        let loader = |limit: usize| {
            let make: MakeSample<usize> = Box::new(|_, place| place.index as usize);
            WindowEvalLoader::new(&source, 16, make).with_token_limit(limit)
        };
        let read = |mut loader: WindowEvalLoader<usize>| -> Vec<usize> {
            loader.begin();
            let samples = loader.fetch(usize::MAX);
            samples
                .into_iter()
                .map(|sample| sample.expect("it is read"))
                .collect()
        };
        let all = read(loader(usize::MAX));
        assert!(all.len() > 100);
        assert_eq!(all, (0..all.len()).collect::<Vec<_>>());
        let some = loader(160);
        assert_eq!((some.len(), some.split_len()), (10, all.len()));
        let expected: Vec<usize> = (0..10).map(|i| i * all.len() / 10).collect();
        assert_eq!(read(some), expected);
    }
}
