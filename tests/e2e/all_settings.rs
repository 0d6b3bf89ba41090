//! The sheet of all settings: what is set there goes into the run, a wrong value does not, and a
//! plan like that run's has it again.

use crate::support::home::Home;
use crate::support::until;
use crate::support::window::Window;
use crate::{SOON, sample};
use serde_json::json;

/// Enters a value into a field of the sheet.
fn enter(window: &Window, key: &str, value: &str) {
    window.run(&format!(
        "const e = document.querySelector('#all-{key}'); e.value = {value:?}; \
         e.dispatchEvent(new Event('change', {{bubbles: true}}))"
    ));
}

fn changed(window: &Window, key: &str) {
    window.wait_for(
        &format!("{key} is marked"),
        &format!("return document.querySelector('[data-setting={key}] .mark') ? true : null"),
    );
}

#[test]
fn a_setting_of_the_sheet_goes_into_the_run_and_a_wrong_one_does_not() {
    let home = Home::new();
    let target = sample().display().to_string();
    let window = Window::open(&["app", &target], home.path());
    let ready = "return document.querySelector('#train:enabled') && !document.querySelector('.figures.stale') ? true : null";
    window.wait_for("a plan that fits", ready);
    window.click("#all-settings");
    window.wait_for(
        "the defaults",
        "return document.querySelector('#all-weight_decay')?.placeholder === '0.05' || null",
    );
    for (key, value) in [
        ("optimizer", "lion"),
        ("weight_decay", "0.1"),
        ("image_size", "48"),
        ("steps", "4"),
        ("held_out_fraction", "0.25"),
    ] {
        enter(&window, key, value);
        changed(&window, key);
    }
    enter(&window, "clip_norm", "-3");
    let refused = window.wait_for(
        "a word at the field",
        "return document.querySelector('#all-hint-clip_norm.wrong')?.textContent ?? null",
    );
    assert_eq!(refused, json!("Must be a number from 0.000001 to 1000000."));
    window.screenshot("all-settings");
    window.click("#all-settings-done");
    let shown = window.wait_for(
        "the plan page follows",
        "const value = (id) => document.querySelector('#setting-' + id)?.value; \
         return document.querySelector('#train:enabled') && value('resolution') === '48' && value('learning-rate') === '2e-4' \
           && document.querySelector('#setting-held-out')?.parentElement.textContent.includes('25 %') ? value('learning-rate') : null",
    );
    assert_eq!(shown, json!("2e-4"), "Lion takes a lower rate");
    window.click("#train");
    let run = window.run_id();
    let config = until("its config is written", SOON, || {
        std::fs::read_to_string(home.run(&run).join("config.toml")).ok()
    });
    for line in [
        "optimizer = \"lion\"",
        "weight_decay = 0.1",
        "image_size = 48",
        "steps = 4",
        "held_out_fraction = 0.25",
        "clip_norm = 1.0",
    ] {
        assert!(config.contains(line), "{line} is missing in:\n{config}");
    }
    until("four steps", SOON, || (home.step(&run) == 4).then_some(()));

    let repeated = window
        .invoke("repeat_run", &json!({"run": run}))
        .expect("its folder is there");
    let others = &repeated["settings"]["other_settings"];
    let kept = (&others["optimizer"], &others["steps"]);
    assert_eq!(kept, (&json!("lion"), &json!("4")));
}
