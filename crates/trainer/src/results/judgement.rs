//! One line about how good a model is and what would help. The rules are pure; each names the
//! numbers that it is based on.

use super::Results;
use runlog::{format_count, format_percent};

/// A learning rate this many times above or below the usual one is named as the probable cause.
const UNUSUAL_RATE: f64 = 5.0;
/// An accuracy interval this wide says little.
const WIDE_INTERVAL: f64 = 0.25;
/// Held-out loss that rises to this many times its lowest value means that the network memorizes.
const RISEN_LOSS: f64 = 1.25;
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
        let hint = memorizes(facts)
            .or_else(|| improves(facts))
            .or_else(|| self.weak_class());
        let (tone, text) = match (self.better_than_guessing(), hint) {
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
        let target = (report.targets.iter())
            .filter(|target| target.samples > 0)
            .find(|target| target.improvement_interval.0 <= 0.0)?;
        Some(format!(
            "Not learning {}: no better than always predicting its mean. {}",
            target.name,
            advice(facts)
        ))
    }

    fn better_than_guessing(&self) -> Option<String> {
        if let Some(guessing) = self.guessing_accuracy {
            let accuracy = self.report.metrics.get("accuracy")?;
            return Some(format!(
                "Better than guessing: {} right instead of {}.",
                format_percent(*accuracy),
                format_percent(guessing)
            ));
        }
        let target = self.report.targets.first()?;
        let digits = if target.mean_baseline_error < 10.0 {
            2
        } else {
            1
        };
        Some(format!(
            "Better than predicting the mean: the error of {} is {:.digits$} instead of {:.digits$}.",
            target.name, target.mean_absolute_error, target.mean_baseline_error
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
            "Weak on {}: {} of {} samples are right.",
            class.name,
            format_count(correct),
            format_count(class.samples)
        ))
    }
}

/// The probable cause of a model that has learned nothing.
fn advice(facts: &TrainingFacts) -> String {
    let (rate, usual) = (facts.learning_rate, facts.usual_learning_rate);
    if rate > 0.0 && rate >= UNUSUAL_RATE * usual {
        return format!("The learning rate {rate} is probably too high; {usual} is usual.");
    }
    if rate > 0.0 && UNUSUAL_RATE * rate <= usual {
        return format!("The learning rate {rate} is probably too low; {usual} is usual.");
    }
    if improves(facts).is_some() {
        return "The loss was still falling: train for more epochs.".to_owned();
    }
    let noun = &facts.sample_noun;
    match facts.from_scratch {
        true => format!("Start from pretrained weights, add {noun}s, or check the labels."),
        false => format!("Add {noun}s, or check the labels."),
    }
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
        "The model then memorized the training data: the held-out loss rose from {lowest:.2} to {last:.2}. More {}s or augmentation would help; the best checkpoint is used.",
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
    use super::super::tests::{class_report, report};
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
            "{good} The model then memorized the training data: the held-out loss rose from 0.50 to 0.90. More images or augmentation would help; the best checkpoint is used."
        );
        check(&both, &memorizing, Tone::Hint, &more);
    }

    #[test]
    fn a_weak_class_is_named() {
        check(
            &results(&[(50, 1.0), (40, 1.0), (10, 0.2)]),
            &facts(),
            Tone::Hint,
            "Better than guessing: 92.0 % right instead of 50.0 %. Weak on cicada: 2 of 10 samples are right.",
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
            "Better than predicting the mean: the error of calories is 80.0 instead of 89.5.",
        );
        check(
            &with(-1.0),
            &facts(),
            Tone::Bad,
            "Not learning calories: no better than always predicting its mean. Start from pretrained weights, add images, or check the labels.",
        );
    }
}
