//! What a user may say about texts, what is refused, and what is kept apart.

use crate::support::Folder;
use crate::texts::{columns, found, look_at};
use dataset::{
    DatasetError, Found, InspectOptions, Part, Task, TextOptions, TextRows, is_model, look,
};
use std::fs;
use std::path::Path;

#[test]
fn columns_can_be_named_and_a_wrong_name_is_answered() {
    let folder = Folder::new();
    let mut csv = String::from("title,body,kind,label\n");
    for i in 0..24 {
        csv.push_str(&format!(
            "title {i},a longer body number {i},k{},l{}\n",
            i % 2,
            i % 3
        ));
    }
    folder.put("rows.csv", csv.as_bytes());
    let with = |text: Option<&str>, label: Option<&str>| TextOptions {
        task: None,
        text_column: text.map(str::to_owned),
        label_column: label.map(str::to_owned),
    };
    let named = look_at(folder.path(), &with(Some("Title"), Some("3")));
    assert_eq!(
        columns(&named),
        ["text title, you named it", "label kind, you named it"]
    );
    let guessed = look_at(folder.path(), &with(None, None));
    assert_eq!(
        columns(&guessed),
        ["text body, by its name", "label label, by its name"]
    );
    let half = look_at(folder.path(), &with(None, Some("kind")));
    assert_eq!(
        columns(&half),
        ["text body, by its name", "label kind, you named it"]
    );
    let wrong = look(
        folder.path(),
        &InspectOptions::default(),
        &with(Some("words"), None),
        &|_| {},
    );
    let Err(DatasetError::NoColumn { .. }) = &wrong else {
        panic!("{wrong:?}");
    };
    let sentence = wrong
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    assert_eq!(
        sentence,
        "No table here has a column words; there are title, body, kind, label. Name one of these."
    );
}

#[test]
fn what_cannot_be_learnt_is_refused_with_the_next_move() {
    let check = |file: &str, content: &str, part: &str| {
        let folder = Folder::new();
        folder.put(file, content.as_bytes());
        let refusal = found(&folder).refusal.unwrap_or_default();
        assert!(refusal.contains(part), "{file}: {refusal}");
    };
    check(
        "a.csv",
        "text,label\nhello,ham\nthere,ham\n",
        "All texts have one class, ham. Add rows of a second label",
    );
    check(
        "b.csv",
        "name,price\nbread,3\nmilk,2\nsalt,1\n",
        "No column of b.csv looks like labels; it has name, price. Call two of them text and label",
    );
    check(
        "c.csv",
        "text,label\n,ham\n,spam\n",
        "No column of c.csv looks like labels",
    );
    check(
        "d.txt",
        "short",
        "5 bytes of text are too few to learn from",
    );
}

#[test]
fn photographs_come_first_and_a_single_file_is_enough() {
    let folder = Folder::of(&["ant/1.jpg", "ant/2.jpg", "bee/1.jpg"]);
    folder.put("labels.csv", b"text,label\na,x\nb,y\n");
    let task = |path: &Path, options: &TextOptions| {
        look(path, &InspectOptions::default(), options, &|_| {})
            .map(|found| found.task())
            .map_err(|e| e.to_string())
    };
    let any = TextOptions::default();
    assert_eq!(task(folder.path(), &any), Ok(Task::ImageClassification));
    let texts = TextOptions {
        task: Some(Task::TextClassification),
        ..TextOptions::default()
    };
    assert_eq!(task(folder.path(), &texts), Ok(Task::TextClassification));
    assert_eq!(
        task(&folder.path().join("labels.csv"), &any),
        Ok(Task::TextClassification)
    );
    let nameless = folder.put(
        "SMSSpamCollection",
        "ham\tgood day\nspam\twin now\n".repeat(6).as_bytes(),
    );
    assert_eq!(task(&nameless, &any), Ok(Task::TextClassification));
    let photo = task(&folder.path().join("ant/1.jpg"), &any).expect_err("it is no text");
    assert!(photo.contains("is a file, not a folder"), "{photo}");
}

