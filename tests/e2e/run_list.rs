//! The list of runs: search, notes, another name, a new plan from a run, and the trash.

use crate::support::drag::drag_off;
use crate::support::home::Home;
use crate::support::until;
use crate::support::window::Window;
use crate::{SOON, sample};
use serde_json::{Value, json};
use std::process::{Command, Stdio};

/// Trains the sample for a few steps in the terminal, and returns the run's id.
pub fn trained(home: &Home, steps: &str) -> String {
    let status = Command::new(env!("CARGO_BIN_EXE_ebb"))
        .arg("train")
        .arg(sample())
        .args(["--steps", steps, "--image-size", "32", "--json"])
        .env("EBB_HOME", home.path())
        .stdout(Stdio::null())
        .status();
    assert!(status.expect("the binary runs").success());
    let runs = std::fs::read_dir(home.path().join("runs")).expect("there are runs");
    let mut ids: Vec<String> = runs
        .map(|run| run.expect("it can be listed").file_name())
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    ids.sort_by_key(|id| id.len());
    ids.pop().expect("it was trained")
}

fn rows(window: &Window) -> Value {
    window.run("return [...document.querySelectorAll('[data-run-row]')].map((row) => row.querySelector('.name').textContent)")
}

#[test]
fn runs_are_renamed_found_repeated_and_thrown_away() {
    let home = Home::new();
    trained(&home, "2");
    let second = trained(&home, "3");
    let data = tempfile::tempdir().expect("a temporary folder");
    let window = Window::open_with_trash(&["app"], home.path(), data.path());
    window.wait_for(
        "two rows with their dates",
        "return document.querySelectorAll('[data-run-row] .state').length === 2 \
           && [...document.querySelectorAll('[data-run-row] .state')].every((line) => /today|yesterday/.test(line.textContent)) || null",
    );
    let edited = json!({"run": second, "name": "Fruit, larger", "note": "three steps", "tags": ["short", "fruit"]});
    window.invoke("edit_run", &edited).expect("it is saved");
    window.wait_for(
        "the new name",
        "return document.body.textContent.includes('Fruit, larger') || null",
    );
    window.run(
        "const field = document.querySelector('#search-runs'); field.value = '#short fruit'; field.dispatchEvent(new Event('input', {bubbles: true}))",
    );
    until("one run is found", SOON, || {
        (rows(&window) == json!(["Fruit, larger"])).then_some(())
    });
    window.screenshot("run-list");
    window.click(&format!("[data-run-row={second:?}] .name"));
    window.wait_for(
        "its results",
        "return document.body.dataset.view === 'results' || null",
    );
    window.click("nav[aria-label=Stage] > :first-child");
    window.wait_for(
        "the settings of the run",
        "return document.querySelector('#setting-resolution')?.value === '32' && document.querySelector('#train:enabled') ? true : null",
    );
    window.screenshot("plan-of-run");
    let refused = window.invoke("trash_run", &json!({"run": "../runs"}));
    assert_eq!(refused.expect_err("it is no id")["code"], "unknown_id");
    window
        .invoke("trash_run", &json!({"run": second}))
        .expect("it is moved");
    assert!(!home.run(&second).exists());
    let thrown = data.path().join("Trash/files").join(&second);
    for file in ["config.toml", "events.jsonl", "checkpoints"] {
        assert!(thrown.join(file).exists(), "{file} is not in the trash");
    }
    window.run("location.hash = '#/'");
    until("one row is left", SOON, || {
        (rows(&window) == json!(["groceries"])).then_some(())
    });
}

#[test]
fn a_row_that_is_dragged_to_another_app_is_the_folder_of_its_run() {
    let home = Home::new();
    let run = trained(&home, "2");
    let window = Window::open(&["app"], home.path());
    let row = format!("[data-run-row={run:?}]");
    window.wait_for(
        "the row",
        &format!("return document.querySelector({row:?}) ? true : null"),
    );
    let received = drag_off(&window, &row);
    assert_eq!(received, format!("file://{}", home.run(&run).display()));
    assert_eq!(
        window.run("return document.body.dataset.view"),
        json!("welcome"),
        "a drag is no click"
    );
}

#[test]
fn a_finished_run_trains_longer() {
    let home = Home::new();
    let run = trained(&home, "2");
    let window = Window::open(&["app"], home.path());
    window.click(&format!("[data-run-row={run:?}] .name"));
    window.click("#train-longer");
    window.wait_for(
        "the dialog",
        "return document.querySelector('#epochs-in-all') ? true : null",
    );
    window.screenshot("train-longer");
    window.run(
        "const field = document.querySelector('#epochs-in-all'); field.value = '1'; field.dispatchEvent(new Event('input', {bubbles: true}))",
    );
    window.click("#train-longer-dialog .primary");
    let of_kind = |kind: &str| {
        let events = home.events(&run).into_iter();
        events
            .filter(|event| event["kind"] == kind)
            .collect::<Vec<_>>()
    };
    until("the run has ended again", 2 * SOON, || {
        (of_kind("stopped").len() == 2).then_some(())
    });
    let resumed = &of_kind("resumed")[0];
    assert_eq!(
        (&resumed["step"], &resumed["epochs"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(json!(home.step(&run)), resumed["steps"]);
}
