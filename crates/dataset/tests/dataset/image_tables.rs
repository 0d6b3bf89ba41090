//! Tables beside images: regression targets, classes and groups.

use crate::support::{Folder, jpeg, scene};
use dataset::{
    DatasetError, DetectedDataset, ImageInspection, InspectOptions, Split, TableOptions,
    TextOptions, detect, inspect_images,
};
use std::collections::BTreeMap;
use std::path::Path;

const HEADER: &str = "image,calories,mass_g\n";

/// Images in a sub-folder, and a table beside it.
fn plates(count: u32, table: &str) -> Folder {
    let folder = Folder::new();
    for i in 0..count {
        folder.put(&format!("images/{i}.jpg"), &jpeg(&scene(16, 16)));
    }
    folder.put("labels.csv", table.as_bytes());
    folder
}

fn rows(count: u32) -> String {
    let row = |i: u32| format!("images/{i}.jpg,{},{}\n", 100 + i, 10 * i);
    HEADER.to_owned() + &(0..count).map(row).collect::<String>()
}

fn with(table: TableOptions) -> InspectOptions {
    InspectOptions {
        table,
        ..InspectOptions::default()
    }
}

/// The reasons why a path is skipped.
fn reasons(found: &ImageInspection, path: &str) -> Vec<String> {
    let of_it = found.skipped.iter().filter(|s| s.path == Path::new(path));
    of_it.map(|s| s.reason.clone()).collect()
}

#[test]
fn numeric_columns_are_targets_and_a_single_folder_is_no_class() {
    let folder = plates(10, &rows(10));
    let json =
        |i: u32| format!("{{\"image\": \"images/{i}.jpg\", \"calories\": {i}, \"mass_g\": 1}}\n");
    folder.put(
        "labels.jsonl",
        (0..10).map(json).collect::<String>().as_bytes(),
    );
    let found = folder.inspect();
    assert_eq!((found.refusal.as_deref(), found.image_count()), (None, 10));
    assert!(found.classes.is_empty(), "{:?}", found.classes);
    let names: Vec<&str> = found.targets.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["calories", "mass_g"]);
    assert_eq!(found.count(Split::HeldOut), 2);
    for file in &found.files {
        let name = file
            .path
            .file_stem()
            .and_then(|n| n.to_str())
            .unwrap_or_default();
        let i: f64 = name.parse().expect("it is a number");
        assert_eq!(file.targets, [Some(100.0 + i), Some(10.0 * i)]);
    }
    let trained = found.files.iter().filter(|f| f.split == Split::Train);
    let calories: Vec<f64> = trained.filter_map(|f| f.targets[0]).collect();
    let mean = calories.iter().sum::<f64>() / calories.len() as f64;
    assert!(
        (found.targets[0].mean - mean).abs() < 1e-9,
        "only training images count"
    );
    let [twice] = &reasons(&found, "labels.jsonl")[..] else {
        panic!("{:?}", found.skipped)
    };
    assert!(twice.contains("same rows"), "{twice}");
    assert_eq!(found.ignored.other, 0);
}

#[test]
fn rows_that_name_files_outside_the_folder_are_refused() {
    let outside = Folder::with_images(&["secret.jpg"]);
    let secret = outside.path().join("secret.jpg");
    let table = format!(
        "\u{feff} image , calories ,mass_g\nimages/0.jpg,250.5,200\nimages\\1.jpg,120,100\n../secret.jpg,1,1\n\
         ../../etc/passwd,1,1\n{},1,1\nimages/missing.jpg,1,1\nimages/0.jpg,999,1\nimages/2.jpg,NaN,7\nimages/3.jpg,inf,8\n\
         images/4.jpg,120 kcal,9\nimages/5.jpg,130,\nimages/6.jpg,99,3\nimages/7.jpg,98,3\nimages/8.jpg,97,3\nimages/9.jpg,96,3\n",
        secret.display()
    );
    let found = plates(11, &table).inspect();
    assert_eq!(
        found.image_count(),
        10,
        "{:#?} {:#?} {:?}",
        found.notes,
        found.skipped,
        found.targets
    );
    let by_name = |name: &str| {
        let file = found.files.iter().find(|f| f.path.ends_with(name));
        file.map(|f| f.targets.clone()).unwrap_or_default()
    };
    assert_eq!(
        by_name("0.jpg"),
        [Some(250.5), Some(200.0)],
        "the first row of an image is used"
    );
    assert_eq!(by_name("1.jpg"), [Some(120.0), Some(100.0)]);
    assert_eq!(by_name("2.jpg"), [None, Some(7.0)]);
    assert_eq!(by_name("3.jpg"), [None, Some(8.0)]);
    assert_eq!(by_name("4.jpg"), [None, Some(9.0)]);
    assert_eq!(by_name("5.jpg"), [Some(130.0), None]);
    let named = reasons(&found, "labels.csv");
    let check = |part: &str, count: usize| {
        assert_eq!(
            named.iter().filter(|r| r.contains(part)).count(),
            count,
            "{part}: {named:#?}"
        );
    };
    check("outside the folder", 3);
    check("not found among the folder's readable images", 1);
    check("earlier row", 1);
    let [alone] = &reasons(&found, "images/10.jpg")[..] else {
        panic!("{:?}", found.skipped)
    };
    assert!(
        alone.contains("No row of the table labels.csv names this image"),
        "{alone}"
    );
    let counts = "labels.csv: 15 rows, 10 used, 5 left out, 3 of these because they name files outside the folder.";
    assert!(
        found.notes.iter().any(|n| n == counts),
        "{:#?}",
        found.notes
    );
    let note = "Column calories: 2 cells are not numbers and count as missing.";
    assert!(found.notes.iter().any(|n| n == note), "{:#?}", found.notes);
}

