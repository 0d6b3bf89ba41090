//! Converts the duplicates of a folder into what the data page shows.

use crate::data_page::{DataSampleView, described};
use crate::duplicate_search::Progress;
use crate::window_types::CommandError;
use dataset::{DetectedDataset, DuplicateGroup, Duplicates, SkippedFile};
use serde::Serialize;
use ts_rs::TS;

/// Groups that are listed.
const GROUPS_SHOWN: usize = 60;
/// Samples of a group that are listed.
const SAMPLES_SHOWN: usize = 6;
/// Images that cannot be decoded and are listed.
const UNREADABLE_SHOWN: usize = 100;

/// Answer of `data_duplicates`.
#[derive(Debug, Clone, Default, Serialize, TS)]
pub struct DuplicatesView {
    /// Samples read so far and all samples, while Ebb looks for duplicates.
    pub progress: Option<(u64, u64)>,
    /// Why Ebb cannot look for them.
    pub problem: Option<String>,
    /// What was found.
    pub found: Option<FoundDuplicates>,
}

/// The duplicates of a folder.
#[derive(Debug, Clone, Serialize, TS)]
pub struct FoundDuplicates {
    /// Groups of samples that are the same or nearly the same: those that lie across the split
    /// first, then the largest.
    pub groups: Vec<DuplicateGroupView>,
    /// Number of all groups.
    pub group_count: u64,
    /// Samples that are left out if one of each group stays.
    pub left_out_count: u64,
    /// Groups with samples in different parts of the split.
    pub across_count: u64,
    /// Images that cannot be decoded.
    pub unreadable: Vec<UnreadableView>,
    /// Number of all of them.
    pub unreadable_count: u64,
}

/// One group.
#[derive(Debug, Clone, Serialize, TS)]
pub struct DuplicateGroupView {
    /// Its first samples.
    pub samples: Vec<DataSampleView>,
    /// Number of its samples.
    pub count: u64,
    /// Whether all are the same; otherwise some are nearly the same.
    pub exact: bool,
    /// Whether they are in different parts of the split.
    pub across: bool,
}

/// An image that cannot be decoded.
#[derive(Debug, Clone, Serialize, TS)]
pub struct UnreadableView {
    /// Index of the sample.
    pub sample: u32,
    /// Its file, relative to the folder.
    pub file: String,
    /// What is wrong, and what to do.
    pub reason: String,
}

/// The view of a search.
///
/// # Errors
/// A file of texts has changed.
pub fn view(progress: &Progress) -> Result<DuplicatesView, CommandError> {
    Ok(match progress {
        Progress::Idle => DuplicatesView::default(),
        Progress::Reading(read, all) => DuplicatesView {
            progress: Some((*read, *all)),
            ..DuplicatesView::default()
        },
        Progress::Failed(why) => DuplicatesView {
            problem: Some(why.clone()),
            ..DuplicatesView::default()
        },
        Progress::Done(samples, found) => DuplicatesView {
            found: Some(shown(samples, found)?),
            ..DuplicatesView::default()
        },
    })
}

fn shown(samples: &DetectedDataset, found: &Duplicates) -> Result<FoundDuplicates, CommandError> {
    let crosses = |group: &&DuplicateGroup| group.crosses_splits(samples);
    let mut groups: Vec<&DuplicateGroup> = found.groups.iter().collect();
    groups.sort_by_key(|group| (!crosses(group), std::cmp::Reverse(group.samples.len())));
    let group_view = |group: &&DuplicateGroup| {
        let first = &group.samples[..group.samples.len().min(SAMPLES_SHOWN)];
        Ok(DuplicateGroupView {
            samples: described(samples, first)?,
            count: group.samples.len() as u64,
            exact: group.is_exact,
            across: crosses(group),
        })
    };
    let listed = groups.iter().take(GROUPS_SHOWN).map(group_view);
    let others = groups.iter().map(|group| group.samples.len() as u64 - 1);
    Ok(FoundDuplicates {
        groups: listed.collect::<Result<_, CommandError>>()?,
        group_count: groups.len() as u64,
        left_out_count: others.sum(),
        across_count: groups.iter().filter(|group| crosses(group)).count() as u64,
        unreadable: found
            .unreadable
            .iter()
            .take(UNREADABLE_SHOWN)
            .filter_map(|file| unreadable(samples, file))
            .collect(),
        unreadable_count: found.unreadable.len() as u64,
    })
}

