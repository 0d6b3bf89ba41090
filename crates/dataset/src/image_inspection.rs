//! The result of inspecting a folder of images: values only. Paths are relative to the folder.
//! Displayed names are in composed Unicode (NFC), whatever the file system stores.

use crate::image_groups::BY_TIME;
use crate::split_lists::is_list;
use crate::target_statistics::TargetColumn;
use crate::types::{Class, Ignored, SkippedFile, Split, SplitKind};
use crate::user_messages::joined;
use format::{counted, format_count};
use std::path::PathBuf;

/// The contents of a folder of images, and the reason if it cannot be trained on.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageInspection {
    /// The folder: absolute, with links resolved.
    pub folder: PathBuf,
    /// The folder's last name, for display.
    pub name: String,
    /// Classes in label order, sorted by name.
    pub classes: Vec<Class>,
    /// Regression targets from a table beside the images; usually none.
    pub targets: Vec<TargetColumn>,
    /// The table that gives classes or targets.
    pub table: Option<PathBuf>,
    /// The rule that groups the images, and the number of groups.
    pub groups: Option<(String, u64)>,
    /// Images that can be used, sorted by composed path.
    pub files: Vec<ImageFile>,
    /// Files and folders that were left out, each with its reason.
    pub skipped: Vec<SkippedFile>,
    /// Files that were left out without a message.
    pub ignored: Ignored,
    /// Median width and height of the images as stored, in pixels.
    pub typical_size: Option<(u32, u32)>,
    /// Bytes of the images on disk.
    pub bytes: u64,
    /// Why the folder cannot be trained on, and how to fix that.
    pub refusal: Option<String>,
    /// Why a mirrored image does not show its class; `None` if it does.
    pub mirror_refusal: Option<String>,
    /// Sentences about imbalance, classes missing in a split, or unsupported formats.
    pub notes: Vec<String>,
    /// Held-out images that are copies of training images, as far as they were compared.
    pub held_out_copies: u64,
    /// How the held-out images were chosen.
    pub split: SplitKind,
    /// The folder's own train, validation and test folders, or the lists of their images; empty if
    /// it has none.
    pub split_folders: Vec<String>,
}

/// One image that can be used.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageFile {
    /// Relative path as the file system spells it.
    pub path: PathBuf,
    /// Index of its class; 0 without classes.
    pub label: u32,
    /// The set that it belongs to.
    pub split: Split,
    /// Width in pixels as stored, before any EXIF orientation is applied.
    pub width: u32,
    /// Height in pixels as stored, before any EXIF orientation is applied.
    pub height: u32,
    /// Bytes on disk.
    pub bytes: u64,
    /// Its value for each of `ImageInspection::targets`; `None` if the value is missing.
    pub targets: Vec<Option<f64>>,
}

impl ImageInspection {
    /// Number of images that can be used.
    pub fn image_count(&self) -> u64 {
        self.files.len() as u64
    }

    /// Number of images in one split.
    pub fn count(&self, split: Split) -> u64 {
        self.files.iter().filter(|f| f.split == split).count() as u64
    }

    /// Whether images are grouped by the times in their names, without being asked to.
    pub fn is_grouped_by_time(&self) -> bool {
        let by = self.groups.as_ref().map(|(by, _)| by.as_str());
        by == Some(BY_TIME)
    }

    /// "20 % of each class, 243 images, chosen by seed 7" or "from the folders train and val".
    pub fn describe_split(&self) -> String {
        if self.count(Split::HeldOut) == 0 {
            return match self.count(Split::Test) {
                0 => "nothing, so no accuracy can be measured".to_owned(),
                test => format!(
                    "nothing, so no accuracy can be measured; {} reserved in the test folder",
                    counted(test, "image is", "images are")
                ),
            };
        }
        let SplitKind::Seeded { fraction, seed } = self.split else {
            if self.split_folders.is_empty() {
                return "from the table's split column".to_owned();
            }
            let are_lists = self.split_folders.iter().all(|name| is_list(name));
            let kind = if are_lists { "lists" } else { "folders" };
            return format!("from the {kind} {}", joined(&self.split_folders));
        };
        let percent = (fraction * 1000.0).round() / 10.0;
        let held_out = format_count(self.count(Split::HeldOut));
        let share = match (&self.groups, self.classes.is_empty()) {
            (Some((by, _)), _) => format!("about {percent} %, grouped by {by}"),
            (None, true) => format!("{percent} %"),
            (None, false) => format!("{percent} % of each class"),
        };
        let chosen = format!("{share}, {held_out} images, chosen by seed {seed}");
        match self.count(Split::Test) {
            0 => chosen,
            test => format!(
                "{chosen}; {} reserved in the test folder",
                counted(test, "image is", "images are")
            ),
        }
    }
}
