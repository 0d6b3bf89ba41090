//! Options for texts, refusals, and the choice between images and texts.

use crate::support::Folder;
use crate::text_tables::{columns, found, look_at};
use dataset::{
    DatasetError, DetectedDataset, InspectOptions, Split, Task, TextDataset, TextOptions, detect,
    is_model_file, is_model_folder,
};
use std::fs;
use std::path::Path;

#[test]
fn columns_can_be_named_and_unknown_ones_are_errors() {
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
        [
            "text body, recognized by its name",
            "label label, recognized by its name"
        ]
    );
    let half = look_at(folder.path(), &with(None, Some("kind")));
    assert_eq!(
        columns(&half),
        [
            "text body, recognized by its name",
            "label kind, you named it"
        ]
    );
    let wrong = detect(
        folder.path(),
        &InspectOptions::default(),
        &with(Some("words"), None),
        &|_| {},
    );
    let Err(DatasetError::UnknownColumn { .. }) = &wrong else {
        panic!("{wrong:?}");
    };
    let message = wrong
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    assert_eq!(
        message,
        "No table in this folder has a column words. Available columns: title, body, kind, label. Choose one of these columns."
    );
}

#[test]
fn texts_that_cannot_be_trained_on_have_a_refusal() {
    let check = |file: &str, content: &str, part: &str| {
        let folder = Folder::new();
        folder.put(file, content.as_bytes());
        let refusal = found(&folder).refusal.unwrap_or_default();
        assert!(refusal.contains(part), "{file}: {refusal}");
    };
    check(
        "a.csv",
        "text,label\nhello,ham\nthere,ham\n",
        "All texts have the same class, ham. To train, add rows with a second label",
    );
    check(
        "b.csv",
        "name,price\nbread,3\nmilk,2\nsalt,1\n",
        "No column of b.csv looks like labels; the columns are name, price. Rename two columns to text and label",
    );
    let prices = (0..30).map(|i| format!("bread number {i},{i}.25\n"));
    check(
        "prices.csv",
        &format!("text,label\n{}", prices.collect::<String>()),
        "The column label (numbers) of prices.csv has a different value in nearly every row",
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
fn images_take_precedence_and_a_single_file_is_enough() {
    let folder = Folder::with_images(&["ant/1.jpg", "ant/2.jpg", "bee/1.jpg"]);
    folder.put("labels.csv", b"text,label\na,x\nb,y\n");
    let task = |path: &Path, options: &TextOptions| {
        detect(path, &InspectOptions::default(), options, &|_| {})
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
    let photo = task(&folder.path().join("ant/1.jpg"), &any).expect_err("it is not a text");
    assert!(photo.contains("is a file, not a folder"), "{photo}");
}

#[test]
fn a_model_folder_is_not_a_dataset() {
    let refusal = |folder: &Folder, options: &TextOptions| match detect(
        folder.path(),
        &InspectOptions::default(),
        options,
        &|_| {},
    ) {
        Ok(DetectedDataset::Images(found)) => found.refusal.unwrap_or_default(),
        Ok(DetectedDataset::Texts(found)) => found.refusal.unwrap_or_default(),
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
        let text = refusal(&folder, &any);
        for part in ["is a model, not data", "Drop the images or texts", "--from"] {
            assert!(text.contains(part), "{text}");
        }
        let asked = TextOptions {
            task: Some(Task::LanguageModel),
            ..TextOptions::default()
        };
        assert_eq!(refusal(&folder, &asked), "", "the user asks for documents");
    }
    let folder = Folder::with_images(&["ant/1.jpg", "ant/2.jpg", "bee/1.jpg", "bee/2.jpg"]);
    folder.put("config.json", b"{}");
    folder.put("model.safetensors", b"weights");
    assert_eq!(refusal(&folder, &any), "");
    assert!(!is_model_folder(folder.path()));
    let folder = Folder::new();
    for file in ["config.json", "model.safetensors", "vocab.txt"] {
        folder.put(file, b"{}");
    }
    assert!(is_model_folder(folder.path()));
    let rows = "ham\tgood day\nspam\twin now\n".repeat(6);
    folder.put("train.tsv", format!("label\ttext\n{rows}").as_bytes());
    assert_eq!(refusal(&folder, &any), "", "a table is data");
    assert!(!is_model_folder(folder.path()));
}

#[test]
fn a_folder_of_archives_names_what_to_unpack() {
    let refusal = |path: &Path| match detect(
        path,
        &InspectOptions::default(),
        &TextOptions::default(),
        &|_| {},
    ) {
        Ok(DetectedDataset::Images(found)) => found.refusal.unwrap_or_default(),
        Ok(DetectedDataset::Texts(found)) => found.refusal.unwrap_or_default(),
        Err(error) => error.to_string(),
    };
    let unpack = |names: &str| {
        format!(
            "Ebb does not unpack archives or compressed files. Unpack {names}, then choose the folder again."
        )
    };
    let folder = Folder::new();
    let archive = folder.put("images/birds.TAR", b"not read");
    assert_eq!(refusal(folder.path()), unpack("images/birds.TAR"));
    folder.put("README.txt", "Images of birds.\n".repeat(45).as_bytes());
    assert_eq!(refusal(folder.path()), unpack("images/birds.TAR"));
    folder.put("labels.csv.gz", b"not read");
    let both = unpack("images/birds.TAR, labels.csv.gz");
    assert_eq!(refusal(folder.path()), both);
    let alone = refusal(&archive);
    assert!(
        alone.contains("birds.TAR is an archive or a compressed file, which Ebb does not unpack"),
        "{alone}"
    );
    // An archive beside data, such as the one that the data came in, is not in the way.
    let rows = "ham\tgood day\nspam\twin now\n".repeat(6);
    folder.put("train.tsv", format!("label\ttext\n{rows}").as_bytes());
    assert_eq!(refusal(folder.path()), "");
    let one_class = Folder::with_images(&["ant/1.jpg", "ant/2.jpg"]);
    one_class.put("ant.zip", b"not read");
    let text = refusal(one_class.path());
    assert!(text.contains("This folder has one class, ant"), "{text}");
}

#[test]
fn a_gguf_file_is_a_model() {
    let folder = Folder::new();
    let file = folder.put("small.GGUF", b"not read");
    assert!(is_model_file(&file) && !is_model_file(folder.path()));
    let texts = TextOptions::default();
    let refused = detect(&file, &InspectOptions::default(), &texts, &|_| {});
    let refused = refused.expect_err("it is a model").to_string();
    assert!(
        refused.contains("small.GGUF is a language model (GGUF), not data. Open the texts")
            && refused.contains("ebb train DATA --from FILE"),
        "{refused}"
    );
    // Beside data, it is a file of another kind.
    let rows = "ham\tgood day\nspam\twin now\n".repeat(6);
    folder.put("train.tsv", format!("label\ttext\n{rows}").as_bytes());
    assert_eq!(found(&folder).refusal, None);
}

#[test]
fn changed_and_missing_files_are_errors() {
    let folder = Folder::new();
    let path = folder.put("rows.csv", b"text,label\none,a\ntwo,b\nthree,a\n");
    let found = found(&folder);
    fs::write(&path, "text,label\none,a\n2,b\nthree,a\n").expect("it can be written");
    let opened = TextDataset::open(&found, Split::Train);
    assert!(
        matches!(opened, Err(DatasetError::FileChanged { .. })),
        "{opened:?}"
    );
    fs::remove_file(&path).expect("it can be removed");
    let opened = TextDataset::open(&found, Split::Train).expect_err("it is gone");
    assert!(
        opened
            .to_string()
            .starts_with("rows.csv: The file is no longer there."),
        "{opened}"
    );
}

#[test]
fn equal_texts_are_in_the_same_split() {
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
        let rows = TextDataset::open(&found, part).expect("no file changed");
        rows.texts().map(str::to_owned).collect()
    };
    let (train, held_out) = (texts(Split::Train), texts(Split::HeldOut));
    assert_eq!((train.len(), held_out.len()), (32, 8));
    assert!(train.is_disjoint(&held_out));
    assert_eq!(
        found.notes[0],
        "80 texts repeat an earlier one. Ebb never divides identical texts between the training and the held-out set."
    );
}

#[test]
fn classes_that_differ_only_in_capitals_are_reported() {
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
        "Some class names differ only in capital letters: Ham, ham. If two names mean the same class, spell them alike."
    );
}
