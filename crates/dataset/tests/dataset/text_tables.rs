//! Inspecting tables, class folders and labeled lines of texts.

use crate::support::{Folder, jpeg, scene};
use dataset::{
    Class, DetectedDataset, InspectOptions, Split, Task, TextDataset, TextInspection, TextOptions,
    detect,
};
use std::path::Path;

pub fn look_at(path: &Path, options: &TextOptions) -> TextInspection {
    match detect(path, &InspectOptions::default(), options, &|_| {}) {
        Ok(DetectedDataset::Texts(found)) => found,
        other => panic!("no texts: {other:?}"),
    }
}

pub fn found(folder: &Folder) -> TextInspection {
    look_at(folder.path(), &TextOptions::default())
}

/// "name train/held-out/test" of each class.
fn classes(inspection: &TextInspection) -> Vec<String> {
    let show = |c: &Class| format!("{} {}/{}/{}", c.name, c.train, c.held_out, c.test);
    inspection.classes.iter().map(show).collect()
}

/// "role name, reason" of the chosen columns.
pub fn columns(inspection: &TextInspection) -> Vec<String> {
    let show = |c: &dataset::Column| format!("{} {}, {}", c.role.name(), c.name, c.reason);
    inspection.columns.iter().map(show).collect()
}

/// The rows of all splits as (text, class), sorted.
fn rows(inspection: &TextInspection) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for split in [Split::Train, Split::HeldOut, Split::Test] {
        let rows = TextDataset::open(inspection, split).expect("no file changed");
        assert_eq!(rows.len() as u64, inspection.count(split));
        for i in 0..rows.len() {
            let (text, label) = rows.row(i);
            all.push((
                text.to_owned(),
                inspection.classes[label as usize].name.clone(),
            ));
        }
    }
    all.sort();
    all
}

fn pair(text: &str, label: &str) -> (String, String) {
    (text.to_owned(), label.to_owned())
}

/// "line: reason" of the rows that were left out.
fn skipped(inspection: &TextInspection) -> Vec<String> {
    let show = |s: &dataset::SkippedRows| format!("{}: {}", s.describe_lines(), s.reason);
    inspection.skipped_rows.iter().map(show).collect()
}

#[test]
fn a_csv_may_have_quotes_line_ends_and_a_byte_order_mark() {
    let folder = Folder::new();
    let mut csv = String::from("\u{FEFF}text,category\r\n");
    csv.push_str("\"Hello, it\r\nspans \"\"two\"\" lines\",greeting\r\n\r\n");
    csv.push_str("bye,farewell\r\n,farewell\r\nsee you,\r\na,b,c\r\nso long,farewell\r\n");
    folder.put("rows.csv", csv.as_bytes());
    let found = found(&folder);
    assert_eq!(found.task, Task::TextClassification);
    assert_eq!(
        found.reason,
        "rows.csv has a column of texts and a column of labels."
    );
    assert_eq!(
        columns(&found),
        [
            "text text, recognized by its name",
            "label category, recognized by its name"
        ]
    );
    assert_eq!(
        rows(&found),
        [
            pair("Hello, it\nspans \"two\" lines", "greeting"),
            pair("bye", "farewell"),
            pair("so long", "farewell"),
        ]
    );
    assert_eq!(
        skipped(&found),
        [
            "line 6: the row has no text",
            "line 7: the row has no label",
            "line 8: this line has more cells than the other lines, which have 2",
        ]
    );
    assert_eq!(
        found.notes[0],
        "1 file starts with a byte-order mark, which is not part of the text."
    );
    assert!(found.refusal.is_none() && found.skipped.is_empty());
}

/// Every sample of an inspection, with its text.
fn samples(found: &TextInspection) -> Vec<(dataset::TextSample, String)> {
    let mut all = Vec::new();
    for split in [Split::Train, Split::HeldOut, Split::Test] {
        let texts = TextDataset::open(found, split).expect("no file changed");
        let of_split = found.samples.iter().filter(|s| s.split == split);
        all.extend(of_split.copied().zip(texts.texts().map(str::to_owned)));
    }
    all
}

