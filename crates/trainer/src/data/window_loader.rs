//! Windows of equal length cut from documents. Each epoch packs the documents in a new order.

use super::{DocumentData, EvalLoader, LoadedSample, TrainLoader};
use crate::plan::Plan;
use dataset::{CachedOrder, Documents, Order, Packing, Window};
use runlog::format_count;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

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
    /// The samples of the step that have not been fetched.
    remaining: VecDeque<S>,
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
            remaining: VecDeque::new(),
        }
    }
}

impl<S> TrainLoader for WindowLoader<S> {
    type Sample = S;

    fn begin(&mut self, step: u64) -> usize {
        let seed = self.order.order().seed;
        let (epoch, places) = self.order.step(step);
        let current = self.packing.take().filter(|(of, _)| *of == epoch);
        let (_, packing) = self.packing.insert(current.unwrap_or_else(|| {
            let documents = Arc::clone(&self.documents);
            let packing = Packing::shuffled(documents, self.tokens, self.boundary, seed, epoch);
            (epoch, packing)
        }));
        let samples = places.iter().map(|&index| {
            let window = packing.window(index as usize);
            (self.make_sample)(window, WindowPlace { index, step })
        });
        self.remaining = samples.collect();
        self.remaining.len()
    }

    fn fetch(&mut self, count: usize) -> Vec<LoadedSample<S>> {
        let count = count.min(self.remaining.len());
        self.remaining.drain(..count).map(Ok).collect()
    }

    fn describe(&self) -> String {
        format!(
            "Documents: {} of {} tokens in memory, {} windows per epoch",
            format_count(self.documents.len() as u64),
            format_count(self.documents.token_count() as u64),
            format_count(u64::from(self.order.order().len))
        )
    }
}

/// Held-out windows, from the first token to the last.
pub struct WindowEvalLoader<S> {
    packing: Packing<Arc<Documents>>,
    make_sample: MakeSample<S>,
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
        WindowEvalLoader {
            packing: Packing::in_order(documents, tokens as usize, boundary),
            make_sample,
            remaining: 0..0,
        }
    }
}

impl<S> EvalLoader for WindowEvalLoader<S> {
    type Sample = S;

    fn len(&self) -> usize {
        self.packing.len()
    }

    fn begin(&mut self) {
        self.remaining = 0..self.len();
    }

    fn fetch(&mut self, count: usize) -> Vec<LoadedSample<S>> {
        let next = self.remaining.by_ref().take(count);
        let sample = |index: usize| {
            let place = WindowPlace {
                index: index as u32,
                step: 0,
            };
            (self.make_sample)(self.packing.window(index), place)
        };
        next.map(|index| Ok(sample(index))).collect()
    }
}
