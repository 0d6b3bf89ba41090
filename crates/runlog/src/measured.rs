//! What a task measures beside its loss, in words: one wording for window and terminal. Knows the names that events use, and
//! nothing of how they are measured.

use crate::view::Figures;
use std::collections::BTreeMap;

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
        "accuracy" | "macro_f1" => Some(format!("{spoken} {:.1} %", 100.0 * value)),
        // Worth a word only where there are any.
        _ if name.ends_with("_gradients") => (value > 0.0).then(|| format!("{value:.0} {spoken}")),
        _ => Some(format!("{spoken} {value:.3}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ]),
            ..Figures::default()
        };
        assert_eq!(
            measured(&figures),
            ["held out: accuracy 40.9 %, calories off by 118.9 (their mean by 215.3)"]
        );
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
