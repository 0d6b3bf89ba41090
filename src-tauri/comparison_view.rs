//! Two runs beside each other, as the window shows them: their results, their curves over each
//! other, and the settings and samples that differ.

use crate::judge_run::noun;
use crate::results_headline::headline;
use crate::task_labels::capital;
use runlog::{
    Allowed, CheckpointBlocks, RunConfig, SETTINGS, Setting, Started, StepCurves, format_bytes,
    format_count, is_fraction,
};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use trainer::Results;
use ts_rs::TS;

/// Points of a curve: two for each pixel of the chart.
pub const POINTS: u32 = 1000;
/// The training loss is smoothed over this fraction of the longer run, and at least ten steps.
const SMOOTHED_FRACTION: f64 = 0.01;

/// Answer of `compare_results`.
#[derive(Debug, Clone, PartialEq, Serialize, TS)]
pub struct ComparisonView {
    /// Headline of the other run: "88.1 %".
    pub value: String,
    /// What the difference means.
    pub note: String,
    /// What the curves are drawn by: "step", or "samples" if a step of one run takes more samples
    /// than a step of the other.
    pub axis: String,
    /// The curves that at least one of the runs has.
    pub curves: Vec<ComparedCurves>,
    /// The settings that differ, in the order of the sheet of all settings.
    pub settings: Vec<SettingDifference>,
    /// How the samples differ, in a sentence.
    pub samples: String,
}

/// The same curve of two runs, each in at most 1,000 points.
#[derive(Debug, Clone, PartialEq, Serialize, TS)]
pub struct ComparedCurves {
    /// "Held-out loss".
    pub title: String,
    /// Whether the values are fractions from 0 to 1.
    pub fraction: bool,
    /// Step or samples, and value.
    pub own: Vec<(f64, f64)>,
    /// Those of the other run.
    pub other: Vec<(f64, f64)>,
}

/// A setting that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, TS)]
pub struct SettingDifference {
    /// Its key in a config file.
    pub key: String,
    /// Its value in this run, or what happens if it is not set.
    pub own: String,
    /// Its value in the other run.
    pub other: String,
}

/// What a comparison needs of a run.
pub struct ComparedRun {
    pub started: Started,
    pub config: RunConfig,
    pub curves: StepCurves,
}

/// Two evaluations beside each other.
pub struct ComparedResults {
    /// Headline of the other run.
    pub value: String,
    /// What the difference means.
    pub note: String,
}

/// Steps over which the training loss of both runs is smoothed.
pub fn smoothed_steps(run: &Started, other: &Started) -> f64 {
    let longest = run.steps.max(other.steps);
    (SMOOTHED_FRACTION * longest as f64).max(10.0)
}

/// The view of two runs with the same task.
pub fn view(
    run: &ComparedRun,
    other: &ComparedRun,
    results: ComparedResults,
    samples: String,
) -> ComparisonView {
    let by_samples = run.started.effective_batch != other.started.effective_batch;
    ComparisonView {
        value: results.value,
        note: results.note,
        axis: if by_samples { "samples" } else { "step" }.to_owned(),
        curves: curves(run, other, by_samples),
        settings: settings(run, other),
        samples,
    }
}

fn curves(run: &ComparedRun, other: &ComparedRun, by_samples: bool) -> Vec<ComparedCurves> {
    let drawn = |run: &ComparedRun, curve: &[(f64, f64)]| -> Vec<(f64, f64)> {
        let factor = if by_samples {
            f64::from(run.started.effective_batch)
        } else {
            1.0
        };
        let points = curve.iter();
        points
            .map(|(step, value)| (factor * step, *value))
            .collect()
    };
    let compared =
        |title: &str, fraction, own: &[(f64, f64)], others: &[(f64, f64)]| ComparedCurves {
            title: title.to_owned(),
            fraction,
            own: drawn(run, own),
            other: drawn(other, others),
        };
    let (own, others) = (&run.curves, &other.curves);
    let mut all = vec![
        compared("Training loss, smoothed", false, &own.loss, &others.loss),
        compared(
            "Held-out loss",
            false,
            &own.held_out_loss,
            &others.held_out_loss,
        ),
    ];
    // Metrics with different names, such as those of different targets, have no common scale.
    if let Some(name) = &own.metric_name
        && own.metric_name == others.metric_name
    {
        let title = format!("Held-out {name}");
        all.push(compared(
            &title,
            is_fraction(name),
            &own.metric,
            &others.metric,
        ));
    }
    all.retain(|curves| !curves.own.is_empty() || !curves.other.is_empty());
    all
}

