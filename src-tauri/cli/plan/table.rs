//! Prints the answer of `ebb plan` as a table of footprints and a suggested config.

use super::LISTED_MICRO_BATCHES;
use super::answer::{Answer, Row};
use super::lengths;
use crate::cli::conversation_examples;
use crate::cli::output::out;
use pressure::{RecoveryOption, Shortage, options_needing_consent};
use runlog::{counted, format_bytes, format_count, format_duration};

pub(super) fn print(answer: &Answer) {
    conversation_examples::describe(&answer.examples);
    print_machine(answer);
    out!("");
    print_rows(answer);
    if let Some(step_seconds) = &answer.step_seconds {
        lengths::print(answer, step_seconds);
    }
    out!("");
    print_chosen(answer);
    for note in answer.notes() {
        out!("{note}.");
    }
    if let Some(sentence) = &answer.starting_point {
        out!("{sentence}.");
    }
    out!(
        "Estimated in {:.1} s. The training measures its own memory and corrects the estimate.",
        answer.estimate_ms / 1e3
    );
}

fn print_machine(answer: &Answer) {
    let machine = &answer.machine;
    out!(
        "{}: effective batch {}, {}, {}",
        answer.subject,
        format_count(u64::from(answer.effective_batch)),
        answer.optimizer,
        answer.chosen().need.precision
    );
    out!(
        "{} of memory, {} used by other apps and the system: Ebb may use {} on {}",
        format_bytes(machine.device.total_bytes),
        format_bytes(machine.processes.others_bytes),
        format_bytes(machine.budget_bytes()),
        machine.kind
    );
    if machine.trainings > 1 {
        out!(
            "This memory limit applies to each of the {} runs",
            machine.trainings
        );
    }
    for assumed in &machine.assumed {
        out!("Assumed: {assumed}");
    }
}

fn print_rows(answer: &Answer) {
    out!("Estimated footprint by micro-batch");
    let sizes = LISTED_MICRO_BATCHES
        .map(|size| format!("{size:>8}"))
        .concat();
    out!(
        "  {:<14} {:>6} {:>10}{sizes}  fits",
        "model",
        answer.unit,
        "parameters"
    );
    for row in &answer.rows {
        out!("{}", table_row(row));
    }
    if !answer.left_out.is_empty() {
        let left_out = answer.left_out.iter();
        let left_out: Vec<String> = left_out
            .map(|(model, side)| format!("{model} {side}"))
            .collect();
        out!(
            "  Not estimated in time: {}; allow more time with --within SECONDS, or choose a model with --model and --image-size",
            left_out.join(", ")
        );
    }
    if !answer.large_models.is_empty() {
        out!(
            "  Larger models, which Ebb plans only with --model: {}",
            answer.large_models.join(", ")
        );
    }
}

fn table_row(row: &Row) -> String {
    let (blocks, memory) = (row.blocks(), &row.memory);
    let form = row
        .need
        .variants
        .iter()
        .find(|form| form.checkpoint_blocks == blocks);
    let peak = |size: u32| {
        form.and_then(|form| form.peak_bytes(size))
            .map_or_else(String::new, format_bytes)
    };
    let peaks = LISTED_MICRO_BATCHES
        .map(|size| format!("{:>8}", peak(size)))
        .concat();
    let fits = match &row.suggested {
        Ok(found) if found.checkpoint_blocks > 0 => format!(
            "{}, {} checkpointed blocks",
            found.micro_batch, found.checkpoint_blocks
        ),
        Ok(found) => found.micro_batch.to_string(),
        Err(_) => "no".to_owned(),
    };
    format!(
        "  {:<14} {:>6} {:>10}{peaks}  {fits}",
        memory.model,
        memory.resolution,
        format_count(memory.parameters)
    )
}

/// Prints the settings that would help if nothing fits. These settings change the result of
/// training, so the user chooses.
fn print_offers(stuck: &Shortage) {
    out!(
        "Nothing fits: {} more memory would be needed. These settings would help, but they change the result (sizes are estimates):",
        format_bytes(stuck.missing_bytes)
    );
    // A smaller effective batch frees nothing by itself.
    let offers = options_needing_consent(stuck).into_iter();
    for (recovery, freed) in offers.filter(|(_, freed)| *freed > 0) {
        out!("  {}", offer(&recovery, stuck, freed));
    }
}

/// Describes a setting that would help, such as "Lower the image size by a third (a smaller
/// --image-size): frees 0.4 GB, enough".
fn offer(recovery: &RecoveryOption, stuck: &Shortage, freed_bytes: u64) -> String {
    let how = stuck.setting(recovery.step);
    let how = how.map_or_else(String::new, |how| format!(" ({how})"));
    let frees = match freed_bytes {
        bytes if bytes >= stuck.missing_bytes => format!("frees {}, enough", format_bytes(bytes)),
        bytes => format!("frees {}", format_bytes(bytes)),
    };
    format!("{}{how}: {frees}", recovery.description)
}

/// Prints the interval in which the footprint is expected, and how that is known.
fn print_interval(answer: &Answer) {
    if let Some(interval) = answer.interval_bytes() {
        let [low, high] = interval.map(format_bytes);
        let from = match answer.machine.correction.runs {
            0 => "no run on this device has been compared with its estimate yet".to_owned(),
            runs => format!(
                "Ebb multiplies estimates by {:.2}, a factor learned from {} on this device",
                answer.machine.correction.factor,
                counted(runs as u64, "run", "runs")
            ),
        };
        out!("Most runs need between {low} and {high}: {from}");
    }
}

fn print_chosen(answer: &Answer) {
    let row = answer.chosen();
    let found = match &row.suggested {
        Ok(found) => found,
        Err(no) => return print_offers(&row.memory.stuck(no)),
    };
    out!(
        "Suggested config: {} at {} {}, micro-batch {}, {} per step{}, {}, {}",
        row.memory.model,
        row.memory.resolution,
        answer.unit,
        found.micro_batch,
        counted(found.accumulation.into(), "micro-batch", "micro-batches"),
        match answer.sharing.devices {
            ..2 => "",
            _ => " on each device",
        },
        match found.checkpoint_blocks {
            0 => "no checkpointed blocks".to_owned(),
            blocks => format!(
                "{blocks} checkpointed blocks ({:.0} % more time)",
                100.0 * found.extra_time_fraction
            ),
        },
        found.precision
    );
    out!(
        "Peak memory {}, of which {} stays in use between steps; headroom {}",
        format_bytes(found.predicted_peak_bytes),
        format_bytes(row.need.state_bytes),
        format_bytes(found.headroom_bytes)
    );
    if let Some(shared) = answer.describe_sharing() {
        out!("{shared}");
    }
    print_interval(answer);
    match &answer.time {
        Some(time) => {
            let duration = if time.seconds < 10.0 {
                format!("{:.2} s", time.seconds)
            } else {
                format_duration(time.seconds)
            };
            // How long the exchange takes is unknown.
            let alone = match answer.sharing.devices {
                ..2 => "",
                _ => " on one of these devices alone",
            };
            out!(
                "One {}{alone}: about {duration}, estimated from {}",
                time.of,
                time.from
            );
        }
        None => out!("The time per epoch is known after the first seconds of training"),
    }
}
