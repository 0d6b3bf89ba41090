//! Labeled texts in batches of similar length, so that little is padded.

use super::tokenizer::{on_tokenizer_thread, open_tokenizer};
use super::{BaselineScores, Corpus, EvalLoader, LoadedSample, Text, TrainLoader, expect_texts};
use crate::error::Result;
use crate::plan::Plan;
use crate::preparation::Preparation;
use dataset::{Buckets, DetectedDataset, Split, chosen_first};
use runlog::{RunFolder, format_count};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use tape::Rng;

/// The tokenized texts of a run.
pub struct TextData {
    pub train: Arc<Corpus>,
    pub held_out: Arc<Corpus>,
}

impl TextData {
    /// Reads and tokenizes the texts of both splits.
    ///
    /// # Errors
    /// A file is missing or has changed since the inspection, or the user stops the run.
    pub fn open(
        plan: &Plan,
        found: &DetectedDataset,
        run: &RunFolder,
        preparation: Preparation,
    ) -> Result<Self> {
        let found = &*expect_texts(plan, found)?;
        let tokenizer = &open_tokenizer(plan, found, run)?;
        let max_tokens = plan.input_size as usize;
        let open = |part| -> Result<Arc<Corpus>> {
            let corpus = on_tokenizer_thread(|| {
                Corpus::open(found, part, tokenizer, max_tokens, preparation)
            })?;
            Ok(Arc::new(corpus))
        };
        Ok(TextData {
            train: open(Split::Train)?,
            held_out: open(Split::HeldOut)?,
        })
    }

    /// A warning about texts that are longer than the model reads, if there are any.
    pub(crate) fn truncation_warning(&self, tokens: u32) -> Option<String> {
        let truncated = self.train.truncated() + self.held_out.truncated();
        (truncated > 0).then(|| {
            format!(
                "{} of {} texts are longer than {tokens} tokens and are cut; a larger maximum length (--tokens in the terminal) keeps more of each text",
                format_count(truncated),
                format_count((self.train.len() + self.held_out.len()) as u64)
            )
        })
    }
}

/// Leaves out random tokens of the training texts (Iyyer et al. 2015). Which ones is a function of
/// the seed, the step and the text.
struct TokenDropout {
    stream: Rng,
    fraction: f64,
    step: u64,
}

impl TokenDropout {
    fn new(seed: u64, fraction: f64) -> Self {
        TokenDropout {
            stream: Rng::new(seed).site("token dropout"),
            fraction,
            step: 0,
        }
    }

    /// The text without the tokens that this step leaves out. The first and the last one stay: they
    /// mark the beginning and the end of a text.
    fn applied_to(&self, text: Text) -> Text {
        if self.fraction == 0.0 {
            return text;
        }
        let stream = self.stream.at(self.step).at(u64::from(text.index));
        let last = text.ids.len() - 1;
        let is_kept = |place: usize| {
            place == 0 || place == last || stream.uniform(place as u64) >= self.fraction
        };
        let ids = text.ids.iter().enumerate();
        let ids = ids.filter(|(place, _)| is_kept(*place)).map(|(_, id)| *id);
        Text {
            ids: ids.collect(),
            ..text
        }
    }
}

/// Training texts, step by step.
pub struct TextLoader {
    corpus: Arc<Corpus>,
    buckets: Buckets,
    /// The epoch of the last step, and its order.
    epoch: Option<(u64, Vec<u32>)>,
    steps_per_epoch: u64,
    effective_batch: usize,
    /// Which tokens of a text are left out.
    dropout: TokenDropout,
    /// The texts of the step, and the positions of those that have not been fetched.
    texts: Vec<u32>,
    remaining: Range<usize>,
    longest: u64,
}

