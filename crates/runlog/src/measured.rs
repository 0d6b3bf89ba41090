//! What a task measures beside its loss, in words: one wording for window and terminal. Knows the names that events use, and
//! nothing of how they are measured.

use crate::reduce::Run;
use crate::view::Figures;
use crate::words::format_percent;
use std::collections::BTreeMap;

/// The one number that a run is known by in a list, and what it is, both in words: "93.4 %" and "accuracy", "149.3" and "calories off".
/// Of the best evaluation; nothing before the first.
pub fn result(run: &Run) -> Option<(String, String)> {
    let best = run.best_evaluation()?;
    let found = |name: &str| best.metrics.get(name).copied();
    let targets = run.started().map_or(&[][..], |started| &started.targets);
    let mut off = targets
        .iter()
        .filter_map(|column| Some((column, found(&format!("mae.{column}"))?)));
    Some(if let Some(accuracy) = best.accuracy {
        (format_percent(accuracy), "accuracy".to_owned())
    } else if let Some((column, off)) = off.next() {
        (format!("{off:.1}"), format!("{column} off"))
    } else if let Some(bits) = found("bits_per_byte") {
        (format!("{bits:.2}"), "bits per byte".to_owned())
    } else if let Some(kept) = found("kept_fraction") {
        (format_percent(kept), "kept".to_owned())
    } else {
        (format!("{:.2}", best.loss), "held-out loss".to_owned())
    })
}

/// "held out: calories off by 118.9 (their mean by 215.3), 2.478 bits a byte" and "kept 50.0 %, reward -1.750", as far as there is
/// any; the newest of each.
pub fn measured(figures: &Figures) -> Vec<String> {
    let held_out = in_words(&figures.held_out);
    let held_out = (!held_out.is_empty()).then(|| format!("held out: {held_out}"));
    let newest = Some(in_words(&figures.measures)).filter(|words| !words.is_empty());
    held_out.into_iter().chain(newest).collect()
}

/// Measures by name, in words: "kept 50.0 %, reward -1.750"; empty where there are none.
pub fn in_words(measures: &BTreeMap<String, f64>) -> String {
    let words = measures
        .iter()
        .filter_map(|(name, value)| word(name, *value, measures));
    words.collect::<Vec<_>>().join(", ")
}

/// One of them; nothing for what another one says.
fn word(name: &str, value: f64, all: &BTreeMap<String, f64>) -> Option<String> {
    if let Some(column) = name.strip_prefix("mae.") {
        let mean = all.get(&format!("mae_of_mean.{column}"));
        let mean = mean.map_or(String::new(), |mean| format!(" (their mean by {mean:.1})"));
        return Some(format!("{column} off by {value:.1}{mean}"));
    }
    let spoken = name.replace('_', " ");
    match name {
        _ if name.starts_with("mae_of_mean.") => None,
        "bits_per_byte" => Some(format!("{value:.3} bits a byte")),
        "kept_fraction" => Some(format!("kept {:.1} %", 100.0 * value)),
        "top_5" => Some(format!("among the five best {:.1} %", 100.0 * value)),
        "accuracy" => Some(format!("accuracy {:.1} %", 100.0 * value)),
        "macro_f1" => Some(format!("macro-F1 {:.1} %", 100.0 * value)),
        // Worth a word only where there are any.
        _ if name.ends_with("_gradients") => (value > 0.0).then(|| format!("{value:.0} {spoken}")),
        _ => Some(format!("{spoken} {value:.3}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{RunEvent, Started};

    fn named<const N: usize>(measures: [(&str, f64); N]) -> BTreeMap<String, f64> {
        measures
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    }

    #[test]
    fn numbers_are_said_beside_what_their_mean_would_miss() {
        let figures = Figures {
            held_out: named([
                ("mae.calories", 118.93),
                ("mae_of_mean.calories", 215.26),
                ("accuracy", 0.409),
                ("macro_f1", 0.31),
            ]),
            ..Figures::default()
        };
        assert_eq!(
            measured(&figures),
            [
                "held out: accuracy 40.9 %, macro-F1 31.0 %, calories off by 118.9 (their mean by 215.3)"
            ]
        );
    }

    #[test]
    fn a_run_is_known_by_what_its_task_measures() {
        let check = |metrics: BTreeMap<String, f64>, value: &str, name: &str| {
            let started = Started {
                targets: vec!["calories".into(), "mass_g".into()],
                ..Started::default()
            };
            let mut run = Run::default();
            run.apply(&RunEvent::Started(Box::new(started)));
            assert_eq!(result(&run), None);
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
            assert_eq!(result(&run), Some((value.into(), name.into())));
        };
        let numbers = [("mae.mass_g", 88.71), ("mae.calories", 149.27)];
        check(named(numbers), "149.3", "calories off");
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
    fn a_compression_says_what_it_keeps_and_gradients_only_where_some_are_not_finite() {
        let mut figures = Figures {
            measures: named([
                ("kept_fraction", 0.5),
                ("nan_gradients", 0.0),
                ("policy_entropy", 0.4125),
            ]),
            ..Figures::default()
        };
        assert_eq!(measured(&figures), ["kept 50.0 %, policy entropy 0.412"]);
        figures.measures.insert("nan_gradients".into(), 2.0);
        assert_eq!(
            measured(&figures),
            ["kept 50.0 %, 2 nan gradients, policy entropy 0.412"]
        );
        assert!(measured(&Figures::default()).is_empty());
    }
}
