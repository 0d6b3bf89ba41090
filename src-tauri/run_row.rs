//! A run as one row of the list.

use crate::run_names::shown_name;
use crate::task_labels::{capital, learned};
use crate::window_types::RunRow;
use runlog::{
    Run, RunFolder, RunNotes, RunStatus, RunSummary, StartSummary, StopReason, format_count,
};
use std::time::UNIX_EPOCH;
use trainer::{ModelId, PretrainedFamily, TextSize};

/// Whether the run does nothing more unless it is resumed.
pub fn has_ended(status: RunStatus) -> bool {
    !matches!(
        status,
        RunStatus::Starting | RunStatus::Training | RunStatus::Paused
    )
}

/// The row of a run that no training of this process has.
pub fn for_run(id: &str, folder: &RunFolder, run: &Run) -> RunRow {
    for_summary(id, folder, &RunSummary::from_run(run))
}

/// The row of a run that no training of this process has, from its summary.
pub fn for_summary(id: &str, folder: &RunFolder, summary: &RunSummary) -> RunRow {
    let started = summary.started.as_ref();
    let ended = has_ended(summary.status);
    let saved = || {
        folder
            .checkpoints()
            .is_ok_and(|checkpoints| !checkpoints.is_empty())
    };
    let notes = folder.notes();
    let per_epoch = started.map_or(0, |started| started.steps_per_epoch);
    RunRow {
        id: id.to_owned(),
        name: shown_name(id, &notes, started.map(|started| started.name.as_str())),
        note: notes.text,
        tags: notes.tags,
        what: started.map(what).unwrap_or_default(),
        status: summary.status,
        here: false,
        line: line(summary, " in the terminal"),
        spark: summary.spark.clone(),
        result: summary.headline.clone(),
        seconds_left: summary.seconds_left,
        can_resume: ended && summary.status != RunStatus::Finished && saved(),
        epochs_done: summary.step / per_epoch.max(1),
        epochs: started.map_or(0, |started| started.epochs),
        started_unix_ms: started.map_or(0, |started| started.unix_ms),
        unix_ms: changed_unix_ms(folder),
    }
}

/// What the user calls the run, or the dataset's name.
pub fn name(id: &str, notes: &RunNotes, run: &Run) -> String {
    shown_name(
        id,
        notes,
        run.started().map(|started| started.name.as_str()),
    )
}

/// The row of a run that trains or trained in this process.
pub fn here(id: &str, folder: &RunFolder, run: &Run) -> RunRow {
    RunRow {
        here: true,
        line: line(&RunSummary::from_run(run), ""),
        ..for_run(id, folder, run)
    }
}

fn what(started: &StartSummary) -> String {
    let (classes, targets) = (started.classes, started.targets);
    describe(&started.task, &started.model, classes, targets)
}

/// "Image classification, ConvNet".
pub fn describe(task: &str, model: &str, classes: usize, targets: usize) -> String {
    let published = PretrainedFamily::all().map(ModelId::Pretrained);
    let images = ModelId::image_models().chain(published);
    let mut labels = images
        .map(|model| (model.name(), model.label()))
        .chain(TextSize::all().map(|size| (size.name(), size.label())));
    let label = labels.find(|(name, _)| *name == model);
    format!(
        "{}, {}",
        capital(&learned(task, classes, targets)),
        label.map_or(model, |(_, label)| label)
    )
}

/// "Training in the terminal, epoch 2 of 4", "Stopped by you at step 1,180".
fn line(summary: &RunSummary, place: &str) -> String {
    let step = format_count(summary.step);
    let epochs = summary.started.as_ref();
    let epochs = epochs.map_or(0, |started| started.epochs);
    let epoch = summary.epoch.max(1);
    match summary.status {
        RunStatus::Starting => format!("Starting{place}"),
        RunStatus::Training => format!("Training{place}, epoch {epoch} of {epochs}"),
        RunStatus::Paused => format!("Paused{place} at step {step}"),
        RunStatus::Finished => format!("Finished after {step} steps"),
        RunStatus::Stopped => match summary.stop_reason {
            Some(StopReason::Memory) => {
                format!("Stopped at step {step}: too little memory for too long")
            }
            Some(StopReason::Disk) => format!("Stopped at step {step}: the disk is nearly full"),
            _ => format!("Stopped by you at step {step}"),
        },
        RunStatus::Failed | RunStatus::EndedEarly => summary.message.clone(),
    }
}

fn changed_unix_ms(folder: &RunFolder) -> u64 {
    let changed = std::fs::metadata(folder.events_path()).and_then(|about| about.modified());
    let age = changed
        .ok()
        .and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    age.map_or(0, |age| age.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_names_task_and_model_as_shown() {
        let check = |task: &str, model: &str, targets: &[&str], shown: &str| {
            let started = StartSummary {
                task: task.into(),
                model: model.into(),
                targets: targets.len(),
                ..StartSummary::default()
            };
            assert_eq!(what(&started), shown);
        };
        let images = "image-classification";
        check(images, "convnet", &[], "Image classification, ConvNet");
        check(
            images,
            "vit_micro",
            &[],
            "Image classification, ViT-Micro/8",
        );
        let calories = &["calories"];
        check(images, "vit", calories, "Image regression, ViT");
        let compressed = "Token compression, Compress-Micro";
        check("token-compression", "compress_micro", &[], compressed);
        check(
            "text-classification",
            "text_mini",
            &[],
            "Text classification, Text-Mini",
        );
        check("", "of later", &[], ", of later");
    }
}
