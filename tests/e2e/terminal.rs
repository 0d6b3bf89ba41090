//! Runs of the terminal, seen from the window.

use crate::sample;
use crate::support::home::Home;
use crate::support::window::Window;
use serde_json::Value;
use std::process::{Command, Stdio};

#[test]
fn a_run_of_the_terminal_appears_live() {
    let home = Home::new();
    let window = Window::open(&["app"], home.path());
    window.wait_for(
        "the list is empty",
        "return document.body.textContent.includes('None yet') || null",
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
    window.click(&format!("[data-run-row={run:?}] a"));
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
    assert_eq!(home.checkpoints(&run).len(), 1);
}
