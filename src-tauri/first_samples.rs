//! The samples that the plan page shows beside the settings: a few images or texts of different
//! classes, each with its label.

use crate::data_choices::DataChoices;
use crate::data_page::{DataSampleView, described};
use crate::window_types::CommandError;
use dataset::{Class, DetectedDataset, ImageFile, ImageInspection, TextInspection, TextSample};
use serde::Serialize;
use std::cmp::Reverse;
use ts_rs::TS;

/// Images that are shown.
const IMAGES: usize = 8;
/// Texts that are shown.
const TEXTS: usize = 3;
/// A text is found by reading its file up to it. Of larger files, only some of the first rows are
/// shown.
const LARGE_FILE_BYTES: u64 = 64 << 20;
/// Rows of a large file that may be shown.
const LARGE_FILE_ROWS: u32 = 1000;
/// Most regression targets in a label.
const TARGETS: usize = 4;

/// One sample with its label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, TS)]
pub struct FirstSampleView {
    /// The sample.
    pub sample: DataSampleView,
    /// The class that it is trained as, or the values of its regression targets; empty for a
    /// document.
    pub label: String,
}

/// Up to eight images or three texts of different classes, those of the largest class first.
///
/// # Errors
/// A file of texts has changed.
pub fn choose(
    found: &DetectedDataset,
    choices: &DataChoices,
) -> Result<Vec<FirstSampleView>, CommandError> {
    let chosen = match found {
        DetectedDataset::Images(found) => {
            let labels = found.files.iter().map(|file| Some(file.label));
            of_different_classes(labels, &used_classes(&found.classes, choices), IMAGES)
        }
        DetectedDataset::Texts(found) => {
            let label = |sample: &TextSample| is_found_fast(found, sample).then_some(sample.label);
            let labels = found.samples.iter().map(label);
            of_different_classes(labels, &used_classes(&found.classes, choices), TEXTS)
        }
    };
    let view = |sample: DataSampleView| FirstSampleView {
        label: label(found, choices, sample.sample as usize),
        sample,
    };
    Ok(described(found, &chosen)?.into_iter().map(view).collect())
}

/// Labels of the classes that are not left out, the largest first; without classes, the label of
/// all samples.
fn used_classes(classes: &[Class], choices: &DataChoices) -> Vec<u32> {
    if classes.is_empty() {
        return vec![0];
    }
    let mut used: Vec<(u32, &Class)> = (0..).zip(classes).collect();
    used.retain(|(_, class)| !choices.leave_out_classes.contains(&class.name));
    used.sort_by_key(|(_, class)| Reverse(class.samples()));
    used.into_iter().map(|(label, _)| label).collect()
}

/// Whether a text can be read without reading much of a large file. Only the first part of a
/// document that was cut counts.
fn is_found_fast(found: &TextInspection, sample: &TextSample) -> bool {
    let file = found.files.get(sample.file as usize);
    let is_small = file.is_some_and(|file| file.bytes <= LARGE_FILE_BYTES);
    // The first row may be a document as long as the file. A file with a second row has rows.
    sample.start == 0 && (is_small || (1..LARGE_FILE_ROWS).contains(&sample.row))
}

/// Indices of up to `count` samples, the same number of each class if there are enough. `labels`
/// has the label of each sample that may be chosen. `order` has the labels of the classes; the
/// samples are returned in this order.
fn of_different_classes(
    labels: impl Iterator<Item = Option<u32>>,
    order: &[u32],
    count: usize,
) -> Vec<u32> {
    let classes = order.iter().max().map_or(0, |label| *label as usize + 1);
    let mut of_class: Vec<Vec<u32>> = vec![Vec::new(); classes];
    for (index, label) in (0..).zip(labels) {
        let samples = label.and_then(|label| of_class.get_mut(label as usize));
        if let Some(samples) = samples.filter(|samples| samples.len() < count) {
            samples.push(index);
        }
    }
    let of_class = &of_class;
    let in_round = move |round: usize| {
        let classes = order.iter().enumerate();
        classes.filter_map(move |(place, label)| {
            let index = of_class[*label as usize].get(round)?;
            Some((place, *index))
        })
    };
    let mut chosen: Vec<(usize, u32)> = (0..count).flat_map(in_round).take(count).collect();
    chosen.sort_by_key(|(place, _)| *place);
    chosen.into_iter().map(|(_, index)| index).collect()
}