#[test]
fn files_of_windows_have_the_samples_of_other_files() {
    let table = |separator: &str| {
        let row = |i: usize| {
            let label = ["up", "down"][i % 2];
            format!("this is row {i}{separator}{label}\n")
        };
        format!("text{separator}label\n") + &(0..40).map(row).collect::<String>()
    };
    let quoted = "text,label\n".to_owned()
        + &(0..40)
            .map(|i| format!("\"row {i}\n\nof 3 lines\",{}\n", ["up", "down"][i % 2]))
            .collect::<String>();
    let labeled: String = (0..40)
        .map(|i| format!("{}\tWhat is number {i} ?\n", ["NUM", "DESC"][i % 2]))
        .collect();
    let json = |i: usize| {
        format!(
            "{{\"text\": \"row {i}\\r\\nof 2 lines\", \"label\": {}}}",
            i % 2
        )
    };
    let rows: Vec<String> = (0..40).map(json).collect();
    let prose = "The river runs under bridges.\n\nGeese wander on fields.\n".repeat(60);
    let files = [
        ("rows.csv", table(",")),
        ("rows.tsv", table("\t")),
        ("quoted.csv", quoted),
        ("labeled.txt", labeled),
        ("rows.jsonl", rows.join("\n")),
        ("rows.json", format!("[{}]\n", rows.join(",\n"))),
        ("book.txt", prose.clone()),
        ("book.md", prose),
    ];
    for (name, text) in files {
        let folder = Folder::new();
        let file = folder.put(name, text.as_bytes());
        let expected = look_at(&file, &TextOptions::default());
        assert!(!expected.samples.is_empty(), "{name}");
        let expected_samples = samples(&expected);
        let windows = format!("\u{FEFF}{}", text.replace('\n', "\r\n"));
        folder.put(name, windows.as_bytes());
        let found = look_at(&file, &TextOptions::default());
        assert_eq!(found.encodings[0].marked_files, 1, "{name}");
        assert_eq!(found.task, expected.task, "{name}");
        assert_eq!(columns(&found), columns(&expected), "{name}");
        assert_eq!(classes(&found), classes(&expected), "{name}");
        assert_eq!(found.describe_split(), expected.describe_split(), "{name}");
        assert_eq!(found.bytes, expected.bytes, "{name}");
        assert!(samples(&found) == expected_samples, "{name}");
    }
}

#[test]
fn two_columns_may_have_the_same_name() {
    let folder = Folder::new();
    let mut csv = "text,text,label\n".to_owned();
    for i in 0..40 {
        let label = if i % 4 == 0 { "spam" } else { "ham" };
        csv.push_str(&format!("message {i},a longer message {i},{label}\n"));
    }
    folder.put("sms.csv", csv.as_bytes());
    let found = found(&folder);
    assert_eq!(classes(&found), ["ham 24/6/0", "spam 8/2/0"]);
    assert_eq!(
        columns(&found),
        [
            "text text, recognized by its name",
            "label label, recognized by its name",
        ]
    );
    assert!(rows(&found).contains(&pair("message 0", "spam")));
    // The second column has a name of its own, so that it can be chosen.
    let second = TextOptions {
        text_column: Some("text 2".to_owned()),
        ..TextOptions::default()
    };
    let found = look_at(folder.path(), &second);
    assert!(rows(&found).contains(&pair("a longer message 0", "spam")));
}

#[test]
fn a_tsv_has_no_quoting_and_may_have_no_header() {
    let folder = Folder::new();
    let mut tsv = String::new();
    for i in 0..40 {
        tsv.push_str(&format!(
            "{}\tmessage {i} with a bare \" quote\n",
            if i % 4 == 0 { "spam" } else { "ham" }
        ));
    }
    folder.put("sms.tsv", tsv.as_bytes());
    let found = found(&folder);
    assert_eq!(classes(&found), ["ham 24/6/0", "spam 8/2/0"]);
    assert_eq!(
        columns(&found),
        [
            "text column 2, its cells are the longest: 30 characters on average",
            "label column 1, the first 40 rows contain only 2 different values",
        ]
    );
    assert_eq!(
        found.describe_split(),
        "20 % of each class, 8 texts, chosen by seed 7"
    );
    assert!(rows(&found).contains(&pair("message 0 with a bare \" quote", "spam")));
    assert_eq!(
        (
            found.lengths.median_characters,
            found.lengths.longest_characters
        ),
        (30, 30)
    );
    let note = "The class \"spam\" is small: 10 texts.";
    assert!(found.notes[0].starts_with(note), "{:?}", found.notes);
}

#[test]
fn numeric_labels_of_json_lines_are_sorted_by_value() {
    let folder = Folder::new();
    let mut lines = String::new();
    for i in 0..22 {
        lines.push_str(&format!(
            "{{\"id\": {i}, \"sentence\": \"n\\u00famero {i}\", \"label\": {}}}\n",
            i % 11
        ));
    }
    lines.push_str("not json\n[1, 2]\n{\"sentence\": null, \"label\": 1}\n{\"label\": 2}\n");
    folder.put("rows.jsonl", lines.as_bytes());
    let found = found(&folder);
    let names: Vec<&str> = found.classes.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(
        names,
        ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]
    );
    assert!(rows(&found).contains(&pair("número 10", "10")));
    assert_eq!(
        skipped(&found),
        [
            "line 23: it is not JSON",
            "line 24: it is not a JSON object",
            "lines 25, 26: the row has no text",
        ]
    );
}

