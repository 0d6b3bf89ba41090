//! A run as one row of the list. Knows words, not where runs lie.

use crate::view::RunRow;
use runlog::{Run, RunFolder, RunStatus, Started, StopReason, format_count};
use std::time::UNIX_EPOCH;
use trainer::{Family, ModelKind};

/// Points of the small loss curve.
const SPARK_POINTS: usize = 40;

/// Nothing more will happen unless somebody resumes it.
pub fn has_ended(status: RunStatus) -> bool {
    !matches!(
        status,
        RunStatus::Starting | RunStatus::Training | RunStatus::Paused
    )
}

/// The row of a run that trains elsewhere or not at all.
pub fn of(id: &str, folder: &RunFolder, run: &Run) -> RunRow {
    let (started, figures) = (run.started(), run.figures());
    let ended = has_ended(run.status());
    let saved = || {
        folder
            .checkpoints()
            .is_ok_and(|checkpoints| !checkpoints.is_empty())
    };
    RunRow {
        id: id.to_owned(),
        name: started.map_or_else(|| id.to_owned(), |started| started.name.clone()),
        what: started.map(what).unwrap_or_default(),
        status: run.status(),
        here: false,
        line: line(run, " in the terminal"),
        spark: run.spark(SPARK_POINTS),
        accuracy: figures.best_accuracy,
        seconds_left: figures.seconds_left,
        can_resume: ended && run.status() != RunStatus::Finished && saved(),
        unix_ms: changed_unix_ms(folder),
    }
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
    let task = started.task.replace('-', " ");
    let mut letters = task.chars();
    let task: String = letters
        .next()
        .map(|first| first.to_ascii_uppercase())
        .into_iter()
        .chain(letters)
        .collect();
    let published = Family::ALL.map(ModelKind::Published);
    let model = ModelKind::of_photographs()
        .chain(published)
        .find(|model| model.name() == started.model);
    format!(
        "{task}, {}",
        model.map_or(&*started.model, |model| model.label())
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
        RunStatus::Stopped => match run.stopped() {
            Some(StopReason::Memory) => format!("Stopped at step {step}: parked for too long"),
            Some(StopReason::Disk) => format!("Stopped at step {step}: the disk is nearly full"),
            _ => format!("Stopped by you at step {step}"),
        },
        RunStatus::Failed | RunStatus::EndedEarly => run.line().sentence.clone(),
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
        let check = |task: &str, model: &str, shown: &str| {
            let started = Started {
                task: task.into(),
                model: model.into(),
                ..Started::default()
            };
            assert_eq!(what(&started), shown);
        };
        check(
            "image-classification",
            "convnet",
            "Image classification, ConvNet",
        );
        check(
            "image-classification",
            "vit_micro",
            "Image classification, ViT-Micro/8",
        );
        check("", "of later", ", of later");
    }
}
