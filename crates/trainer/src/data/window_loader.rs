//! Windows of equal length cut from documents. Each epoch packs the documents in a new order.

use super::{DocumentData, EvalLoader, LoadedSample, TrainLoader};
use crate::plan::Plan;
use dataset::{CachedOrder, Documents, Order, Packing, Window};
use runlog::format_count;
use std::ops::Range;
use std::sync::Arc;

/// Held-out tokens that an evaluation during training reads at most, so that it takes seconds for a
/// text of any length. `ebb evaluate` reads all.
const MOST_EVALUATED_TOKENS: u64 = 1 << 17;
/// Held-out tokens that the evaluation of the shortest training reads.
const MIN_EVALUATED_TOKENS: u64 = 1 << 13;

/// Held-out tokens that each evaluation of a training reads: at most as many as it trains on, so
/// that a short training does not end with a long evaluation. They are the same in all evaluations.
pub fn evaluated_tokens(plan: &Plan) -> usize {
    let window = u64::from(plan.input_size);
    let trained = plan.steps * u64::from(plan.effective_batch) * window;
    trained.clamp(MIN_EVALUATED_TOKENS, MOST_EVALUATED_TOKENS) as usize
}

/// Where a window was cut.
#[derive(Debug, Clone, Copy)]
pub struct WindowPlace {
    /// Its number in the epoch, or among the held-out windows.
    pub index: u32,
    /// The optimizer step that uses it; 0 for held-out windows.
    pub step: u64,
}

/// Turns a window into a task's sample.
pub type MakeSample<S> = Box<dyn Fn(Window, WindowPlace) -> S + Send + Sync>;

/// Training windows, step by step.
pub struct WindowLoader<S> {
    documents: Arc<Documents>,
    tokens: usize,
    boundary: u32,
    order: CachedOrder,
    /// The epoch of the last step, and its windows.
    packing: Option<(u64, Packing<Arc<Documents>>)>,
    make_sample: MakeSample<S>,
    step: u64,
    /// The windows of the step, and the positions of those that have not been fetched.
    places: Vec<u32>,
    remaining: Range<usize>,
}

impl<S> WindowLoader<S> {
    /// Loads windows of the training documents for a plan.
    pub fn new(plan: &Plan, data: &DocumentData, make_sample: MakeSample<S>) -> Self {
        let tokens = plan.input_size as usize;
        let windows = Packing::in_order(&*data.train, tokens, data.boundary).len();
        WindowLoader {
            documents: Arc::clone(&data.train),
            tokens,
            boundary: data.boundary,
            order: CachedOrder::new(Order {
                seed: plan.seed,
                len: windows as u32,
                effective_batch: plan.effective_batch,
            }),
            packing: None,
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
        let seed = self.order.order().seed;
        let (epoch, places) = self.order.step(step);
        let current = self.packing.take().filter(|(of, _)| *of == epoch);
        self.packing = Some(current.unwrap_or_else(|| {
            let documents = Arc::clone(&self.documents);
            let packing = Packing::shuffled(documents, self.tokens, self.boundary, seed, epoch);
            (epoch, packing)
        }));
        self.step = step;
        self.places = places.to_vec();
        self.remaining = 0..self.places.len();
        self.places.len()
    }

    fn fetch(&mut self, count: usize) -> Vec<LoadedSample<S>> {
        let Some((_, packing)) = &self.packing else {
            return Vec::new();
        };
        let next = self.remaining.by_ref().take(count);
        let sample = |position: usize| {
            let (index, step) = (self.places[position], self.step);
            let window = packing.window(index as usize);
            (self.make_sample)(window, WindowPlace { index, step })
        };
        next.map(|position| Ok(sample(position))).collect()
    }

    fn select(&mut self, samples: Range<usize>, _ahead: Range<usize>) {
        self.remaining = samples;
    }

    fn describe(&self) -> String {
        let place = if self.documents.is_in_memory() {
            "in memory"
        } else {
            "in a file"
        };
        format!(
            "Documents: {} with {} tokens {place}, {} windows per epoch",
            format_count(self.documents.len() as u64),
            format_count(self.documents.token_count() as u64),
            format_count(u64::from(self.order.order().len))
        )
    }
}

/// Held-out windows, from the first token to the last; all, or an evenly spread selection.
pub struct WindowEvalLoader<S> {
    packing: Packing<Arc<Documents>>,
    make_sample: MakeSample<S>,
    /// Number of windows that are loaded.
    len: usize,
    /// Windows that have not been fetched.
    remaining: Range<usize>,
}

impl<S> WindowEvalLoader<S> {
    /// Cuts `documents` into windows of `tokens` tokens, with `boundary` between documents.
    pub fn new(
        documents: Arc<Documents>,
        tokens: u32,
        boundary: u32,
        make_sample: MakeSample<S>,
    ) -> Self {
        let packing = Packing::in_order(documents, tokens as usize, boundary);
        WindowEvalLoader {
            len: packing.len(),
            packing,
            make_sample,
            remaining: 0..0,
        }
    }

    /// The same with at most `tokens` tokens in windows that are spread evenly over the documents.
    #[must_use]
    pub fn with_token_limit(self, tokens: usize) -> Self {
        let windows = self.packing.len();
        let of_window = self.packing.window_tokens().max(1);
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
        self.packing.len()
    }

    fn begin(&mut self) {
        self.remaining = 0..self.len();
    }

    fn fetch(&mut self, count: usize) -> Vec<LoadedSample<S>> {
        let next = self.remaining.by_ref().take(count);
        let sample = |place: usize| {
            let index = place * self.packing.len() / self.len;
            let place = WindowPlace {
                index: index as u32,
                step: 0,
            };
            (self.make_sample)(self.packing.window(index), place)
        };
        next.map(|index| Ok(sample(index))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dataset::{InspectOptions, Split, TextOptions, Tokenizer, detect};

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
        let documents = Arc::new(documents.expect("no file changed"));
        let loader = |limit: usize| {
            let make: MakeSample<usize> = Box::new(|_, place| place.index as usize);
            WindowEvalLoader::new(Arc::clone(&documents), 16, 256, make).with_token_limit(limit)
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
