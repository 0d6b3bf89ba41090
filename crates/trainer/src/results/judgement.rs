//! One line about how good a model is and what would help. The rules are pure; each names the
//! numbers that it is based on.

use super::Results;
use runlog::{counted, format_count, format_in_unit, format_percent};

/// A learning rate this many times above or below the usual one is named as the probable cause.
const UNUSUAL_RATE: f64 = 5.0;
/// An accuracy interval this wide says little.
const WIDE_INTERVAL: f64 = 0.25;
/// Held-out loss that rises to this many times its lowest value means that the network memorizes.
const RISEN_LOSS: f64 = 1.25;
/// How many preferences a guess gets right.
const GUESSED_PREFERENCES: f64 = 0.5;
/// Copies that are at least this part of the evaluated samples change the accuracy.
const LEAKING_SHARE: f64 = 0.01;
/// A class needs this many samples to be named as weak.
const CLASS_SAMPLES: u64 = 5;

/// How a judgement is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// The model works.
    Good,
    /// It works, and something would make it better.
    Hint,
    /// It does not work.
    Bad,
}

/// One sentence or two about a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// How it is meant.
    pub tone: Tone,
    /// The sentences.
    pub text: String,
}

/// What is known of the training besides its results.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TrainingFacts {
    /// Peak learning rate; 0 if it is unknown.
    pub learning_rate: f64,
    /// The learning rate that Ebb suggests for this optimizer and these weights.
    pub usual_learning_rate: f64,
    /// Held-out loss of each evaluation, oldest first.
    pub held_out_losses: Vec<f64>,
    /// Smoothed training loss at the end.
    pub training_loss: Option<f64>,
    /// What one sample is called: "image", "text".
    pub sample_noun: String,
    /// Whether the weights started random.
    pub from_scratch: bool,
    /// The held-out accuracy of the baseline, if the run has one.
    pub baseline_accuracy: Option<f64>,
    /// The best held-out accuracy of the model, which the baseline is compared with.
    pub held_out_accuracy: Option<f64>,
    /// Weight of the baseline in the predictions of the model, from 0 to 1; `None` if it has none.
    pub baseline_share: Option<f64>,
    /// Held-out samples that are exact copies of training samples.
    pub held_out_copies: u64,
    /// The entropy of the evaluated bytes of a language model or a token compression, in bits.
    pub byte_entropy: Option<f64>,
}

impl Results {
    /// How good the model is; `None` if no rule applies.
    pub fn judge(&self, facts: &TrainingFacts) -> Option<Judgement> {
        if self.report.samples == 0 {
            return None;
        }
        if let Some(text) = self.not_learning(facts) {
            let tone = Tone::Bad;
            return Some(Judgement { tone, text });
        }
        if let Some(text) = below_baseline(facts) {
            let tone = Tone::Hint;
            return Some(Judgement { tone, text });
        }
        let hint = self
            .leaking_copies(facts)
            .or_else(|| memorizes(facts))
            .or_else(|| improves(facts))
            .or_else(|| self.weak_class())
            .or_else(|| self.wrong_labels(facts));
        let praise = above_baseline(facts)
            .or_else(|| self.better_than_byte_frequencies(facts))
            .or_else(|| self.better_than_guessing());
        let (tone, text) = match (praise, hint) {
            (praise, Some(hint)) => (Tone::Hint, join(praise, hint)),
            (Some(praise), None) => (Tone::Good, praise),
            (None, None) => return None,
        };
        Some(Judgement { tone, text })
    }

    /// Why the model is no better than guessing, if it is not.
    fn not_learning(&self, facts: &TrainingFacts) -> Option<String> {
        let report = &self.report;
        if let (Some((low, high)), Some(guessing)) =
            (report.accuracy_interval, self.guessing_accuracy)
        {
            if low > guessing {
                return None;
            }
            let accuracy = report.metrics.get("accuracy").copied().unwrap_or(0.0);
            if accuracy > guessing && high - low > WIDE_INTERVAL {
                let held_out = format_count(report.samples);
                return Some(format!(
                    "Not clearly better than guessing: {held_out} evaluated {}s are too few to be sure.",
                    facts.sample_noun
                ));
            }
            return Some(format!(
                "Not learning: no better than guessing. {}",
                advice(facts)
            ));
        }
        if let Some((accuracy, (low, high))) = report.preference_accuracy() {
            return preferences_not_learned(report.samples, accuracy, (low, high), facts);
        }
        if let Some(bytes) = self.byte_prediction(facts) {
            return (bytes.bits >= bytes.entropy).then(|| {
                format!(
                    "Not learning: the model needs {}; a model that knows only the frequency of each byte needs {:.2}. {}",
                    bytes.describe(),
                    bytes.entropy,
                    advice(facts)
                )
            });
        }
        let target = (report.targets.iter())
            .filter(|target| target.samples > 0)
            .find(|target| target.improvement_interval.0 <= 0.0)?;
        Some(format!(
            "Not learning {}: no better than always predicting its mean value. {}",
            target.name,
            advice(facts)
        ))
    }

