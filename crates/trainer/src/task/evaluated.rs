//! What pieces of evaluation add up to, and the metrics that this comes to for each task.

use super::{Balance, Heads, NumberErrors, Sums, Taken, errors};
use dataset::{TargetColumn, Task};
use std::collections::BTreeMap;

/// What a piece of evaluation gave: sums again.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EvaluatedPiece {
    /// Summed loss, without label smoothing and class weights.
    pub loss: f64,
    /// What the summed loss is divided by: samples, or tokens of documents.
    pub weight: f64,
    /// Samples whose best score is the right class.
    pub right: u64,
    /// Samples whose right class is among the five best.
    pub in_top_5: u64,
    /// Samples.
    pub samples: u64,
    /// Which class was taken for which.
    pub confusion: Confusion,
    /// What else was measured.
    pub measures: Sums,
    /// How far each number was off.
    pub numbers: Vec<NumberErrors>,
}

impl EvaluatedPiece {
    /// Adds another piece.
    pub fn add(&mut self, other: EvaluatedPiece) {
        self.loss += other.loss;
        self.weight += other.weight;
        self.right += other.right;
        self.in_top_5 += other.in_top_5;
        self.samples += other.samples;
        self.confusion.add(&other.confusion);
        self.measures.add(&other.measures);
        errors::add(&mut self.numbers, other.numbers);
    }
}

/// Samples by their class and the class that they were taken for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Confusion(BTreeMap<(u32, u32), u64>);

impl Confusion {
    /// One sample of class `label` was taken for `found`.
    pub fn count(&mut self, label: u32, found: u32) {
        *self.0.entry((label, found)).or_default() += 1;
    }

    /// How often each class was taken for which, by label, pairs that occurred alone.
    pub fn pairs(&self) -> impl Iterator<Item = Taken> + '_ {
        self.0.iter().map(|(&(class, taken_for), &count)| Taken {
            class,
            taken_for,
            count,
        })
    }

    fn add(&mut self, other: &Confusion) {
        for (pair, count) in &other.0 {
            *self.0.entry(*pair).or_default() += count;
        }
    }

    /// The mean over the classes that occur, as label or as answer, of `2 right / (samples + answers)`, the harmonic mean of
    /// precision and recall. 0 without samples.
    pub fn macro_f1(&self) -> f64 {
        // Right answers, samples and answers by class.
        let mut by_class: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for (&(label, found), &count) in &self.0 {
            by_class.entry(label).or_default().1 += count;
            by_class.entry(found).or_default().1 += count;
            if label == found {
                by_class.entry(label).or_default().0 += count;
            }
        }
        let f1 = |&(right, both): &(u64, u64)| 2.0 * right as f64 / both.max(1) as f64;
        by_class.values().map(f1).sum::<f64>() / by_class.len().max(1) as f64
    }
}

/// The numbers of an evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct Metrics {
    /// Samples evaluated.
    pub samples: u64,
    /// Mean loss, in nats.
    pub loss: f64,
    /// By name: `accuracy`, `top_5`, `macro_f1` as fractions, `bits_per_byte` in bits, `mae.COLUMN` in the column's unit; of a
    /// token compression `kept_fraction`, `reconstruction_loss`, `loss_per_dropped` and `reward`.
    pub by_name: BTreeMap<String, f64>,
    /// Larger is better: the accuracy, else the bits per byte, the loss, or the mean absolute error in deviations, below 0.
    pub score: f64,
}

impl Metrics {
    /// What sums come to. `bytes` is how long the texts of documents are; `heads` and `columns` tell the numbers of photographs.
    pub fn of(
        sum: &EvaluatedPiece,
        task: Task,
        bytes: u64,
        (heads, columns): (Heads, &[TargetColumn]),
    ) -> Self {
        let samples = sum.samples.max(1) as f64;
        let mut loss = sum.loss / sum.weight.max(f64::MIN_POSITIVE);
        let (accuracy, top_5) = (sum.right as f64 / samples, sum.in_top_5 as f64 / samples);
        let bits = sum.loss / std::f64::consts::LN_2 / bytes.max(1) as f64;
        let macro_f1 = || ("macro_f1", sum.confusion.macro_f1());
        let (named, mut score) = match task {
            Task::ImageClassification if heads.classes == 0 => (Vec::new(), 0.0),
            Task::ImageClassification => (
                vec![("accuracy", accuracy), ("top_5", top_5), macro_f1()],
                accuracy,
            ),
            Task::TextClassification => (vec![("accuracy", accuracy), macro_f1()], accuracy),
            Task::LanguageModel => (vec![("bits_per_byte", bits)], -bits),
            Task::TokenCompression => (Vec::new(), -loss),
        };
        if !sum.numbers.is_empty() {
            let mean = |of: fn(&NumberErrors) -> f64| {
                sum.numbers.iter().map(of).sum::<f64>() / sum.numbers.len() as f64
            };
            // What is learnt decides what counts, but for weights that are learnt themselves.
            let weight = match heads.balance {
                Balance::Fixed(weight) => weight,
                Balance::Uncertainty => 1.0,
            };
            loss += weight * mean(NumberErrors::mean_loss);
            if heads.classes == 0 {
                score = -mean(NumberErrors::mean_absolute);
            }
        }
        let named = named
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value));
        Metrics {
            samples: sum.samples,
            loss,
            by_name: named
                .chain(sum.measures.means())
                .chain(errors::named(&sum.numbers, columns))
                .collect(),
            score,
        }
    }

    /// A metric by its name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.by_name.get(name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macro_f1_is_the_mean_over_classes_however_rare() {
        let mut confusion = Confusion::default();
        assert_eq!(confusion.macro_f1(), 0.0);
        // 90 of 90 right, of the rare class 5 of 10: precision .947 and recall 1, precision 1 and recall .5.
        (0..90).for_each(|_| confusion.count(0, 0));
        (0..5).for_each(|_| confusion.count(1, 1));
        (0..5).for_each(|_| confusion.count(1, 0));
        let expected = (2.0 * 90.0 / (90.0 + 95.0) + 2.0 * 5.0 / (10.0 + 5.0)) / 2.0;
        assert!((confusion.macro_f1() - expected).abs() < 1e-12);
        let mut twice = confusion.clone();
        twice.add(&confusion);
        assert_eq!(twice.macro_f1(), confusion.macro_f1());
    }

    #[test]
    fn bits_per_byte_divide_the_summed_loss_by_the_bytes_of_the_texts() {
        let sum = EvaluatedPiece {
            loss: 100.0 * std::f64::consts::LN_2,
            weight: 51.0,
            samples: 2,
            ..EvaluatedPiece::default()
        };
        let metrics = Metrics::of(&sum, Task::LanguageModel, 50, (Heads::for_classes(0), &[]));
        assert!((metrics.by_name["bits_per_byte"] - 2.0).abs() < 1e-12);
        assert!((metrics.score + 2.0).abs() < 1e-12);
    }
}
