//! Held-out samples that are exact copies of training samples: the same bytes of an image file, or
//! the same text. Their predictions are learned by heart, so the accuracy is too high.

use crate::detected_dataset::DetectedDataset;
use crate::disk_threads::DiskThreads;
use crate::error::DatasetError;
use crate::image_inspection::{ImageFile, ImageInspection};
use crate::open_file::open_file;
use crate::options::StopReading;
use crate::task::Task;
use crate::text::TextInspection;
use crate::types::{ReadProgress, Split, SplitKind};
use crate::user_messages;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant};

/// Files that are read at most: a second or two.
const MAX_FILES: usize = 20_000;
/// Bytes that are read at most.
const MAX_BYTES: u64 = 512 << 20;
/// No more files are read after this time, on a slow disk.
const MAX_TIME: Duration = Duration::from_secs(5);
/// Files that are read between two polls of the stop.
const FILES_PER_REPORT: usize = 256;
/// Bytes that are read at once.
const BUFFER_BYTES: usize = 64 << 10;

impl DetectedDataset {
    /// Number of held-out samples that are known to be exact copies of training samples. Of images,
    /// only as many are compared as can be read in a few seconds.
    pub fn held_out_copies(&self) -> u64 {
        match self {
            DetectedDataset::Images(found) => found.held_out_copies,
            DetectedDataset::Texts(found) => copies_of_texts(found),
        }
    }
}

/// Texts that Ebb holds out itself are never copies.
fn copies_of_texts(found: &TextInspection) -> u64 {
    if found.split != SplitKind::Given || found.task != Task::TextClassification {
        return 0;
    }
    let of = |split| {
        let samples = found.samples.iter();
        samples.filter(move |sample| sample.split == split)
    };
    let trained: HashSet<u64> = of(Split::Train).map(|sample| sample.hash).collect();
    of(Split::HeldOut)
        .filter(|sample| trained.contains(&sample.hash))
        .count() as u64
}

/// Counts the held-out images whose file is a copy of that of a training image, and adds a sentence
/// about them. Only files of equal size are read.
///
/// # Errors
/// The user stops the reading.
pub(crate) fn note_copies(
    found: &mut ImageInspection,
    stop: &StopReading,
    on_progress: &dyn Fn(ReadProgress),
) -> Result<(), DatasetError> {
    let chosen = choose_files(&found.files);
    let mut hashes = Vec::with_capacity(chosen.len());
    let threads = DiskThreads::default();
    let mut progress = ReadProgress {
        all_files: chosen.len() as u64,
        compares: true,
        ..ReadProgress::default()
    };
    let begun = Instant::now();
    for chunk in chosen.chunks(FILES_PER_REPORT) {
        stop.check()?;
        if begun.elapsed() > MAX_TIME {
            break;
        }
        hashes.extend(threads.map(chunk, |file| hash(&found.folder.join(&file.path)).ok()));
        progress.files += chunk.len() as u64;
        on_progress(progress);
    }
    let hashed = || chosen.iter().zip(&hashes);
    let trained: HashSet<(u64, u64)> = hashed()
        .filter(|(file, _)| file.split == Split::Train)
        .filter_map(|(file, hash)| Some((file.bytes, (*hash)?)))
        .collect();
    let is_copy = |(file, hash): &(&&ImageFile, &Option<u64>)| {
        let key = hash.map(|hash| (file.bytes, hash));
        file.split == Split::HeldOut && key.is_some_and(|key| trained.contains(&key))
    };
    found.held_out_copies = hashed().filter(is_copy).count() as u64;
    let note = user_messages::held_out_copies(found.held_out_copies);
    found.notes.extend(note);
    Ok(())
}

/// The files whose size occurs among both the training and the held-out images. If they are too
/// many, those of rare sizes come first: equal sizes are then rarely chance.
fn choose_files(files: &[ImageFile]) -> Vec<&ImageFile> {
    let compared = files.iter().filter(|file| file.split != Split::Test);
    let mut compared: Vec<&ImageFile> = compared.collect();
    compared.sort_by_key(|file| file.bytes);
    let crosses = |group: &&[&ImageFile]| {
        let has = |split| group.iter().any(|file| file.split == split);
        has(Split::Train) && has(Split::HeldOut)
    };
    let groups = compared.chunk_by(|a, b| a.bytes == b.bytes);
    let mut groups: Vec<&[&ImageFile]> = groups.filter(crosses).collect();
    groups.sort_by_key(|group| group.len());
    let (mut chosen, mut read) = (Vec::new(), 0u64);
    for group in groups {
        let bytes = group.iter().map(|file| file.bytes).sum::<u64>();
        read = read.saturating_add(bytes);
        if chosen.len() + group.len() > MAX_FILES || read > MAX_BYTES {
            break;
        }
        chosen.extend(group);
    }
    chosen
}