    /// How well bytes are predicted, if the run has texts that bytes are predicted of.
    fn byte_prediction(&self, facts: &TrainingFacts) -> Option<BytePrediction> {
        let metric = |name: &str| self.report.metrics.get(name).copied();
        let (bits, compresses) = match metric("bits_per_byte") {
            Some(bits) => (bits, false),
            None => (metric("loss_per_dropped")? / std::f64::consts::LN_2, true),
        };
        Some(BytePrediction {
            bits: Some(bits).filter(|bits| bits.is_finite())?,
            entropy: facts.byte_entropy?,
            compresses,
        })
    }

    fn better_than_byte_frequencies(&self, facts: &TrainingFacts) -> Option<String> {
        let bytes = self.byte_prediction(facts)?;
        Some(format!(
            "Learning: the model needs {}; a model that knows only the frequency of each byte needs {:.2}.",
            bytes.describe(),
            bytes.entropy
        ))
    }

    fn better_than_guessing(&self) -> Option<String> {
        if let Some(guessing) = self.guessing_accuracy {
            let accuracy = self.report.metrics.get("accuracy")?;
            let (accuracy, guessing) = percents_apart(*accuracy, guessing);
            return Some(format!(
                "Better than guessing: {accuracy} right instead of {guessing}."
            ));
        }
        if let Some((accuracy, _)) = self.report.preference_accuracy() {
            return Some(format!(
                "Better than guessing: the chosen answer has the higher reward in {} of the preferences instead of 50 %.",
                format_percent(accuracy)
            ));
        }
        let target = self.report.targets.first()?;
        Some(format!(
            "Better than always predicting the mean: the average error of {} is {} instead of {}.",
            target.name,
            format_in_unit(target.mean_absolute_error),
            format_in_unit(target.mean_baseline_error)
        ))
    }

