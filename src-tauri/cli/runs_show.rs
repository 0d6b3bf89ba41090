//! `ebb runs show`: one run as text or JSON, with a crash report if its process exited
//! unexpectedly.

use super::args;
use super::failure::Failure;
use super::output::out;
use super::train::find;
use crate::task_labels::learned;
use dataset::Task;
use runlog::{
    ExchangeChoice, GroupChange, PredictionRecord, RankView, Run, RunFolder, RunStatus,
    describe_baseline, describe_run_metrics, detail_in_terminal, format_bytes, format_count,
    format_duration, format_percent,
};
use serde_json::{Value, json};

/// Number of micro-batch changes that are shown.
const CHANGES: usize = 10;

/// Runs `ebb runs show`.
pub fn run(args: &args::Show) -> Result<(), Failure> {
    let folder = find(&args.run)?;
    let run = folder.replay()?;
    if args.json {
        out!("{}", as_json(&folder, &run)?)
    } else {
        write(&folder, &run)
    }
    Ok(())
}

fn as_json(folder: &RunFolder, run: &Run) -> Result<Value, Failure> {
    let crash_report = match run.status() {
        RunStatus::EndedEarly => folder.crash_report()?,
        _ => None,
    };
    let own = folder.notes();
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
        "baseline": run.baseline(),
        "answers": run.answers(),
        "machines": run.machines(),
        "exchange_fraction": run.exchange_fraction(),
        "crash_report": crash_report,
        "name": own.name,
        "note": own.text,
        "tags": own.tags,
        "gradients": run.describe_gradients(),
        "notes": run.notes().collect::<Vec<_>>(),
    }))
}

fn write(folder: &RunFolder, run: &Run) {
    out!("{}  {}", folder.id(), run.summary_line());
    let status_line = run.status_line();
    let detail = detail_in_terminal(&status_line.detail, &folder.id());
    for line in [&status_line.message, &detail] {
        if !line.is_empty() {
            out!("{line}");
        }
    }
    if let Some(started) = run.started() {
        out!(
            "{}, {} at {} {} on {}, {}",
            learned(&started.task, started.classes.len(), started.targets.len()),
            started.model,
            started.input_size,
            Task::from_name(&started.task).map_or("tokens", Task::size_unit),
            started.device,
            started.describe_step()
        );
    }
    if let Some(started) = run.started().filter(|s| !s.branched_from.is_empty()) {
        out!("Branched from {}", started.branched_from);
    }
    let own = folder.notes();
    if !own.name.is_empty() {
        out!("Name: {}", own.name);
    }
    if !own.tags.is_empty() {
        out!("Tags: {}", own.tags.join(", "));
    }
    section("Your note", own.text.lines().map(str::to_owned));
    section("Measures", describe_run_metrics(run).into_iter());
    section("Baseline", baseline(run).into_iter());
    section(&answers_title(run), run.describe_answers().into_iter());
    section("Machines", machines(folder, run).into_iter());
    section("Changes of the machines", group_changes(run).into_iter());
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
    section("Gradients", run.describe_gradients().into_iter());
    section("Notes", run.notes().map(str::to_owned));
}

/// Describes the baseline of the run, and compares the run's model with the baseline.
fn baseline(run: &Run) -> Vec<String> {
    let train_samples = run.started().map_or(0, |started| started.train_samples);
    let baseline = run.baseline();
    let baseline = baseline.map(|baseline| describe_baseline(baseline, train_samples));
    baseline
        .into_iter()
        .chain(run.compare_with_baseline())
        .collect()
}

/// The title above the answers to the prompts of the run: "Answers at step 1,200".
fn answers_title(run: &Run) -> String {
    let step = run.best_answers().map_or(0, |best| best.step);
    format!("Answers at step {}", format_count(step))
}

/// What changed among the machines.
fn group_changes(run: &Run) -> Vec<String> {
    let group = run.group().unwrap_or_default();
    let change = |change: &GroupChange| {
        let step = format_count(change.step);
        format!("step {step}: {}", change.message)
    };
    group.changes.iter().map(change).collect()
}

/// Describes what the machines of a group did last.
fn machines(folder: &RunFolder, run: &Run) -> Vec<String> {
    let machines = run.machines().iter().map(RankView::describe);
    let choice = folder.config().ok().and_then(|config| config.exchange);
    let data_type = if choice == Some(ExchangeChoice::Bf16) {
        " in bf16"
    } else {
        ""
    };
    let exchange = run.exchange_fraction().map(|fraction| {
        let percent = format_percent(fraction);
        format!("exchange of gradients{data_type}: {percent} of the time")
    });
    machines.chain(exchange).collect()
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
/// %. Newest prediction: 812 MB for a micro-batch of 16 (measured: 805 MB)"
fn predicted(all: &[PredictionRecord]) -> Option<String> {
    let newest = all.last()?;
    let mut off: Vec<f64> = all.iter().map(|one| one.error_fraction.abs()).collect();
    off.sort_by(f64::total_cmp);
    Some(format!(
        "{} predictions of peak memory: half are within {} of the measured peak, all are within {}. Newest prediction: {} for a micro-batch of {} (measured: {})",
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
                "3 predictions of peak memory: half are within 0.9 % of the measured peak, all are within 4.1 %. Newest prediction: 812 MB for a micro-batch of 16 (measured: 805 MB)"
            )
        );
    }
}