#[test]
fn file_names_give_splits_and_repeats_are_reported() {
    let folder = Folder::new();
    let table = |rows: &[(&str, &str)]| {
        let lines = rows.iter().map(|(text, label)| format!("{text},{label}\n"));
        format!("text,label\n{}", lines.collect::<String>())
    };
    folder.put(
        "set_train.csv",
        table(&[("a b", "x"), ("c d", "y"), ("e f", "x")]).as_bytes(),
    );
    folder.put(
        "set_test.csv",
        table(&[("a b", "x"), ("g h", "z"), ("i j", "y")]).as_bytes(),
    );
    folder.put("set_valid.csv", table(&[("k l", "y")]).as_bytes());
    folder.put("more.csv", table(&[("m n", "x")]).as_bytes());
    folder.put(
        "set_train.jsonl",
        b"{\"text\": \"a b\", \"label\": \"x\"}\n",
    );
    folder.put("prices.csv", b"item,price\nbread,3\nmilk,2\nsalt,1\n");
    let found = found(&folder);
    assert_eq!(classes(&found), ["x 2/0/1", "y 1/1/1"]);
    assert_eq!(
        found.describe_split(),
        "from set_train.csv, set_valid.csv and set_test.csv"
    );
    assert_eq!(skipped(&found), ["line 3: no training text has this label"]);
    let notes = found.notes.join(" ");
    assert!(notes.contains("1 text is in two sets"), "{notes}");
    assert!(
        notes.contains("1 class has no text in the held-out set: x."),
        "{notes}"
    );
    let reasons: Vec<String> = found
        .skipped
        .iter()
        .map(|s| format!("{} {}", s.path.display(), s.reason))
        .collect();
    for (line, part) in reasons.iter().zip([
        "more.csv Other files are named after splits",
        "prices.csv The columns of this file (item, price)",
        "set_train.jsonl This file has the same name as set_train.csv",
    ]) {
        assert!(line.starts_with(part), "{line}");
    }
    assert_eq!(reasons.len(), 3);
}

#[test]
fn folders_of_texts_are_classes_in_any_encoding() {
    let folder = Folder::new();
    for i in 0..10 {
        folder.put(
            &format!("set/objective/{i:02}.txt"),
            format!("plain words {i}").as_bytes(),
        );
        folder.put(
            &format!("set/subjective/{i:02}.txt"),
            format!("lovely words {i} \u{e9}").as_bytes(),
        );
    }
    folder.put("set/subjective/99.txt", b"tr\xE8s \x93beau\x94");
    folder.put("set/subjective/empty.txt", b"");
    folder.put("set/subjective/junk.txt", &jpeg(&scene(40, 30)));
    folder.put("set/subjective/blank.txt", b" \n\n");
    let found = found(&folder);
    assert_eq!(classes(&found), ["objective 8/2/0", "subjective 9/2/0"]);
    assert!(rows(&found).contains(&pair("très “beau”", "subjective")));
    assert!(
        found
            .reason
            .starts_with("there are 2 sub-folders of .txt files"),
        "{}",
        found.reason
    );
    assert_eq!(
        found.notes[0],
        "1 file is not UTF-8, so Ebb read it as windows-1252. In this file, 3 bytes are not ASCII, and everything could be read."
    );
    let reasons: Vec<&str> = found.skipped.iter().map(|s| s.reason.as_str()).collect();
    assert_eq!(
        reasons,
        [
            "The file is empty. Copy it here again.",
            "The file is a JPEG image, not text. Remove the file."
        ]
    );
    assert_eq!(skipped(&found), ["line 1: the row has no text"]);
}

#[test]
fn lines_that_start_with_a_label_are_rows() {
    let folder = Folder::new();
    let mut lines = String::new();
    for i in 0..30 {
        lines.push_str(&format!(
            "{} What is number {i} ?\r\n",
            ["DESC:def", "NUM:count", "LOC:city"][i % 3]
        ));
    }
    folder.put("TREC.train.txt", lines.as_bytes());
    folder.put("TREC.test.txt", lines.replace("What", "Where").as_bytes());
    let found = found(&folder);
    assert_eq!(
        classes(&found),
        ["DESC:def 8/2/10", "LOC:city 8/2/10", "NUM:count 8/2/10"]
    );
    assert!(
        found
            .reason
            .starts_with("every line of TREC.test.txt starts"),
        "{}",
        found.reason
    );
    assert_eq!(
        found.describe_split(),
        "20 % of each class, 6 texts, chosen by seed 7; 30 reserved for a final test"
    );
}