impl TextLoader {
    /// Loads the texts of `corpus` for a plan.
    pub fn new(plan: &Plan, corpus: &Arc<Corpus>) -> Self {
        let buckets = Buckets::new(plan.seed, plan.effective_batch, corpus.lengths());
        TextLoader {
            corpus: Arc::clone(corpus),
            steps_per_epoch: buckets.steps_per_epoch().max(1),
            buckets,
            epoch: None,
            effective_batch: plan.effective_batch as usize,
            dropout: TokenDropout::new(plan.seed, plan.token_dropout),
            texts: Vec::new(),
            remaining: 0..0,
            longest: plan.sample_cost(),
        }
    }
}

impl TrainLoader for TextLoader {
    type Sample = Text;

    fn begin(&mut self, step: u64) -> usize {
        let epoch = step / self.steps_per_epoch;
        if self.epoch.as_ref().is_none_or(|(of, _)| *of != epoch) {
            self.epoch = Some((epoch, self.buckets.epoch(epoch)));
        }
        let order = self.epoch.as_ref().map_or(&[][..], |(_, order)| order);
        let first = (step % self.steps_per_epoch) as usize * self.effective_batch;
        let batch = order.iter().skip(first).take(self.effective_batch);
        self.texts = batch.copied().collect();
        self.remaining = 0..self.texts.len();
        self.dropout.step = step;
        // The first text of a batch is its longest.
        let longest = self.texts.first();
        let longest = longest.map(|&index| self.corpus.text(index).ids.len());
        self.longest = longest.unwrap_or(1) as u64;
        self.texts.len()
    }

    fn fetch(&mut self, count: usize) -> Vec<LoadedSample<Text>> {
        let next = self.remaining.by_ref().take(count);
        next.map(|position| {
            let text = self.corpus.text(self.texts[position]);
            Ok(self.dropout.applied_to(text))
        })
        .collect()
    }

    fn select(&mut self, samples: Range<usize>, _ahead: Range<usize>) {
        self.remaining = samples;
    }

    fn describe(&self) -> String {
        let texts = format_count(self.corpus.len() as u64);
        format!("Texts: {texts}, tokenized in memory")
    }

    fn sample_cost(&self, _default: u64) -> u64 {
        self.longest
    }

    fn file(&self, index: u32) -> Option<&Path> {
        self.corpus.file(index)
    }
}

/// Held-out texts, the longest first; all, or a selection.
pub struct TextEvalLoader {
    corpus: Arc<Corpus>,
    /// The selected texts, the longest first, then the others in the same way.
    order: Vec<u32>,
    /// Number of selected texts.
    len: usize,
    /// Places in `order` that have not been fetched.
    remaining: Range<usize>,
    /// The class scores of the baseline, if they have a part in the prediction.
    baseline: Option<BaselineScores>,
}

impl TextEvalLoader {
    /// Loads the texts of `corpus`.
    pub fn new(corpus: Arc<Corpus>) -> Self {
        let lengths = corpus.lengths();
        let mut order: Vec<u32> = (0..lengths.len() as u32).collect();
        order.sort_by_key(|&index| std::cmp::Reverse(lengths[index as usize]));
        TextEvalLoader {
            corpus,
            len: order.len(),
            order,
            remaining: 0..0,
            baseline: None,
        }
    }

    /// Loads only `limit` texts chosen by seed, each class in proportion, until the whole split is
    /// asked for.
    #[must_use]
    pub fn with_sample_limit(mut self, seed: u64, limit: usize) -> Self {
        self.len = chosen_first(&mut self.order, seed, self.corpus.labels(), limit);
        self
    }
}

impl EvalLoader for TextEvalLoader {
    type Sample = Text;

    fn len(&self) -> usize {
        self.len
    }

    fn split_len(&self) -> usize {
        self.corpus.len()
    }

    fn begin(&mut self) {
        self.remaining = 0..self.len;
    }

    fn begin_whole(&mut self) -> usize {
        self.remaining = 0..self.corpus.len();
        self.corpus.len()
    }

