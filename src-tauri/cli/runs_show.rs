//! `ebb runs show`: one run as text or JSON, with a crash report if its process exited
//! unexpectedly.

use super::args;
use super::failure::Failure;
use super::output::out;
use super::train::find;
use crate::task_labels::learned;
use runlog::{
    PredictionRecord, Run, RunFolder, RunStatus, describe_metrics, format_bytes, format_count,
    format_duration, format_percent,
};
use serde_json::{Value, json};

/// Number of micro-batch changes that are shown.
const CHANGES: usize = 10;

/// Runs `ebb runs show`.
pub fn run(args: &args::Show) -> Result<(), Failure> {
    let folder = find(&args.run)?;
    let run = folder.replay()?;
    match args.json {
        true => out!("{}", as_json(&folder, &run)?),
        false => write(&folder, &run),
    }
    Ok(())
}

fn as_json(folder: &RunFolder, run: &Run) -> Result<Value, Failure> {
    let crash_report = match run.status() {
        RunStatus::EndedEarly => folder.crash_report()?,
        _ => None,
    };
    Ok(json!({
        "run": folder.id(),
        "path": folder.path.to_string_lossy(),
        "status": run.status(),
        "summary": run.summary_line(),
        "status_line": run.status_line(),
        "started": run.started(),
        "figures": run.figures(),
        "changes": run.marks(),
        "predictions": run.predictions(),
        "crash_report": crash_report,
        "notes": run.notes().collect::<Vec<_>>(),
    }))
}

fn write(folder: &RunFolder, run: &Run) {
    out!("{}  {}", folder.id(), run.summary_line());
    for line in [&run.status_line().message, &run.status_line().detail] {
        if !line.is_empty() {
            out!("{line}");
        }
    }
    if let Some(started) = run.started() {
        out!(
            "{}, {} at {} {} on {}, {} samples per step",
            learned(&started.task, started.classes.len(), started.targets.len()),
            started.model,
            started.input_size,
            match started.task.as_str() {
                "image-classification" => "px",
                _ => "tokens",
            },
            started.device,
            format_count(started.effective_batch.into())
        );
    }
    section("Measures", describe_metrics(run.figures()).into_iter());
    section("The last two minutes", run.last_minutes().iter().cloned());
    let marks = run.marks();
    let changes = marks.iter().skip(marks.len().saturating_sub(CHANGES));
    section(
        "Changes of the micro-batch",
        changes.map(|mark| {
            let at = format_duration(mark.at_ms as f64 / 1000.0);
            format!("{at}  {}: {}", mark.short, mark.reason)
        }),
    );
    section("Predicted peaks", predicted(run.predictions()).into_iter());
    section("Notes", run.notes().map(str::to_owned));
}

fn section(title: &str, lines: impl Iterator<Item = String>) {
    for (number, line) in lines.enumerate() {
        if number == 0 {
            out!("\n{title}:");
        }
        out!("  {line}");
    }
}

/// "14 predictions of peak memory: half are within 0.9 % of the measured peak, all are within 4.1
/// %. Newest: 812 MB predicted for a micro-batch of 16, 805 MB measured"
fn predicted(all: &[PredictionRecord]) -> Option<String> {
    let newest = all.last()?;
    let mut off: Vec<f64> = all.iter().map(|one| one.error_fraction.abs()).collect();
    off.sort_by(f64::total_cmp);
    Some(format!(
        "{} predictions of peak memory: half are within {} of the measured peak, all are within {}. Newest: {} predicted for a micro-batch of {}, {} measured",
        format_count(all.len() as u64),
        format_percent(off[off.len() / 2]),
        format_percent(off[off.len() - 1]),
        format_bytes(newest.predicted_peak_bytes),
        newest.micro_batch,
        format_bytes(newest.measured_peak_bytes)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predicted_peaks_are_one_sentence() {
        let one = |error_fraction| PredictionRecord {
            at_ms: 0,
            micro_batch: 16,
            predicted_peak_bytes: 812 << 20,
            measured_peak_bytes: 805 << 20,
            error_fraction,
        };
        assert_eq!(predicted(&[]), None);
        assert_eq!(
            predicted(&[one(0.041), one(-0.002), one(0.009)]).as_deref(),
            Some(
                "3 predictions of peak memory: half are within 0.9 % of the measured peak, all are within 4.1 %. Newest: 812 MB predicted for a micro-batch of 16, 805 MB measured"
            )
        );
    }
}
