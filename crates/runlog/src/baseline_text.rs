//! The baseline of a run as text, worded the same in the window and in the terminal.

use crate::amounts::{format_count, format_percent};
use crate::records::BaselineRecord;

/// The result of a baseline in one line: "Baseline (word and character n-grams): 81.2 % in 2.3 s;
/// the model should be better".
pub fn describe_baseline(baseline: &BaselineRecord, train_samples: u64) -> String {
    let result = match baseline.accuracy {
        Some(accuracy) => format_percent(accuracy),
        None => format!("held-out loss {:.3}", baseline.loss),
    };
    let selection = if baseline.samples < train_samples {
        let (samples, all) = (format_count(baseline.samples), format_count(train_samples));
        format!(", trained on {samples} of {all} samples")
    } else {
        String::new()
    };
    format!(
        "Baseline ({}): {result} in {:.1} s{selection}; the model should be better",
        baseline.name, baseline.seconds
    )
}

/// The accuracies that a model and its baseline have on the held-out samples.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Accuracies {
    /// The best one of the model.
    pub best: f64,
    /// That of the baseline.
    pub baseline: f64,
    /// What the model consists of, if its predictions combine the network and the baseline.
    pub mixture: Option<MixtureAccuracy>,
}

/// The parts of a mixture of the network and the baseline.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MixtureAccuracy {
    /// Weight of the baseline, from 0 to 1.
    pub baseline_share: f64,
    /// Accuracy of the network alone.
    pub network: f64,
}

/// How the best held-out accuracy of a model compares with that of its baseline, and what to do if
/// the baseline is as good.
pub(crate) fn compare_with_baseline(accuracies: &Accuracies) -> String {
    let best = format_percent(accuracies.best);
    let baseline = format_percent(accuracies.baseline);
    let parts = accuracies.mixture;
    if let Some(parts) = parts.filter(|parts| parts.baseline_share > 0.0) {
        let network = format_percent(parts.network);
        let share = format!("{:.0} %", 100.0 * parts.baseline_share);
        if parts.baseline_share >= 1.0 {
            return format!(
                "The baseline alone reaches {baseline}, and the network alone {network}. The two together are no better, so Ebb predicts with the baseline; pretrained weights (--from) may be better"
            );
        }
        return format!(
            "The network and the baseline together reach {best}, the network alone {network}, and the baseline alone {baseline}. Ebb predicts with both (weight of the baseline: {share})"
        );
    }
    if accuracies.best > accuracies.baseline {
        return format!("Better than the baseline: {best} against {baseline}");
    }
    format!(
        "Not better than the baseline: {best} against {baseline}. Use the baseline (`ebb predict RUN --baseline`), or start from pretrained weights (--from)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_baseline_is_one_line() {
        let mut baseline = BaselineRecord {
            name: "word and character n-grams".to_owned(),
            samples: 25_000,
            seconds: 2.31,
            loss: 0.5,
            accuracy: Some(0.812),
            metrics: BTreeMap::new(),
        };
        assert_eq!(
            describe_baseline(&baseline, 25_000),
            "Baseline (word and character n-grams): 81.2 % in 2.3 s; the model should be better"
        );
        assert_eq!(
            describe_baseline(&baseline, 120_000),
            "Baseline (word and character n-grams): 81.2 % in 2.3 s, trained on 25,000 of 120,000 samples; the model should be better"
        );
        baseline.accuracy = None;
        assert!(describe_baseline(&baseline, 0).contains("held-out loss 0.500"));
    }

    /// Compares a model with a baseline of 81.2 % and with a network of 70 %.
    fn compare(best: f64, baseline_share: Option<f64>) -> String {
        compare_with_baseline(&Accuracies {
            best,
            baseline: 0.812,
            mixture: baseline_share.map(|baseline_share| MixtureAccuracy {
                baseline_share,
                network: 0.7,
            }),
        })
    }

    #[test]
    fn the_parts_of_a_mixture_are_named() {
        assert_eq!(
            compare(0.83, Some(0.75)),
            "The network and the baseline together reach 83.0 %, the network alone 70.0 %, and the baseline alone 81.2 %. Ebb predicts with both (weight of the baseline: 75 %)"
        );
        assert_eq!(
            compare(0.812, Some(1.0)),
            "The baseline alone reaches 81.2 %, and the network alone 70.0 %. The two together are no better, so Ebb predicts with the baseline; pretrained weights (--from) may be better"
        );
    }

    #[test]
    fn a_model_that_is_only_as_good_is_not_better() {
        assert_eq!(
            compare(0.85, None),
            "Better than the baseline: 85.0 % against 81.2 %"
        );
        assert_eq!(compare(0.85, None), compare(0.85, Some(0.0)));
        for best in [0.812, 0.781] {
            let text = compare(best, None);
            assert!(text.starts_with("Not better than the baseline: "), "{text}");
            assert!(text.contains("`ebb predict RUN --baseline`"), "{text}");
        }
    }
}
