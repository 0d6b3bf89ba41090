//! Trains the baseline on one thread, with random numbers of its own: the same texts and the same
//! seed give the same model.

use super::NgramModel;
use super::hashed_ngrams::{Ngrams, mix, normalized};
use std::ops::ControlFlow;

/// N-grams of all texts together: 64 MB.
const MAX_NGRAMS: usize = 8 << 20;
/// Bytes of the weights. The rarest n-grams are left out if there are more.
const MAX_WEIGHT_BYTES: usize = 64 << 20;
/// Rows of the weights.
const MAX_ROWS: usize = 1 << 20;
/// Passes over the texts; fewer for many n-grams, but not fewer than the second.
const EPOCHS: [usize; 2] = [20, 5];
/// Multiplications and additions of all epochs: 5 to 10 seconds.
const MAX_OPERATIONS: usize = 6_000_000_000;
/// Operations per n-gram besides those of the classes.
const FIXED_OPERATIONS: usize = 8;
/// Learning rate of Adagrad (Duchi et al. 2011) at the first step; it falls to 0.
const LEARNING_RATE: f32 = 0.2;
/// Part of the learning rate that applies to the biases.
const BIAS_RATE: f32 = 0.01;
/// Fraction of the n-grams of a text that is dropped at each step.
const DROPOUT: f32 = 0.5;
/// Added to the count of each n-gram in each class.
const SMOOTHING: f32 = 0.1;
/// The stop is polled once per this many texts.
const POLL_INTERVAL: usize = 64;

/// What a baseline is trained with.
pub(crate) struct FitOptions<'a> {
    /// Class names in label order.
    pub classes: &'a [String],
    /// Seed of the order of the texts and of the dropout.
    pub seed: u64,
    /// Whether the user has stopped the run.
    pub is_stopping: &'a dyn Fn() -> bool,
}

/// A text as features.
struct Sample {
    label: usize,
    /// Row of each feature, and its value.
    features: Vec<(u32, f32)>,
}

/// A baseline, and the number of texts that it was trained on.
pub(crate) struct Fitted {
    pub model: NgramModel,
    pub texts: u64,
}

/// Trains a baseline on texts with their labels, or on a random selection if they are too many;
/// `None` if the user has stopped the run.
pub(crate) fn fit(texts: &[(&str, u32)], options: &FitOptions) -> Option<Fitted> {
    let classes = options.classes.len();
    let mut random = Random(mix(options.seed) ^ 0x6E67_7261_6D73);
    let ngrams = read(texts, classes, &mut random, options)?;
    let hashes = frequent(
        &ngrams,
        MAX_ROWS.min(MAX_WEIGHT_BYTES / (4 * classes.max(1))),
    );
    let row = |hash: u32| hashes.binary_search(&hash).ok().map(|row| row as u32);
    let samples = ngrams.into_iter().map(|(label, ngrams)| Sample {
        label,
        features: normalized(&ngrams, row),
    });
    let samples: Vec<Sample> = samples.collect();
    let mut linear = Linear::from_counts(&samples, hashes.len(), classes);
    if linear.train(&samples, &mut random, options).is_break() {
        return None;
    }
    Some(Fitted {
        texts: samples.len() as u64,
        model: NgramModel {
            classes: options.classes.to_vec(),
            hashes,
            weights: linear.weights,
            bias: linear.bias,
        },
    })
}

/// The label and the n-grams of each text, in random order, until there are too many n-grams.
fn read(
    texts: &[(&str, u32)],
    classes: usize,
    random: &mut Random,
    options: &FitOptions,
) -> Option<Vec<(usize, Ngrams)>> {
    let affordable = MAX_OPERATIONS / (EPOCHS[1] * (classes + FIXED_OPERATIONS));
    let limit = MAX_NGRAMS.min(affordable);
    let (mut all, mut count) = (Vec::new(), 0);
    for (place, index) in random.order(texts.len()).into_iter().enumerate() {
        if count > limit {
            break;
        }
        if place.is_multiple_of(POLL_INTERVAL) && (options.is_stopping)() {
            return None;
        }
        let (text, label) = texts[index as usize];
        let mut ngrams = Ngrams::from_text(text);
        ngrams.words.shrink_to_fit();
        ngrams.characters.shrink_to_fit();
        count += ngrams.words.len() + ngrams.characters.len();
        all.push((label as usize, ngrams));
    }
    Some(all)
}