    /// The weakest class, if it is much weaker than the others.
    fn weak_class(&self) -> Option<String> {
        let accuracy = self.report.metrics.get("accuracy")?;
        let classes = self.report.classes.iter();
        let weak = classes
            .filter(|class| class.samples >= CLASS_SAMPLES)
            .filter_map(|class| Some((class, class.recall?)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .filter(|(_, recall)| *recall < accuracy / 2.0)?;
        let (class, recall) = weak;
        let correct = (recall * class.samples as f64).round() as u64;
        Some(format!(
            "Weak on {}: {} of {} samples are classified correctly.",
            class.name,
            format_count(correct),
            format_count(class.samples)
        ))
    }

    /// Held-out samples that are copies of training samples, if they change the accuracy.
    fn leaking_copies(&self, facts: &TrainingFacts) -> Option<String> {
        let copies = facts.held_out_copies;
        let share = copies as f64 / self.report.samples.max(1) as f64;
        let noun = &facts.sample_noun;
        if copies == 0 || share < LEAKING_SHARE {
            return None;
        }
        Some(if copies == 1 {
            format!(
                "1 held-out {noun} is a copy of a training {noun}; the accuracy is too high. Train again without duplicates (--duplicates leave-out in the terminal)."
            )
        } else {
            format!(
                "{} held-out {noun}s are copies of training {noun}s; the accuracy is too high. Train again without duplicates (--duplicates leave-out in the terminal).",
                format_count(copies)
            )
        })
    }

    /// Samples that are probably labeled wrong.
    fn wrong_labels(&self, facts: &TrainingFacts) -> Option<String> {
        let found = self.suspicious_labels();
        let worst = found.first()?;
        let samples = counted_samples(found.len(), &facts.sample_noun);
        Some(format!(
            "{samples} may be labeled wrong, for example one that is labeled {} and looks like {}. The results page and `ebb evaluate` list them.",
            worst.label, worst.predicted
        ))
    }
}

/// Two fractions as "93.4 %", with more digits if they would look the same: with thousands of
/// classes, guessing is right for 0.01 % of the samples.
fn percents_apart(one: f64, other: f64) -> (String, String) {
    let usual = (format_percent(one), format_percent(other));
    if usual.0 != usual.1 {
        return usual;
    }
    let precise = |fraction: f64| format!("{:.3} %", fraction * 100.0);
    (precise(one), precise(other))
}

/// Formats the number of samples whose label is probably wrong, such as "1 image" or "3 images".
fn counted_samples(count: usize, noun: &str) -> String {
    counted(count as u64, noun, &format!("{noun}s"))
}

/// How well a language model, or the network that fills in dropped tokens, predicts bytes.
struct BytePrediction {
    /// Bits that the network needs for one byte.
    bits: f64,
    /// Bits that the frequencies of the bytes need.
    entropy: f64,
    /// Whether only dropped bytes are predicted.
    compresses: bool,
}

impl BytePrediction {
    /// "2.13 bits per byte"
    fn describe(&self) -> String {
        let dropped = if self.compresses { "dropped " } else { "" };
        format!("{:.2} bits per {dropped}byte", self.bits)
    }
}

/// Why a model is no better at preferences than guessing, if it is not.
fn preferences_not_learned(
    preferences: u64,
    accuracy: f64,
    interval: (f64, f64),
    facts: &TrainingFacts,
) -> Option<String> {
    let (low, high) = interval;
    if low > GUESSED_PREFERENCES {
        return None;
    }
    if accuracy > GUESSED_PREFERENCES && high - low > WIDE_INTERVAL {
        return Some(format!(
            "Not clearly better than guessing: {} evaluated preferences are too few to be sure.",
            format_count(preferences)
        ));
    }
    let advice = probable_cause(facts)
        .unwrap_or_else(|| "Train for more epochs, or add preferences.".to_owned());
    Some(format!("Not learning: no better than guessing. {advice}"))
}

/// The probable cause of a model that has learned nothing, as far as the training shows it.
fn probable_cause(facts: &TrainingFacts) -> Option<String> {
    let (rate, usual) = (facts.learning_rate, facts.usual_learning_rate);
    if rate > 0.0 && rate >= UNUSUAL_RATE * usual {
        return Some(format!(
            "The learning rate {rate} is probably too high; {usual} is usual."
        ));
    }
    if rate > 0.0 && UNUSUAL_RATE * rate <= usual {
        return Some(format!(
            "The learning rate {rate} is probably too low; {usual} is usual."
        ));
    }
    let falls = improves(facts).is_some();
    falls.then(|| "The loss was still falling: train for more epochs.".to_owned())
}

/// What may help a model that has learned nothing.
fn advice(facts: &TrainingFacts) -> String {
    if let Some(cause) = probable_cause(facts) {
        return cause;
    }
    if facts.byte_entropy.is_some() {
        return "Train for more epochs, or add texts.".to_owned();
    }
    let noun = &facts.sample_noun;
    if facts.from_scratch {
        format!("Start from pretrained weights, add {noun}s, or check the labels.")
    } else {
        format!("Add {noun}s, or check the labels.")
    }
}

/// The accuracies of the model and of its baseline, if both are known.
fn against_baseline(facts: &TrainingFacts) -> Option<(f64, f64)> {
    facts.held_out_accuracy.zip(facts.baseline_accuracy)
}

/// What the baseline is called: a model of n-grams, or of the features of images.
fn baseline_name(facts: &TrainingFacts) -> &'static str {
    if facts.sample_noun == "image" {
        "baseline of edges and colors"
    } else {
        "n-gram baseline"
    }
}

/// The model is not better than its baseline.
fn below_baseline(facts: &TrainingFacts) -> Option<String> {
    let (accuracy, baseline) = against_baseline(facts)?;
    let next = if facts.from_scratch {
        "start from pretrained weights"
    } else {
        "train more of the network"
    };
    let advice = if facts.from_scratch {
        "Use the baseline, or start from pretrained weights."
    } else {
        "Use the baseline, or train more of the network."
    };
    let is_baseline = facts.baseline_share.is_some_and(|share| share >= 1.0);
    (accuracy <= baseline).then(|| {
        let (accuracy, baseline) = (format_percent(accuracy), format_percent(baseline));
        if is_baseline {
            return format!(
                "The network is not better than the {} ({baseline} right), so Ebb predicts with the baseline. To improve on the baseline, {next}.",
                baseline_name(facts)
            );
        }
        format!(
            "Not better than the {}: {accuracy} right instead of {baseline}. {advice}",
            baseline_name(facts)
        )
    })
}

fn above_baseline(facts: &TrainingFacts) -> Option<String> {
    let (accuracy, baseline) = against_baseline(facts)?;
    (accuracy > baseline).then(|| {
        format!(
            "Better than the {}: {} right instead of {}.",
            baseline_name(facts),
            format_percent(accuracy),
            format_percent(baseline)
        )
    })
}

/// The held-out loss rose while the training loss fell.
fn memorizes(facts: &TrainingFacts) -> Option<String> {
    let losses = &facts.held_out_losses;
    let lowest = losses.iter().copied().fold(f64::INFINITY, f64::min);
    let (last, training) = (*losses.last()?, facts.training_loss?);
    if !(last > RISEN_LOSS * lowest && training < lowest) {
        return None;
    }
    Some(format!(
        "In later epochs, the model memorized the training data: the held-out loss rose from {lowest:.2} to {last:.2}. More {}s or augmentation would help. These are the results of the best checkpoint.",
        facts.sample_noun
    ))
}

/// The last evaluation was the best and still better than the one a quarter of the run before.
fn improves(facts: &TrainingFacts) -> Option<String> {
    let losses = &facts.held_out_losses;
    let (last, before) = (*losses.last()?, losses.len().checked_sub(4)?);
    let before = losses[before.min(losses.len() * 3 / 4)];
    let lowest = losses.iter().copied().fold(f64::INFINITY, f64::min);
    (last <= lowest && last < 0.95 * before)
        .then(|| "The model was still improving: more epochs would probably help.".to_owned())
}

fn join(first: Option<String>, second: String) -> String {
    first.map_or(second.clone(), |first| format!("{first} {second}"))
}

#[cfg(test)]
mod tests {
    use super::super::SampleResult;
    use super::super::tests::{class_report, report, sample_of_two_classes as sample};
    use super::*;
    use crate::task::RegressionReport;
    use dataset::Task;

