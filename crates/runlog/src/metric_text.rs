//! Metrics of a task as text, worded the same in the window and in the terminal.

use crate::amounts::format_percent;
use crate::fold_events::Run;
use crate::records::EvaluationRecord;
use crate::run_view::Figures;
use std::collections::BTreeMap;

/// The result of a run in a list of runs, as value and name: ("93.4 %", "accuracy"), ("149.3",
/// "calories MAE"). It is taken from the best evaluation; `None` before the first evaluation.
pub fn headline_metric(run: &Run) -> Option<(String, String)> {
    let best = run.best_evaluation()?;
    let metric = |name: &str| best.metrics.get(name).copied();
    let targets = run.started().map_or(&[][..], |started| &started.targets);
    let mut errors = targets
        .iter()
        .filter_map(|column| Some((column, metric(&format!("mae.{column}"))?)));
    Some(if let Some(accuracy) = best.accuracy {
        (format_percent(accuracy), "accuracy".to_owned())
    } else if let Some((column, error)) = errors.next() {
        (format!("{error:.1}"), format!("{column} MAE"))
    } else if let Some(bits) = metric("bits_per_byte") {
        (format!("{bits:.2}"), "bits per byte".to_owned())
    } else if let Some(kept) = metric("kept_fraction") {
        (format_percent(kept), "kept".to_owned())
    } else {
        (format!("{:.2}", best.loss), "held-out loss".to_owned())
    })
}

/// The main metric of an evaluation, as in [`headline_metric`]; NaN if there is none.
pub(crate) fn metric_value(evaluation: &EvaluationRecord, targets: &[String]) -> f64 {
    main_metric(evaluation, targets).map_or(f64::NAN, |(_, value)| value)
}

/// The name of the main metric.
pub(crate) fn metric_name(evaluation: &EvaluationRecord, targets: &[String]) -> Option<String> {
    main_metric(evaluation, targets).map(|(name, _)| name)
}

fn main_metric(evaluation: &EvaluationRecord, targets: &[String]) -> Option<(String, f64)> {
    let metric = |key: &str| evaluation.metrics.get(key).copied();
    let accuracy = evaluation
        .accuracy
        .map(|value| ("accuracy".to_owned(), value));
    let error = || {
        let column = targets.first()?;
        Some((format!("{column} MAE"), metric(&format!("mae.{column}"))?))
    };
    let bits = || Some(("bits per byte".to_owned(), metric("bits_per_byte")?));
    let kept = || Some(("kept".to_owned(), metric("kept_fraction")?));
    accuracy.or_else(error).or_else(bits).or_else(kept)
}

/// The latest metrics as lines of text: "held out: calories MAE 118.9 (mean predictor 215.3)" and
/// "kept 50.0 %, reward -1.750". A line without metrics is left out.
pub fn describe_metrics(figures: &Figures) -> Vec<String> {
    let held_out = format_metrics(&figures.held_out_metrics);
    let held_out = (!held_out.is_empty()).then(|| format!("held out: {held_out}"));
    let latest = Some(format_metrics(&figures.step_metrics)).filter(|text| !text.is_empty());
    held_out.into_iter().chain(latest).collect()
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
        let baseline =
            baseline.map_or(String::new(), |mean| format!(" (mean predictor {mean:.1})"));
        return Some(format!("{column} MAE {value:.1}{baseline}"));
    }
    let spaced = name.replace('_', " ");
    match name {
        _ if name.starts_with("mae_of_mean.") => None,
        "bits_per_byte" => Some(format!("{value:.3} bits per byte")),
        "kept_fraction" => Some(format!("kept {:.1} %", 100.0 * value)),
        "top_5" => Some(format!("top-5 accuracy {:.1} %", 100.0 * value)),
        "accuracy" => Some(format!("accuracy {:.1} %", 100.0 * value)),
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
                "held out: accuracy 40.9 %, macro-F1 31.0 %, calories MAE 118.9 (mean predictor 215.3)"
            ]
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
        };
        let errors = [("mae.mass_g", 88.71), ("mae.calories", 149.27)];
        check(named(errors), "149.3", "calories MAE");
        check(
            named([("mae.calories", 149.27), ("accuracy", 0.934)]),
            "93.4 %",
            "accuracy",
        );
        check(named([("bits_per_byte", 1.942)]), "1.94", "bits per byte");
        check(
            named([("kept_fraction", 0.5), ("reward", -2.6)]),
            "50.0 %",
            "kept",
        );
        check(BTreeMap::new(), "2.14", "held-out loss");
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
