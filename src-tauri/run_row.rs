//! A run as one row of the list.

use crate::task_labels::{capital, learned};
use crate::window_types::RunRow;
use runlog::{
    Run, RunFolder, RunNotes, RunStatus, Started, StopReason, format_count, headline_metric,
};
use std::time::UNIX_EPOCH;
use trainer::{ModelId, PretrainedFamily, TextSize};

/// Number of points of the small loss curve.
const SPARK_POINTS: usize = 40;

/// Whether the run does nothing more unless it is resumed.
pub fn has_ended(status: RunStatus) -> bool {
    !matches!(
        status,
        RunStatus::Starting | RunStatus::Training | RunStatus::Paused
    )
}

/// The row of a run that no training of this process has.
pub fn of(id: &str, folder: &RunFolder, run: &Run) -> RunRow {
    let (started, figures) = (run.started(), run.figures());
    let ended = has_ended(run.status());
    let saved = || {
        folder
            .checkpoints()
            .is_ok_and(|checkpoints| !checkpoints.is_empty())
    };
    let notes = folder.notes();
    RunRow {
        id: id.to_owned(),
        name: name(id, &notes, run),
        note: notes.text,
        what: started.map(what).unwrap_or_default(),
        status: run.status(),
        here: false,
        line: line(run, " in the terminal"),
        spark: run.sparkline(SPARK_POINTS),
        result: headline_metric(run),
        seconds_left: figures.seconds_left,
        can_resume: ended && run.status() != RunStatus::Finished && saved(),
        started_unix_ms: started.map_or(0, |started| started.unix_ms),
        unix_ms: changed_unix_ms(folder),
    }
}

/// What the user calls the run, or the dataset's name.
pub fn name(id: &str, notes: &RunNotes, run: &Run) -> String {
    let own = Some(notes.name.clone()).filter(|name| !name.is_empty());
    own.or_else(|| Some(run.started()?.name.clone()))
        .unwrap_or_else(|| id.to_owned())
}

/// The row of a run that trains or trained in this process.
pub fn here(id: &str, folder: &RunFolder, run: &Run) -> RunRow {
    RunRow {
        here: true,
        line: line(run, ""),
        ..of(id, folder, run)
    }
}

/// "Image classification, ConvNet".
fn what(started: &Started) -> String {
    let published = PretrainedFamily::all().map(ModelId::Pretrained);
    let images = ModelId::image_models().chain(published);
    let mut labels = images
        .map(|model| (model.name(), model.label()))
        .chain(TextSize::all().map(|size| (size.name(), size.label())));
    let model = labels.find(|(name, _)| *name == started.model);
    let (classes, numbers) = (started.classes.len(), started.targets.len());
    format!(
        "{}, {}",
        capital(&learned(&started.task, classes, numbers)),
        model.map_or(&*started.model, |(_, label)| label)
    )
}

/// "Training in the terminal, epoch 2 of 4", "Stopped by you at step 1,180".
fn line(run: &Run, place: &str) -> String {
    let step = format_count(run.figures().step);
    let epochs = run.started().map_or(0, |started| started.epochs);
    let epoch = run.figures().epoch.max(1);
    match run.status() {
        RunStatus::Starting => format!("Starting{place}"),
        RunStatus::Training => format!("Training{place}, epoch {epoch} of {epochs}"),
        RunStatus::Paused => format!("Paused{place} at step {step}"),
        RunStatus::Finished => format!("Finished after {step} steps"),
        RunStatus::Stopped => match run.stop_reason() {
            Some(StopReason::Memory) => {
                format!("Stopped at step {step}: too little memory for too long")
            }
            Some(StopReason::Disk) => format!("Stopped at step {step}: the disk is nearly full"),
            _ => format!("Stopped by you at step {step}"),
        },
        RunStatus::Failed | RunStatus::EndedEarly => run.status_line().message.clone(),
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
            let started = Started {
                task: task.into(),
                model: model.into(),
                targets: targets.iter().map(|name| (*name).to_owned()).collect(),
                ..Started::default()
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
