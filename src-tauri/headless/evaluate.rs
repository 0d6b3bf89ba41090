//! `ebb evaluate`: a run measured on a folder.

use super::args;
use super::failure::Failure;
use super::say::{aside, out};
use super::train::{certificate_path, find};
use dataset::{Task, look};
use runlog::format_count;
use serde_json::json;
use trainer::{SavedRun, Wanted};

/// The top-level entry point of `ebb evaluate`.
pub fn run(args: &args::Evaluate) -> Result<(), Failure> {
    let saved = SavedRun::load(&find(&args.run)?, Wanted::Auto, Some(&certificate_path()))?;
    // The same split as in training, so that what was trained on is not measured on.
    let found = look(&args.folder, &saved.split(), &saved.reading(), &|_| {})?;
    let evaluated = saved.evaluate(&found)?;
    let metrics = &evaluated.metrics;
    for (file, reason) in &evaluated.skipped {
        aside!("Skipped {}: {reason}", file.display());
    }
    if args.json {
        let mut line = json!({
            "step": saved.state.step, "samples": metrics.samples, "loss": metrics.loss, "skipped": evaluated.skipped.len(),
        });
        metrics
            .by_name
            .iter()
            .for_each(|(name, value)| line[name] = json!(value));
        out!("{line}");
        return Ok(());
    }
    let percent = |name: &str| 100.0 * metrics.get(name).unwrap_or(f64::NAN);
    let (count, samples) = (format_count(metrics.samples), saved.task().sample());
    let (what, came_to) = match saved.task() {
        Task::ImageClassification => (
            format!("{count} {samples}s"),
            format!(
                "accuracy {:.1} %, among the five best {:.1} %",
                percent("accuracy"),
                percent("top_5")
            ),
        ),
        Task::TextClassification => (
            format!("{count} {samples}s"),
            format!(
                "accuracy {:.1} %, macro-F1 {:.1} %",
                percent("accuracy"),
                percent("macro_f1")
            ),
        ),
        Task::LanguageModel => (
            format!("{count} windows of {samples}s"),
            format!("{:.3} bits per byte", percent("bits_per_byte") / 100.0),
        ),
        Task::TokenCompression => (
            format!("{count} windows of {samples}s"),
            format!(
                "{:.2} % of the tokens kept, {:.3} nats a dropped one, reward {:.3}",
                percent("kept_fraction"),
                percent("loss_per_dropped") / 100.0,
                percent("reward") / 100.0
            ),
        ),
    };
    out!(
        "{what}, checkpoint of step {}: {came_to}, loss {:.3}",
        format_count(saved.state.step),
        metrics.loss
    );
    Ok(())
}
