//! Inspecting class folders of images.

use crate::support::{Folder, jpeg, png, scene};
use dataset::{
    DatasetError, ImageInspection, InspectOptions, ReadProgress, Split, SplitKind, inspect_images,
};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// "name train/held-out/test" of each class.
fn classes(inspection: &ImageInspection) -> Vec<String> {
    let show = |c: &dataset::Class| format!("{} {}/{}/{}", c.name, c.train, c.held_out, c.test);
    inspection.classes.iter().map(show).collect()
}

/// `n` JPEGs in a folder.
fn many(folder: &Folder, below: &str, n: usize) {
    for i in 0..n {
        folder.put(&format!("{below}/{i:03}.jpg"), &jpeg(&scene(20, 16)));
    }
}

#[test]
fn class_folders_are_split_by_seed_class_by_class() {
    let folder = Folder::new();
    many(&folder, "bee", 10);
    many(&folder, "ant", 20);
    let found = folder.inspect();
    assert_eq!(classes(&found), ["ant 16/4/0", "bee 8/2/0"]);
    assert_eq!(
        (found.image_count(), found.typical_size),
        (30, Some((20, 16)))
    );
    assert_eq!(
        found.describe_split(),
        "20 % of each class, 6 images, chosen by seed 7"
    );
    assert_eq!((found.refusal, found.notes), (None, vec![]));
    let on_disk: u64 = (0..20)
        .map(|_| jpeg(&scene(20, 16)).len() as u64)
        .sum::<u64>()
        * 3
        / 2;
    assert_eq!(found.bytes, on_disk);
}

#[test]
fn a_seed_gives_one_split_and_another_seed_another() {
    let folder = Folder::new();
    many(&folder, "ant", 30);
    many(&folder, "bee", 30);
    let with = |seed| {
        folder.inspect_with(InspectOptions {
            held_out_fraction: 0.2,
            seed,
            ..InspectOptions::default()
        })
    };
    assert_eq!(with(1), with(1));
    assert_ne!(with(1).files, with(2).files);
}

#[test]
fn a_new_file_keeps_the_splits_of_the_others() {
    let folder = Folder::new();
    many(&folder, "ant", 24);
    many(&folder, "bee", 24);
    let splits = || -> BTreeMap<PathBuf, Split> {
        folder
            .inspect()
            .files
            .into_iter()
            .map(|f| (f.path, f.split))
            .collect()
    };
    let before = splits();
    folder.put("ant/new.jpg", &jpeg(&scene(20, 16)));
    let after = splits();
    let moved = before
        .iter()
        .filter(|(path, part)| after[*path] != **part)
        .count();
    assert!(moved <= 1, "{moved} moved");
}

#[test]
fn given_splits_are_used_unchanged() {
    let folder = Folder::with_images(&[
        "train/ant/1.jpg",
        "train/Fruit/Apple/Pink/1.jpg",
        "train/Fruit/Kiwi/1.jpg",
        "valid/ant/2.jpg",
        "valid/Fruit/Kiwi/2.jpg",
        "test/ant/3.jpg",
        "test/never-trained/1.jpg",
    ]);
    let found = folder.inspect();
    assert_eq!(
        classes(&found),
        ["Fruit/Apple/Pink 1/0/0", "Fruit/Kiwi 1/1/0", "ant 1/1/1"]
    );
    assert_eq!(found.split, SplitKind::Given);
    assert_eq!(
        found.describe_split(),
        "from the folders train, valid and test"
    );
    let notes = found.notes.join(" ");
    assert!(
        notes.contains("1 class has no image in the held-out folder: Fruit/Apple/Pink."),
        "{notes}"
    );
    assert!(
        notes.contains("2 classes have no image in the test folder"),
        "{notes}"
    );
    assert!(
        found.skipped[0].reason.contains("never-trained"),
        "{:?}",
        found.skipped
    );
}

#[test]
fn without_a_held_out_folder_training_images_are_held_out() {
    let folder = Folder::new();
    for class in ["ant", "bee"] {
        many(&folder, &format!("train/{class}"), 10);
        many(&folder, &format!("test/{class}"), 4);
    }
    let found = folder.inspect();
    assert_eq!(classes(&found), ["ant 8/2/4", "bee 8/2/4"]);
    let tested = found.files.iter().filter(|f| f.split == Split::Test);
    assert!(tested.clone().count() == 8 && tested.clone().all(|f| f.path.starts_with("test")));
    assert!(
        found
            .describe_split()
            .ends_with("; 8 images are reserved in the test folder")
    );
}

