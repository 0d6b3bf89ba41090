//! Labels that are probably wrong, found by confident learning (Northcutt et al. 2021): the model
//! has not trained on the evaluated samples, and is as sure of another class as it usually is of
//! this class's own samples. Confident learning assumes a model that is mostly right, so Ebb also
//! requires that the model is accurate and that the other class is more probable than all others
//! together.

use super::{Results, SampleResult};
use std::collections::BTreeMap;

/// The usual confidence in a class is unknown below this many samples of the class.
const MIN_CLASS_SAMPLES: u64 = 5;
/// The model must give at least this probability to the other class. The usual confidence of a
/// model with many classes can be as low as 10 %, which contradicts no label.
const MIN_PROBABILITY: f64 = 0.5;
/// The model must make at most this fraction of the mistakes of always predicting the most frequent
/// class, at the lower bound of the accuracy. With more mistakes, most contradictions are mistakes
/// of the model and not of the labels.
const MAX_MISTAKES_FRACTION: f64 = 0.5;

/// A sample whose label is probably wrong.
#[derive(Debug, Clone, PartialEq)]
pub struct SuspiciousLabel<'a> {
    /// The place of the sample in `samples` of the results.
    pub place: usize,
    /// The sample.
    pub sample: &'a SampleResult,
    /// Name of the class in the data.
    pub label: &'a str,
    /// Name of the class that the model predicts.
    pub predicted: &'a str,
    /// The model's probability of the class in the data.
    pub label_probability: f64,
    /// The model's probability of the predicted class.
    pub probability: f64,
}

/// Sum of the probabilities of a class over the samples that are labeled with it.
#[derive(Clone, Copy, Default)]
struct OwnConfidence {
    samples: u64,
    sum: f64,
}

