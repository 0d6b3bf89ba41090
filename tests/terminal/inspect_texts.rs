//! Texts are said in words and in JSON.

use crate::support::TestHome;
use serde_json::{Value, json};

fn messages() -> TestHome {
    let place = TestHome::new();
    let row = |i: usize| match i % 4 {
        0 => format!("spam\twin prize number {i}\n"),
        _ => format!("ham\tsee you at {i} o'clock\n"),
    };
    let rows: String = (0..40).map(row).collect();
    place.file("sms.tsv", format!("{rows}ham\t\nno tab here\n"));
    place
}

#[test]
fn a_table_is_reported_with_columns_lengths_and_lines_left_out() {
    let place = messages();
    let words = place.run("inspect {sms.tsv}").ended(0).out;
    for part in [
        "sms.tsv: 40 texts in 2 classes",
        "A text classification: sms.tsv has a column of texts and a column of labels.",
        "The text is column 2: its cells are the longest",
        "The label is column 1: it repeats 2 values",
        "Characters of a text: median 21, 95 % at most 21, longest 21",
        "  ham       30\n  spam      10\n",
        "Held out: 20 % of each class, 8 texts, chosen by seed 7",
        "Skipped 2 rows:\n  sms.tsv, line 41: it has no text\n  sms.tsv, line 42: it has fewer cells than the 2 of the others\n",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
    assert!(place.left_behind().is_empty());
}

#[test]
fn the_same_is_reported_to_programs() {
    let place = messages();
    let out = place.run("inspect {sms.tsv} --json").ended(0).out;
    let found: Value = serde_json::from_str(&out).expect("it is JSON");
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
    let images = place
        .run("inspect {sms.tsv} --task image-classification")
        .ended(1)
        .err;
    assert!(images.contains("is a file, not a folder"), "{images}");
}

#[test]
fn documents_are_a_language_model() {
    let place = TestHome::new();
    std::fs::create_dir(place.path("book")).expect("a folder can be made");
    for i in 0..10 {
        place.file(
            &format!("book/{i}.md"),
            format!("# Chapter {i}\n\n{}", "It rained all day. ".repeat(10 + i)),
        );
    }
    let words = place.run("inspect {book}").ended(0).out;
    for part in [
        "book: 10 documents, ",
        "A language model: the files are texts without rows",
        "Held out: 20 % of the documents, 2 documents, chosen by seed 7",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
}

#[test]
fn what_no_table_or_task_is_called_is_refused() {
    let place = messages();
    let wrong = place
        .run("inspect {sms.tsv} --label-column mood")
        .ended(1)
        .err;
    assert!(
        wrong.contains("No table here has a column mood; there are column 1, column 2."),
        "{wrong}"
    );
    let task = place.run("inspect {sms.tsv} --task poetry").ended(2).err;
    assert!(task.contains("write one of image-classification"), "{task}");
}