#[cfg(unix)]
#[test]
fn a_table_that_links_outside_the_folder_is_not_read() {
    let outside = Folder::new();
    let table = outside.put("labels.csv", rows(4).as_bytes());
    let folder = plates(4, "");
    std::fs::remove_file(folder.path().join("labels.csv")).expect("it is there");
    std::os::unix::fs::symlink(table, folder.path().join("labels.csv")).expect("links can be made");
    let found = folder.inspect();
    assert!(found.targets.is_empty());
    let [reason] = &reasons(&found, "labels.csv")[..] else {
        panic!("{:?}", found.skipped)
    };
    assert!(reason.contains("points outside the folder"), "{reason}");
}

#[test]
fn class_folders_keep_their_classes_beside_a_table() {
    let folder = Folder::with_images(&[
        "ant/1.jpg",
        "ant/2.jpg",
        "ant/3.jpg",
        "bee/1.jpg",
        "bee/2.jpg",
        "bee/3.jpg",
    ]);
    folder.put(
        "targets.csv",
        b"file,mass_g\nant/1.jpg,3\nant/2.jpg,4\nant/3.jpg,6\nbee/1.jpg,5\nbee/3.jpg,9\n",
    );
    let found = folder.inspect();
    assert_eq!((found.classes.len(), found.image_count()), (2, 6));
    let missing = found.files.iter().filter(|f| f.targets == [None]).count();
    assert_eq!(missing, 1);
}

#[test]
fn a_class_column_is_used_if_folders_are_no_classes() {
    let folder = plates(8, "");
    let row = |i: u32| {
        format!(
            "{i},{}\n",
            if i.is_multiple_of(2) { "soup" } else { "salad" }
        )
    };
    let table = "name,label\n".to_owned() + &(0..8).map(row).collect::<String>();
    folder.put("labels.csv", table.as_bytes());
    let found = folder.inspect();
    let classes: Vec<(&str, u32)> = found
        .classes
        .iter()
        .map(|c| (c.name.as_str(), c.samples()))
        .collect();
    assert_eq!(classes, [("salad", 4), ("soup", 4)]);
    assert_eq!((found.refusal.as_deref(), found.targets.len()), (None, 0));
    // Without options, and with the column named.
    for label_column in [None, Some("label".to_owned())] {
        let texts = TextOptions {
            label_column,
            ..TextOptions::default()
        };
        let seen = detect(folder.path(), &InspectOptions::default(), &texts, &|_| {});
        assert!(matches!(seen, Ok(DetectedDataset::Images(seen)) if seen.classes.len() == 2));
    }
}

/// The splits of the images of each group.
fn splits_of(found: &ImageInspection, group: impl Fn(u32) -> u32) -> BTreeMap<u32, Vec<Split>> {
    let mut splits: BTreeMap<u32, Vec<Split>> = BTreeMap::new();
    for file in &found.files {
        let name = file
            .path
            .file_stem()
            .and_then(|n| n.to_str())
            .unwrap_or_default();
        let i: u32 = name.parse().expect("it is a number");
        splits.entry(group(i)).or_default().push(file.split);
    }
    splits
}

