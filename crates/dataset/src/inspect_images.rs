//! Inspects a folder of images: classifies every listed file by its header, reads classes and
//! splits from names and a table, and gives the reason if the folder cannot be trained on. Decodes
//! nothing and writes nothing.

use crate::decode_image::system_decoder::{self, Decoders};
use crate::disk_threads::DiskThreads;
use crate::error::DatasetError;
use crate::folder_layout::{Layout, lay_out};
use crate::folder_listing::{Entry, Listing, resolve};
use crate::horizontal_flip_check::reason_not_to_mirror;
use crate::identify_image::{ImageFileKind, classify};
use crate::image_classes_and_splits::{self, ListedImages, PlacedImage};
use crate::image_inspection::{ImageFile, ImageInspection};
use crate::image_table::{self, ImageTable};
use crate::options::{InspectOptions, StopReading, TableOptions};
use crate::split_lists;
use crate::target_statistics::TargetColumn;
use crate::types::{Class, Ignored, ReadProgress, SkippedFile, Split, SplitKind};
use crate::user_messages::{self, ImageCounts};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Headers that are read between two calls of `on_progress`.
const FILES_PER_REPORT: usize = 1024;

/// The noun for one sample.
const NOUN: &str = "image";

/// Inspects a folder of images. `on_progress` is called on the calling thread while files are read.
///
/// # Errors
/// The folder cannot be listed, or its table has no column that the user names.
pub fn inspect_images(
    folder: &Path,
    options: &InspectOptions,
    on_progress: &dyn Fn(ReadProgress),
) -> Result<ImageInspection, DatasetError> {
    inspect_with(folder, options, system_decoder::installed, on_progress)
}

/// Inspects a folder with other decoders than this machine's.
pub(crate) fn inspect_with(
    folder: &Path,
    options: &InspectOptions,
    decoders: Decoders,
    on_progress: &dyn Fn(ReadProgress),
) -> Result<ImageInspection, DatasetError> {
    let root = resolve(folder)?;
    if !root.is_dir() {
        return Err(DatasetError::NotAFolder {
            path: folder.to_path_buf(),
        });
    }
    let listing = Listing::from_folder(&root, &options.stop, on_progress)?;
    inspect_listing(&listing, options, decoders, on_progress)
}

/// Inspects the images of a listed folder.
pub(crate) fn inspect_listing(
    listing: &Listing,
    options: &InspectOptions,
    decoders: Decoders,
    on_progress: &dyn Fn(ReadProgress),
) -> Result<ImageInspection, DatasetError> {
    let mut left_out = LeftOut::from_listing(listing);
    let images = classify_all(listing, decoders, &mut left_out, &options.stop, on_progress)?;
    let (mut layout, list_note) = lay_out_splits(listing, &images.entries, &mut left_out);
    let table = read_table(listing, &images.entries, &options.table, &mut left_out)?;
    let groups = table.as_ref().and_then(|table| {
        image_table::apply(&mut layout, table, &options.table);
        image_table::group_images(table, &images.entries, &options.table)
    });
    let split = choose_split(&layout, options);
    let listed = ListedImages {
        entries: &images.entries,
        sizes: &images.sizes,
        table: table.as_ref(),
        groups: groups.as_ref(),
    };
    let placed = place(&listed, &layout, split, &mut left_out.skipped);
    let strays = take_strays(&mut layout);
    let (groups, group_note) = count_groups(&listed, &placed).unzip();
    let (classes, mut files) =
        image_classes_and_splits::label(&listed, placed, &mut left_out.skipped);
    let (targets, mut notes) = select_targets(table.as_ref(), &mut files);
    notes.extend(list_note.into_iter().chain(group_note));
    notes.extend(image_notes(listing, &images, &classes, split));
    let counts = ImageCounts {
        classes: &classes,
        strays,
        skipped: left_out.skipped.len() as u64,
        entries: listing.entry_count(),
        split_folders: &layout.split_folders,
        has_train: layout.splits.contains(&Split::Train),
    };
    let mirror_refusal = reason_not_to_mirror(&listing.root, &classes, &files, decoders);
    notes.extend(mirror_refusal.as_ref().map(user_messages::not_mirrored));
    left_out.skipped.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(ImageInspection {
        folder: listing.root.clone(),
        name: listing.name.clone(),
        typical_size: typical_size(&files),
        bytes: files.iter().map(|f| f.bytes).sum(),
        refusal: refusal(&counts, &files, &targets),
        mirror_refusal,
        notes,
        held_out_copies: 0,
        classes,
        targets,
        table: table.map(|table| PathBuf::from(table.file)),
        groups,
        files,
        skipped: left_out.skipped,
        ignored: left_out.ignored,
        split,
        split_folders: layout.split_folders,
    })
}