fn settings(run: &ComparedRun, other: &ComparedRun) -> Vec<SettingDifference> {
    let (own, others) = (typed(run), typed(other));
    let differs = |setting: &&Setting| own.get(setting.key) != others.get(setting.key);
    let mut different: Vec<&Setting> = SETTINGS.iter().filter(differs).collect();
    different.sort_by_key(|setting| setting.group);
    let difference = |setting: &Setting| SettingDifference {
        key: setting.key.to_owned(),
        own: shown(setting, own.get(setting.key)),
        other: shown(setting, others.get(setting.key)),
    };
    different.into_iter().map(difference).collect()
}

/// The settings of a run as text, with the values that Ebb chose, and without the folder and what
/// follows from other settings.
fn typed(run: &ComparedRun) -> BTreeMap<String, String> {
    let started = &run.started;
    let steps = started.epochs * started.steps_per_epoch;
    let no_blocks = CheckpointBlocks::Count(0);
    let config = RunConfig {
        folder: None,
        epochs: Some(started.epochs),
        steps: run.config.steps.filter(|asked| *asked != steps),
        effective_batch: match started.effective_batch_tokens {
            Some(_) => None,
            None => Some(started.effective_batch),
        },
        learning_rate: Some(started.learning_rate),
        seed: Some(started.seed),
        checkpoint_blocks: run
            .config
            .checkpoint_blocks
            .filter(|asked| *asked != no_blocks),
        ..run.config.clone()
    };
    config.typed()
}

/// The text of a setting: "8.0 GB" for 8GB, "1,215" for 1215, "birds" for /data/birds.
fn shown(setting: &Setting, text: Option<&String>) -> String {
    let Some(text) = text else {
        return capital(setting.default);
    };
    match setting.allowed {
        Allowed::Bytes(_) => runlog::parse_bytes(text).map_or(text.clone(), format_bytes),
        Allowed::Integer(..) if setting.key != "seed" => {
            text.parse().map_or(text.clone(), format_count)
        }
        Allowed::Path => {
            let name = Path::new(text).file_name();
            name.map_or(text.clone(), |name| name.to_string_lossy().into_owned())
        }
        _ => text.clone(),
    }
}

/// Two evaluations beside each other. `other` is `None` if the other run has no evaluation with
/// single predictions; `fallback` is its headline then.
pub fn compare(results: &Results, other: Option<&Results>, fallback: &str) -> ComparedResults {
    let Some(other) = other else {
        return ComparedResults {
            value: fallback.to_owned(),
            note: "This version of Ebb has not evaluated the other run. To compare the predictions, first open the results of that run.".to_owned(),
        };
    };
    let headline = headline(other);
    let value = format!("{} {}", headline.value, headline.unit);
    ComparedResults {
        value: value.trim_end().to_owned(),
        note: note(results, other),
    }
}

