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

/// How the best held-out accuracy of a model compares with that of its baseline, and what to do if
/// the baseline is as good. Only the baseline of texts can be used like a model (`is_usable`).
pub(crate) fn compare_with_baseline(
    best_accuracy: f64,
    baseline_accuracy: f64,
    is_usable: bool,
) -> String {
    let (best, baseline) = (
        format_percent(best_accuracy),
        format_percent(baseline_accuracy),
    );
    if best_accuracy > baseline_accuracy {
        return format!("Better than the baseline: {best} against {baseline}");
    }
    let first = if is_usable {
        "Use the baseline (`ebb predict RUN --baseline`)"
    } else {
        "Train for more epochs (`ebb resume RUN --epochs N`)"
    };
    format!(
        "Not better than the baseline: {best} against {baseline}. {first}, or start from pretrained weights (--from)"
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

    #[test]
    fn a_model_that_is_only_as_good_is_not_better() {
        assert_eq!(
            compare_with_baseline(0.85, 0.812, true),
            "Better than the baseline: 85.0 % against 81.2 %"
        );
        for best in [0.812, 0.781] {
            for (is_usable, command) in [
                (true, "`ebb predict RUN --baseline`"),
                (false, "`ebb resume RUN --epochs N`"),
            ] {
                let text = compare_with_baseline(best, 0.812, is_usable);
                assert!(text.starts_with("Not better than the baseline: "), "{text}");
                assert!(text.contains(command), "{text}");
            }
        }
    }
}