#[test]
fn a_published_model_is_no_data_unless_photographs_stand_beside_it() {
    let refusal = |folder: &Folder, options: &TextOptions| match look(
        folder.path(),
        &InspectOptions::default(),
        options,
        &|_| {},
    ) {
        Ok(Found::Photographs(found)) => found.refusal.unwrap_or_default(),
        Ok(Found::Texts(found)) => found.refusal.unwrap_or_default(),
        Err(error) => error.to_string(),
    };
    let any = TextOptions::default();
    for weights in ["model.safetensors", "pytorch_model.bin"] {
        let folder = Folder::new();
        folder.put("README.md", "A model of much.\n".repeat(40).as_bytes());
        folder.put("vocab.txt", "word\n".repeat(900).as_bytes());
        folder.put("config.json", b"{}");
        assert_eq!(refusal(&folder, &any), "", "two documents");
        folder.put(weights, b"weights");
        let said = refusal(&folder, &any);
        for part in [
            "is a model, not data",
            "Drop the photographs or texts",
            "--from",
        ] {
            assert!(said.contains(part), "{said}");
        }
        let asked = TextOptions {
            task: Some(Task::LanguageModel),
            ..TextOptions::default()
        };
        assert_eq!(
            refusal(&folder, &asked),
            "",
            "who asks for documents gets them"
        );
    }
    let folder = Folder::of(&["ant/1.jpg", "ant/2.jpg", "bee/1.jpg", "bee/2.jpg"]);
    folder.put("config.json", b"{}");
    folder.put("model.safetensors", b"weights");
    assert_eq!(refusal(&folder, &any), "");
    assert!(!is_model(folder.path()));
    let folder = Folder::new();
    for file in ["config.json", "model.safetensors", "vocab.txt"] {
        folder.put(file, b"{}");
    }
    assert!(is_model(folder.path()));
    let rows = "ham\tgood day\nspam\twin now\n".repeat(6);
    folder.put("train.tsv", format!("label\ttext\n{rows}").as_bytes());
    assert_eq!(refusal(&folder, &any), "", "a table is data");
    assert!(!is_model(folder.path()));
}

#[test]
fn a_file_that_changed_is_not_read_with_old_labels() {
    let folder = Folder::new();
    let path = folder.put("rows.csv", b"text,label\none,a\ntwo,b\nthree,a\n");
    let found = found(&folder);
    fs::write(&path, "text,label\none,a\n2,b\nthree,a\n").expect("it can be written");
    let opened = TextRows::open(&found, Part::Train);
    assert!(
        matches!(opened, Err(DatasetError::Changed { .. })),
        "{opened:?}"
    );
    fs::remove_file(&path).expect("it can be removed");
    let opened = TextRows::open(&found, Part::Train).expect_err("it is gone");
    assert!(
        opened
            .to_string()
            .starts_with("rows.csv: It is no longer there."),
        "{opened}"
    );
}

#[test]
fn equal_texts_are_never_held_out_apart() {
    let folder = Folder::new();
    let mut csv = String::from("text,label\n");
    for i in 0..120 {
        csv.push_str(&format!(
            "text {},{}\n",
            i % 40,
            if i % 2 == 0 { "even" } else { "odd" }
        ));
    }
    folder.put("rows.csv", csv.as_bytes());
    let found = found(&folder);
    let texts = |part| -> std::collections::BTreeSet<String> {
        let rows = TextRows::open(&found, part).expect("nothing changed");
        rows.texts().map(str::to_owned).collect()
    };
    let (train, held_out) = (texts(Part::Train), texts(Part::HeldOut));
    assert_eq!((train.len(), held_out.len()), (32, 8));
    assert!(train.is_disjoint(&held_out));
    assert_eq!(
        found.notes[0],
        "80 texts repeat an earlier one; equal ones are never held out apart."
    );
}

#[test]
fn classes_that_differ_in_capitals_only_are_pointed_out() {
    let folder = Folder::new();
    folder.put(
        "rows.csv",
        b"text,label\none,ham\ntwo,Ham\nthree,spam\nfour, ham \n",
    );
    let found = found(&folder);
    let names: Vec<&str> = found.classes.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["Ham", "ham", "spam"]);
    assert_eq!(
        found.notes[0],
        "Some classes differ in capitals only: Ham, ham. Write them alike if they are the same."
    );
}