fn label(found: &DetectedDataset, choices: &DataChoices, sample: usize) -> String {
    let (classes, label) = match found {
        DetectedDataset::Images(found) => {
            let file = found.files.get(sample);
            if let Some(file) = file.filter(|_| !found.targets.is_empty()) {
                return describe_targets(found, file);
            }
            (&found.classes, file.map(|file| file.label))
        }
        DetectedDataset::Texts(found) => {
            let sample = found.samples.get(sample);
            (&found.classes, sample.map(|sample| sample.label))
        }
    };
    let class = label.and_then(|label| classes.get(label as usize));
    class.map_or_else(String::new, |class| trained_as(class, choices))
}

/// "mass_g 120, height_cm 8.5".
fn describe_targets(found: &ImageInspection, file: &ImageFile) -> String {
    let values = found.targets.iter().zip(&file.targets);
    let known = values.filter_map(|(target, value)| Some(format!("{} {}", target.name, (*value)?)));
    known.take(TARGETS).collect::<Vec<_>>().join(", ")
}

/// The name of the class, or of the one that it is merged into.
fn trained_as(class: &Class, choices: &DataChoices) -> String {
    let mut merged = choices.merge_classes.iter();
    let merged = merged.find(|merged| merged.classes.contains(&class.name));
    merged.map_or(&class.name, |merged| &merged.name).clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_choices::MergeView;
    use crate::window_types::tests::current_types;
    use dataset::{InspectOptions, TextOptions, detect};
    use std::path::Path;

    fn found(path: &Path) -> DetectedDataset {
        let (options, texts) = (InspectOptions::default(), TextOptions::default());
        detect(path, &options, &texts, &|_| {}).expect("it can be read")
    }

    #[test]
    fn the_types_of_the_first_samples_are_current() {
        current_types(FirstSampleView::export_all);
    }

    #[test]
    fn each_class_is_shown_and_small_classes_leave_room_to_others() {
        // Nine samples of class 0, one of class 1, three of class 2.
        let labels = [0, 0, 0, 0, 1, 2, 2, 2, 0, 0, 0, 0, 0].map(Some);
        let chosen = of_different_classes(labels.into_iter(), &[0, 2, 1], 8);
        assert_eq!(chosen, [0, 1, 2, 3, 5, 6, 7, 4]);
        let two = of_different_classes(labels.into_iter(), &[0, 2, 1], 2);
        assert_eq!(two, [0, 5]);
        let none = of_different_classes([None, Some(7)].into_iter(), &[0], 8);
        assert_eq!(none, [0_u32; 0]);
        assert!(of_different_classes([Some(0)].into_iter(), &[], 8).is_empty());
    }

    #[test]
    fn texts_are_shown_with_the_class_that_they_are_trained_as() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let rows = "ham,See you tonight\nspam,You have won\nnews,Rain on Monday\n".repeat(4);
        std::fs::write(
            folder.path().join("sms.csv"),
            format!("label,text\n{rows}ham,ok\n"),
        )
        .expect("it can be written");
        let found = found(folder.path());
        let choices = DataChoices {
            leave_out_classes: vec!["news".to_owned()],
            merge_classes: vec![MergeView {
                name: "other".to_owned(),
                classes: vec!["spam".to_owned()],
            }],
            ..DataChoices::default()
        };
        let views = choose(&found, &choices).expect("the file is unchanged");
        let shown: Vec<_> = views
            .iter()
            .map(|view| (view.sample.text.as_deref(), view.label.as_str()))
            .collect();
        let ham = (Some("See you tonight"), "ham");
        assert_eq!(shown, [ham, ham, (Some("You have won"), "other")]);
    }

    #[test]
    fn a_document_has_no_label_and_is_shown_once() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let lines: String = (0..4000)
            .map(|i| format!("Line {i} of a book.\n"))
            .collect();
        std::fs::write(folder.path().join("book.txt"), lines).expect("it can be written");
        let views = choose(&found(folder.path()), &DataChoices::default());
        let views = views.expect("the file is unchanged");
        assert_eq!(views.len(), 1);
        assert_eq!(
            (views[0].label.as_str(), views[0].sample.file.as_str()),
            ("", "book.txt")
        );
    }

    #[test]
    fn images_of_different_classes_are_shown() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (class, count) in [("jay", 9), ("owl", 3)] {
            let class = folder.path().join(class);
            std::fs::create_dir_all(&class).expect("it can be made");
            for number in 0..count {
                let image = image::RgbImage::from_pixel(24, 24, image::Rgb([number * 20, 60, 200]));
                let file = class.join(format!("{number}.png"));
                image.save(file).expect("it can be written");
            }
        }
        let views = choose(&found(folder.path()), &DataChoices::default());
        let views = views.expect("images need no reading");
        let labels: Vec<_> = views.iter().map(|view| view.label.as_str()).collect();
        assert_eq!(
            labels,
            ["jay", "jay", "jay", "jay", "jay", "owl", "owl", "owl"]
        );
    }
}