#[test]
fn a_class_with_one_image_is_reported() {
    let folder = Folder::with_images(&["ant/1.jpg", "bee/1.jpg", "bee/2.jpg"]);
    let found = folder.inspect();
    assert_eq!(classes(&found), ["ant 1/0/0", "bee 1/1/0"]);
    assert!(
        found.notes[0].starts_with("The class ant has one image"),
        "{:?}",
        found.notes
    );
}

#[test]
fn a_folder_that_cannot_be_trained_on_has_a_refusal() {
    let check = |paths: &[&str], expected: &str| {
        let refusal = Folder::with_images(paths)
            .inspect()
            .refusal
            .unwrap_or_default();
        assert_eq!(refusal, expected, "{paths:?}");
    };
    check(
        &[],
        "This folder is empty. Add one sub-folder of images for each class.",
    );
    check(
        &["butterfly/1.jpg"],
        "This folder has one class, butterfly. To train, add a second sub-folder.",
    );
    check(
        &["1.jpg", "2.jpg"],
        "This folder contains 2 images but no class folders. Put the images of each class into a sub-folder named after the class.",
    );
    check(
        &["test/ant/1.jpg", "val/bee/1.jpg"],
        "This folder has val and test but no train folder. Add a folder named train with one sub-folder per class.",
    );
    check(
        &["train/ant/1.jpg"],
        "The train folder has one class, ant. To train, add a second sub-folder.",
    );
    let folder = Folder::new();
    folder.put("ant/notes.txt", b"not an image");
    let refusal = folder.inspect().refusal.unwrap_or_default();
    assert!(
        refusal.starts_with("This folder has no images."),
        "{refusal}"
    );
    folder.put("ant/1.jpg", b"");
    let refusal = folder.inspect().refusal.unwrap_or_default();
    assert!(refusal.contains("1 file was left out"), "{refusal}");
}

#[test]
fn files_and_missing_folders_are_errors() {
    let folder = Folder::new();
    let file = folder.put("x.jpg", &jpeg(&scene(8, 8)));
    let inspect = |path: &Path| inspect_images(path, &InspectOptions::default(), &|_| {});
    assert!(matches!(
        inspect(&file),
        Err(DatasetError::NotAFolder { .. })
    ));
    assert!(matches!(
        inspect(&file.join("below")),
        Err(DatasetError::NotAFolder { .. })
    ));
    let missing = inspect(&folder.path().join("nowhere"));
    assert!(matches!(missing, Err(DatasetError::MissingFolder { .. })));
}

#[test]
fn composed_and_decomposed_names_are_one_class() {
    let folder = Folder::new();
    for (i, name) in ["cafe\u{301}", "caf\u{e9}", "bar"].iter().enumerate() {
        folder.put(&format!("{name}/{i}.jpg"), &jpeg(&scene(8, 8)));
    }
    let found = folder.inspect();
    let names: Vec<&str> = found.classes.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["bar", "caf\u{e9}"]);
    assert_eq!(found.classes[1].samples(), 2);
}

#[test]
fn formats_are_detected_by_content_not_by_name() {
    let folder = Folder::with_images(&["bee/UPPER.JPG", "bee/noext"]);
    folder.put("ant/png_named.jpg", &png(&scene(30, 20)));
    folder.put("ant/jpeg_named.png", &jpeg(&scene(30, 20)));
    let found = folder.inspect();
    assert_eq!((found.image_count(), found.skipped.len()), (4, 0));
}

#[test]
fn small_classes_are_reported() {
    let folder = Folder::new();
    many(&folder, "ant", 9);
    many(&folder, "bee", 4);
    let notes = folder.inspect().notes;
    assert_eq!(
        notes,
        ["The class \"bee\" is small: 4 images. The largest, \"ant\", has 9."]
    );
}

