//! Metrics of a task as text, worded the same in the window and in the terminal.

use crate::amounts::{format_count, format_in_unit, format_percent};
use crate::fold_events::Run;
use crate::records::EvaluationRecord;
use crate::run_view::Figures;
use std::collections::BTreeMap;

/// Names of main metrics that are fractions from 0 to 1.
const FRACTIONS: [&str; 3] = ["accuracy", "kept", "preference accuracy"];

/// The metric that an evaluation is summarized by.
struct MainMetric {
    name: String,
    value: f64,
    /// The value with the usual number of digits.
    text: String,
}

impl MainMetric {
    /// The main metric of an evaluation; `None` if it has only the loss.
    fn from_evaluation(evaluation: &EvaluationRecord, targets: &[String]) -> Option<Self> {
        let metric = |key: &str| evaluation.metrics.get(key).copied();
        let named = |name: &str, value: Option<f64>, format: fn(f64) -> String| {
            let value = value?;
            Some(MainMetric {
                name: name.to_owned(),
                value,
                text: format(value),
            })
        };
        let error = |column: &String| {
            let error = metric(&format!("mae.{column}"));
            named(&format!("{column} MAE"), error, format_in_unit)
        };
        let bits = |bits: f64| format!("{bits:.2}");
        named("accuracy", evaluation.accuracy, format_percent)
            .or_else(|| targets.iter().find_map(error))
            .or_else(|| named("bits per byte", metric("bits_per_byte"), bits))
            .or_else(|| named("kept", metric("kept_fraction"), format_percent))
            .or_else(|| {
                let accuracy = metric("preference_accuracy");
                named("preference accuracy", accuracy, format_percent)
            })
    }

    /// That of the best evaluation, or its loss; `None` before the first evaluation.
    fn from_run(run: &Run) -> Option<Self> {
        let best = run.best_evaluation()?;
        let targets = run.started().map_or(&[][..], |started| &started.targets);
        let main = MainMetric::from_evaluation(best, targets);
        Some(main.unwrap_or_else(|| MainMetric {
            name: "held-out loss".to_owned(),
            value: best.loss,
            text: format!("{:.2}", best.loss),
        }))
    }
}

/// The result of a run in a list of runs, as value and name: ("93.4 %", "accuracy"), ("149.3",
/// "calories MAE"). It is taken from the best evaluation; `None` before the first evaluation.
pub fn headline_metric(run: &Run) -> Option<(String, String)> {
    MainMetric::from_run(run).map(|metric| (metric.text, metric.name))
}

/// The result of a run as a number, with its name: that of [`headline_metric`].
pub(crate) fn best_metric(run: &Run) -> Option<(String, f64)> {
    MainMetric::from_run(run).map(|metric| (metric.name, metric.value))
}

/// Whether the main metric with this name is a fraction from 0 to 1.
pub fn is_fraction(metric_name: &str) -> bool {
    FRACTIONS.contains(&metric_name)
}

/// The main metric of an evaluation, as in [`headline_metric`]; NaN if there is none.
pub(crate) fn metric_value(evaluation: &EvaluationRecord, targets: &[String]) -> f64 {
    MainMetric::from_evaluation(evaluation, targets).map_or(f64::NAN, |metric| metric.value)
}

/// The name of the main metric.
pub(crate) fn metric_name(evaluation: &EvaluationRecord, targets: &[String]) -> Option<String> {
    MainMetric::from_evaluation(evaluation, targets).map(|metric| metric.name)
}

/// The latest metrics as lines of text: "held out: calories MAE 118.9 (predicting the mean: 215.3)"
/// and "kept 50.0 %, reward -1.750". A line without metrics is left out.
pub(crate) fn describe_metrics(figures: &Figures) -> Vec<String> {
    let held_out = format_metrics(&figures.held_out_metrics);
    let held_out = (!held_out.is_empty()).then(|| format!("held out: {held_out}"));
    let latest = Some(format_metrics(&figures.step_metrics)).filter(|text| !text.is_empty());
    held_out.into_iter().chain(latest).collect()
}

