//! What the plan page shows of a folder: class names that stay distinguishable, the task, and
//! fields that do not overlap.

use crate::sample;
use crate::support::home::Home;
use crate::support::window::Window;
use serde_json::{Value, json};

const SETTLED: &str = "return document.querySelector('#train:enabled') ? true : null";

/// Whether any part of the plan overlaps the next field of its column.
const OVERLAPS: &str = "const rect = (e) => e.getBoundingClientRect(); const fields = [...document.querySelectorAll('.settings > div')]; \
     const parts = (field) => [...field.children].map(rect); \
     return fields.some((one) => fields.some((other) => one !== other && rect(one).left === rect(other).left && rect(other).top > rect(one).top \
       && parts(one).some((part) => part.bottom > Math.min(...parts(other).map((next) => next.top)))))";

#[test]
fn similar_class_names_stay_distinguishable() {
    let home = Home::new();
    let labels = [
        "card_payment_fee_charged_twice_over",
        "card_payment_not_recognised_at_all",
        "card_payment_wrong_exchange_rate_abroad",
        "short",
    ];
    let rows = (0..1200).map(|i| format!("{}\tmessage {i}, which asks at some length for what a customer of a bank may want on day {i}\n", labels[i % 4]));
    let table = home.path().join("rows.tsv");
    std::fs::write(&table, rows.collect::<String>()).expect("it can be written");
    let window = Window::open(&["app", &table.display().to_string()], home.path());
    window.wait_for("a plan", SETTLED);
    let names = window.run(
        "return [...document.querySelectorAll('#class-list .name')].map((name) => { \
           const end = name.lastElementChild.getBoundingClientRect(); const bar = name.nextElementSibling.getBoundingClientRect(); \
           return [name.title, name.textContent, end.right <= bar.left, name.clientWidth >= 120] })",
    );
    let expected: Vec<Value> = labels
        .iter()
        .map(|name| json!([name, name, true, true]))
        .collect();
    assert_eq!(names, json!(expected));
    window.screenshot("long-names");
    window.resize(1080, 700);
    assert_eq!(window.run(OVERLAPS), json!(false));
    window.screenshot("plan-small");
}

#[test]
fn regression_targets_are_described_without_classes() {
    let home = Home::new();
    let folder = home.path().join("plates");
    std::fs::create_dir_all(folder.join("images")).expect("it can be made");
    let mut table = "image,calories\n".to_owned();
    for class in ["apple", "lemon"] {
        let from = std::fs::read_dir(sample().join(class)).expect("the sample is there");
        for (i, file) in from.take(12).enumerate() {
            let file = file.expect("it can be read").path();
            // Times, which group images.
            let name = format!(
                "dish_{}.jpg",
                1_558_000_000 + 3_600 * i + if class == "apple" { 0 } else { 90_000 }
            );
            std::fs::copy(&file, folder.join("images").join(&name)).expect("it can be copied");
            table += &format!("images/{name},{}\n", 50 + 7 * i);
        }
    }
    std::fs::write(folder.join("labels.csv"), table).expect("it can be written");
    let window = Window::open(&["app", &folder.display().to_string()], home.path());
    window.wait_for("a plan", SETTLED);
    let output = window.run(
        "const text = (of) => document.querySelector(of)?.textContent ?? null; \
         return [text('#setting-task'), text('#hint-task'), text('[data-figure=classes]')]",
    );
    let expected = json!([
        "Image regression",
        "A table with a column of file names and columns of numbers.",
        null
    ]);
    assert_eq!(output, expected);
    let notes = window.run(
        "return [...document.querySelectorAll('.note')].map((note) => note.textContent).join(' ')",
    );
    let notes = notes.to_string();
    assert!(notes.contains("times") && !notes.contains("--"), "{notes}");
    window.screenshot("numbers");
    window.resize(1080, 700);
    assert_eq!(window.run(OVERLAPS), json!(false));
}
