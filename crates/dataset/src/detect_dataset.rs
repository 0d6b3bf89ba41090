//! Detects the contents of a dropped folder or file, and the task that it is for. Images come
//! first: a table beside images describes them. The folder is listed once for all inspections.

use crate::decode_image::system_decoder;
use crate::detected_dataset::DetectedDataset;
use crate::duplicates::find_duplicates;
use crate::error::DatasetError;
use crate::folder_listing::{Entry, Listing, is_archive, resolve};
use crate::held_out_copies::note_copies;
use crate::image_inspection::ImageInspection;
use crate::inspect_images::inspect_listing;
use crate::model_folder::{self, is_model_file, is_model_folder};
use crate::options::{InspectOptions, TextOptions};
use crate::readers::FileFormat;
use crate::task::Task;
use crate::text::{TextInspection, inspect_texts};
use crate::types::ReadProgress;
use crate::user_messages;
use std::path::Path;

/// Detects the contents of a folder or a single file. `on_progress` is called on the calling thread
/// while files are read.
///
/// # Errors
/// The path cannot be read, or it is neither a folder nor a file of texts; there is no column or
/// class that the user names.
pub fn detect(
    path: &Path,
    options: &InspectOptions,
    texts: &TextOptions,
    on_progress: &dyn Fn(ReadProgress),
) -> Result<DetectedDataset, DatasetError> {
    let mut found = detect_all(path, options, texts, on_progress)?;
    let duplicates = if options.leave_duplicates_out {
        let all_files = found.sample_count();
        find_duplicates(&found, &|files| {
            on_progress(ReadProgress {
                files,
                all_files,
                compares: true,
                ..ReadProgress::default()
            });
            !options.stop.is_stopped()
        })?
    } else {
        if let DetectedDataset::Images(found) = &mut found
            && found.refusal.is_none()
        {
            note_copies(found, &options.stop, on_progress)?;
        }
        None
    };
    options.stop.check()?;
    found.select(&options.classes, duplicates.as_ref())
}

/// Detects everything, also the classes and duplicates that are left out.
fn detect_all(
    path: &Path,
    options: &InspectOptions,
    texts: &TextOptions,
    on_progress: &dyn Fn(ReadProgress),
) -> Result<DetectedDataset, DatasetError> {
    let texts = &TextOptions {
        task: texts.task.map(Task::detected_as),
        ..texts.clone()
    };
    let root = resolve(path)?;
    if root.is_dir() {
        return detect_folder(&root, options, texts, on_progress);
    }
    if is_model_file(&root) {
        let path = path.to_path_buf();
        return Err(DatasetError::Model { path });
    }
    let not_a_folder = || DatasetError::NotAFolder {
        path: path.to_path_buf(),
    };
    if !root.is_file() || texts.task == Some(Task::ImageClassification) {
        return Err(not_a_folder());
    }
    let listing =
        Listing::from_file(&root).map_err(|source| DatasetError::from_io(path, source))?;
    let found = inspect_texts(listing, options, texts, on_progress)?;
    let refused = || {
        if is_archive(&root) {
            let path = path.to_path_buf();
            return DatasetError::Archive { path };
        }
        not_a_folder()
    };
    found.map(DetectedDataset::Texts).ok_or_else(refused)
}

fn detect_folder(
    root: &Path,
    options: &InspectOptions,
    texts: &TextOptions,
    on_progress: &dyn Fn(ReadProgress),
) -> Result<DetectedDataset, DatasetError> {
    let listing = Listing::from_folder(root, &options.stop, on_progress)?;
    let archives = archives(&listing);
    let found = detect_listed(listing, options, texts, on_progress)?;
    Ok(match user_messages::still_packed(&archives) {
        Some(sentence) => refuse_packed(found, sentence),
        None => found,
    })
}

fn detect_listed(
    listing: Listing,
    options: &InspectOptions,
    texts: &TextOptions,
    on_progress: &dyn Fn(ReadProgress),
) -> Result<DetectedDataset, DatasetError> {
    let wants_images = texts.task == Some(Task::ImageClassification);
    let wants_texts = texts.task.is_some() && !wants_images || texts.text_column.is_some();
    let mut for_images = options.clone();
    if !wants_texts && for_images.table.label_column.is_none() {
        // The label column that the user names may be that of a table beside images.
        for_images
            .table
            .label_column
            .clone_from(&texts.label_column);
    }
    let images = inspect_listing(
        &listing,
        &for_images,
        system_decoder::installed,
        on_progress,
    )?;
    let wants_texts = wants_texts || texts.label_column.is_some() && images.table.is_none();
    if wants_images || !wants_texts && is_image_dataset(&images, &listing) {
        return Ok(DetectedDataset::Images(images));
    }
    if !wants_texts && is_model_folder(&listing.root) {
        // The model's vocabulary and readme are not a corpus.
        return Ok(DetectedDataset::Images(ImageInspection {
            refusal: Some(model_folder::REFUSAL.to_owned()),
            ..images
        }));
    }
    match inspect_texts(listing, options, texts, on_progress)? {
        // A readme among images that cannot be read is not a corpus.
        Some(found) if wants_texts || !is_minor(&found, &images) => {
            Ok(DetectedDataset::Texts(found))
        }
        _ => Ok(DetectedDataset::Images(images)),
    }
}

/// The names of the archives of a folder.
fn archives(listing: &Listing) -> Vec<String> {
    let files = listing.files.iter();
    let archives = files.filter(|file| is_archive(&file.path));
    archives.map(Entry::joined_names).collect()
}

/// Refuses with `sentence` what is beside archives, if there is nothing to train on: no image, or
/// only documents that are refused, such as a readme.
fn refuse_packed(mut found: DetectedDataset, sentence: String) -> DetectedDataset {
    match &mut found {
        DetectedDataset::Images(images) => {
            if images.files.is_empty()
                && images.skipped.is_empty()
                && !is_model_folder(&images.folder)
            {
                images.refusal = Some(sentence);
            }
        }
        DetectedDataset::Texts(texts) => {
            if texts.task == Task::LanguageModel && texts.refusal.is_some() {
                texts.refusal = Some(sentence);
            }
        }
    }
    found
}

/// Whether there are classes or regression targets, and not many more texts than images.
fn is_image_dataset(images: &ImageInspection, listing: &Listing) -> bool {
    let texts = listing
        .files
        .iter()
        .filter(|file| FileFormat::from_path(&file.path).is_some())
        .count() as u64;
    let can_learn = !images.classes.is_empty() || !images.targets.is_empty();
    can_learn && images.image_count() * 2 >= texts
}

/// Whether there are at most as many documents as unusable images.
fn is_minor(texts: &TextInspection, images: &ImageInspection) -> bool {
    texts.task == Task::LanguageModel && texts.samples.len() <= images.skipped.len()
}
