//! Tables beside photographs: which numbers are learnt, from which rows, and which photographs stay together.

use crate::support::{Folder, jpeg, scene};
use dataset::{
    DatasetError, Found, InspectOptions, Inspection, Part, TableOptions, TextOptions, inspect, look,
};
use std::collections::BTreeMap;
use std::path::Path;

const HEADER: &str = "image,calories,mass_g\n";

/// Photographs in a sub-folder, and a table of numbers beside it.
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

/// Reasons by the path they are given for.
fn reasons(found: &Inspection, path: &str) -> Vec<String> {
    let of_it = found.skipped.iter().filter(|s| s.path == Path::new(path));
    of_it.map(|s| s.reason.clone()).collect()
}

#[test]
fn columns_of_numbers_are_learnt_and_a_folder_of_images_is_no_class() {
    let folder = plates(10, &rows(10));
    let json =
        |i: u32| format!("{{\"image\": \"images/{i}.jpg\", \"calories\": {i}, \"mass_g\": 1}}\n");
    folder.put(
        "labels.jsonl",
        (0..10).map(json).collect::<String>().as_bytes(),
    );
    let found = folder.inspect();
    assert_eq!((found.refusal.as_deref(), found.photographs()), (None, 10));
    assert!(found.classes.is_empty(), "{:?}", found.classes);
    let names: Vec<&str> = found.targets.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["calories", "mass_g"]);
    assert_eq!(found.count(Part::HeldOut), 2);
    for file in &found.files {
        let name = file
            .path
            .file_stem()
            .and_then(|n| n.to_str())
            .unwrap_or_default();
        let i: f64 = name.parse().expect("it is a number");
        assert_eq!(file.numbers, [Some(100.0 + i), Some(10.0 * i)]);
    }
    let trained = found.files.iter().filter(|f| f.part == Part::Train);
    let calories: Vec<f64> = trained.filter_map(|f| f.numbers[0]).collect();
    let mean = calories.iter().sum::<f64>() / calories.len() as f64;
    assert!(
        (found.targets[0].mean - mean).abs() < 1e-9,
        "only what is trained on counts"
    );
    let [twice] = &reasons(&found, "labels.jsonl")[..] else {
        panic!("{:?}", found.skipped)
    };
    assert!(twice.contains("same rows"), "{twice}");
    assert_eq!(found.ignored.other, 0);
}