/// What the notes say of the classes and of the files.
fn image_notes(
    listing: &Listing,
    images: &Images,
    classes: &[Class],
    split: SplitKind,
) -> Vec<String> {
    let mut notes = class_notes(classes, split);
    notes.extend(describe_files(listing, images));
    notes
}

/// The classes and splits by names and by lists, with a sentence about the lists.
fn lay_out_splits(
    listing: &Listing,
    images: &[&Entry],
    left_out: &mut LeftOut,
) -> (Layout, Option<String>) {
    let folders: Vec<&[String]> = images.iter().map(|image| &*image.folders).collect();
    let mut layout = lay_out(&folders);
    let used = split_lists::apply(&mut layout, listing, images);
    let note = used.map(|used| {
        let ignored = &mut left_out.ignored;
        ignored.other = ignored.other.saturating_sub(used.files);
        used.note
    });
    (layout, note)
}

/// Places the images and holds some of them out, if the folder does not do so itself.
fn place(
    images: &ListedImages,
    layout: &Layout,
    split: SplitKind,
    skipped: &mut Vec<SkippedFile>,
) -> Vec<PlacedImage> {
    let mut placed = image_classes_and_splits::place(images, layout, skipped);
    if let SplitKind::Seeded { fraction, seed } = split {
        image_classes_and_splits::hold_out(images, &mut placed, fraction, seed);
    }
    placed
}

/// What the images are grouped by and the number of groups, with a sentence about them.
fn count_groups(images: &ListedImages, placed: &[PlacedImage]) -> Option<((String, u64), String)> {
    let by = &images.groups?.by;
    let (count, note) = image_table::describe_groups(by, &images.groups_and_splits(placed));
    Some(((by.clone(), count), note))
}

/// Counts the images without a class, and frees the list of all places: of millions of images, each
/// list takes much memory.
fn take_strays(layout: &mut Layout) -> u64 {
    let placements = std::mem::take(&mut layout.placements);
    placements.iter().filter(|place| place.is_err()).count() as u64
}

/// Sentences about files that cannot be used and folders without images.
fn describe_files(listing: &Listing, images: &Images) -> Vec<String> {
    // Only a name that differs from the last one: a list of all takes much memory.
    let mut folders: Vec<&[String]> = Vec::new();
    for image in &images.entries {
        if folders.last() != Some(&&*image.folders) {
            folders.push(&image.folders);
        }
    }
    let unsupported = user_messages::unsupported_formats(&images.unsupported);
    let empty = user_messages::folders_without_images(&empty_folders(listing, &folders));
    unsupported.into_iter().chain(empty).collect()
}

/// Files that are not used.
struct LeftOut {
    skipped: Vec<SkippedFile>,
    ignored: Ignored,
}

impl LeftOut {
    fn from_listing(listing: &Listing) -> Self {
        LeftOut {
            skipped: listing.skipped.clone(),
            ignored: listing.ignored,
        }
    }
}

/// The images of a folder, by their headers.
struct Images<'a> {
    /// Images that can be used.
    entries: Vec<&'a Entry>,
    /// Width and height of each, in pixels as stored.
    sizes: Vec<(u32, u32)>,
    /// Number of files in each unsupported image format.
    unsupported: BTreeMap<&'static str, u64>,
}

/// Classifies every listed file in parallel, until the user stops it.
fn classify_all<'a>(
    listing: &'a Listing,
    decoders: Decoders,
    left_out: &mut LeftOut,
    stop: &StopReading,
    on_progress: &dyn Fn(ReadProgress),
) -> Result<Images<'a>, DatasetError> {
    let mut images = Images {
        // Lists that grow leave gaps in the memory.
        entries: Vec::with_capacity(listing.files.len()),
        sizes: Vec::with_capacity(listing.files.len()),
        unsupported: BTreeMap::new(),
    };
    let mut progress = ReadProgress {
        all_files: listing.files.len() as u64,
        ..ReadProgress::default()
    };
    let threads = DiskThreads::default();
    for chunk in listing.files.chunks(FILES_PER_REPORT) {
        stop.check()?;
        let classes = threads.map(chunk, |entry| {
            classify(&listing.root.join(&entry.path), entry.bytes, decoders)
        });
        for (entry, class) in chunk.iter().zip(classes) {
            match class {
                ImageFileKind::Image { width, height } => {
                    images.entries.push(entry);
                    images.sizes.push((width, height));
                }
                ImageFileKind::Refused { reason, format } => {
                    if let Some(name) = format {
                        *images.unsupported.entry(name).or_default() += 1;
                    }
                    left_out.skipped.push(entry.skip(reason));
                }
                ImageFileKind::Other => left_out.ignored.other += 1,
            }
        }
        progress.files += chunk.len() as u64;
        on_progress(progress);
    }
    Ok(images)
}

