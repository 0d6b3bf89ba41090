//! The folders that were opened last: listed after a restart, and dimmed if they are missing.

use crate::support::home::Home;
use crate::support::until;
use crate::support::window::Window;
use crate::{SOON, sample};
use serde_json::{Value, json};

fn listed(window: &Window) -> Value {
    window.run("return [...document.querySelectorAll('#recent li')].map((item) => item.querySelector('b').textContent)")
}

#[test]
fn opened_folders_are_listed_after_a_restart_until_they_are_cleared() {
    let home = Home::new();
    let birds = home.path().join("birds");
    std::fs::create_dir_all(birds.join("owl")).expect("it can be made");
    let targets = [birds.display().to_string(), sample().display().to_string()];
    for target in &targets {
        let window = Window::open(&["app", target], home.path());
        window.wait_for(
            "the plan page",
            "return document.body.dataset.view === 'plan' || null",
        );
    }
    std::fs::remove_dir_all(&birds).expect("it can be removed");
    let window = Window::open(&["app"], home.path());
    until("both are listed, newest first", SOON, || {
        (listed(&window) == json!(["groceries", "birds"])).then_some(())
    });
    let missing = window.run("return document.querySelector('#recent li.missing').textContent");
    let missing = missing.as_str().unwrap_or_default();
    assert!(missing.contains("birds is no longer in "), "{missing}");
    window.screenshot("recent-folders");
    window.click("[data-recent]");
    window.wait_for(
        "its plan",
        "return document.querySelector('#train:enabled') ? true : null",
    );
    window.run("location.hash = '#/'");
    window.wait_for(
        "the list",
        "return document.querySelector('#clear-recent')?.checkVisibility() || null",
    );
    window.click("#clear-recent");
    until("it is empty", SOON, || {
        (listed(&window) == json!([])).then_some(())
    });
    let saved = std::fs::read_to_string(home.path().join("recent.json"));
    assert_eq!(saved.expect("it is saved"), "[]");
}