#[test]
fn progress_covers_every_file() {
    let folder = Folder::new();
    many(&folder, "ant", 1100);
    many(&folder, "bee", 1);
    let (last, calls) = (Cell::new(ReadProgress::default()), Cell::new(0));
    let count = |read: ReadProgress| {
        if read.all_files == 0 {
            // The folders are being listed.
            assert_eq!((calls.get(), read.fraction()), (0, 0.0));
            return;
        }
        assert!(read.files > last.get().files);
        last.set(read);
        calls.set(calls.get() + 1);
    };
    inspect_images(folder.path(), &InspectOptions::default(), &count)
        .expect("the folder can be read");
    assert_eq!((last.get().files, calls.get()), (1101, 2));
    assert_eq!((last.get().all_files, last.get().fraction()), (1101, 1.0));
}

#[test]
fn a_reading_ends_if_it_is_stopped() {
    let folder = Folder::new();
    for class in ["ant", "bee", "cat"] {
        many(&folder, class, 700);
    }
    // While the folders are listed, and while the headers of the files are read.
    for last_call in [1, 3, 6] {
        let options = InspectOptions::default();
        let calls = Cell::new(0);
        let stop = |_: ReadProgress| {
            calls.set(calls.get() + 1);
            if calls.get() == last_call {
                options.stop.stop();
            }
        };
        let read = inspect_images(folder.path(), &options, &stop);
        assert!(matches!(read, Err(dataset::DatasetError::Stopped)));
        assert_eq!(calls.get(), last_call, "nothing is read afterwards");
    }
}

#[test]
fn the_lists_of_food_101_name_the_images_of_each_split() {
    let folder = Folder::new();
    let (mut train, mut test) = (String::new(), String::new());
    for class in ["apple_pie", "bibimbap"] {
        many(&folder, &format!("images/{class}"), 12);
        for i in 0..12 {
            let list = if i < 10 { &mut train } else { &mut test };
            list.push_str(&format!("{class}/{i:03}\n"));
        }
    }
    folder.put("meta/train.txt", train.as_bytes());
    folder.put("meta/test.txt", test.as_bytes());
    folder.put("meta/classes.txt", b"apple_pie\nbibimbap\n");
    let found = folder.inspect();
    assert_eq!(classes(&found), ["apple_pie 8/2/2", "bibimbap 8/2/2"]);
    assert_eq!(found.ignored.other, 1, "the names of the classes");
    let note = "The images of each split are listed in meta/train.txt and meta/test.txt.";
    assert!(found.notes.contains(&note.to_owned()), "{:?}", found.notes);
    let tested = found.files.iter().filter(|file| file.split == Split::Test);
    let tested: Vec<&Path> = tested.map(|file| file.path.as_path()).collect();
    assert_eq!(tested[0], Path::new("images/apple_pie/010.jpg"));
}

#[test]
fn lists_may_be_json_and_leave_images_out() {
    let folder = Folder::new();
    many(&folder, "ant", 4);
    many(&folder, "bee", 4);
    let train =
        r#"{"ant": ["ant/000", "ant/001.jpg"], "bee": ["photos/bee/000.jpg 1", "bee/001"]}"#;
    folder.put("train.json", train.as_bytes());
    folder.put("val.json", br#"["ant/002", "bee/002"]"#);
    let found = folder.inspect();
    assert_eq!(classes(&found), ["ant 2/1/0", "bee 2/1/0"]);
    assert_eq!(found.split, SplitKind::Given);
    assert_eq!(
        found.describe_split(),
        "from the lists train.json and val.json"
    );
    let left_out: Vec<&Path> = found
        .skipped
        .iter()
        .map(|file| file.path.as_path())
        .collect();
    assert_eq!(
        left_out,
        [Path::new("ant/003.jpg"), Path::new("bee/003.jpg")]
    );
    assert!(found.skipped[0].reason.contains("is not in the lists"));
}

#[test]
fn a_text_that_names_no_images_is_no_list() {
    let folder = Folder::new();
    many(&folder, "ant", 10);
    many(&folder, "bee", 10);
    let before = folder.inspect();
    folder.put("train.txt", b"How the images were taken.\n");
    folder.put("test.txt", b"ant/000\n");
    let found = folder.inspect();
    assert_eq!(classes(&found), ["ant 8/2/0", "bee 8/2/0"]);
    assert_eq!(found.files, before.files);
}
