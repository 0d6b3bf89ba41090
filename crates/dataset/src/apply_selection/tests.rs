//! What is left of small folders when classes and duplicates are left out.

use super::*;
use crate::class_selection::MergedClass;
use crate::{InspectOptions, TextOptions, detect, find_duplicates};
use std::fs;
use std::path::Path;

/// An image with a pattern of its own.
fn picture(pattern: u32) -> image::RgbImage {
    image::RgbImage::from_fn(48, 48, |x, y| {
        let wave = |shift: u32| ((x * (pattern + 1) + y * (shift + pattern * 7)) % 200) as u8;
        image::Rgb([wave(1), wave(5), wave(11)])
    })
}

fn save(folder: &Path, file: &str, pattern: u32) {
    let path = folder.join(file);
    fs::create_dir_all(path.parent().expect("it is in a folder")).expect("it can be made");
    picture(pattern).save(path).expect("it can be written");
}

/// Three classes of ten images.
fn animals() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (place, class) in ["ant", "bee", "cat"].into_iter().enumerate() {
        for number in 0..10 {
            let pattern = place as u32 * 10 + number;
            save(folder.path(), &format!("{class}/{number}.png"), pattern);
        }
    }
    folder
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn inspect(path: &Path, classes: ClassSelection) -> Result<DetectedDataset, DatasetError> {
    let options = InspectOptions {
        classes,
        ..InspectOptions::default()
    };
    detect(path, &options, &TextOptions::default(), &|_| {})
}

