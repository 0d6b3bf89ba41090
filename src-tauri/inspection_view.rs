//! Converts the inspection of a folder into what the window shows.

use crate::task_labels::learned;
use crate::window_types::{ClassView, CommandError, InspectionView, SkippedView};
use dataset::{Class, DetectedDataset, ImageInspection, SkippedFile, TextInspection};

/// Number of skipped rows that the window lists; the terminal lists all.
const ROWS_SHOWN: usize = 50;

/// The view of a folder, before it has an id, a version and a plan.
pub fn shown(found: &DetectedDataset) -> InspectionView {
    let task = found.task();
    let (view, numbers) = match found {
        DetectedDataset::Images(inspection) => (images(inspection), inspection.targets.len()),
        DetectedDataset::Texts(inspection) => (texts(inspection), 0),
    };
    InspectionView {
        task: learned(task.name(), view.classes.len(), numbers),
        sample: task.sample_noun().to_owned(),
        ..view
    }
}

fn images(inspection: &ImageInspection) -> InspectionView {
    let refused = |why: &String| CommandError::new("not_trainable", why.clone());
    InspectionView {
        name: inspection.name.clone(),
        path: inspection.folder.display().to_string(),
        refusal: inspection.refusal.as_ref().map(refused),
        classes: classes(&inspection.classes),
        samples: inspection.image_count(),
        bytes: inspection.bytes,
        typical_size: inspection.typical_size,
        skipped: skipped(&inspection.skipped).collect(),
        notes: inspection.notes.clone(),
        split: inspection.describe_split(),
        ..InspectionView::default()
    }
}

fn texts(inspection: &TextInspection) -> InspectionView {
    let refused = |why: &String| CommandError::new("not_trainable", why.clone());
    let rows = inspection.skipped_rows.iter().map(|rows| SkippedView {
        file: format!("{}, {}", rows.path.display(), rows.describe_lines()),
        reason: rows.reason.clone(),
    });
    let mut notes = vec![format!(
        "Task: {}, because {}",
        inspection.task.label(),
        inspection.reason
    )];
    notes.extend(inspection.columns.iter().map(|column| column.describe()));
    notes.extend(inspection.notes.clone());
    InspectionView {
        name: inspection.name.clone(),
        path: inspection.folder.display().to_string(),
        refusal: inspection.refusal.as_ref().map(refused),
        classes: classes(&inspection.classes),
        samples: inspection.source_count(),
        bytes: inspection.bytes,
        skipped: skipped(&inspection.skipped)
            .chain(rows.take(ROWS_SHOWN))
            .collect(),
        notes,
        split: inspection.describe_split(),
        ..InspectionView::default()
    }
}

fn classes(classes: &[Class]) -> Vec<ClassView> {
    let largest = classes.iter().map(Class::samples).max().unwrap_or(0);
    let view = |class: &Class| ClassView {
        name: class.name.clone(),
        count: class.samples(),
        // The same limit as in the note about imbalance.
        small: u64::from(class.samples()) * 2 < u64::from(largest),
    };
    classes.iter().map(view).collect()
}

fn skipped(files: &[SkippedFile]) -> impl Iterator<Item = SkippedView> {
    files.iter().map(|file| SkippedView {
        file: file.path.display().to_string(),
        reason: file.reason.clone(),
    })
}
