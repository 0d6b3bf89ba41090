//! The headline of an evaluation: the large number of the results page, its title, and a sentence
//! that explains it.

use crate::judge_run::noun;
use runlog::{format_count, format_in_unit};
use trainer::{EvaluationReport, Results};

/// The most important number of an evaluation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headline {
    /// "Held-out accuracy".
    pub title: String,
    /// "93.4".
    pub value: String,
    /// "%".
    pub unit: String,
    /// What the number means.
    pub note: String,
}

/// The headline of an evaluation. The title begins with the evaluated split: "Test accuracy".
pub fn headline(results: &Results) -> Headline {
    let part = match &*results.report.part {
        "test" => "Test",
        "whole" => "Folder",
        _ => "Held-out",
    };
    let shown = accuracy_headline(results)
        .or_else(|| text_headline(&results.report))
        .or_else(|| target_headline(results))
        .unwrap_or_else(|| Headline {
            title: "loss".to_owned(),
            value: format!("{:.3}", results.report.loss),
            ..Headline::default()
        });
    Headline {
        title: format!("{part} {}", shown.title),
        ..shown
    }
}

/// "93.4 %: 227 of 243 images."
fn accuracy_headline(results: &Results) -> Option<Headline> {
    let report = &results.report;
    let accuracy = *report.metrics.get("accuracy")?;
    let (low, high) = report.accuracy_interval?;
    let correct = (accuracy * report.samples as f64).round() as u64;
    Some(Headline {
        title: "accuracy".to_owned(),
        value: format!("{:.1}", 100.0 * accuracy),
        unit: "%".to_owned(),
        note: format!(
            "{} of {} {}s. With this many samples, the true accuracy is likely between {:.1} and {:.1} %.",
            format_count(correct),
            format_count(report.samples),
            noun(&results.task),
            100.0 * low,
            100.0 * high
        ),
    })
}

/// Bits per byte or the preferences of a language model, or the kept tokens of a compression.
fn text_headline(report: &EvaluationReport) -> Option<Headline> {
    let metric = |name: &str| report.metrics.get(name).copied();
    let windows = format_count(report.samples);
    if let Some(bits) = metric("bits_per_byte") {
        return Some(Headline {
            title: "text".to_owned(),
            value: format!("{bits:.2}"),
            unit: "bits per byte".to_owned(),
            note: format!(
                "The model needs this many bits for one byte of unseen text; without a model, one byte takes 8 bits. {windows} windows were evaluated."
            ),
        });
    }
    if let Some((accuracy, (low, high))) = report.preference_accuracy() {
        let margin = metric("reward_margin").unwrap_or(f64::NAN);
        return Some(Headline {
            title: "accuracy".to_owned(),
            value: format!("{:.1}", 100.0 * accuracy),
            unit: "%".to_owned(),
            note: format!(
                "of the chosen answers have a higher reward than the rejected ones. With this many preferences, the true accuracy is likely between {:.1} and {:.1} %; guessing reaches 50 %. The reward is {margin:.2} higher on average. {windows} preferences were evaluated.",
                100.0 * low,
                100.0 * high
            ),
        });
    }
    let kept = metric("kept_fraction")?;
    // A token of this task is a byte.
    let bits = metric("loss_per_dropped").unwrap_or(f64::NAN) / std::f64::consts::LN_2;
    Some(Headline {
        title: "compression".to_owned(),
        value: format!("{:.1}", 100.0 * kept),
        unit: "%".to_owned(),
        note: format!(
            "of the tokens are kept. The model needs {bits:.2} bits to fill in a dropped byte. {windows} windows were evaluated."
        ),
    })
}

