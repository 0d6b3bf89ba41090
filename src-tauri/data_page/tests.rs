//! What the window shows of small folders.

use super::*;
use crate::window_types::tests::current_types;
use dataset::{InspectOptions, TextOptions, detect};
use std::fs;
use std::path::Path;
use std::sync::Arc;

fn read(path: &Path) -> ReadFolder {
    let (options, texts) = (InspectOptions::default(), TextOptions::default());
    let found = detect(path, &options, &texts, &|_| {});
    ReadFolder {
        version: 3,
        path: path.to_owned(),
        samples: found.ok().map(Arc::new),
        choices: DataChoices::default(),
    }
}

#[test]
fn the_types_of_the_data_page_are_current() {
    current_types(|config| {
        DataView::export_all(config)?;
        DataSampleView::export_all(config)?;
        DataFile::export_all(config)
    });
}

#[test]
fn a_folder_of_images_shows_its_samples_and_its_problems() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (class, count) in [("jay", 10), ("owl", 5)] {
        fs::create_dir_all(folder.path().join(class)).expect("it can be made");
        for number in 0..count {
            let image = image::RgbImage::from_pixel(24, 24, image::Rgb([number * 20, 60, 200]));
            let file = folder.path().join(class).join(format!("{number}.png"));
            image.save(file).expect("it can be written");
        }
    }
    fs::write(folder.path().join("jay/cut.jpg"), [0xFF, 0xD8, 0xFF]).expect("it can be written");
    let read = read(folder.path());
    let view = data(&read);
    assert!(view.images && view.version == 3 && view.table.is_none());
    let split: Vec<_> = view
        .classes
        .iter()
        .map(|class| (class.name.as_str(), class.train, class.held_out))
        .collect();
    assert_eq!(split, [("jay", 8, 2), ("owl", 4, 1)]);
    assert_eq!(view.problem_count, 1);
    assert_eq!(view.problems[0].file, "jay/cut.jpg");
    let path = file(&read, DataFile::Problem(0)).expect("it is listed");
    assert!(path.ends_with("jay/cut.jpg") && path.is_absolute());

    let found = read.samples.as_deref().expect("it can be read");
    let owls = samples(found, 1, 3, 100).expect("images need no reading");
    let files: Vec<_> = owls.iter().map(|owl| owl.file.as_str()).collect();
    assert_eq!(files, ["owl/3.png", "owl/4.png"]);
    let jpeg = thumbnail(&read, owls[0].sample).expect("it can be decoded");
    assert!(jpeg.starts_with(&[0xFF, 0xD8]));
    assert!(thumbnail(&read, 99).is_err() && file(&read, DataFile::Problem(1)).is_err());
}

#[test]
fn a_table_shows_its_texts_and_the_role_of_its_columns() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let rows = "1,See you tonight,ham\n2,You have won,spam\n".repeat(10);
    let path = folder.path().join("sms.csv");
    fs::write(&path, format!("id,text,label\n{rows}")).expect("it can be written");
    let read = read(&path);
    let view = data(&read);
    let table = view.table.expect("there is a table");
    assert_eq!(table.roles, ["", "text", "label"]);
    assert_eq!(table.rows[1], ["2", "You have won", "spam"]);
    assert!(!view.images && view.classes.len() == 2);
    let found = read.samples.as_deref().expect("it can be read");
    let spam = samples(found, 1, 0, 2).expect("the file is unchanged");
    assert_eq!(spam[1].text.as_deref(), Some("You have won"));
    assert_eq!(
        (spam[1].file.as_str(), spam[1].place.as_str()),
        ("sms.csv", "row 4")
    );
}
