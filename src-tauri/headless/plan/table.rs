//! The answer in words: a table of footprints, and what to begin with.

use super::{Answer, Row, SHOWN};
use crate::headless::say::out;
use pressure::{RecoveryOption, Shortage, options_needing_consent};
use runlog::{format_bytes, format_count, format_duration};

/// Says everything.
pub(super) fn show(answer: &Answer) {
    let room = &answer.room;
    out!(
        "{}: effective batch {}, {}, {}",
        answer.subject,
        format_count(u64::from(answer.effective_batch)),
        answer.optimizer,
        answer.rows[answer.chosen].need.precision
    );
    out!(
        "{} memory, {} used by others: Ebb may use {} on {}",
        format_bytes(room.device.total_bytes),
        format_bytes(room.processes.others_bytes),
        format_bytes(room.budget_bytes()),
        room.kind
    );
    if room.trainings > 1 {
        out!(
            "So much is for each of {} trainings at once",
            room.trainings
        );
    }
    for assumed in &room.assumed {
        out!("Assumed: {assumed}");
    }
    out!("");
    out!("Footprint by micro-batch, forecast");
    let sizes = SHOWN.map(|size| format!("{size:>8}")).concat();
    out!(
        "  {:<14} {:>6} {:>10}{sizes}  fits",
        "model",
        answer.unit,
        "parameters"
    );
    for row in &answer.rows {
        out!("{}", line(row));
    }
    if !answer.left_out.is_empty() {
        let left_out = answer.left_out.iter();
        let left_out: Vec<String> = left_out
            .map(|(model, side)| format!("{model} {side}"))
            .collect();
        out!(
            "  Not forecast in time: {}; --within SECONDS gives them more, --model and --image-size forecast one alone",
            left_out.join(", ")
        );
    }
    if !answer.others.is_empty() {
        out!("  By name, --model: {}", answer.others.join(", "));
    }
    out!("");
    chosen(answer);
    for note in answer.notes() {
        out!("{note}.");
    }
    out!(
        "Forecast in {:.1} s; the training measures and overrules it.",
        answer.forecast_ms / 1e3
    );
}

fn line(row: &Row) -> String {
    let (blocks, forecast) = (row.blocks(), &row.forecast);
    let form = row
        .need
        .variants
        .iter()
        .find(|form| form.checkpoint_blocks == blocks);
    let peak = |size: u32| {
        form.and_then(|form| form.peak_bytes(size))
            .map_or_else(String::new, format_bytes)
    };
    let peaks = SHOWN.map(|size| format!("{:>8}", peak(size))).concat();
    let fits = match &row.suggested {
        Ok(found) if found.checkpoint_blocks > 0 => format!(
            "{}, {} blocks checkpointed",
            found.micro_batch, found.checkpoint_blocks
        ),
        Ok(found) => found.micro_batch.to_string(),
        Err(_) => "no".to_owned(),
    };
    format!(
        "  {:<14} {:>6} {:>10}{peaks}  {fits}",
        forecast.model,
        forecast.resolution,
        format_count(forecast.parameters)
    )
}

/// What only the user can choose, where nothing fits.
fn offers(stuck: &Shortage) {
    out!(
        "Nothing fits. What changes the result is yours to choose; by estimate, of the {} missing:",
        format_bytes(stuck.missing_bytes)
    );
    for (recovery, freed) in options_needing_consent(stuck) {
        out!("  {}", offer(&recovery, freed, stuck.missing_bytes));
    }
}

/// "Lower the image size by a third (a smaller --image-size or --tokens): frees 0.4 GB, enough".
fn offer(recovery: &RecoveryOption, freed_bytes: u64, missing_bytes: u64) -> String {
    let how = recovery.step.setting();
    let how = how.map_or_else(String::new, |how| format!(" ({how})"));
    let frees = match freed_bytes {
        0 => "frees nothing by itself".to_owned(),
        bytes if bytes >= missing_bytes => format!("frees {}, enough", format_bytes(bytes)),
        bytes => format!("frees {}", format_bytes(bytes)),
    };
    format!("{}{how}: {frees}", recovery.description)
}

fn chosen(answer: &Answer) {
    let row = &answer.rows[answer.chosen];
    let found = match &row.suggested {
        Ok(found) => found,
        Err(no) => return offers(&row.forecast.stuck(no)),
    };
    out!(
        "To begin with: {} at {} {}, micro-batch {}, {} a step, {}, {}",
        row.forecast.model,
        row.forecast.resolution,
        answer.unit,
        found.micro_batch,
        match found.accumulation {
            1 => "1 piece".to_owned(),
            pieces => format!("{} pieces", format_count(u64::from(pieces))),
        },
        match found.checkpoint_blocks {
            0 => "no blocks checkpointed".to_owned(),
            blocks => format!(
                "{blocks} blocks checkpointed ({:.0} % more time)",
                100.0 * found.extra_time_fraction
            ),
        },
        found.precision
    );
    out!(
        "Peak footprint {}, {} of it without any piece; headroom {}",
        format_bytes(found.predicted_peak_bytes),
        format_bytes(row.need.state_bytes),
        format_bytes(found.headroom_bytes)
    );
    match &answer.seconds {
        Some(time) if time.seconds < 10.0 => {
            out!("One {}: {:.2} s, from {}", time.of, time.seconds, time.from)
        }
        Some(time) => out!(
            "One {}: {}, from {}",
            time.of,
            format_duration(time.seconds),
            time.from
        ),
        None => out!("How long an epoch takes is known after the first seconds of training"),
    }
}
