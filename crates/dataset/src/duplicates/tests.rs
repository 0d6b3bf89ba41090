//! Copies are found in small folders, and different samples are not.

use super::*;
use crate::rng::Rng;
use crate::{InspectOptions, TextOptions, detect};
use image::{RgbImage, imageops};
use std::fs;
use std::path::Path;

/// A picture of soft shapes, like a photo; each seed gives another one.
fn photo(seed: u64) -> RgbImage {
    let mut rng = Rng::from_key(&[seed]);
    let coarse = RgbImage::from_fn(9, 7, |_, _| {
        image::Rgb([0, 1, 2].map(|_| rng.below(256) as u8))
    });
    imageops::resize(&coarse, 320, 240, imageops::FilterType::CatmullRom)
}

fn save(folder: &Path, file: &str, image: &RgbImage) {
    let path = folder.join(file);
    fs::create_dir_all(path.parent().expect("it is in a folder")).expect("it can be made");
    image.save(path).expect("it can be written");
}

fn found(path: &Path) -> DetectedDataset {
    let (options, texts) = (InspectOptions::default(), TextOptions::default());
    detect(path, &options, &texts, &|_| {}).expect("it can be read")
}

/// The files of each group, and whether it is exact.
fn groups(found: &DetectedDataset) -> Vec<(Vec<String>, bool)> {
    let duplicates = find_duplicates(found, &|_| true).expect("it can be read");
    let duplicates = duplicates.expect("it is not cancelled");
    let DetectedDataset::Images(found) = found else {
        panic!("it contains images");
    };
    let file = |index: &u32| found.files[*index as usize].path.display().to_string();
    let files = |group: &DuplicateGroup| group.samples.iter().map(file).collect();
    duplicates
        .groups
        .iter()
        .map(|group| (files(group), group.is_exact))
        .collect()
}

#[test]
fn copies_of_images_are_found_and_others_are_not() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path();
    for seed in 0..60 {
        let class = if seed % 2 == 0 { "even" } else { "odd" };
        save(at, &format!("{class}/{seed:02}.png"), &photo(seed));
    }
    // The same pixels in other bytes, other compression, and another size.
    save(at, "odd/same.webp", &photo(4));
    save(at, "odd/compressed.jpg", &photo(6));
    let small = imageops::resize(&photo(8), 200, 150, imageops::FilterType::Triangle);
    save(at, "odd/small.jpg", &small);
    let mirrored = imageops::flip_horizontal(&photo(10));
    save(at, "odd/mirrored.png", &mirrored);
    let files = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(
        groups(&found(at)),
        [
            (files(&["even/04.png", "odd/same.webp"]), true),
            (files(&["even/06.png", "odd/compressed.jpg"]), false),
            (files(&["even/08.png", "odd/small.jpg"]), false),
        ]
    );
}

#[test]
fn plain_images_of_different_colors_are_different() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (class, shift) in [("light", 40), ("dark", 0)] {
        for number in 0..8u8 {
            let color = image::Rgb([shift + number * 24, 90, 200 - number * 24]);
            let image = RgbImage::from_pixel(32, 32, color);
            save(folder.path(), &format!("{class}/{number}.png"), &image);
        }
    }
    assert_eq!(groups(&found(folder.path())), []);
}

#[test]
fn an_image_that_cannot_be_decoded_is_listed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for seed in 0..6 {
        let class = if seed % 2 == 0 { "even" } else { "odd" };
        save(folder.path(), &format!("{class}/{seed}.png"), &photo(seed));
    }
    let path = folder.path().join("odd/3.png");
    let bytes = fs::read(&path).expect("it can be read");
    // The header stays, so that the inspection accepts the file.
    fs::write(&path, &bytes[..bytes.len() / 2]).expect("it can be written");
    let found = found(folder.path());
    let duplicates = find_duplicates(&found, &|_| true).expect("the others can be read");
    let unreadable = duplicates.expect("it is not cancelled").unreadable;
    assert_eq!(unreadable.len(), 1);
    assert_eq!(unreadable[0].path, Path::new("odd/3.png"));
    assert!(
        unreadable[0]
            .reason
            .starts_with("The image cannot be decoded")
    );
    assert_eq!(
        find_duplicates(&found, &|_| false).expect("it can be read"),
        None
    );
}

#[test]
fn texts_are_compared_by_their_words() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let long = |word: &str| {
        let words = (0..60)
            .map(|n| format!("w{}", n * n % 97))
            .collect::<Vec<_>>();
        format!("{} {word}", words.join(" "))
    };
    let mut rows = vec![
        "See you tonight".to_owned(),
        "see you tonight!!!".to_owned(),
        "See you tomorrow".to_owned(),
        "You have won".to_owned(),
        "You have won".to_owned(),
        "...".to_owned(),
        "???".to_owned(),
        long("ending"),
        long("another"),
    ];
    rows.extend((0..40).map(|n| format!("message {} of row {n}", n * 37)));
    let rows = rows.iter().enumerate();
    let rows: Vec<String> = rows
        .map(|(n, row)| format!("{},\"{row}\"", if n % 2 == 0 { "a" } else { "b" }))
        .collect();
    let table = format!("label,text\n{}\n", rows.join("\n"));
    fs::write(folder.path().join("rows.csv"), table).expect("it can be written");
    let found = found(folder.path());
    let duplicates = find_duplicates(&found, &|_| true).expect("it can be read");
    let groups: Vec<_> = duplicates
        .expect("it is not cancelled")
        .groups
        .into_iter()
        .map(|group| (group.samples, group.is_exact))
        .collect();
    assert_eq!(
        groups,
        [(vec![0, 1], false), (vec![3, 4], true), (vec![7, 8], false)]
    );
}