#[test]
fn a_group_is_never_on_both_sides_of_the_split() {
    let row = |i: u32| format!("images/{i}.jpg,{},plate {}\n", 100 + i, i / 4);
    let table = "image,calories,plate\n".to_owned() + &(0..60).map(row).collect::<String>();
    let folder = plates(60, &table);
    let grouped = TableOptions {
        group_by: Some("plate".to_owned()),
        ..TableOptions::default()
    };
    for seed in 0..20 {
        let options = InspectOptions {
            seed,
            ..with(grouped.clone())
        };
        let found = inspect_images(folder.path(), &options, &|_| {}).expect("it can be read");
        assert_eq!(found.groups, Some(("plate".to_owned(), 15)));
        assert_eq!(found.count(Split::HeldOut), 12, "seed {seed}");
        for (group, splits) in splits_of(&found, |i| i / 4) {
            assert!(
                splits.iter().all(|part| *part == splits[0]),
                "seed {seed}, plate {group}: {splits:?}"
            );
        }
    }
    let torn = folder.inspect();
    let torn = splits_of(&torn, |i| i / 4)
        .into_values()
        .filter(|p| p.iter().any(|q| *q != p[0]))
        .count();
    assert!(torn > 0, "without groups the test could pass by chance");
    let missing = TableOptions {
        group_by: Some("dish".to_owned()),
        ..TableOptions::default()
    };
    let refused = inspect_images(folder.path(), &with(missing), &|_| {});
    assert!(
        matches!(&refused, Err(DatasetError::UnknownColumn { column, columns }) if column == "dish" && columns.contains("plate")),
        "{refused:?}"
    );
}

#[test]
fn images_are_grouped_by_the_times_in_their_names() {
    let folder = Folder::new();
    let mut table = HEADER.to_owned();
    for i in 0..40u64 {
        // Pairs are five minutes apart, with an hour between pairs.
        let name = format!(
            "dish_{}.jpg",
            1_558_000_000 + (i / 2) * 3600 + (i % 2) * 300
        );
        folder.put(&format!("images/{name}"), &jpeg(&scene(16, 16)));
        table += &format!("images/{name},{},{}\n", i, 2 * i + 1);
    }
    folder.put("labels.csv", table.as_bytes());
    let found = folder.inspect();
    assert_eq!(found.groups.as_ref().map(|(_, count)| *count), Some(20));
    let by_pair = |found: &ImageInspection| {
        let mut splits: BTreeMap<u64, Vec<Split>> = BTreeMap::new();
        for file in &found.files {
            let name = file.path.display().to_string();
            let time: u64 = name["images/dish_".len()..][..10]
                .parse()
                .expect("it is a number");
            splits
                .entry((time - 1_558_000_000) / 3600)
                .or_default()
                .push(file.split);
        }
        splits
            .into_values()
            .filter(|splits| splits[0] != splits[1])
            .count()
    };
    assert_eq!(by_pair(&found), 0);
    assert!(
        found
            .notes
            .iter()
            .any(|n| n.contains("at most 10 minutes apart")),
        "{:?}",
        found.notes
    );
    let none = TableOptions {
        group_by: Some("none".to_owned()),
        ..TableOptions::default()
    };
    let alone = inspect_images(folder.path(), &with(none), &|_| {}).expect("it can be read");
    assert!(alone.groups.is_none() && by_pair(&alone) > 0);
}

#[test]
fn target_columns_can_be_named() {
    let folder = plates(10, &rows(10));
    let only = TableOptions {
        targets: Some(vec!["mass_g".to_owned()]),
        ..TableOptions::default()
    };
    let found = inspect_images(folder.path(), &with(only), &|_| {}).expect("it can be read");
    assert_eq!(
        found
            .targets
            .iter()
            .map(|t| t.name.as_str())
            .collect::<Vec<_>>(),
        ["mass_g"]
    );
    let unknown = TableOptions {
        targets: Some(vec!["fat".to_owned()]),
        ..TableOptions::default()
    };
    assert!(matches!(
        inspect_images(folder.path(), &with(unknown), &|_| {}),
        Err(DatasetError::UnknownColumn { .. })
    ));
}

#[test]
fn a_column_without_any_table_is_refused_with_the_reason() {
    let folder = Folder::with_images(&["ant/1.jpg", "ant/2.jpg", "bee/1.jpg", "bee/2.jpg"]);
    let options = TableOptions {
        targets: Some(vec!["fat".to_owned()]),
        ..TableOptions::default()
    };
    let refused = inspect_images(folder.path(), &with(options), &|_| {});
    let refused = refused.expect_err("there is no table").to_string();
    assert_eq!(
        refused,
        "There is no column fat, because no table in this folder has a column of image names."
    );
}

#[test]
fn a_table_that_names_no_image_is_ignored() {
    let folder = Folder::with_images(&["ant/1.jpg", "ant/2.jpg", "bee/1.jpg", "bee/2.jpg"]);
    folder.put("readings.csv", b"day,rain\n1,2\n2,3\n3,5\n");
    let found = folder.inspect();
    assert!(found.targets.is_empty() && found.skipped.is_empty() && found.notes.is_empty());
    assert_eq!(found.ignored.other, 1);
}
