//! `ebb sweep-batch`: trains on one folder with several batch sizes, each in its own process. If a
//! batch size does not fit, its row of the table says so, and the sweep continues.

use super::args::SweepBatch;
use super::compare_controller;
use super::config_file::is_standard_input;
use super::failure::Failure;
use super::interrupt::AtWork;
use super::output::out;
use super::train_once::{self, Attempt};
use super::weights_from_hub::with_downloaded_weights;
use runlog::{RunConfig, RunEvent, RunStore, format_bytes, format_duration};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::process::{Command, Output};
use trainer::Request;

/// The outcome of one batch size.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct Row {
    /// Batch size: samples per training step. Every step is one micro-batch.
    batch: u32,
    /// `ok`, `refused`, `failed` or `died`.
    status: String,
    /// Estimated from the median speed of the measured steps.
    seconds_per_epoch: Option<f64>,
    samples_per_second: Option<f64>,
    /// Highest footprint of the process.
    peak_bytes: Option<u64>,
    /// The error, the warnings, and differences from the requested batch size.
    notes: String,
}

/// Runs `ebb sweep-batch`.
pub fn run(args: &SweepBatch) -> Result<(), Failure> {
    if args.controller {
        return compare_controller::run(args);
    }
    if args.alone {
        let row = measure(args, args.batches.first().copied().unwrap_or(1))?;
        out!("{}", json(&row));
        return Ok(());
    }
    let config = args.tried.config.as_deref();
    if config.is_some_and(is_standard_input) {
        return Err(Failure::usage(
            "sweep-batch starts a process for each batch size, and only one of them could read standard input; write the config to a file",
        ));
    }
    // A config that is refused for every batch size is refused once.
    let config = with_downloaded_weights(args.tried.config()?)?;
    config.validate()?;
    let found = train_once::inspect(&config, &args.tried.folder)?;
    trainer::Plan::resolve(&config, &found)?;
    if !args.tried.json {
        out!(
            "{:>6}  {:8} {:>12} {:>11} {:>10}  Notes",
            "Batch",
            "Status",
            "s per epoch",
            "Samples/s",
            "Peak"
        );
    }
    let mut best: Option<Row> = None;
    for &batch in &args.batches {
        let row = measure_in_own_process(batch)?;
        if args.tried.json {
            out!("{}", json(&row));
        } else {
            out!("{}", table_row(&row));
        }
        let faster = best
            .as_ref()
            .is_none_or(|best| row.samples_per_second > best.samples_per_second);
        if row.samples_per_second.is_some() && faster {
            best = Some(row);
        }
    }
    let Some(best) = best else {
        return Err(Failure::new(
            "no batch size could be measured; the column Notes says why",
        ));
    };
    if !args.tried.json {
        out!(
            "Fastest batch size: {} samples per step. The batch size changes what the model learns; --micro-batch does not.",
            best.batch
        );
    }
    Ok(())
}

fn json(row: &Row) -> String {
    serde_json::to_string(row).unwrap_or_default()
}

fn table_row(row: &Row) -> String {
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

/// Runs this binary for one batch size and reads its row.
fn measure_in_own_process(batch: u32) -> Result<Row, Failure> {
    let ebb = std::env::current_exe()
        .map_err(|error| Failure::new(format!("ebb cannot find its own program file: {error}")))?;
    let output = Command::new(&ebb).args(arguments_for(batch)).output();
    Ok(match output {
        Ok(output) => row_of(batch, &output),
        Err(error) => Row {
            batch,
            status: "failed".to_owned(),
            notes: format!("the process for this batch size could not be started: {error}"),
            ..Row::default()
        },
    })
}

/// The arguments of this process, changed to one batch size.
fn arguments_for(batch: u32) -> Vec<OsString> {
    let mut words: Vec<OsString> = std::env::args_os().skip(1).collect();
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
    words
}

/// The row that a process printed. If the process printed no row, this row says how the process
/// ended.
fn row_of(batch: u32, output: &Output) -> Row {
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last();
    if let Some(row) = last.and_then(|line| serde_json::from_str(line).ok()) {
        return row;
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let error = errors
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("ebb: "));
    let (status, notes) = match (output.status.code(), error) {
        (Some(_), Some(error)) => ("refused", error.to_owned()),
        (Some(code), None) => (
            "failed",
            format!("the process for this batch size ended with exit code {code}"),
        ),
        (None, _) => (
            "died",
            format!("the system ended the process: {}", output.status),
        ),
    };
    Row {
        batch,
        status: status.to_owned(),
        notes,
        ..Row::default()
    }
}

/// Trains with one batch size in this process. The row contains the peak footprint of the process.
fn measure(args: &SweepBatch, batch: u32) -> Result<Row, Failure> {
    let last = args.steps + 1;
    let config = RunConfig {
        effective_batch: Some(batch),
        micro_batch: Some(batch),
        // One more than is measured, since the last step of a run is evaluated.
        steps: Some(last + 1),
        evaluate_every_epochs: Some(100_000),
        ..with_downloaded_weights(args.tried.config()?)?
    };
    config.validate()?;
    let config = train_once::without_baseline(config);
    let found = train_once::inspect(&config, &args.tried.folder)?;
    let folder = std::env::temp_dir().join(format!("ebb-sweep-{}", std::process::id()));
    let store = RunStore::open(&folder);
    let place = train_once::Place {
        store: &store,
        name: None,
    };
    let tried = train_once::train(
        &config,
        &found,
        place,
        &AtWork::handled()?,
        |event, control| {
            if matches!(event, RunEvent::Step { step, .. } if *step >= last) {
                control.send(Request::Stop);
            }
        },
    );
    let peak_bytes = pressure::take_own_peak_bytes().unwrap_or_else(pressure::own_footprint_bytes);
    // A model trained for a few steps is of no use.
    let _ = ::disk::remove_dir_all(&folder);
    Ok(Row {
        peak_bytes: Some(peak_bytes),
        ..row_from_events(&tried?, batch)
    })
}

fn row_from_events(tried: &Attempt, batch: u32) -> Row {
    let mut rates = Vec::new();
    let (mut notes, mut largest) = (Vec::new(), batch);
    for event in &tried.events {
        match event {
            RunEvent::Step {
                step,
                samples_per_second,
                micro_batches,
                ..
            } => {
                // The first step warms up caches and the allocator.
                if *step > 1 {
                    rates.push(*samples_per_second);
                }
                largest = micro_batches.iter().copied().max().unwrap_or(batch);
            }
            // The row itself says if the folder has fewer samples than the batch.
            RunEvent::Warning { code, message, .. } if code != "micro_batch_limited" => {
                notes.push(message.clone());
            }
            _ => {}
        }
    }
    if let Some(error) = &tried.failed {
        notes.push(error.to_string());
    }
    let train_samples = tried.plan.train_samples;
    if tried.plan.effective_batch < batch {
        notes.push(format!("the folder has {train_samples} training samples"));
    } else if largest < batch {
        notes.push(format!("trained in micro-batches of {largest}"));
    }
    rates.sort_by(f64::total_cmp);
    let rate = rates.get(rates.len() / 2).copied();
    let seconds = rate.map(|rate| train_samples as f64 / rate);
    if let Some(seconds) = seconds.filter(|seconds| *seconds >= 120.0) {
        notes.push(format_duration(seconds));
    }
    let status = if tried.failed.is_some() {
        "failed"
    } else {
        "ok"
    };
    Row {
        batch,
        status: status.to_owned(),
        seconds_per_epoch: seconds,
        samples_per_second: rate,
        peak_bytes: None,
        notes: notes.join("; "),
    }
}