fn unreadable(samples: &DetectedDataset, file: &SkippedFile) -> Option<UnreadableView> {
    let DetectedDataset::Images(found) = samples else {
        return None;
    };
    let sample = found.files.iter().position(|one| one.path == file.path)?;
    Some(UnreadableView {
        sample: sample as u32,
        file: file.path.display().to_string(),
        reason: file.reason.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window_types::tests::current_types;
    use dataset::{InspectOptions, TextOptions, detect, find_duplicates};
    use std::sync::Arc;

    #[test]
    fn the_types_of_duplicates_are_current() {
        current_types(DuplicatesView::export_all);
    }

    #[test]
    fn groups_across_the_split_come_first() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let write = |file: &str, rows: &str| {
            let text = format!("label,text\n{rows}");
            std::fs::write(folder.path().join(file), text).expect("it can be written");
        };
        write("train.csv", "a,one\na,one\na,one\nb,two\nb,three\nb,four\n");
        write("test.csv", "a,five\nb,three\n");
        write("val.csv", "a,six\nb,seven\n");
        let (options, texts) = (InspectOptions::default(), TextOptions::default());
        let found = detect(folder.path(), &options, &texts, &|_| {}).expect("it can be read");
        let duplicates = find_duplicates(&found, &|_| true).expect("it can be read");
        let duplicates = Arc::new(duplicates.expect("it is not cancelled"));
        let view = view(&Progress::Done(Arc::new(found), duplicates)).expect("nothing changed");
        let found = view.found.expect("the search is done");
        assert_eq!(
            (found.group_count, found.left_out_count, found.across_count),
            (2, 3, 1)
        );
        let texts: Vec<_> = found
            .groups
            .iter()
            .map(|group| (group.samples[0].text.as_deref(), group.count, group.across))
            .collect();
        assert_eq!(texts, [(Some("three"), 2, true), (Some("one"), 3, false)]);
        assert_eq!(found.groups[0].samples[0].split, "test");
    }

    #[test]
    fn an_image_that_cannot_be_decoded_is_shown_with_its_index() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (class, shade) in [("dark", 20), ("light", 200)] {
            std::fs::create_dir_all(folder.path().join(class)).expect("it can be made");
            for number in 0..3 {
                let color = image::Rgb([shade, number * 60, 90]);
                let file = folder.path().join(class).join(format!("{number}.png"));
                let image = image::RgbImage::from_pixel(40, 40, color);
                image.save(&file).expect("it can be written");
            }
        }
        let cut = folder.path().join("light/1.png");
        let bytes = std::fs::read(&cut).expect("it can be read");
        std::fs::write(&cut, &bytes[..60]).expect("it can be written");
        let (options, texts) = (InspectOptions::default(), TextOptions::default());
        let found = detect(folder.path(), &options, &texts, &|_| {}).expect("it can be read");
        let duplicates = find_duplicates(&found, &|_| true).expect("it can be read");
        let duplicates = Arc::new(duplicates.expect("it is not cancelled"));
        let view = view(&Progress::Done(Arc::new(found), duplicates)).expect("nothing changed");
        let found = view.found.expect("the search is done");
        assert_eq!((found.group_count, found.unreadable_count), (0, 1));
        let one = &found.unreadable[0];
        assert_eq!((one.sample, one.file.as_str()), (4, "light/1.png"));
    }
}