/// The hashes of the n-grams, in ascending order: of more than `limit`, those of most texts.
fn frequent(all: &[(usize, Ngrams)], limit: usize) -> Vec<u32> {
    let both = all
        .iter()
        .flat_map(|(_, text)| [&text.words, &text.characters]);
    let mut hashes: Vec<u32> = both.flatten().map(|(hash, _)| *hash).collect();
    hashes.sort_unstable();
    let texts_of = hashes.chunk_by(|a, b| a == b).map(|same| same.len());
    let mut counts: Vec<usize> = texts_of.collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    // All that are as frequent as the first one that does not fit are left out.
    let too_rare = counts.get(limit).copied().unwrap_or(0);
    let kept = hashes.chunk_by(|a, b| a == b);
    let kept = kept.filter(|same| same.len() > too_rare);
    kept.map(|same| same[0]).collect()
}

/// The weights while they are trained.
struct Linear {
    classes: usize,
    /// [n-grams, classes].
    weights: Vec<f32>,
    bias: Vec<f32>,
}

impl Linear {
    /// Naive Bayes: how much more frequent each n-gram is in a class than in the others, as a
    /// logarithm, and the logarithm of the frequency of each class.
    fn from_counts(samples: &[Sample], rows: usize, classes: usize) -> Self {
        let mut weights = vec![0.0; rows * classes];
        let mut of_class = vec![1.0; classes];
        for sample in samples {
            of_class[sample.label] += 1.0;
            for (row, value) in &sample.features {
                weights[*row as usize * classes + sample.label] += value;
            }
        }
        let others = SMOOTHING * classes.saturating_sub(1).max(1) as f32;
        let mut totals = vec![0.0; classes];
        for row in weights.chunks_exact(classes) {
            for (total, weight) in totals.iter_mut().zip(row) {
                *total += f64::from(weight + SMOOTHING);
            }
        }
        let total: f64 = totals.iter().sum();
        for row in weights.chunks_exact_mut(classes) {
            let all: f32 = row.iter().sum();
            for (weight, of_class) in row.iter_mut().zip(&totals) {
                let inside = f64::from(*weight + SMOOTHING) / of_class;
                let outside = f64::from(all - *weight + others) / (total - of_class).max(1e-9);
                *weight = (inside / outside).ln() as f32;
            }
        }
        let texts: f32 = of_class.iter().sum();
        Linear {
            classes,
            weights,
            bias: of_class.iter().map(|count| (count / texts).ln()).collect(),
        }
    }

    /// Minimizes the cross-entropy with Adagrad, one text at a time. Breaks if the user stops.
    fn train(
        &mut self,
        samples: &[Sample],
        random: &mut Random,
        options: &FitOptions,
    ) -> ControlFlow<()> {
        let ngrams: usize = samples.iter().map(|sample| sample.features.len()).sum();
        let operations = ngrams.max(1) * (self.classes + FIXED_OPERATIONS);
        let epochs = (MAX_OPERATIONS / operations).clamp(EPOCHS[1], EPOCHS[0]);
        let steps = (epochs * samples.len()) as f32;
        // Sum of the squared gradients of each row.
        let mut squares = vec![1e-8; self.weights.len() / self.classes.max(1)];
        let (mut step, mut kept) = (0usize, Vec::new());
        for _ in 0..epochs {
            for index in random.order(samples.len()) {
                if step.is_multiple_of(POLL_INTERVAL) && (options.is_stopping)() {
                    return ControlFlow::Break(());
                }
                let sample = &samples[index as usize];
                kept.clear();
                let features = sample.features.iter();
                let features = features.filter(|_| random.uniform() >= DROPOUT);
                kept.extend(features.map(|(row, value)| (*row, value / (1.0 - DROPOUT))));
                let rate = LEARNING_RATE * (1.0 - step as f32 / steps);
                self.update(&kept, sample.label, rate, &mut squares);
                step += 1;
            }
        }
        ControlFlow::Continue(())
    }

