//! The queue of runs: a plan is added while another run trains, a stop by the user holds the queue
//! across a restart, and then the runs train one after another.

use crate::support::home::Home;
use crate::support::until;
use crate::support::window::Window;
use crate::{SOON, training};
use serde_json::{Value, json};
use std::time::Duration;

/// Two short runs.
const BOTH_RUNS: Duration = Duration::from_secs(180);

fn saved(home: &Home) -> usize {
    let text = std::fs::read(home.path().join("queue.json")).expect("it is saved");
    let runs: Vec<Value> = serde_json::from_slice(&text).expect("it is a list");
    runs.len()
}

/// Number of runs that finished all their steps.
fn finished(home: &Home) -> usize {
    let runs = std::fs::read_dir(home.path().join("runs")).expect("there are runs");
    let ids = runs.map(|run| run.expect("it can be listed").file_name());
    let is_finished = |id: &str| {
        let events = home.events(id);
        events
            .last()
            .is_some_and(|last| last["reason"] == "finished")
    };
    ids.filter(|id| is_finished(&id.to_string_lossy())).count()
}

#[test]
fn queued_runs_train_one_after_another_and_wait_after_a_stop() {
    let home = Home::new();
    let (window, run, _) = training(&home);
    window.wait_for_status("training");
    window.click("nav[aria-label=Stage] > :first-child");
    window.click("#plan-locked button");
    window.wait_for(
        "the plan",
        "return document.querySelector('#setting-epochs') !== null || null",
    );
    for (queued, epochs) in ["1", "2"].into_iter().enumerate() {
        window.set(&[("resolution", "32"), ("epochs", epochs)]);
        window.wait_for(
            "a plan that can be added",
            "return /Add to queue/.test(document.querySelector('#train:enabled')?.textContent) || null",
        );
        window.click("#train");
        window.wait_for(
            "the note",
            "return document.querySelector('#plan-queued') !== null || null",
        );
        assert_eq!(saved(&home), queued + 1);
    }
    window.screenshot("plan-queued");
    window
        .invoke("control", &json!({"run": run, "request": "stop"}))
        .expect("it trains here");
    window.run("location.hash = '#/'");
    window.wait_for(
        "a queue that holds",
        "return document.querySelector('#start-queue') !== null || null",
    );
    drop(window);
    let window = Window::open(&["app"], home.path());
    window.wait_for(
        "both runs after a restart",
        "return document.querySelectorAll('[data-queued]').length === 2 || null",
    );
    window.screenshot("queue");
    assert_eq!(finished(&home), 0);
    window.click("#start-queue");
    until("both runs finish", BOTH_RUNS, || {
        (finished(&home) == 2).then_some(())
    });
    assert_eq!(saved(&home), 0);
    until("the list has all three", SOON, || {
        let rows = window.run("return document.querySelectorAll('[data-run-row]').length");
        (rows == json!(3)).then_some(())
    });
}