    fn fetch(&mut self, count: usize) -> Vec<LoadedSample<Text>> {
        let next = self.remaining.by_ref().take(count);
        let text = |place: usize| {
            let index = self.order[place];
            let baseline = self
                .baseline
                .as_ref()
                .map(|scores| scores.for_sample(index));
            Text {
                baseline: baseline.unwrap_or_default().to_vec(),
                ..self.corpus.text(index)
            }
        };
        next.map(|place| Ok(text(place))).collect()
    }

    fn set_baseline(&mut self, scores: BaselineScores) {
        self.baseline = Some(scores);
    }

    fn file(&self, index: u32) -> Option<&Path> {
        self.corpus.file(index)
    }

    fn sample_cost(&self, default: u64) -> u64 {
        let last = self.order.len().saturating_sub(1);
        let longest = self.order.get(self.remaining.start.min(last));
        longest.map_or(default, |&index| self.corpus.text(index).ids.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(index: u32) -> Text {
        Text {
            index,
            label: 0,
            ids: (0..1002).collect(),
            baseline: Vec::new(),
        }
    }

    #[test]
    fn token_dropout_leaves_out_a_fraction_and_keeps_the_order() {
        let mut dropout = TokenDropout::new(7, 0.25);
        dropout.step = 3;
        let ids = dropout.applied_to(text(1)).ids;
        assert!((700..800).contains(&ids.len()), "{}", ids.len());
        assert!(ids.is_sorted());
        assert_eq!((ids.first(), ids.last()), (Some(&0), Some(&1001)));
        assert_eq!(dropout.applied_to(text(1)).ids, ids);
        assert_ne!(dropout.applied_to(text(2)).ids, ids);
        dropout.step = 4;
        assert_ne!(dropout.applied_to(text(1)).ids, ids);
    }

    #[test]
    fn a_limited_evaluation_reads_its_texts_first_and_then_the_others() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let row = |i: usize| format!("{}\tword {i} {}\n", ["a", "b"][i % 2], "x".repeat(i % 7));
        let rows: String = (0..200).map(row).collect();
        std::fs::write(folder.path().join("texts.tsv"), rows).expect("a table");
        let found = dataset::detect(
            folder.path(),
            &dataset::InspectOptions::default(),
            &dataset::TextOptions::default(),
            &|_| {},
        );
        let Ok(DetectedDataset::Texts(found)) = found else {
            panic!("the folder has texts");
        };
        let tokenizer = dataset::Tokenizer::bytes();
        let nothing = Preparation::default();
        let corpus = Corpus::open(&found, Split::Train, &tokenizer, 16, nothing);
        let corpus = Arc::new(corpus.expect("it is read"));
        let read = |loader: &mut TextEvalLoader| -> Vec<u32> {
            let loaded = loader.fetch(usize::MAX).into_iter();
            loaded.map(|text| text.expect("it is read").index).collect()
        };
        let selected = |seed: u64| {
            let mut loader = TextEvalLoader::new(Arc::clone(&corpus)).with_sample_limit(seed, 10);
            assert_eq!((loader.len(), loader.split_len()), (10, corpus.len()));
            loader.begin();
            let first = read(&mut loader);
            assert_eq!(loader.begin_whole(), corpus.len());
            let whole = read(&mut loader);
            assert_eq!(first, whole[..10], "the selection comes first");
            let mut sorted = whole;
            sorted.sort_unstable();
            assert_eq!(sorted, (0..corpus.len() as u32).collect::<Vec<_>>());
            first
        };
        let first = selected(7);
        assert_eq!((first.len(), &first), (10, &selected(7)));
        assert_ne!(first, selected(8));
        let lengths = corpus.lengths();
        let longest_first = |a: &u32, b: &u32| lengths[*a as usize] >= lengths[*b as usize];
        assert!(first.is_sorted_by(longest_first));
    }

    #[test]
    fn without_token_dropout_a_text_stays_whole() {
        let text = text(0);
        assert_eq!(TokenDropout::new(7, 0.0).applied_to(text.clone()), text);
        let short = Text {
            ids: vec![5],
            ..text
        };
        assert_eq!(TokenDropout::new(7, 0.9).applied_to(short.clone()), short);
    }
}
