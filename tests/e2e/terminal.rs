//! Runs of the terminal, as the window shows them.

use crate::support::home::Home;
use crate::support::until;
use crate::support::window::Window;
use crate::{SOON, sample};
use serde_json::Value;
use std::process::{Command, Stdio};

#[test]
fn a_terminal_run_appears_live() {
    let home = Home::new();
    let window = Window::open(&["app"], home.path());
    window.wait_for(
        "the list is empty",
        "return document.body.textContent.includes('No runs yet') || null",
    );
    let mut terminal = Command::new(env!("CARGO_BIN_EXE_ebb"))
        .arg("train")
        .arg(sample())
        .args(["--steps", "2000", "--json"])
        .env("EBB_HOME", home.path())
        .stdout(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let row = window.wait_for("a row of the list", "return document.querySelector('[data-run-row][data-run-status=training]')?.dataset.runRow ?? null");
    let run = row.as_str().expect("an id is text").to_owned();
    window.screenshot("terminal-run");
    window.click(&format!("[data-run-row={run:?}] .name"));
    window.wait_for_status("training");
    window.wait_for(
        "its loss is drawn",
        "return window.__ebbRedrawMs?.length > 4 || null",
    );
    assert_eq!(
        window.run("return document.querySelector('#stop')"),
        Value::Null,
        "it is watched, not steered"
    );
    window.screenshot("terminal-run-watched");
    let interrupted = Command::new("kill")
        .args(["-INT", &terminal.id().to_string()])
        .status()
        .expect("kill runs");
    assert!(interrupted.success());
    window.wait_for_status("stopped");
    assert!(
        terminal.wait().expect("it ends").success(),
        "stopped by request is no failure"
    );
    let last = format!("step-{:06}", home.step(&run));
    assert!(
        home.checkpoints(&run).contains(&last),
        "the stop's own checkpoint, beside that of the best evaluation if there was one"
    );
}

#[test]
fn a_killed_run_shows_its_crash_report() {
    let home = Home::new();
    let mut terminal = Command::new(env!("CARGO_BIN_EXE_ebb"))
        .arg("train")
        .arg(sample())
        .args(["--steps", "2000", "--json"])
        .env("EBB_HOME", home.path())
        .stdout(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let run = until("it trains", SOON, || {
        let runs = std::fs::read_dir(home.path().join("runs")).ok()?;
        let id = runs.flatten().next()?.file_name().into_string().ok()?;
        (home.step(&id) >= 3).then_some(id)
    });
    terminal.kill().expect("it can be killed");
    terminal.wait().expect("it ends");
    let window = Window::open(&["app"], home.path());
    window.wait_for(
        "its row says that it ended early",
        "return document.querySelector('[data-run-row][data-run-status=ended_early]')?.textContent.includes('Ebb quit unexpectedly') || null",
    );
    window.click(&format!("[data-run-row={run:?}] .name"));
    window.wait_for_status("ended_early");
    let messages = window.wait_for(
        "its last minutes",
        "return document.querySelector('#last-minutes')?.textContent ?? null",
    );
    let messages = messages.as_str().expect("it is text");
    assert!(
        messages.contains("The last memory sample was taken at")
            && messages.contains("samples at a time"),
        "{messages}"
    );
    let mark = window.run("return document.querySelector('.now .mark').className");
    let mark = mark.as_str().unwrap_or_default();
    assert!(
        mark.contains("warning"),
        "no tick beside such an end: {mark}"
    );
    window.screenshot("last-minutes");
}
