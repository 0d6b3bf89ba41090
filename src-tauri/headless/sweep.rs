//! `ebb sweep-batch`: several batches on one folder, each in a process of its own, so that one that does not fit is a row and not
//! the end.

use super::args::SweepBatch;
use super::attempt;
use super::brought::brought;
use super::failure::Failure;
use super::interrupt::AtWork;
use super::say::out;
use super::turns;
use runlog::{RunConfig, RunEvent, RunStore, format_bytes, format_duration};
use serde::{Deserialize, Serialize};
use std::process::Command;
use trainer::Request;

/// What came of one batch.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct Row {
    /// Samples a step, in one piece.
    batch: u32,
    /// `ok`, `refused`, `failed` or `died`.
    status: String,
    /// Seconds of an epoch, from the middle one of the steps measured.
    seconds_per_epoch: Option<f64>,
    /// Samples a second.
    samples_per_second: Option<f64>,
    /// Highest footprint of the process.
    peak_bytes: Option<u64>,
    /// Why, or what else is worth knowing.
    notes: String,
}

/// The top-level entry point of `ebb sweep-batch`.
pub fn run(args: &SweepBatch) -> Result<(), Failure> {
    if args.pilot {
        return turns::run(args);
    }
    if args.alone {
        let row = alone(args, args.batches.first().copied().unwrap_or(1))?;
        out!("{}", as_line(&row));
        return Ok(());
    }
    // What no batch can be tried on is said once.
    let config = brought(args.tried.config()?)?;
    config.validate()?;
    let found = attempt::look(&config, &args.tried.folder)?;
    trainer::Plan::check(&config, &found)?;
    if !args.tried.json {
        out!(
            "{:>6}  {:8} {:>12} {:>11} {:>10}  Notes",
            "Batch",
            "Status",
            "s an epoch",
            "Samples/s",
            "Peak"
        );
    }
    let mut best: Option<Row> = None;
    for &batch in &args.batches {
        let row = in_its_own_process(batch)?;
        out!(
            "{}",
            if args.tried.json {
                as_line(&row)
            } else {
                words(&row)
            }
        );
        let faster = best
            .as_ref()
            .is_none_or(|best| row.samples_per_second > best.samples_per_second);
        if row.samples_per_second.is_some() && faster {
            best = Some(row);
        }
    }
    match best {
        Some(best) if !args.tried.json => {
            out!(
                "Fastest: {} samples a step. The batch changes what is learnt; --micro-batch alone does not.",
                best.batch
            );
            Ok(())
        }
        Some(_) => Ok(()),
        None => Err(Failure::new(
            "no batch could be measured; the notes say why",
        )),
    }
}

fn as_line(row: &Row) -> String {
    serde_json::to_string(row).unwrap_or_default()
}

fn words(row: &Row) -> String {
    let dash = || "-".to_owned();
    format!(
        "{:>6}  {:8} {:>12} {:>11} {:>10}  {}",
        row.batch,
        row.status,
        row.seconds_per_epoch
            .map_or_else(dash, |s| format!("{s:.1}")),
        row.samples_per_second
            .map_or_else(dash, |s| format!("{s:.1}")),
        row.peak_bytes.map_or_else(dash, format_bytes),
        row.notes
    )
}

/// Runs this binary for one batch and reads its row.
fn in_its_own_process(batch: u32) -> Result<Row, Failure> {
    let ebb = std::env::current_exe()
        .map_err(|error| Failure::new(format!("this program cannot be found again: {error}")))?;
    // The same words as ours, one batch at a time.
    let mut words: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    words.retain(|word| word != "--json");
    let place = words.iter().position(|word| word == "--batches");
    match place {
        Some(place) if place + 1 < words.len() => words[place + 1] = batch.to_string().into(),
        _ => {
            words.retain(|word| !word.to_string_lossy().starts_with("--batches="));
            words.push(format!("--batches={batch}").into());
        }
    }
    words.push("--alone".into());
    let said = Command::new(&ebb).args(&words).output();
    let row = |status: &str, notes: String| Row {
        batch,
        status: status.to_owned(),
        notes,
        ..Row::default()
    };
    let said = match said {
        Ok(said) => said,
        Err(error) => return Ok(row("failed", format!("it could not be started: {error}"))),
    };
    let text = String::from_utf8_lossy(&said.stdout);
    if let Some(row) = text
        .lines()
        .last()
        .and_then(|line| serde_json::from_str(line).ok())
    {
        return Ok(row);
    }
    let why = String::from_utf8_lossy(&said.stderr);
    let why = why
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("ebb: "));
    Ok(match (said.status.code(), why) {
        (Some(_), Some(why)) => row("refused", why.to_owned()),
        (Some(code), None) => row("failed", format!("it ended with exit code {code}")),
        (None, _) => row("died", format!("the system ended it: {}", said.status)),
    })
}

/// One batch, in this process: its figures are the process's own.
fn alone(args: &SweepBatch, batch: u32) -> Result<Row, Failure> {
    let wanted = args.steps + 1;
    let config = RunConfig {
        effective_batch: Some(batch),
        micro_batch: Some(batch),
        // One more than is worked, for the last step of a run is evaluated.
        steps: Some(wanted + 1),
        evaluate_every_epochs: Some(100_000),
        ..brought(args.tried.config()?)?
    };
    config.validate()?;
    let found = attempt::look(&config, &args.tried.folder)?;
    let place = std::env::temp_dir().join(format!("ebb-sweep-{}", std::process::id()));
    let store = RunStore::open(&place);
    let tried = attempt::train(
        &config,
        &found,
        (&store, None),
        &AtWork::heeded()?,
        |event, control| {
            if matches!(event, RunEvent::Step { step, .. } if *step >= wanted) {
                control.send(Request::Stop);
            }
        },
    );
    let peak_bytes = pressure::take_own_peak_bytes().unwrap_or_else(pressure::own_footprint_bytes);
    // What was learnt in a few steps is worth nothing.
    let _ = std::fs::remove_dir_all(&place);
    let tried = tried?;
    let mut rates = Vec::new();
    let (mut notes, mut taken) = (Vec::new(), batch);
    for event in &tried.events {
        match event {
            RunEvent::Step {
                step,
                samples_per_second,
                micro_batches: pieces,
                ..
            } => {
                // The first one warms caches and the allocator.
                if *step > 1 {
                    rates.push(*samples_per_second);
                }
                taken = pieces.iter().copied().max().unwrap_or(batch);
            }
            RunEvent::Warning { message, .. } => notes.push(message.clone()),
            _ => {}
        }
    }
    if let Some(error) = &tried.failed {
        notes.push(error.to_string());
    }
    if tried.plan.effective_batch < batch {
        notes.push(format!(
            "the folder has {} samples to train on",
            tried.plan.train_samples
        ));
    } else if taken < batch {
        notes.push(format!("worked in pieces of {taken}"));
    }
    rates.sort_by(f64::total_cmp);
    let rate = rates.get(rates.len() / 2).copied();
    let seconds = rate.map(|rate| tried.plan.train_samples as f64 / rate);
    if let Some(seconds) = seconds.filter(|seconds| *seconds >= 120.0) {
        notes.push(format_duration(seconds));
    }
    Ok(Row {
        batch,
        status: if tried.failed.is_some() {
            "failed"
        } else {
            "ok"
        }
        .to_owned(),
        seconds_per_epoch: seconds,
        samples_per_second: rate,
        peak_bytes: Some(peak_bytes),
        notes: notes.join("; "),
    })
}