    /// One step of Adagrad on one text.
    fn update(&mut self, features: &[(u32, f32)], label: usize, rate: f32, squares: &mut [f32]) {
        let classes = self.classes;
        let mut gradient = self.bias.clone();
        for (row, value) in features {
            let weights = &self.weights[*row as usize * classes..][..classes];
            for (score, weight) in gradient.iter_mut().zip(weights) {
                *score += value * weight;
            }
        }
        softmax(&mut gradient);
        gradient[label] -= 1.0;
        let norm: f32 = gradient.iter().map(|value| value * value).sum();
        for (row, value) in features {
            let square = &mut squares[*row as usize];
            *square += norm * value * value;
            let scale = rate * value / (square.sqrt() + 1e-6);
            let weights = &mut self.weights[*row as usize * classes..][..classes];
            for (weight, gradient) in weights.iter_mut().zip(&gradient) {
                *weight -= scale * gradient;
            }
        }
        for (bias, gradient) in self.bias.iter_mut().zip(&gradient) {
            *bias -= BIAS_RATE * rate * gradient;
        }
    }
}

fn softmax(scores: &mut [f32]) {
    let highest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for score in scores.iter_mut() {
        *score = (*score - highest).exp();
    }
    let total: f32 = scores.iter().sum();
    for score in scores {
        *score /= total;
    }
}

/// Random numbers that only the baseline uses (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number in `0.0..1.0`.
    fn uniform(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u32 << 24) as f32
    }

    /// The numbers below `count` in random order.
    fn order(&mut self, count: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..count as u32).collect();
        for last in (1..count).rev() {
            let other = (u128::from(self.next()) * (last as u128 + 1)) >> 64;
            order.swap(last, other as usize);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const TEXTS: [(&str, u32); 8] = [
        ("a warm and funny film", 1),
        ("funny, moving, beautiful", 1),
        ("beautiful music and a warm heart", 1),
        ("the best film of the year", 1),
        ("a dull and tedious film", 0),
        ("tedious, clumsy, boring", 0),
        ("boring music and a dull plot", 0),
        ("the worst film of the year", 0),
    ];

    fn classes() -> Vec<String> {
        ["bad", "good"].map(str::to_owned).into()
    }

    fn trained(texts: &[(&str, u32)], seed: u64) -> Fitted {
        let options = FitOptions {
            classes: &classes(),
            seed,
            is_stopping: &|| false,
        };
        fit(texts, &options).expect("it was not stopped")
    }

    #[test]
    fn it_separates_words_and_parts_of_words() {
        let model = trained(&TEXTS, 7).model;
        for (text, good) in [
            ("Funny and beautiful!", true),
            ("dull", false),
            // Only parts of these words were seen.
            ("tediously clumsily", false),
            ("beautifully warmhearted", true),
        ] {
            let scores = model.scores(text);
            assert_eq!(scores[1] > scores[0], good, "{text}: {scores:?}");
        }
        let unknown = model.scores("\u{4E2D}");
        assert!(unknown.iter().all(|score| score.is_finite()));
    }

    #[test]
    fn the_same_seed_gives_the_same_model() {
        let model = trained(&TEXTS, 7).model;
        assert_eq!(model, trained(&TEXTS, 7).model);
        assert_ne!(model, trained(&TEXTS, 8).model);
    }

    #[test]
    fn a_stop_ends_it_early() {
        let polls = Cell::new(0);
        let is_stopping = || {
            polls.set(polls.get() + 1);
            polls.get() == 2
        };
        let options = FitOptions {
            classes: &classes(),
            seed: 7,
            is_stopping: &is_stopping,
        };
        assert!(fit(&TEXTS, &options).is_none());
        assert_eq!(polls.get(), 2);
    }

    #[test]
    fn the_rarest_ngrams_are_left_out() {
        let texts = ["b a", "b", "c b a"];
        let all: Vec<_> = texts
            .iter()
            .map(|text| (0, Ngrams::from_text(text)))
            .collect();
        let everything = frequent(&all, MAX_ROWS);
        assert!(everything.is_sorted() && everything.len() > 9);
        let most = frequent(&all, everything.len() - 1);
        assert!(most.len() < everything.len() && !most.is_empty());
        assert!(most.iter().all(|hash| everything.contains(hash)));
    }
}