    fn facts() -> TrainingFacts {
        TrainingFacts {
            learning_rate: 0.001,
            usual_learning_rate: 0.001,
            held_out_losses: vec![1.0, 0.8, 0.7, 0.69, 0.7],
            training_loss: Some(0.6),
            sample_noun: "image".to_owned(),
            from_scratch: true,
            baseline_accuracy: None,
            held_out_accuracy: None,
            baseline_share: None,
            held_out_copies: 0,
            byte_entropy: None,
        }
    }

    fn results(recalls: &[(u64, f64)]) -> Results {
        let names = ["ant", "bee", "cicada", "dragonfly"];
        let classes = names.iter().zip(recalls);
        let classes =
            classes.map(|(name, (samples, recall))| class_report(name, *samples, *recall));
        let report = report("held-out", 3, classes.collect());
        Results::new(Task::ImageClassification, report, Vec::new())
    }

    #[track_caller]
    fn check(results: &Results, facts: &TrainingFacts, tone: Tone, text: &str) {
        let found = results.judge(facts).expect("a rule applies");
        assert_eq!((found.tone, &*found.text), (tone, text));
    }

    #[test]
    fn percents_that_look_the_same_get_more_digits() {
        let shown = |one, other| {
            let (one, other) = percents_apart(one, other);
            format!("{one}, {other}")
        };
        assert_eq!(shown(0.934, 0.5), "93.4 %, 50.0 %");
        assert_eq!(shown(0.0004, 0.0001), "0.040 %, 0.010 %");
    }

    #[test]
    fn copies_of_training_samples_are_named() {
        let good = results(&[(200, 0.9), (200, 0.9)]);
        let with = |held_out_copies: u64| TrainingFacts {
            held_out_copies,
            ..facts()
        };
        check(
            &good,
            &with(40),
            Tone::Hint,
            "Better than guessing: 90.0 % right instead of 50.0 %. 40 held-out images are copies of training images; the accuracy is too high. Train again without duplicates (--duplicates leave-out in the terminal).",
        );
        let few = good.judge(&with(3)).expect("a rule applies");
        assert!(!few.text.contains("copies"), "{}", few.text);
    }