/// Reads the table beside the images, and removes it from the list of ignored files.
fn read_table(
    listing: &Listing,
    images: &[&Entry],
    options: &TableOptions,
    left_out: &mut LeftOut,
) -> Result<Option<ImageTable>, DatasetError> {
    let mut skipped = Vec::new();
    let table = image_table::read(listing, images, options, &mut skipped)?;
    let table = table.filter(|table| !table.targets.is_empty() || table.label.is_some());
    if let Some(table) = &table {
        let mut named: BTreeSet<PathBuf> = skipped.iter().map(|file| file.path.clone()).collect();
        named.insert(PathBuf::from(&table.file));
        let ignored = &mut left_out.ignored;
        ignored.other = ignored.other.saturating_sub(named.len() as u64);
        left_out.skipped.extend(skipped);
    }
    Ok(table)
}

/// The dataset's own split, or else a seeded one.
fn choose_split(layout: &Layout, options: &InspectOptions) -> SplitKind {
    if layout.splits.contains(&Split::HeldOut) {
        return SplitKind::Given;
    }
    SplitKind::Seeded {
        fraction: options.fraction(),
        seed: options.seed,
    }
}

/// The regression targets, and sentences about the table.
fn select_targets(
    table: Option<&ImageTable>,
    files: &mut [ImageFile],
) -> (Vec<TargetColumn>, Vec<String>) {
    let Some(table) = table else {
        return (Vec::new(), Vec::new());
    };
    let selected = image_table::select_targets(&table.targets, files);
    let trained = files.iter().filter(|file| file.split == Split::Train);
    let mut notes = table.notes.clone();
    notes.extend(image_table::describe_targets(
        &selected.columns,
        trained.count() as u64,
    ));
    notes.extend(selected.notes);
    (selected.columns, notes)
}

/// Why the folder cannot be trained on. Regression targets can be learned without classes.
fn refusal(counts: &ImageCounts, files: &[ImageFile], targets: &[TargetColumn]) -> Option<String> {
    if targets.is_empty() || !counts.classes.is_empty() {
        return user_messages::refusal(counts);
    }
    let trained = files.iter().filter(|file| file.split == Split::Train);
    (trained.count() < 2).then(|| {
        "Too few training images have regression targets. Add images, and a table row for each new image."
            .to_owned()
    })
}

/// The topmost folders without a readable image at or below them. `with_images` are the names of
/// the folders that readable images are in.
fn empty_folders(listing: &Listing, with_images: &[&[String]]) -> Vec<String> {
    let full: BTreeSet<&[String]> = with_images
        .iter()
        .flat_map(|names| (0..=names.len()).map(|depth| &names[..depth]))
        .collect();
    let is_full = |names: &[String]| names.is_empty() || full.contains(names);
    listing
        .folders
        .iter()
        .filter(|folder| !is_full(&folder.all_names()) && is_full(&folder.folders))
        .map(Entry::joined_names)
        .collect()
}

/// Sentences about the classes: imbalance, and classes without held-out or test images.
pub(crate) fn class_notes(classes: &[Class], split: SplitKind) -> Vec<String> {
    let held_out = match split {
        SplitKind::Given => {
            user_messages::missing_in("the held-out folder", NOUN, classes, |c| c.held_out)
        }
        SplitKind::Seeded { .. } => user_messages::single_samples(NOUN, classes),
    };
    // Nothing is missing if there is no test folder at all.
    let test = user_messages::missing_in("the test folder", NOUN, classes, |c| c.test);
    let notes = [user_messages::imbalance(NOUN, classes), held_out, test];
    notes.into_iter().flatten().collect()
}

/// Median width and median height.
pub(crate) fn typical_size(files: &[ImageFile]) -> Option<(u32, u32)> {
    let median = |side: fn(&ImageFile) -> u32| {
        let mut sides: Vec<u32> = files.iter().map(side).collect();
        sides.sort_unstable();
        sides.get(sides.len() / 2).copied()
    };
    Some((median(|f| f.width)?, median(|f| f.height)?))
}