/// What the difference between two evaluations means.
fn note(results: &Results, other: &Results) -> String {
    let noun = noun(&results.task);
    let Some(found) = results.compare(other) else {
        return if results.samples.is_empty() || other.samples.is_empty() {
            "The two runs were evaluated separately; compare their results only if the data is the same."
                .to_owned()
        } else {
            format!("The two runs share no held-out {noun}, so their results cannot be compared.")
        };
    };
    let meaning = if found.first_correct == found.second_correct {
        "They are equally good.".to_owned()
    } else {
        let better = if found.first_correct > found.second_correct {
            "This run is better"
        } else {
            "The other run is better"
        };
        let chance = found.chance;
        if chance < 0.001 {
            format!("{better}; chance alone hardly explains the difference (p < 0.001).")
        } else if chance < 0.05 {
            format!("{better}; chance alone hardly explains the difference (p = {chance:.3}).")
        } else {
            format!("{better}, but the difference may be due to chance (p = {chance:.2}).")
        }
    };
    format!(
        "Of the {} {noun}s in both evaluations, this run has {} right, and the other run has {} right. {meaning}",
        format_count(found.shared),
        format_count(found.first_correct),
        format_count(found.second_correct)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window_types::tests::current_types;
    use runlog::{OptimizerChoice, RunFolder};
    use std::path::PathBuf;

    #[test]
    fn the_types_of_the_comparison_are_current() {
        current_types(ComparisonView::export_all);
    }

    /// A run folder of version 0.1.0 among the fixtures.
    fn old_run(name: &str) -> ComparedRun {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/runlog/tests/fixtures");
        let folder = RunFolder::open(fixtures.join(name)).expect("it is a run folder");
        let run = folder.replay().expect("it can be replayed");
        ComparedRun {
            started: run.started().expect("it has started").clone(),
            config: folder.config().expect("it has a config"),
            curves: run.step_curves(POINTS, 10.0),
        }
    }

    fn compared(run: &ComparedRun, other: &ComparedRun) -> ComparisonView {
        let results = ComparedResults {
            value: String::new(),
            note: String::new(),
        };
        view(run, other, results, String::new())
    }

    #[test]
    fn a_run_does_not_differ_from_itself() {
        let run = old_run("run-0.1.0");
        let found = compared(&run, &run);
        assert!(found.settings.is_empty(), "{:?}", found.settings);
        assert_eq!(found.axis, "step");
        let titles: Vec<&str> = found.curves.iter().map(|curve| &*curve.title).collect();
        assert_eq!(
            titles,
            [
                "Training loss, smoothed",
                "Held-out loss",
                "Held-out accuracy"
            ]
        );
        let [loss, held_out, accuracy] = &found.curves[..] else {
            panic!("there are three curves");
        };
        assert_eq!((loss.own.len(), held_out.own.len()), (24, 2));
        assert_eq!(loss.own, loss.other);
        assert_eq!(loss.own[23].0, 24.0);
        assert!(accuracy.fraction && accuracy.own[1].1 <= 1.0);
    }

    #[test]
    fn other_settings_are_a_table_in_words() {
        let run = old_run("run-0.1.0");
        let mut other = old_run("run-0.1.0");
        other.started.learning_rate = 0.0003;
        other.config = RunConfig {
            folder: Some(PathBuf::from("/elsewhere/groceries")),
            optimizer: Some(OptimizerChoice::Lion),
            memory_cap_bytes: Some(8 << 30),
            dev_samples: Some(1215),
            ..other.config
        };
        let found = compared(&run, &other).settings;
        let rows: Vec<(&str, &str, &str)> = found
            .iter()
            .map(|row| (&*row.key, &*row.own, &*row.other))
            .collect();
        assert_eq!(
            rows,
            [
                ("optimizer", "adamw", "lion"),
                ("learning_rate", "0.001", "0.0003"),
                (
                    "memory_cap_bytes",
                    "The memory that other apps leave",
                    "8.0 GB"
                ),
                ("dev_samples", "All samples", "1,215"),
            ]
        );
    }

    #[test]
    fn steps_of_different_sizes_are_drawn_by_samples() {
        let (run, mut other) = (old_run("run-0.1.0"), old_run("run-0.1.0"));
        other.started.effective_batch = 32;
        let found = compared(&run, &other);
        assert_eq!(found.axis, "samples");
        let ends = |curve: &ComparedCurves| (curve.own[23].0, curve.other[23].0);
        assert_eq!(ends(&found.curves[0]), (24.0 * 16.0, 24.0 * 32.0));
        assert_eq!(found.settings[0].key, "effective_batch");
    }

    #[test]
    fn runs_with_different_metrics_have_only_their_losses_in_common() {
        let (run, other) = (old_run("run-0.1.0"), old_run("compression-0.1.0"));
        let found = compared(&run, &other);
        let metric = found.curves.iter().find(|curve| curve.fraction);
        assert_eq!(metric, None);
        assert!(!found.curves[0].own.is_empty() && !found.curves[0].other.is_empty());
    }
}