fn images(path: &Path, classes: ClassSelection) -> ImageInspection {
    match inspect(path, classes) {
        Ok(DetectedDataset::Images(found)) => found,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_class_that_is_left_out_changes_no_other_split() {
    let folder = animals();
    let all = images(folder.path(), ClassSelection::default());
    let some = images(
        folder.path(),
        ClassSelection {
            leave_out: names(&["bee"]),
            ..ClassSelection::default()
        },
    );
    let classes: Vec<_> = some.classes.iter().map(|c| (&*c.name, c.train)).collect();
    assert_eq!(classes, [("ant", 8), ("cat", 8)]);
    for file in &some.files {
        let before = all.files.iter().find(|one| one.path == file.path);
        assert_eq!(before.map(|before| before.split), Some(file.split));
        assert_eq!(file.label, u32::from(file.path.starts_with("cat")));
    }
    let note = "1 class (10 images) is left out: bee.";
    assert!(some.notes.iter().any(|one| one == note), "{:?}", some.notes);
}

#[test]
fn merged_classes_are_one() {
    let folder = animals();
    let found = images(
        folder.path(),
        ClassSelection {
            merge: vec![MergedClass {
                name: "insect".to_owned(),
                classes: names(&["ant", "bee"]),
            }],
            ..ClassSelection::default()
        },
    );
    let classes: Vec<_> = found
        .classes
        .iter()
        .map(|c| (&*c.name, c.train, c.held_out))
        .collect();
    assert_eq!(classes, [("cat", 8, 2), ("insect", 16, 4)]);
    assert!(
        found
            .files
            .iter()
            .all(|f| f.label == u32::from(!f.path.starts_with("cat")))
    );
    let imbalance = |note: &String| note.contains("is small: ") || note.contains("fewer than half");
    assert!(!found.notes.iter().any(imbalance), "10 is half of 20");
}

#[test]
fn an_unknown_class_is_refused_and_one_class_cannot_be_trained() {
    let folder = animals();
    let without = |leave_out: &[&str], allow_unknown| ClassSelection {
        leave_out: names(leave_out),
        allow_unknown,
        ..ClassSelection::default()
    };
    let error = inspect(folder.path(), without(&["dog"], false)).expect_err("there is no dog");
    assert_eq!(
        error.to_string(),
        "There is no class dog in this folder. The classes are ant, bee, cat. Choose one of these classes."
    );
    let found = images(folder.path(), without(&["dog"], true));
    assert_eq!((found.classes.len(), found.refusal), (3, None));
    let found = images(folder.path(), without(&["ant", "bee"], false));
    assert_eq!(
        found.refusal.as_deref(),
        Some("Only the class cat is left. Leave out or merge fewer classes.")
    );
}

#[test]
fn one_of_each_group_of_duplicates_stays() {
    let folder = animals();
    for copy in 0..5 {
        save(folder.path(), &format!("ant/copy {copy}.png"), 3);
        save(folder.path(), &format!("cat/copy {copy}.png"), 3);
    }
    let options = InspectOptions {
        leave_duplicates_out: true,
        ..InspectOptions::default()
    };
    let found = detect(folder.path(), &options, &TextOptions::default(), &|_| {});
    let Ok(DetectedDataset::Images(found)) = found else {
        panic!("it contains images");
    };
    let same: Vec<_> = found
        .files
        .iter()
        .map(|file| file.path.display().to_string())
        .filter(|path| path == "ant/3.png" || path.contains("copy"))
        .collect();
    assert_eq!(same, ["ant/3.png"]);
    assert_eq!(found.files.len(), 30);
    let note = found.notes.iter().find(|note| note.contains("duplicate"));
    let expected = "10 duplicate images are left out. 1 group of duplicates had samples in more than one of the training, held-out and test sets. 1 group of duplicates has samples of different classes (ant/3.png, ant/copy 0.png, ant/copy 1.png and 8 more). Check which class is right: Ebb trains on one sample of each group, with the class of that sample.";
    assert_eq!(note.map(String::as_str), Some(expected));
}

#[test]
fn a_class_of_copies_keeps_an_image_to_train_on() {
    let folder = animals();
    for copy in 0..2 {
        save(folder.path(), &format!("dog/{copy}.png"), 77);
    }
    let mut moved = 0;
    for seed in 0..6 {
        let options = InspectOptions {
            seed,
            ..InspectOptions::default()
        };
        let found = detect(folder.path(), &options, &TextOptions::default(), &|_| {});
        let Ok(DetectedDataset::Images(all)) = found else {
            panic!("it contains images");
        };
        let first = all.files.iter().find(|file| file.path.starts_with("dog"));
        moved += u32::from(first.is_some_and(|dog| dog.split == Split::HeldOut));
        let found = DetectedDataset::Images(all);
        let duplicates = find_duplicates(&found, &|_| true).expect("it can be read");
        let found = found.select(&ClassSelection::default(), duplicates.as_ref());
        let Ok(DetectedDataset::Images(found)) = found else {
            panic!("no class is named");
        };
        let dog = &found.classes[3];
        assert_eq!(
            (&*dog.name, dog.train, dog.held_out),
            ("dog", 1, 0),
            "seed {seed}"
        );
    }
    assert!(
        (1..6).contains(&moved),
        "with some seeds, the remaining image was held out before the selection"
    );
}

#[test]
fn the_copy_to_evaluate_on_stays_if_the_folder_has_a_split() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (split, first) in [("train", 0), ("val", 100)] {
        for (place, class) in ["ant", "bee"].into_iter().enumerate() {
            for number in 0..4 {
                let pattern = first + place as u32 * 10 + number;
                save(
                    folder.path(),
                    &format!("{split}/{class}/{number}.png"),
                    pattern,
                );
            }
        }
    }
    save(folder.path(), "train/bee/leak.png", 101);
    let options = InspectOptions {
        leave_duplicates_out: true,
        ..InspectOptions::default()
    };
    let found = detect(folder.path(), &options, &TextOptions::default(), &|_| {});
    let Ok(DetectedDataset::Images(found)) = found else {
        panic!("it contains images");
    };
    assert_eq!(
        (found.count(Split::Train), found.count(Split::HeldOut)),
        (8, 8)
    );
    assert!(
        !found
            .files
            .iter()
            .any(|file| file.path.ends_with("leak.png"))
    );
}

#[test]
fn labels_of_texts_are_merged_and_ordered_by_value() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let rows: String = (0..60)
        .map(|row| format!("{},the text of row {row} is about {}\n", row % 12, row * 31))
        .collect();
    fs::write(
        folder.path().join("rows.csv"),
        format!("label,text\n{rows}"),
    )
    .expect("it can be written");
    let selection = ClassSelection {
        leave_out: names(&["3"]),
        merge: vec![MergedClass {
            name: "10".to_owned(),
            classes: names(&["1", "2"]),
        }],
        allow_unknown: false,
    };
    let Ok(DetectedDataset::Texts(found)) = inspect(folder.path(), selection) else {
        panic!("it contains texts");
    };
    let classes: Vec<_> = found.classes.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(classes, ["0", "4", "5", "6", "7", "8", "9", "10", "11"]);
    assert_eq!((found.samples.len(), found.classes[7].samples()), (55, 15));
    let counted: u32 = found.classes.iter().map(Class::samples).sum();
    assert_eq!(counted, 55);
}
