//! `ebb evaluate`: a run measured on a folder.

use super::args;
use super::failure::Failure;
use super::say::{aside, out};
use super::train::{certificate_path, find};
use dataset::inspect;
use runlog::format_count;
use serde_json::json;
use trainer::{SavedRun, Wanted};

/// The top-level entry point of `ebb evaluate`.
pub fn run(args: &args::Evaluate) -> Result<(), Failure> {
    let saved = SavedRun::load(&find(&args.run)?, Wanted::Auto, Some(&certificate_path()))?;
    // The same split as in training, so that what was trained on is not measured on.
    let inspection = inspect(&args.folder, &saved.split(), &|_| {})?;
    let evaluated = saved.evaluate(&inspection)?;
    for (file, reason) in &evaluated.skipped {
        aside!("Skipped {}: {reason}", file.display());
    }
    if args.json {
        let line = json!({
            "step": saved.state.step, "samples": evaluated.samples, "loss": evaluated.loss,
            "accuracy": evaluated.accuracy, "top_5": evaluated.top_5, "skipped": evaluated.skipped.len(),
        });
        out!("{line}");
        return Ok(());
    }
    out!(
        "{} photographs, checkpoint of step {}: accuracy {:.1} %, among the five best {:.1} %, loss {:.3}",
        format_count(evaluated.samples),
        format_count(saved.state.step),
        100.0 * evaluated.accuracy,
        100.0 * evaluated.top_5,
        evaluated.loss
    );
    Ok(())
}