/// A hash of the content of a file.
fn hash(path: &Path) -> io::Result<u64> {
    let mut file = open_file(path)?;
    let (mut hasher, mut buffer) = (DefaultHasher::new(), vec![0; BUFFER_BYTES]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finish()),
            count => hasher.write(&buffer[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{InspectOptions, TextOptions, detect};
    use std::cell::Cell;
    use std::fs;
    use std::path::PathBuf;
    use tempfile::TempDir;

    /// Ten different training images of each class, and held-out images of which two are copies of
    /// training images, one of them under another class.
    fn folder() -> TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let save = |path: &str, number: u8| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("it can be created");
            let image = image::RgbImage::from_fn(8, 8, |x, y| {
                image::Rgb([number, 31 * x as u8, 7 * y as u8])
            });
            image.save(path).expect("it can be written");
        };
        for number in 0..10 {
            save(&format!("train/ant/{number}.png"), number);
            save(&format!("train/bee/{number}.png"), 100 + number);
        }
        save("val/ant/1.png", 3);
        save("val/ant/2.png", 50);
        save("val/bee/1.png", 4);
        save("val/bee/2.png", 60);
        folder
    }

    fn found(folder: &Path, options: &InspectOptions) -> DetectedDataset {
        detect(folder, options, &TextOptions::default(), &|_| {}).expect("it can be read")
    }

    #[test]
    fn copies_across_the_split_are_counted() {
        let folder = folder();
        let found = found(folder.path(), &InspectOptions::default());
        assert_eq!(found.held_out_copies(), 2);
        let DetectedDataset::Images(images) = &found else {
            panic!("it has images");
        };
        let sentence = "2 held-out images are copies of training images, so the accuracy will be too high. Leave duplicates out (--duplicates leave-out in the terminal).";
        assert!(
            images.notes.contains(&sentence.to_owned()),
            "{:?}",
            images.notes
        );
    }

    #[test]
    fn a_dataset_without_its_duplicates_has_no_copies() {
        let folder = folder();
        let all = found(folder.path(), &InspectOptions::default());
        let options = InspectOptions {
            leave_duplicates_out: true,
            ..InspectOptions::default()
        };
        let read = found(folder.path(), &options);
        assert_eq!(read.held_out_copies(), 0);
        let duplicates = crate::find_duplicates(&all, &|_| true).expect("it can be read");
        let selected = all.select(&options.classes, duplicates.as_ref());
        let selected = selected.expect("the classes are known");
        assert_eq!(selected.held_out_copies(), 0);
        let DetectedDataset::Images(images) = selected else {
            panic!("it has images");
        };
        assert!(
            !images
                .notes
                .iter()
                .any(|note| note.contains("are copies of"))
        );
    }

    #[test]
    fn the_comparison_shows_its_progress_and_can_be_stopped() {
        let folder = folder();
        let (stop, compared) = (StopReading::default(), Cell::new(0));
        let options = InspectOptions {
            stop: stop.clone(),
            ..InspectOptions::default()
        };
        let texts = TextOptions::default();
        let on_progress = |read: ReadProgress| {
            if read.compares {
                compared.set(read.files);
            }
        };
        detect(folder.path(), &options, &texts, &on_progress).expect("it can be read");
        assert!(compared.get() >= 4, "two images and their copies");
        let DetectedDataset::Images(mut images) = found(folder.path(), &options) else {
            panic!("it has images");
        };
        stop.stop();
        let stopped = note_copies(&mut images, &stop, &|_| {});
        assert!(matches!(stopped, Err(DatasetError::Stopped)));
    }

    #[test]
    fn files_of_rare_sizes_are_compared_first() {
        let file = |number: usize, bytes: u64, split: Split| ImageFile {
            path: PathBuf::from(format!("{number}.png")),
            label: 0,
            split,
            width: 8,
            height: 8,
            bytes,
            targets: Vec::new(),
        };
        let mut files = vec![
            file(0, 7, Split::Train),
            file(1, 7, Split::HeldOut),
            file(2, 8, Split::Train),
            file(3, 9, Split::HeldOut),
        ];
        let split = |number: usize| [Split::Train, Split::HeldOut][number % 2];
        files.extend((4..MAX_FILES + 4).map(|number| file(number, 5, split(number))));
        let chosen: Vec<u64> = choose_files(&files).iter().map(|file| file.bytes).collect();
        assert_eq!(chosen, [7, 7]);
    }
}
