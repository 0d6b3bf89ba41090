//! Texts in the window: a table of labelled texts and a book are found, forecast, trained and stopped as photographs are.

use crate::SOON;
use crate::support::home::Home;
use crate::support::until;
use crate::support::window::Window;
use serde_json::json;

/// What the plan page says: task, samples to train on, and the label of the length.
fn said(window: &Window) -> (String, String, String) {
    let shown = window.wait_for(
        "a forecast",
        "const text = (selector) => document.querySelector(selector)?.textContent.trim() ?? ''; \
         if (document.querySelector('.figures.stale') || text('#peak').startsWith('–') || !text('#peak')) return null; \
         const task = document.querySelector('#setting-task'); \
         const chosen = task.selectedOptions ? task.selectedOptions[0].textContent.trim() : text('#setting-task'); \
         return [chosen, text('.figures > div:last-child span'), text('label[for=setting-resolution]')]",
    );
    let word = |i: usize| shown[i].as_str().unwrap_or_default().to_owned();
    (word(0), word(1), word(2))
}

fn trained_and_stopped(window: &Window, home: &Home, picture: &str) -> String {
    window.click("#train");
    let run = window.run_id();
    until("it trains", SOON, || (home.step(&run) >= 3).then_some(()));
    window.wait_for_status("training");
    window.screenshot(picture);
    window.click("#stop");
    window.wait_for_status("stopped");
    assert!(
        !home.checkpoints(&run).is_empty(),
        "a checkpoint is on disk"
    );
    run
}

#[test]
fn labelled_texts_are_found_and_trained() {
    let home = Home::new();
    let folder = home.path().join("messages");
    std::fs::create_dir(&folder).expect("it can be made");
    let rows = (0..3000).map(|i| match i % 3 {
        0 => format!("spam\twin prize number {i} now, call at once\n"),
        _ => format!("ham\tsee you at {i} o'clock, if the train is on time\n"),
    });
    std::fs::write(folder.join("rows.tsv"), rows.collect::<String>()).expect("it can be written");
    let window = Window::open(&["app", &folder.display().to_string()], home.path());
    assert_eq!(
        said(&window),
        (
            "Text classification".into(),
            "texts to train on".into(),
            "Length".into()
        )
    );
    window.screenshot("texts");
    let view = window
        .invoke("inspection", &json!({"id": "folder-1", "seen": 0}))
        .expect("it is open");
    assert_eq!(
        (&view["task"], &view["samples"], &view["refusal"]),
        (
            &json!("text classification"),
            &json!(3000),
            &serde_json::Value::Null
        )
    );
    let run = trained_and_stopped(&window, &home, "texts-training");
    let started = &home.events(&run)[0];
    assert_eq!(
        (&started["task"], &started["model"]),
        (&json!("text-classification"), &json!("text_micro"))
    );
}

#[test]
fn a_book_is_found_and_trained() {
    let home = Home::new();
    let book = home.path().join("book.txt");
    let lines = (0..4000).map(|i| format!("Line {i} of a book that nobody reads aloud.\n"));
    std::fs::write(&book, lines.collect::<String>()).expect("it can be written");
    let window = Window::open(&["app", &book.display().to_string()], home.path());
    window.wait_for(
        "a plan",
        "return document.querySelector('#setting-model') ? true : null",
    );
    window.run(
        "for (const [id, value] of [['model', 'gpt_micro'], ['resolution', '32'], ['effective-batch', '4']]) { \
         const e = document.querySelector('#setting-' + id); e.value = value; \
         e.dispatchEvent(new Event('input', {bubbles: true})); e.dispatchEvent(new Event('change', {bubbles: true})) }",
    );
    assert_eq!(
        said(&window),
        (
            "Language model".into(),
            "windows to train on".into(),
            "Length".into()
        )
    );
    window.screenshot("book");
    let run = trained_and_stopped(&window, &home, "book-training");
    let started = &home.events(&run)[0];
    assert_eq!(
        (
            &started["task"],
            &started["model"],
            &started["effective_batch"]
        ),
        (&json!("language-model"), &json!("gpt_micro"), &json!(4))
    );
}

/// Documents can also be compressed: the page offers it, suggests a plan of its own for it, and says what is kept.
#[test]
fn a_book_is_compressed_when_that_is_chosen() {
    let home = Home::new();
    let book = home.path().join("book.txt");
    let lines = (0..4000).map(|i| format!("Line {i} of a book that nobody reads aloud.\n"));
    std::fs::write(&book, lines.collect::<String>()).expect("it can be written");
    let window = Window::open(&["app", &book.display().to_string()], home.path());
    window.wait_for(
        "a plan",
        "return document.querySelector('#setting-task') ? true : null",
    );
    let set = |values: &str| {
        window.run(&format!(
            "for (const [id, value] of {values}) {{ const e = document.querySelector('#setting-' + id); e.value = value; \
             e.dispatchEvent(new Event('input', {{bubbles: true}})); e.dispatchEvent(new Event('change', {{bubbles: true}})) }}"
        ));
    };
    set("[['task', 'token-compression']]");
    window.wait_for(
        "the models of a compression",
        "return document.querySelector('#setting-model').value === 'compress_micro' ? true : null",
    );
    set("[['resolution', '32'], ['effective-batch', '4']]");
    assert_eq!(said(&window).0, "Token compression");
    window.screenshot("compression");
    window.click("#train");
    let run = window.run_id();
    window.wait_for(
        "what is kept",
        "return document.querySelector('#measured')?.textContent.includes('kept 50.0 %') ? true : null",
    );
    window.screenshot("compression-training");
    window.click("#stop");
    window.wait_for_status("stopped");
    let started = &home.events(&run)[0];
    assert_eq!(
        (&started["task"], &started["model"]),
        (&json!("token-compression"), &json!("compress_micro"))
    );
}
