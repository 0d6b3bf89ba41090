//! Compares two models on the samples that both were evaluated on.

use super::Results;
use std::collections::BTreeMap;

/// How two models answer for the samples that both were evaluated on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// Samples in both evaluations.
    pub shared: u64,
    /// Shared samples that the first model classifies correctly.
    pub first_correct: u64,
    /// Shared samples that the second model classifies correctly.
    pub second_correct: u64,
    /// The probability of a difference that large if both models were equally good (McNemar 1947,
    /// exact and two-sided).
    pub chance: f64,
}

impl Results {
    /// Compares the classes that this model and another one predict. Samples are matched by file.
    /// `None` if the evaluations share no file.
    pub fn compare(&self, other: &Results) -> Option<Comparison> {
        let correct = |results: &Results| -> BTreeMap<String, bool> {
            let samples = results
                .samples
                .iter()
                .filter(|sample| !sample.file.is_empty());
            let correct = samples.filter_map(|sample| {
                let class = sample.class?;
                Some((sample.file.clone(), class.class == class.predicted))
            });
            correct.collect()
        };
        let (first, second) = (correct(self), correct(other));
        let shared: Vec<(bool, bool)> = first
            .iter()
            .filter_map(|(file, correct)| Some((*correct, *second.get(file)?)))
            .collect();
        if shared.is_empty() {
            return None;
        }
        let count = |matches: fn(&(bool, bool)) -> bool| {
            shared.iter().filter(|pair| matches(pair)).count() as u64
        };
        Some(Comparison {
            shared: shared.len() as u64,
            first_correct: count(|pair| pair.0),
            second_correct: count(|pair| pair.1),
            chance: chance(
                count(|pair| pair.0 && !pair.1),
                count(|pair| pair.1 && !pair.0),
            ),
        })
    }
}

/// The two-sided probability that fair coins split `a + b` cases at least as unevenly as `a` to
/// `b`.
fn chance(a: u64, b: u64) -> f64 {
    let (all, fewer) = (a + b, a.min(b));
    // Logarithm of `all choose i` times 2^-all; the power alone would vanish for many cases.
    let mut term = -(all as f64) * std::f64::consts::LN_2;
    let mut sum = 0.0;
    for i in 0..=fewer {
        sum += term.exp();
        term += ((all - i) as f64 / (i + 1) as f64).ln();
    }
    (2.0 * sum).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{class_report, report};
    use super::super::{Results, SampleResult};
    use super::*;
    use crate::task::ClassPrediction;
    use dataset::Task;

    fn results(files: &[(&str, bool)]) -> Results {
        let sample = |(file, correct): &(&str, bool)| SampleResult {
            index: 0,
            file: (*file).to_owned(),
            class: Some(ClassPrediction {
                class: 0,
                predicted: u32::from(!correct),
                probability: 0.9,
                class_probability: 0.9,
            }),
            targets: Vec::new(),
        };
        let report = report("held-out", 1, vec![class_report("ant", 2, 1.0)]);
        let samples = files.iter().map(sample).collect();
        Results::new(Task::ImageClassification, report, samples)
    }

    #[test]
    fn only_shared_samples_are_compared() {
        let first = results(&[("a", true), ("b", true), ("c", false), ("d", true)]);
        let second = results(&[("b", false), ("c", false), ("d", true), ("e", true)]);
        let found = first.compare(&second).expect("they share three files");
        assert_eq!(
            (found.shared, found.first_correct, found.second_correct),
            (3, 2, 1)
        );
        assert_eq!(found.chance, 1.0);
        assert_eq!(first.compare(&results(&[("x", true)])), None);
    }

    #[test]
    fn the_chance_is_that_of_fair_coins() {
        // 0 of 5: 2 / 32. 2 of 10: 2 * (1 + 10 + 45) / 1024.
        assert!((chance(5, 0) - 0.0625).abs() < 1e-12);
        assert!((chance(2, 8) - 0.109_375).abs() < 1e-12);
        assert_eq!(chance(3, 3), 1.0);
        assert_eq!(chance(0, 0), 1.0);
        // A difference of 200 in 4000 is 3.2 standard deviations.
        let many = chance(1900, 2100);
        assert!((0.001..0.002).contains(&many), "{many}");
    }
}
