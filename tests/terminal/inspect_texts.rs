//! `ebb inspect` describes texts as text and as JSON.

use crate::support::TestHome;
use serde_json::{Value, json};

fn messages() -> TestHome {
    let home = TestHome::new();
    let row = |i: usize| match i % 4 {
        0 => format!("spam\twin prize number {i}\n"),
        _ => format!("ham\tsee you at {i} o'clock\n"),
    };
    let rows: String = (0..40).map(row).collect();
    home.file("sms.tsv", format!("{rows}ham\t\nno tab here\n"));
    home
}

#[test]
fn inspect_prints_columns_lengths_and_skipped_rows() {
    let home = messages();
    let words = home.run("inspect {sms.tsv}").expect_code(0).out;
    for part in [
        "sms.tsv: 40 texts in 2 classes",
        "Task: text classification, because sms.tsv has a column of texts and a column of labels.",
        "Text column: \"column 2\" (its cells are the longest",
        "Label column: \"column 1\" (the first 41 rows contain only 2 different values).",
        "Characters per text: median 21, 95th percentile 21, longest 21",
        "  ham       30\n  spam      10\n",
        "Held out: 20 % of each class, 8 texts, chosen by seed 7",
        "Skipped 2 rows:\n  sms.tsv, line 41: the row has no text\n  sms.tsv, line 42: this line has fewer cells than the other lines, which have 2\n",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
    assert!(home.leftover_files().is_empty());
}

#[test]
fn inspect_prints_texts_as_json() {
    let home = messages();
    let out = home.run("inspect {sms.tsv} --json").expect_code(0).out;
    let found: Value = serde_json::from_str(&out).expect("valid JSON");
    let expected = json!({"task": "text-classification", "samples": 40, "train": 32, "held_out": 8, "test": 0});
    for (key, value) in expected.as_object().expect("it is an object") {
        assert_eq!(&found[key], value, "{key}");
    }
    assert_eq!(
        found["classes"][1],
        json!({"name": "spam", "train": 8, "held_out": 2, "test": 0})
    );
    assert_eq!(found["skipped_rows"][0]["lines"], json!([41]));
    assert_eq!(found["encodings"][0]["name"], "UTF-8");
    assert!(found["refusal"].is_null());
    let images = home
        .run("inspect {sms.tsv} --task image-classification")
        .expect_code(2)
        .err;
    assert!(images.contains("sms.tsv holds texts"), "{images}");
}

#[test]
fn documents_are_detected_as_language_modeling() {
    let home = TestHome::new();
    std::fs::create_dir(home.path("book")).expect("the folder can be created");
    for i in 0..10 {
        home.file(
            &format!("book/{i}.md"),
            format!("# Chapter {i}\n\n{}", "It rained all day. ".repeat(10 + i)),
        );
    }
    let words = home.run("inspect {book}").expect_code(0).out;
    for part in [
        "book: 10 documents, ",
        "Task: language model, because the files are plain texts, not tables",
        "Held out: 20 % of the documents, 2 documents, chosen by seed 7",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
}

#[test]
fn unknown_columns_and_tasks_are_refused() {
    let home = messages();
    let wrong = home
        .run("inspect {sms.tsv} --label-column mood")
        .expect_code(1)
        .err;
    assert!(
        wrong.contains(
            "No table in this folder has a column mood. Available columns: column 1, column 2."
        ),
        "{wrong}"
    );
    let task = home
        .run("inspect {sms.tsv} --task poetry")
        .expect_code(2)
        .err;
    assert!(
        task.contains("must be one of `image-classification`"),
        "{task}"
    );
}