    #[test]
    fn chance_is_named_with_its_probable_cause() {
        let chance = results(&[(20, 0.5), (20, 0.5)]);
        let with = |learning_rate: f64| TrainingFacts {
            learning_rate,
            ..facts()
        };
        check(
            &chance,
            &with(1.0),
            Tone::Bad,
            "Not learning: no better than guessing. The learning rate 1 is probably too high; 0.001 is usual.",
        );
        check(
            &chance,
            &with(1e-6),
            Tone::Bad,
            "Not learning: no better than guessing. The learning rate 0.000001 is probably too low; 0.001 is usual.",
        );
        check(
            &chance,
            &facts(),
            Tone::Bad,
            "Not learning: no better than guessing. Start from pretrained weights, add images, or check the labels.",
        );
        let falling = TrainingFacts {
            held_out_losses: vec![1.0, 0.9, 0.8, 0.7, 0.6],
            ..facts()
        };
        check(
            &chance,
            &falling,
            Tone::Bad,
            "Not learning: no better than guessing. The loss was still falling: train for more epochs.",
        );
    }

    #[test]
    fn few_samples_are_not_called_a_failure() {
        check(
            &results(&[(4, 0.75), (4, 0.75)]),
            &facts(),
            Tone::Bad,
            "Not clearly better than guessing: 8 evaluated images are too few to be sure.",
        );
    }

    #[test]
    fn a_good_model_is_praised_with_the_numbers() {
        let good = "Better than guessing: 90.0 % right instead of 50.0 %.";
        let both = results(&[(50, 0.9), (50, 0.9)]);
        check(&both, &facts(), Tone::Good, good);
        let improving = TrainingFacts {
            held_out_losses: vec![1.0, 0.9, 0.8, 0.7, 0.6],
            ..facts()
        };
        let more =
            format!("{good} The model was still improving: more epochs would probably help.");
        check(&both, &improving, Tone::Hint, &more);
        let memorizing = TrainingFacts {
            held_out_losses: vec![1.0, 0.5, 0.6, 0.9],
            training_loss: Some(0.1),
            ..facts()
        };
        let more = format!(
            "{good} In later epochs, the model memorized the training data: the held-out loss rose from 0.50 to 0.90. More images or augmentation would help. These are the results of the best checkpoint."
        );
        check(&both, &memorizing, Tone::Hint, &more);
    }

    #[test]
    fn a_model_is_compared_with_its_baseline() {
        let good = results(&[(50, 0.9), (50, 0.9)]);
        let with = |baseline: f64, from_scratch: bool| TrainingFacts {
            sample_noun: "text".to_owned(),
            from_scratch,
            baseline_accuracy: Some(baseline),
            held_out_accuracy: Some(0.9),
            ..facts()
        };
        let praise = "Better than the n-gram baseline: 90.0 % right instead of 81.2 %.";
        check(&good, &with(0.812, true), Tone::Good, praise);
        for baseline in [0.9, 0.95] {
            let below = format!(
                "Not better than the n-gram baseline: 90.0 % right instead of {:.1} %. Use the baseline, or start from pretrained weights.",
                100.0 * baseline
            );
            check(&good, &with(baseline, true), Tone::Hint, &below);
        }
        let tuned = "Not better than the n-gram baseline: 90.0 % right instead of 95.0 %. Use the baseline, or train more of the network.";
        check(&good, &with(0.95, false), Tone::Hint, tuned);
        let images = TrainingFacts {
            sample_noun: "image".to_owned(),
            ..with(0.95, true)
        };
        let below = "Not better than the baseline of edges and colors: 90.0 % right instead of 95.0 %. Use the baseline, or start from pretrained weights.";
        check(&good, &images, Tone::Hint, below);
        let replaced = TrainingFacts {
            baseline_share: Some(1.0),
            baseline_accuracy: Some(0.9),
            ..images
        };
        let text = "The network is not better than the baseline of edges and colors (90.0 % right), so Ebb predicts with the baseline. To improve on the baseline, start from pretrained weights.";
        check(&good, &replaced, Tone::Hint, text);
        let alone = TrainingFacts {
            baseline_share: Some(1.0),
            ..with(0.9, true)
        };
        let replaced = "The network is not better than the n-gram baseline (90.0 % right), so Ebb predicts with the baseline. To improve on the baseline, start from pretrained weights.";
        check(&good, &alone, Tone::Hint, replaced);
        let chance = results(&[(20, 0.5), (20, 0.5)]);
        let found = chance.judge(&with(0.95, true)).expect("a rule applies");
        assert_eq!(found.tone, Tone::Bad, "guessing is named first");
    }

    #[test]
    fn a_weak_class_is_named() {
        check(
            &results(&[(50, 1.0), (40, 1.0), (10, 0.2)]),
            &facts(),
            Tone::Hint,
            "Better than guessing: 92.0 % right instead of 50.0 %. Weak on cicada: 2 of 10 samples are classified correctly.",
        );
    }

