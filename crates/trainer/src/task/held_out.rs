//! Held-out samples in order, whatever they are: texts by length, so that little is padded; windows from the first token on.

use super::supply::photograph;
use super::{Corpus, Data, Reading, Sample};
use crate::feed::{Ahead, HeldOutFeed};
use crate::plan::Plan;
use dataset::{Documents, Packing, SampleError, Split};
use pressure::Prefetch;
use std::ops::Range;
use std::sync::Arc;

/// The held-out samples of a run.
pub enum HeldOut {
    /// Photographs.
    Photographs(HeldOutFeed),
    /// Texts, the longest first, and those still to come.
    Texts(Arc<Corpus>, Vec<u32>, Range<usize>),
    /// Windows of documents.
    Windows(WindowsInOrder),
}

/// Windows of documents from the first token on.
pub struct WindowsInOrder {
    packing: Packing<Arc<Documents>>,
    reading: Reading,
    /// Those still to come.
    rest: Range<usize>,
}

impl HeldOut {
    /// The held-out part of a run's data.
    pub fn open(plan: &Plan, data: &Data, ahead: Ahead) -> Self {
        match data {
            Data::Photographs(found) => {
                HeldOut::Photographs(HeldOutFeed::open(plan, found, Split::HeldOut, ahead))
            }
            Data::Texts { held_out, .. } => HeldOut::of_texts(Arc::clone(held_out)),
            Data::Documents {
                held_out,
                boundary,
                reading,
                ..
            } => {
                let (documents, tokens) = (Arc::clone(held_out), plan.image_size);
                HeldOut::of_documents(documents, tokens, *boundary, reading.clone())
            }
        }
    }

    /// Windows of `tokens` of these documents, with this token between them, read as `reading` says.
    pub fn of_documents(
        documents: Arc<Documents>,
        tokens: u32,
        boundary: u32,
        reading: Reading,
    ) -> Self {
        HeldOut::Windows(WindowsInOrder {
            packing: Packing::in_order(documents, tokens as usize, boundary),
            reading,
            rest: 0..0,
        })
    }

    /// These texts.
    pub fn of_texts(corpus: Arc<Corpus>) -> Self {
        let lengths = corpus.lengths();
        let mut order: Vec<u32> = (0..lengths.len() as u32).collect();
        order.sort_by_key(|&index| std::cmp::Reverse(lengths[index as usize]));
        HeldOut::Texts(corpus, order, 0..0)
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        match self {
            HeldOut::Photographs(feed) => feed.len(),
            HeldOut::Texts(corpus, ..) => corpus.len(),
            HeldOut::Windows(windows) => windows.packing.len(),
        }
    }

    /// Asks for all samples, from the first on.
    pub fn begin(&mut self) {
        let all = 0..self.len();
        match self {
            HeldOut::Photographs(feed) => feed.begin(),
            HeldOut::Texts(_, _, rest) => *rest = all,
            HeldOut::Windows(windows) => windows.rest = all,
        }
    }

    /// The next `count` samples, fewer at the end; a file that could not be read is an error in its place.
    pub fn fetch(&mut self, count: usize) -> Vec<Result<Sample, SampleError>> {
        match self {
            HeldOut::Photographs(feed) => feed.fetch(count).into_iter().map(photograph).collect(),
            HeldOut::Texts(corpus, order, rest) => {
                let next = rest.by_ref().take(count);
                next.map(|place| Ok(Sample::Text(corpus.text(order[place]))))
                    .collect()
            }
            HeldOut::Windows(windows) => {
                let end = windows.rest.end.min(windows.rest.start + count);
                let next = windows.rest.start..end;
                windows.rest.start = end;
                let (packing, reading) = (&windows.packing, &windows.reading);
                next.map(|place| Ok(reading.sample(packing.window(place), place as u32, 0)))
                    .collect()
            }
        }
    }

    /// What the pilot counts for one of the samples to come.
    pub fn sample_cost(&self, usual: u64) -> u64 {
        match self {
            HeldOut::Photographs(_) | HeldOut::Windows(..) => usual,
            HeldOut::Texts(corpus, order, rest) => {
                let longest = order.get(rest.start.min(order.len().saturating_sub(1)));
                longest.map_or(usual, |&index| corpus.text(index).ids.len() as u64)
            }
        }
    }

    /// Works ahead so far from now on.
    pub fn set_prefetch(&mut self, prefetch: Prefetch) {
        if let HeldOut::Photographs(feed) = self {
            feed.set_prefetch(prefetch);
        }
    }

    /// Bytes that a shorter prefetch gives back.
    pub fn spare_bytes(&self) -> u64 {
        match self {
            HeldOut::Photographs(feed) => feed.spare_bytes(),
            HeldOut::Texts(..) | HeldOut::Windows(..) => 0,
        }
    }

    /// Gives cached photographs back.
    pub fn release(&self) {
        if let HeldOut::Photographs(feed) = self {
            feed.release();
        }
    }
}