/// The error of the first regression target.
fn target_headline(results: &Results) -> Option<Headline> {
    let target = results.report.targets.first()?;
    Some(Headline {
        title: "error".to_owned(),
        value: format_in_unit(target.mean_absolute_error),
        unit: target.name.clone(),
        note: format!(
            "Predictions of {} are off by this much on average. Always predicting the mean would be off by {}. {} {}s were evaluated.",
            target.name,
            format_in_unit(target.mean_baseline_error),
            format_count(results.report.samples),
            noun(&results.task)
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn report(part: &str, metrics: &Value) -> Value {
        json!({
            "step": 3, "part": part, "samples": 243, "loss": 0.301, "metrics": metrics,
            "accuracy_interval": null, "classes": [], "confusion": [], "numbers": [],
        })
    }

    fn headline_of(task: &str, report: &Value) -> Headline {
        let results = json!({
            "version": 1, "task": task, "guessing_accuracy": null, "calibration": null,
            "samples": [], "report": report,
        });
        let results: Results =
            serde_json::from_value(results).expect("it is written like the file of a run");
        headline(&results)
    }

    #[test]
    fn an_accuracy_has_its_count_and_interval() {
        for (part, title) in [
            ("held-out", "Held-out accuracy"),
            ("test", "Test accuracy"),
            ("whole", "Folder accuracy"),
        ] {
            let mut report = report(part, &json!({"accuracy": 227.0 / 243.0}));
            report["accuracy_interval"] = json!([0.896, 0.959]);
            let expected = Headline {
                title: title.to_owned(),
                value: "93.4".to_owned(),
                unit: "%".to_owned(),
                note: "227 of 243 images. With this many samples, the true accuracy is likely between 89.6 and 95.9 %.".to_owned(),
            };
            assert_eq!(headline_of("image-classification", &report), expected);
        }
    }

    #[test]
    fn texts_are_measured_in_bits_per_byte_or_kept_tokens() {
        let bits = report("held-out", &json!({"bits_per_byte": 2.25}));
        let bits = headline_of("language-model", &bits);
        assert_eq!((&*bits.value, &*bits.unit), ("2.25", "bits per byte"));
        let metrics = json!({"kept_fraction": 0.5, "loss_per_dropped": 1.25});
        let kept = headline_of("token-compression", &report("held-out", &metrics));
        assert_eq!(
            (&*kept.title, &*kept.value),
            ("Held-out compression", "50.0")
        );
        assert!(kept.note.contains("needs 1.80 bits"), "{}", kept.note);
        let metrics = json!({"preference_accuracy": 0.875, "reward_margin": 1.5});
        let preferred = headline_of("language-model", &report("held-out", &metrics));
        assert_eq!(
            (&*preferred.title, &*preferred.value),
            ("Held-out accuracy", "87.5")
        );
        assert!(preferred.note.contains("1.50 higher"), "{}", preferred.note);
        let interval = "likely between 82.9 and 91.2 %; guessing reaches 50 %.";
        assert!(preferred.note.contains(interval), "{}", preferred.note);
    }

    #[test]
    fn the_error_of_the_first_target_is_in_its_unit() {
        let mut report = report("held-out", &json!({}));
        report["numbers"] = json!([{
            "name": "calories", "samples": 243, "mean_absolute_error": 80.12,
            "interval": [72.3, 88.0], "mean_baseline_error": 9.5,
            "improvement_interval": [1.2, 17.7],
        }]);
        let error = headline_of("image-classification", &report);
        assert_eq!((&*error.value, &*error.unit), ("80.1", "calories"));
        assert!(
            error.note.contains("would be off by 9.50."),
            "{}",
            error.note
        );
        report["numbers"][0]["mean_absolute_error"] = json!(0.000_823_4);
        let small = headline_of("image-classification", &report);
        assert_eq!(small.value, "0.000823", "a small unit keeps its digits");
    }

    #[test]
    fn without_a_better_number_the_loss_is_the_headline() {
        let loss = headline_of("image-classification", &report("test", &json!({})));
        assert_eq!((&*loss.title, &*loss.value), ("Test loss", "0.301"));
        assert_eq!((&*loss.unit, &*loss.note), ("", ""));
    }
}