impl Results {
    /// The samples whose labels are probably wrong, the most suspicious one first. Empty if the
    /// model makes too many mistakes to judge labels.
    pub fn suspicious_labels(&self) -> Vec<SuspiciousLabel<'_>> {
        if !self.can_judge_labels() {
            return Vec::new();
        }
        let usual = self.usual_confidence();
        let name = |class: u32| Some(self.report.classes.get(class as usize)?.name.as_str());
        let mut found: Vec<SuspiciousLabel<'_>> = (self.samples.iter().enumerate())
            .filter_map(|(place, sample)| {
                let mistake = sample.mistake()?;
                let usual = *usual.get(&mistake.predicted)?;
                let is_sure = mistake.probability >= usual.max(MIN_PROBABILITY);
                is_sure.then_some(SuspiciousLabel {
                    place,
                    sample,
                    label: name(mistake.class)?,
                    predicted: name(mistake.predicted)?,
                    label_probability: mistake.class_probability,
                    probability: mistake.probability,
                })
            })
            .collect();
        let margin = |label: &SuspiciousLabel<'_>| label.probability - label.label_probability;
        found.sort_by(|a, b| margin(b).total_cmp(&margin(a)));
        found
    }

    /// Whether the model is much better than always predicting the most frequent class. False
    /// without classes.
    fn can_judge_labels(&self) -> bool {
        let known = self.report.accuracy_interval.zip(self.guessing_accuracy);
        known.is_some_and(|((low, _), guessing)| {
            guessing < 1.0 && 1.0 - low <= MAX_MISTAKES_FRACTION * (1.0 - guessing)
        })
    }

    /// For each class with enough samples, the mean probability that the model gives to the class
    /// on the samples that are labeled with it.
    fn usual_confidence(&self) -> BTreeMap<u32, f64> {
        let mut classes: BTreeMap<u32, OwnConfidence> = BTreeMap::new();
        for class in self.samples.iter().filter_map(|sample| sample.class) {
            let own = classes.entry(class.class).or_default();
            own.samples += 1;
            own.sum += class.class_probability;
        }
        let known = classes.into_iter();
        known
            .filter(|(_, own)| own.samples >= MIN_CLASS_SAMPLES)
            .map(|(class, own)| (class, own.sum / own.samples as f64))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{class_report, report, sample_of_two_classes as sample};
    use super::*;
    use crate::task::ClassPrediction;
    use dataset::Task;

    fn results(samples: Vec<SampleResult>) -> Results {
        let class = |class: u32, name: &str| {
            let own = samples.iter().filter_map(|sample| sample.class);
            let own = own.filter(|prediction| prediction.class == class);
            let right = own.clone().filter(|own| own.predicted == class).count();
            let all = own.count();
            class_report(name, all as u64, right as f64 / all.max(1) as f64)
        };
        let report = report("held-out", 3, vec![class(0, "ant"), class(1, "bee")]);
        Results::new(Task::ImageClassification, report, samples)
    }

    /// 20 ants and 20 bees that the model recognizes with a probability of 0.8.
    fn recognized() -> Vec<SampleResult> {
        let of_bee = |class: u32| if class == 1 { 0.8 } else { 0.2 };
        (0..40).map(|i| sample(i, i % 2, of_bee(i % 2))).collect()
    }

    #[test]
    fn a_confident_contradiction_is_suspicious_and_a_hesitant_mistake_is_not() {
        let mut samples = recognized();
        samples.push(sample(40, 0, 0.9));
        samples.push(sample(41, 0, 0.55));
        samples.push(sample(42, 1, 0.01));
        let results = results(samples);
        let found = results.suspicious_labels();
        let found: Vec<_> = found
            .iter()
            .map(|found| (found.sample.index, found.label, found.predicted))
            .collect();
        assert_eq!(found, [(42, "bee", "ant"), (40, "ant", "bee")]);
    }

    #[test]
    fn a_suspicious_label_has_the_place_of_its_sample() {
        let mut samples = recognized();
        samples.insert(3, sample(40, 0, 0.9));
        let results = results(samples);
        let found = results.suspicious_labels();
        let places: Vec<usize> = found.iter().map(|found| found.place).collect();
        assert_eq!(places, [3]);
        assert_eq!(&results.samples[3], found[0].sample);
    }

    #[test]
    fn a_model_that_guesses_finds_nothing() {
        let mut samples = recognized();
        for i in 0..20 {
            samples[i as usize] = sample(i, i % 2, if i % 2 == 1 { 0.1 } else { 0.9 });
        }
        assert!(results(samples).suspicious_labels().is_empty());
    }

    /// `correct` of 400 samples of 20 classes are recognized. The model gives each class that it
    /// predicts this probability.
    fn of_twenty_classes(correct: u32, probability: f64) -> Results {
        let sample = |index: u32| {
            let class = index % 20;
            let is_correct = index < correct;
            let rest = (1.0 - probability) / 19.0;
            SampleResult {
                class: Some(ClassPrediction {
                    class,
                    predicted: if is_correct { class } else { (class + 1) % 20 },
                    probability,
                    class_probability: if is_correct { probability } else { rest },
                }),
                ..sample(index, 0, 0.0)
            }
        };
        let recall = f64::from(correct) / 400.0;
        let class = |number: u32| class_report(&format!("class {number}"), 20, recall);
        let report = report("held-out", 3, (0..20).map(class).collect());
        let samples = (0..400).map(sample).collect();
        Results::new(Task::ImageClassification, report, samples)
    }

    #[test]
    fn a_weak_model_of_many_classes_finds_nothing() {
        // Much better than guessing (5 %), but most contradictions are its own mistakes.
        assert!(of_twenty_classes(52, 0.9).suspicious_labels().is_empty());
        assert!(of_twenty_classes(200, 0.9).suspicious_labels().is_empty());
        assert_eq!(of_twenty_classes(320, 0.9).suspicious_labels().len(), 80);
    }

    #[test]
    fn a_class_below_one_half_contradicts_no_label() {
        assert!(of_twenty_classes(320, 0.49).suspicious_labels().is_empty());
        assert_eq!(of_twenty_classes(320, 0.5).suspicious_labels().len(), 80);
    }

    #[test]
    fn a_single_class_has_no_wrong_labels() {
        let samples = (0..40).map(|index| sample(index, 0, 0.1)).collect();
        assert!(results(samples).suspicious_labels().is_empty());
    }

    #[test]
    fn the_usual_confidence_in_a_class_of_few_samples_is_unknown() {
        let mut samples = recognized();
        samples.truncate(9);
        let usual = results(samples).usual_confidence();
        assert_eq!(usual.keys().copied().collect::<Vec<u32>>(), [0]);
        assert!((usual[&0] - 0.8).abs() < 1e-12, "{usual:?}");
    }
}
