//! Training samples by step, whatever they are: photographs decoded ahead, texts in batches of similar length, windows cut out
//! of the documents of the epoch. Which sample stands in which step is a function of (seed, step) alone.

use super::{Corpus, Data, Reading, Sample};
use crate::feed::{Ahead, TrainFeed};
use crate::plan::Plan;
use dataset::{Buckets, CachedOrder, Documents, Order, Packing, SampleError};
use pressure::Prefetch;
use runlog::format_count;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

/// The samples of a run, step by step.
pub enum Supply {
    /// Photographs.
    Photographs(TrainFeed),
    /// Texts.
    Texts(TextSupply),
    /// Windows of documents.
    Windows(WindowSupply),
}

/// Texts in batches of similar length.
pub struct TextSupply {
    corpus: Arc<Corpus>,
    order: Buckets,
    /// The order of the epoch that was asked for last.
    epoch: Option<(u64, Vec<u32>)>,
    steps_per_epoch: u64,
    effective_batch: usize,
    line: VecDeque<u32>,
    longest: u64,
}

/// Windows of documents.
pub struct WindowSupply {
    documents: Arc<Documents>,
    tokens: usize,
    boundary: u32,
    order: CachedOrder,
    /// The windows of the epoch that was asked for last.
    packing: Option<(u64, Packing<Arc<Documents>>)>,
    reading: Reading,
    line: VecDeque<Sample>,
}

impl Supply {
    /// Samples from `step` on.
    pub fn start(plan: &Plan, data: &Data, ahead: Ahead, step: u64) -> Self {
        match data {
            Data::Photographs(found) => {
                Supply::Photographs(TrainFeed::start(plan, found, ahead, step))
            }
            Data::Texts { train, .. } => {
                let order = Buckets::new(plan.seed, plan.effective_batch, train.lengths());
                Supply::Texts(TextSupply {
                    corpus: Arc::clone(train),
                    steps_per_epoch: order.steps_per_epoch().max(1),
                    order,
                    epoch: None,
                    effective_batch: plan.effective_batch as usize,
                    line: VecDeque::new(),
                    longest: plan.sample_cost(),
                })
            }
            Data::Documents {
                train,
                boundary,
                reading,
                ..
            } => {
                let (tokens, boundary) = (plan.image_size as usize, *boundary);
                let windows = Packing::in_order(&**train, tokens, boundary).len();
                Supply::Windows(WindowSupply {
                    documents: Arc::clone(train),
                    tokens,
                    boundary,
                    reading: reading.clone(),
                    order: CachedOrder::new(Order {
                        seed: plan.seed,
                        len: windows as u32,
                        effective_batch: plan.effective_batch,
                    }),
                    packing: None,
                    line: VecDeque::new(),
                })
            }
        }
    }

    /// Begins step `step`: its number of samples.
    pub fn begin(&mut self, step: u64) -> usize {
        match self {
            Supply::Photographs(feed) => feed.begin(step),
            Supply::Texts(texts) => texts.begin(step),
            Supply::Windows(windows) => windows.begin(step),
        }
    }

    /// The next `count` samples of the step; a file that could not be read is an error in its place.
    pub fn fetch(&mut self, count: usize) -> Vec<Result<Sample, SampleError>> {
        match self {
            Supply::Photographs(feed) => feed.fetch(count).into_iter().map(photograph).collect(),
            Supply::Texts(texts) => {
                let count = count.min(texts.line.len());
                let next = texts.line.drain(..count);
                next.map(|index| Ok(Sample::Text(texts.corpus.text(index))))
                    .collect()
            }
            Supply::Windows(windows) => {
                let count = count.min(windows.line.len());
                windows.line.drain(..count).map(Ok).collect()
            }
        }
    }

    /// Begins again at `step`: what was fetched for later is dropped.
    pub fn restart(&mut self, step: u64) {
        if let Supply::Photographs(feed) = self {
            feed.restart(step);
        }
    }

    /// What the pilot counts for one sample of this step.
    pub fn sample_cost(&self, usual: u64) -> u64 {
        match self {
            Supply::Photographs(_) | Supply::Windows(_) => usual,
            Supply::Texts(texts) => texts.longest,
        }
    }

    /// Works ahead so far from now on.
    pub fn set_prefetch(&mut self, prefetch: Prefetch) {
        if let Supply::Photographs(feed) = self {
            feed.set_prefetch(prefetch);
        }
    }

    /// Bytes that a shorter prefetch gives back.
    pub fn spare_bytes(&self) -> u64 {
        match self {
            Supply::Photographs(feed) => feed.spare_bytes(),
            Supply::Texts(_) | Supply::Windows(_) => 0,
        }
    }

    /// The file of a sample, relative to the folder, where it has one.
    pub fn file(&self, index: u32) -> Option<&Path> {
        match self {
            Supply::Photographs(feed) => Some(feed.file(index)),
            Supply::Texts(texts) => texts.corpus.file(index),
            Supply::Windows(_) => None,
        }
    }

    /// Milliseconds waited for data since the start.
    pub fn waited_ms(&self) -> f64 {
        match self {
            Supply::Photographs(feed) => feed.waited_ms(),
            Supply::Texts(_) | Supply::Windows(_) => 0.0,
        }
    }

    /// The feed's configuration in one line.
    pub fn describe(&self) -> String {
        match self {
            Supply::Photographs(feed) => feed.describe(),
            Supply::Texts(texts) => format!(
                "Texts: {} as tokens in memory",
                format_count(texts.corpus.len() as u64)
            ),
            Supply::Windows(windows) => format!(
                "Documents: {} of {} tokens in memory, {} windows an epoch",
                format_count(windows.documents.len() as u64),
                format_count(windows.documents.token_count() as u64),
                format_count(u64::from(windows.order.order().len))
            ),
        }
    }

    /// Gives cached photographs back.
    pub fn release(&self) {
        if let Supply::Photographs(feed) = self {
            feed.release();
        }
    }
}

/// A photograph as a sample of any task.
pub(super) fn photograph(
    found: Result<dataset::ImageSample, SampleError>,
) -> Result<Sample, SampleError> {
    found.map(Sample::Photograph)
}

impl TextSupply {
    fn begin(&mut self, step: u64) -> usize {
        let epoch = step / self.steps_per_epoch;
        if self.epoch.as_ref().is_none_or(|(of, _)| *of != epoch) {
            self.epoch = Some((epoch, self.order.epoch(epoch)));
        }
        let order = self.epoch.as_ref().map_or(&[][..], |(_, order)| order);
        let first = (step % self.steps_per_epoch) as usize * self.effective_batch;
        let batch = order.iter().skip(first).take(self.effective_batch);
        self.line = batch.copied().collect();
        // The longest stands first.
        let longest = self
            .line
            .front()
            .map(|&index| self.corpus.text(index).ids.len());
        self.longest = longest.unwrap_or(1) as u64;
        self.line.len()
    }
}

impl WindowSupply {
    fn begin(&mut self, step: u64) -> usize {
        let seed = self.order.order().seed;
        let (epoch, places) = self.order.step(step);
        let kept = self.packing.take().filter(|(of, _)| *of == epoch);
        let (_, packing) = self.packing.insert(kept.unwrap_or_else(|| {
            let documents = Arc::clone(&self.documents);
            let packing = Packing::shuffled(documents, self.tokens, self.boundary, seed, epoch);
            (epoch, packing)
        }));
        let windows = places.iter().map(|&place| {
            let window = packing.window(place as usize);
            self.reading.sample(window, place, step)
        });
        self.line = windows.collect();
        self.line.len()
    }
}