    #[test]
    fn a_label_that_is_probably_wrong_is_named() {
        let right = (0..40).map(|i| sample(i, i % 2, if i % 2 == 1 { 0.8 } else { 0.2 }));
        let samples: Vec<SampleResult> = right.chain([sample(40, 0, 0.99)]).collect();
        let classes = vec![
            class_report("ant", 21, 20.0 / 21.0),
            class_report("bee", 20, 1.0),
        ];
        let report = report("held-out", 3, classes);
        check(
            &Results::new(Task::ImageClassification, report, samples),
            &facts(),
            Tone::Hint,
            "Better than guessing: 97.6 % right instead of 51.2 %. 1 image may be labeled wrong, for example one that is labeled ant and looks like bee. The results page and `ebb evaluate` list them.",
        );
    }

    #[test]
    fn a_target_is_compared_with_its_mean() {
        let with = |improvement: f64| {
            let target = RegressionReport {
                name: "calories".to_owned(),
                samples: 40,
                mean_absolute_error: 80.0,
                interval: (70.0, 90.0),
                mean_baseline_error: 89.5,
                improvement_interval: (improvement, 20.0),
            };
            let mut report = report("held-out", 3, Vec::new());
            (report.samples, report.accuracy_interval) = (40, None);
            report.targets = vec![target];
            Results::new(Task::ImageClassification, report, Vec::new())
        };
        check(
            &with(1.0),
            &facts(),
            Tone::Good,
            "Better than always predicting the mean: the average error of calories is 80.0 instead of 89.5.",
        );
        check(
            &with(-1.0),
            &facts(),
            Tone::Bad,
            "Not learning calories: no better than always predicting its mean value. Start from pretrained weights, add images, or check the labels.",
        );
    }

    #[test]
    fn preferences_are_compared_with_guessing() {
        let with = |samples: u64, accuracy: f64| {
            let mut report = report("held-out", 3, Vec::new());
            (report.samples, report.accuracy_interval) = (samples, None);
            let metric = ("preference_accuracy".to_owned(), accuracy);
            report.metrics = std::collections::BTreeMap::from([metric]);
            Results::new(Task::LanguageModel, report, Vec::new())
        };
        check(
            &with(40, 0.875),
            &facts(),
            Tone::Good,
            "Better than guessing: the chosen answer has the higher reward in 87.5 % of the preferences instead of 50 %.",
        );
        check(
            &with(400, 0.5),
            &facts(),
            Tone::Bad,
            "Not learning: no better than guessing. Train for more epochs, or add preferences.",
        );
        check(
            &with(400, 0.51),
            &TrainingFacts {
                learning_rate: 0.1,
                ..facts()
            },
            Tone::Bad,
            "Not learning: no better than guessing. The learning rate 0.1 is probably too high; 0.001 is usual.",
        );
        check(
            &with(12, 0.75),
            &facts(),
            Tone::Bad,
            "Not clearly better than guessing: 12 evaluated preferences are too few to be sure.",
        );
    }

    #[test]
    fn a_text_model_is_compared_with_the_frequencies_of_bytes() {
        let with = |metric: &str, value: f64| {
            let mut report = report("held-out", 3, Vec::new());
            (report.samples, report.accuracy_interval) = (40, None);
            report.metrics = std::collections::BTreeMap::from([(metric.to_owned(), value)]);
            Results::new(Task::LanguageModel, report, Vec::new())
        };
        let text = TrainingFacts {
            byte_entropy: Some(4.25),
            ..facts()
        };
        check(
            &with("bits_per_byte", 2.125),
            &text,
            Tone::Good,
            "Learning: the model needs 2.12 bits per byte; a model that knows only the frequency of each byte needs 4.25.",
        );
        check(
            &with("bits_per_byte", 4.25),
            &text,
            Tone::Bad,
            "Not learning: the model needs 4.25 bits per byte; a model that knows only the frequency of each byte needs 4.25. Train for more epochs, or add texts.",
        );
        check(
            &with("loss_per_dropped", 2.0 * std::f64::consts::LN_2),
            &text,
            Tone::Good,
            "Learning: the model needs 2.00 bits per dropped byte; a model that knows only the frequency of each byte needs 4.25.",
        );
        let unknown = with("bits_per_byte", 2.0).judge(&facts());
        assert_eq!(unknown, None, "the texts have moved");
        let nothing_dropped = with("loss_per_dropped", f64::NAN).judge(&text);
        assert_eq!(nothing_dropped, None);
    }
}