#[test]
fn rows_that_lead_outside_are_refused_and_named() {
    let outside = Folder::of(&["secret.jpg"]);
    let secret = outside.path().join("secret.jpg");
    let table = format!(
        "\u{feff} image , calories ,mass_g\nimages/0.jpg,250.5,200\nimages\\1.jpg,120,100\n../secret.jpg,1,1\n\
         ../../etc/passwd,1,1\n{},1,1\nimages/gone.jpg,1,1\nimages/0.jpg,999,1\nimages/2.jpg,NaN,7\nimages/3.jpg,inf,8\n\
         images/4.jpg,120 kcal,9\nimages/5.jpg,130,\nimages/6.jpg,99,3\nimages/7.jpg,98,3\nimages/8.jpg,97,3\nimages/9.jpg,96,3\n",
        secret.display()
    );
    let found = plates(11, &table).inspect();
    assert_eq!(
        found.photographs(),
        10,
        "{:#?} {:#?} {:?}",
        found.notes,
        found.skipped,
        found.targets
    );
    let by_name = |name: &str| {
        let file = found.files.iter().find(|f| f.path.ends_with(name));
        file.map(|f| f.numbers.clone()).unwrap_or_default()
    };
    assert_eq!(
        by_name("0.jpg"),
        [Some(250.5), Some(200.0)],
        "the first row of a photograph counts"
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
    check("no photograph that can be read", 1);
    check("earlier row", 1);
    let [alone] = &reasons(&found, "images/10.jpg")[..] else {
        panic!("{:?}", found.skipped)
    };
    assert!(alone.contains("No row of labels.csv names it"), "{alone}");
    let counts = "labels.csv: 15 rows, 10 used, 5 left out, 3 of these because they lead outside the folder.";
    assert!(
        found.notes.iter().any(|n| n == counts),
        "{:#?}",
        found.notes
    );
    let words = "2 cells of calories hold no number and count as missing.";
    assert!(found.notes.iter().any(|n| n == words), "{:#?}", found.notes);
}

#[cfg(unix)]
#[test]
fn a_table_that_is_a_link_out_of_the_folder_is_not_read() {
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
    assert!(reason.contains("leaves the folder"), "{reason}");
}

#[test]
fn class_folders_keep_their_classes_and_missing_numbers_are_missing() {
    let folder = Folder::of(&[
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
    assert_eq!((found.classes.len(), found.photographs()), (2, 6));
    let missing = found.files.iter().filter(|f| f.numbers == [None]).count();
    assert_eq!(missing, 1);
}

#[test]
fn a_column_of_classes_serves_where_folders_tell_none() {
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
    // Dropped as it is, or with the column named.
    for label_column in [None, Some("label".to_owned())] {
        let texts = TextOptions {
            label_column,
            ..TextOptions::default()
        };
        let seen = look(folder.path(), &InspectOptions::default(), &texts, &|_| {});
        assert!(matches!(seen, Ok(Found::Photographs(seen)) if seen.classes.len() == 2));
    }
}

/// Parts in which each group occurs.
fn parts_of(found: &Inspection, group: impl Fn(u32) -> u32) -> BTreeMap<u32, Vec<Part>> {
    let mut parts: BTreeMap<u32, Vec<Part>> = BTreeMap::new();
    for file in &found.files {
        let name = file
            .path
            .file_stem()
            .and_then(|n| n.to_str())
            .unwrap_or_default();
        let i: u32 = name.parse().expect("it is a number");
        parts.entry(group(i)).or_default().push(file.part);
    }
    parts
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
        let found = inspect(folder.path(), &options, &|_| {}).expect("it can be read");
        assert_eq!(found.groups, Some(("plate".to_owned(), 15)));
        assert_eq!(found.count(Part::HeldOut), 12, "seed {seed}");
        for (group, parts) in parts_of(&found, |i| i / 4) {
            assert!(
                parts.iter().all(|part| *part == parts[0]),
                "seed {seed}, plate {group}: {parts:?}"
            );
        }
    }
    let torn = folder.inspect();
    let torn = parts_of(&torn, |i| i / 4)
        .into_values()
        .filter(|p| p.iter().any(|q| *q != p[0]))
        .count();
    assert!(torn > 0, "without groups the test would hold by chance");
    let missing = TableOptions {
        group_by: Some("dish".to_owned()),
        ..TableOptions::default()
    };
    let refused = inspect(folder.path(), &with(missing), &|_| {});
    assert!(
        matches!(&refused, Err(DatasetError::NoColumn { column, columns }) if column == "dish" && columns.contains("plate")),
        "{refused:?}"
    );
}

#[test]
fn names_that_hold_times_group_what_was_taken_together_and_it_is_said() {
    let folder = Folder::new();
    let mut table = HEADER.to_owned();
    for i in 0..40u64 {
        // Pairs five minutes apart, an hour between pairs.
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
    let by_pair = |found: &Inspection| {
        let mut parts: BTreeMap<u64, Vec<Part>> = BTreeMap::new();
        for file in &found.files {
            let name = file.path.display().to_string();
            let time: u64 = name["images/dish_".len()..][..10]
                .parse()
                .expect("it is a number");
            parts
                .entry((time - 1_558_000_000) / 3600)
                .or_default()
                .push(file.part);
        }
        parts
            .into_values()
            .filter(|parts| parts[0] != parts[1])
            .count()
    };
    assert_eq!(by_pair(&found), 0);
    assert!(
        found
            .notes
            .iter()
            .any(|n| n.contains("at most 10 minutes after one another")),
        "{:?}",
        found.notes
    );
    let none = TableOptions {
        group_by: Some("none".to_owned()),
        ..TableOptions::default()
    };
    let alone = inspect(folder.path(), &with(none), &|_| {}).expect("it can be read");
    assert!(alone.groups.is_none() && by_pair(&alone) > 0);
}

#[test]
fn the_numbers_to_learn_can_be_named() {
    let folder = plates(10, &rows(10));
    let only = TableOptions {
        targets: Some(vec!["mass_g".to_owned()]),
        ..TableOptions::default()
    };
    let found = inspect(folder.path(), &with(only), &|_| {}).expect("it can be read");
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
        inspect(folder.path(), &with(unknown), &|_| {}),
        Err(DatasetError::NoColumn { .. })
    ));
}

#[test]
fn a_table_that_names_no_photograph_is_passed_over_as_before() {
    let folder = Folder::of(&["ant/1.jpg", "ant/2.jpg", "bee/1.jpg", "bee/2.jpg"]);
    folder.put("readings.csv", b"day,rain\n1,2\n2,3\n3,5\n");
    let found = folder.inspect();
    assert!(found.targets.is_empty() && found.skipped.is_empty() && found.notes.is_empty());
    assert_eq!(found.ignored.other, 1);
}
