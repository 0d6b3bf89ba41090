//! Texts in the window: a table of labeled texts and a book are detected, estimated, trained and
//! stopped like images.

use crate::SOON;
use crate::support::home::Home;
use crate::support::until;
use crate::support::window::Window;
use serde_json::{Value, json};
use std::path::Path;

/// The window, opened on a dataset.
fn open(home: &Home, target: &Path) -> Window {
    let window = Window::open(&["app", &target.display().to_string()], home.path());
    window.wait_for(
        "a plan",
        "return document.querySelector('#setting-model') ? true : null",
    );
    window
}

/// A table of 3,000 messages of two classes.
fn open_on_messages(home: &Home) -> Window {
    let folder = home.path().join("messages");
    std::fs::create_dir(&folder).expect("it can be made");
    let rows = (0..3000).map(|i| match i % 3 {
        0 => format!("spam\twin prize number {i} now, call at once\n"),
        _ => format!("ham\tsee you at {i} o'clock, if the train is on time\n"),
    });
    std::fs::write(folder.join("rows.tsv"), rows.collect::<String>()).expect("it can be written");
    open(home, &folder)
}

/// One document of 4,000 lines.
fn open_on_book(home: &Home) -> Window {
    let book = home.path().join("book.txt");
    let lines = (0..4000).map(|i| format!("Line {i} of a book that nobody reads aloud.\n"));
    std::fs::write(&book, lines.collect::<String>()).expect("it can be written");
    open(home, &book)
}

/// What the plan page shows with an estimate: task, samples to train on, and the label of the
/// length.
fn planned(window: &Window) -> [String; 3] {
    let shown = window.wait_for(
        "an estimate",
        "const text = (selector) => document.querySelector(selector)?.textContent.trim() ?? ''; \
         if (document.querySelector('.figures.stale') || text('#peak').startsWith('–') || !text('#peak')) return null; \
         const task = document.querySelector('#setting-task'); \
         const chosen = task.selectedOptions ? task.selectedOptions[0].textContent.trim() : text('#setting-task'); \
         return [chosen, text('#hint-model').split(' ').pop(), text('label[for=setting-resolution]')]",
    );
    [0, 1, 2].map(|i| shown[i].as_str().unwrap_or_default().to_owned())
}

/// Trains until `enough`, stops, and returns the first event of the run.
fn trained(window: &Window, home: &Home, enough: impl FnOnce(&str)) -> Value {
    window.click("#train");
    let run = window.run_id();
    enough(&run);
    window.click("#stop");
    window.wait_for_status("stopped");
    assert!(
        !home.checkpoints(&run).is_empty(),
        "a checkpoint is on disk"
    );
    home.events(&run)[0].clone()
}

/// Trains for three steps.
fn trained_a_little(window: &Window, home: &Home, picture: &str) -> Value {
    trained(window, home, |run| {
        until("it trains", SOON, || (home.step(run) >= 3).then_some(()));
        window.wait_for_status("training");
        window.screenshot(picture);
    })
}

#[track_caller]
fn check(started: &Value, task: &str, model: &str) {
    assert_eq!(
        (&started["task"], &started["model"]),
        (&json!(task), &json!(model))
    );
}

#[test]
fn labeled_texts_are_detected_and_trained() {
    let home = Home::new();
    let window = open_on_messages(&home);
    assert_eq!(
        planned(&window),
        ["Text classification", "texts.", "Length"]
    );
    window.wait_for(
        "texts of both classes",
        "const labels = [...document.querySelectorAll('#first-samples .label')].map((label) => label.textContent); \
         return labels.includes('ham') && labels.includes('spam') || null",
    );
    window.screenshot("texts");
    let view = window
        .invoke("inspection", &json!({"id": "folder-1", "seen": 0}))
        .expect("it is open");
    assert_eq!(
        (&view["task"], &view["samples"], &view["refusal"]),
        (&json!("text classification"), &json!(3000), &Value::Null)
    );
    let started = trained_a_little(&window, &home, "texts-training");
    check(&started, "text-classification", "text_micro");
}

#[test]
fn a_book_is_detected_and_trained() {
    let home = Home::new();
    let window = open_on_book(&home);
    window.set(&[
        ("model", "gpt_micro"),
        ("resolution", "32"),
        ("effective-batch", "4"),
    ]);
    assert_eq!(planned(&window), ["Language model", "windows.", "Length"]);
    window.wait_for(
        "the beginning of the book",
        "return document.querySelector('#first-samples')?.textContent.includes('Line 0 of a book') || null",
    );
    window.screenshot("book");
    let started = trained_a_little(&window, &home, "book-training");
    check(&started, "language-model", "gpt_micro");
    assert_eq!(started["effective_batch"], 4);
}

/// Documents can also be compressed: the page offers this task, suggests a plan for it, and shows
/// the kept fraction.
#[test]
fn a_book_can_be_compressed() {
    let home = Home::new();
    let window = open_on_book(&home);
    window.set(&[("task", "token-compression")]);
    window.wait_for(
        "the models of a compression",
        "return document.querySelector('#setting-model').value === 'compress_micro' ? true : null",
    );
    window.set(&[("resolution", "32"), ("effective-batch", "4")]);
    assert_eq!(planned(&window)[0], "Token compression");
    window.screenshot("compression");
    let started = trained(&window, &home, |_| {
        window.wait_for(
            "what is kept",
            "return document.querySelector('#measured')?.textContent.includes('kept 50.0 %') ? true : null",
        );
        window.screenshot("compression-training");
    });
    check(&started, "token-compression", "compress_micro");
}