/// The metrics of a run as lines of text: those of the best evaluation and of the last one, if they
/// are not the same, and the latest metrics of a step.
pub fn describe_run_metrics(run: &Run) -> Vec<String> {
    let lines = describe_metrics(run.figures());
    let evaluations = run.best_evaluation().zip(run.evaluations().last());
    let Some((best, last)) = evaluations.filter(|(best, last)| best.step != last.step) else {
        return lines;
    };
    let line = |name: &str, one: &EvaluationRecord| {
        let metrics = format_metrics(&one.metrics);
        let step = format_count(one.step);
        (!metrics.is_empty()).then(|| format!("{name} (step {step}), held out: {metrics}"))
    };
    let of_step = lines
        .into_iter()
        .filter(|line| !line.starts_with("held out: "));
    let both = [line("best", best), line("last", last)];
    both.into_iter().flatten().chain(of_step).collect()
}

/// Formats metrics by name: "kept 50.0 %, reward -1.750"; empty without metrics.
pub fn format_metrics(metrics: &BTreeMap<String, f64>) -> String {
    let texts = metrics
        .iter()
        .filter_map(|(name, value)| format_metric(name, *value, metrics));
    texts.collect::<Vec<_>>().join(", ")
}

/// Formats one metric; `None` if it is part of another metric's text or need not be shown.
fn format_metric(name: &str, value: f64, all: &BTreeMap<String, f64>) -> Option<String> {
    if let Some(column) = name.strip_prefix("mae.") {
        let baseline = all.get(&format!("mae_of_mean.{column}"));
        let baseline = baseline.map_or(String::new(), |mean| {
            format!(" (predicting the mean: {})", format_in_unit(*mean))
        });
        return Some(format!("{column} MAE {}{baseline}", format_in_unit(value)));
    }
    let spaced = name.replace('_', " ");
    match name {
        _ if name.starts_with("mae_of_mean.") => None,
        "mae_standardized" => Some(format!(
            "MAE averaged over all targets: {value:.3} standard deviations"
        )),
        "bits_per_byte" => Some(format!("{value:.3} bits per byte")),
        "kept_fraction" => Some(format!("kept {:.1} %", 100.0 * value)),
        "top_5" => Some(format!("top-5 accuracy {:.1} %", 100.0 * value)),
        "accuracy" => Some(format!("accuracy {:.1} %", 100.0 * value)),
        "baseline_share" => Some(format!("weight of the baseline {:.0} %", 100.0 * value)),
        "network_accuracy" => Some(format!("network alone {:.1} %", 100.0 * value)),
        "preference_accuracy" => Some(format!("preference accuracy {:.1} %", 100.0 * value)),
        "macro_f1" => Some(format!("macro-F1 {:.1} %", 100.0 * value)),
        // Counts of non-finite gradients are only shown if there are any.
        _ if name.ends_with("_gradients") => (value > 0.0).then(|| format!("{value:.0} {spaced}")),
        _ => Some(format!("{spaced} {value:.3}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{RunEvent, Started};

    fn named<const N: usize>(metrics: [(&str, f64); N]) -> BTreeMap<String, f64> {
        metrics.map(|(name, value)| (name.to_owned(), value)).into()
    }

    #[test]
    fn a_mean_absolute_error_is_shown_beside_the_baseline() {
        let figures = Figures {
            held_out_metrics: named([
                ("mae.calories", 118.93),
                ("mae_of_mean.calories", 215.26),
                ("accuracy", 0.409),
                ("macro_f1", 0.31),
            ]),
            ..Figures::default()
        };
        assert_eq!(
            describe_metrics(&figures),
            [
                "held out: accuracy 40.9 %, macro-F1 31.0 %, calories MAE 118.9 (predicting the mean: 215.3)"
            ]
        );
    }

    #[test]
    fn several_targets_have_a_common_error() {
        assert_eq!(
            format_metrics(&named([("mae_standardized", 0.5124)])),
            "MAE averaged over all targets: 0.512 standard deviations"
        );
    }

    #[test]
    fn the_headline_metric_depends_on_the_task() {
        let check = |metrics: BTreeMap<String, f64>, value: &str, name: &str| {
            let started = Started {
                targets: vec!["calories".into(), "mass_g".into()],
                ..Started::default()
            };
            let mut run = Run::default();
            run.apply(&RunEvent::Started(Box::new(started)));
            assert_eq!(headline_metric(&run), None);
            for loss in [2.139, 3.0] {
                let metrics = if loss < 3.0 {
                    metrics.clone()
                } else {
                    BTreeMap::new()
                };
                run.apply(&RunEvent::Evaluation {
                    at_ms: 0,
                    step: 1,
                    epoch: 1,
                    samples: 21,
                    loss,
                    metrics,
                    best: true,
                });
            }
            assert_eq!(headline_metric(&run), Some((value.into(), name.into())));
            assert_eq!(best_metric(&run).map(|best| best.0), Some(name.into()));
        };
        let errors = [("mae.mass_g", 88.71), ("mae.calories", 149.27)];
        check(named(errors), "149.3", "calories MAE");
        check(
            named([("mae.calories", 149.27), ("accuracy", 0.934)]),
            "93.4 %",
            "accuracy",
        );
        check(named([("mae.mass_g", 88.71)]), "88.7", "mass_g MAE");
        check(named([("mae.mass_g", 0.004_12)]), "0.00412", "mass_g MAE");
        check(named([("bits_per_byte", 1.942)]), "1.94", "bits per byte");
        check(
            named([("preference_accuracy", 0.75), ("reward_margin", 1.5)]),
            "75.0 %",
            "preference accuracy",
        );
        check(
            named([("kept_fraction", 0.5), ("reward", -2.6)]),
            "50.0 %",
            "kept",
        );
        check(BTreeMap::new(), "2.14", "held-out loss");
    }

    #[test]
    fn the_best_and_the_last_evaluation_have_names() {
        let mut run = Run::default();
        for (step, accuracy) in [(93, 0.882), (1124, 0.866)] {
            run.apply(&RunEvent::Evaluation {
                at_ms: step,
                step,
                epoch: 1,
                samples: 21,
                loss: 1.0,
                metrics: named([("accuracy", accuracy)]),
                best: step == 93,
            });
            if step == 93 {
                assert_eq!(describe_run_metrics(&run), ["held out: accuracy 88.2 %"]);
            }
        }
        assert_eq!(
            describe_run_metrics(&run),
            [
                "best (step 93), held out: accuracy 88.2 %",
                "last (step 1,124), held out: accuracy 86.6 %"
            ]
        );
        assert_eq!(best_metric(&run), Some(("accuracy".to_owned(), 0.882)));
    }

    #[test]
    fn a_language_model_is_summarized_by_its_bits() {
        let mut run = Run::default();
        run.apply(&RunEvent::Evaluation {
            at_ms: 0,
            step: 1,
            epoch: 1,
            samples: 21,
            loss: 2.5,
            metrics: named([("bits_per_byte", 1.942)]),
            best: true,
        });
        let line = run.summary_line();
        assert!(line.contains(", 1.94 bits per byte, "), "{line}");
        assert_eq!(best_metric(&run), Some(("bits per byte".to_owned(), 1.942)));
    }

    #[test]
    fn gradient_counts_are_hidden_while_zero() {
        let mut figures = Figures {
            step_metrics: named([
                ("kept_fraction", 0.5),
                ("nan_gradients", 0.0),
                ("policy_entropy", 0.4125),
            ]),
            ..Figures::default()
        };
        assert_eq!(
            describe_metrics(&figures),
            ["kept 50.0 %, policy entropy 0.412"]
        );
        figures.step_metrics.insert("nan_gradients".into(), 2.0);
        assert_eq!(
            describe_metrics(&figures),
            ["kept 50.0 %, 2 nan gradients, policy entropy 0.412"]
        );
        assert!(describe_metrics(&Figures::default()).is_empty());
    }
}
