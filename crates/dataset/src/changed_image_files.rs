//! Compares the images of a run with its folder, which may have changed since the run began.

use crate::folder_listing::{Entry, Listing};
use crate::identify_image::has_image_extension;
use crate::image_inspection::ImageInspection;
use crate::options::StopReading;
use crate::user_messages::listed;
use format::counted;
use std::collections::{HashMap, HashSet};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What has changed in the folder of `images` since the time `since`: images of another size or
/// written since then, missing images and new ones, as the part of a sentence. `None` if nothing
/// has changed, or if the folder cannot be listed.
///
/// Opens no file.
pub fn describe_image_changes(images: &ImageInspection, since: SystemTime) -> Option<String> {
    let listing = Listing::from_folder(&images.folder, &StopReading::default(), &|_| {}).ok()?;
    let now: HashMap<&Path, u64> = listing
        .files
        .iter()
        .map(|file| (&*file.path, file.bytes))
        .collect();
    let (mut changed, mut missing) = (Vec::new(), Vec::new());
    for file in &images.files {
        match now.get(file.path.as_path()) {
            Some(bytes)
                if *bytes == file.bytes
                    && !was_written_after(&listing.root.join(&file.path), since) => {}
            Some(_) => changed.push(file.path.display().to_string()),
            None => missing.push(file.path.display().to_string()),
        }
    }
    let parts = [
        described(&changed, "image was replaced", "images were replaced"),
        described(&missing, "image is missing", "images are missing"),
        described(
            &added(images, &listing, since),
            "image is new",
            "images are new",
        ),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// "2 images are new (owl/7.png, owl/8.png)"; `None` without names.
fn described(names: &[String], one: &str, many: &str) -> Option<String> {
    (!names.is_empty()).then(|| {
        format!(
            "{} ({})",
            counted(names.len() as u64, one, many),
            listed(names)
        )
    })
}

/// The images that were put into the folder after `since`. Older files that are not in `images`
/// were left out for a reason.
fn added(images: &ImageInspection, listing: &Listing, since: SystemTime) -> Vec<String> {
    let known: HashSet<&Path> = images
        .files
        .iter()
        .map(|file| file.path.as_path())
        .collect();
    let is_new = |file: &&Entry| {
        let is_image = !known.contains(&*file.path) && has_image_extension(&file.path);
        is_image
            && listing
                .root
                .join(&file.path)
                .metadata()
                .is_ok_and(|metadata| arrived(&metadata) > since)
    };
    let added = listing.files.iter().filter(is_new);
    added.map(|file| file.path.display().to_string()).collect()
}

/// Whether the content of a file was written after `since`. A copy that keeps its time is noticed
/// by its size.
fn was_written_after(path: &Path, since: SystemTime) -> bool {
    let modified = path.metadata().and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| modified > since)
}

/// When a file got its name or its content, whichever is later. Unlike the time of its last change,
/// this is not copied with a file.
fn arrived(metadata: &Metadata) -> SystemTime {
    let seconds = u64::try_from(metadata.ctime()).unwrap_or_default();
    let nanoseconds = u32::try_from(metadata.ctime_nsec()).unwrap_or_default();
    UNIX_EPOCH + Duration::new(seconds, nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect_images::inspect_images;
    use crate::options::InspectOptions;
    use std::fs;

    #[test]
    fn an_image_of_equal_length_is_noticed_by_its_time() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for name in ["jay/0.png", "jay/1.png", "owl/0.png", "owl/1.png"] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("it has one")).expect("it can be created");
            image::RgbImage::new(8, 8)
                .save(path)
                .expect("it can be saved");
        }
        let found = inspect_images(folder.path(), &InspectOptions::default(), &|_| {})
            .expect("it can be read");
        let path = folder.path().join("owl/1.png");
        let mut bytes = fs::read(&path).expect("it is there");
        let since = SystemTime::now() + Duration::from_secs(1);
        assert_eq!(describe_image_changes(&found, since), None);
        *bytes.last_mut().expect("it is not empty") ^= 1;
        fs::write(&path, bytes).expect("it can be written");
        let file = fs::File::options().write(true).open(&path);
        let later = since + Duration::from_secs(1);
        file.and_then(|file| file.set_modified(later))
            .expect("it can be set");
        assert_eq!(
            describe_image_changes(&found, since).as_deref(),
            Some("1 image was replaced (owl/1.png)")
        );
    }

    #[test]
    fn replaced_missing_and_new_images_are_named() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for class in ["jay", "owl"] {
            fs::create_dir(folder.path().join(class)).expect("it can be created");
            for number in 0..4 {
                let image = image::RgbImage::new(8 + number, 8);
                let path = folder.path().join(format!("{class}/{number}.png"));
                image.save(path).expect("it can be saved");
            }
        }
        let at = |name: &str| folder.path().join(name);
        fs::write(at("owl/damaged.png"), "no image").expect("it can be written");
        let found = inspect_images(folder.path(), &InspectOptions::default(), &|_| {})
            .expect("it can be read");
        let since = fs::metadata(at("owl/damaged.png")).expect("it exists");
        let since = arrived(&since);
        assert_eq!(describe_image_changes(&found, since), None);

        std::thread::sleep(Duration::from_millis(20));
        let other = |x: u32, y: u32| image::Rgb([x as u8, y as u8, (x * y) as u8]);
        let replaced = image::RgbImage::from_fn(40, 30, other).save(at("jay/0.png"));
        replaced.expect("it can be saved");
        fs::remove_file(at("jay/1.png")).expect("it exists");
        for name in ["owl/8.png", "owl/9.png"] {
            fs::copy(at("owl/0.png"), at(name)).expect("it can be copied");
        }
        fs::write(at("owl/notes.txt"), "no image").expect("it can be written");
        assert_eq!(
            describe_image_changes(&found, since).as_deref(),
            Some(
                "1 image was replaced (jay/0.png), 1 image is missing (jay/1.png), 2 images are new (owl/8.png, owl/9.png)"
            )
        );
        fs::remove_dir_all(at("jay")).expect("it can be removed");
        let missing = describe_image_changes(&found, since).unwrap_or_default();
        assert!(
            missing
                .starts_with("4 images are missing (jay/0.png, jay/1.png, jay/2.png and 1 more)"),
            "{missing}"
        );
    }
}
