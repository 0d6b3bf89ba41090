//! The page may be reloaded at any time, and a killed page comes back.

use crate::support::home::Home;
use crate::support::until;
use crate::support::window::Window;
use crate::{SOON, ended_as_stopped, training};
use serde_json::json;
use std::process::Command;

#[test]
fn reloading_the_page_during_a_run_loses_nothing() {
    let home = Home::new();
    let (window, run, _) = training(&home);
    until("it trains", SOON, || (home.step(&run) >= 3).then_some(()));
    window.reload();
    assert_eq!(window.run_id(), run);
    window.wait_for_status("training");
    let pulled = |window: &Window| {
        let head = "const [run, done] = arguments; window.__TAURI_INTERNALS__.invoke('pull', {run, fromMs: 0, toMs: 1e9, columns: 800, seen: 0}) \
            .then((b) => done(JSON.parse(new TextDecoder().decode(new Uint8Array(b, 4, new DataView(b).getUint32(0, true))))))";
        window.run_async(head, &json!([run]))
    };
    let head = pulled(&window);
    let arrays = head["arrays"].as_array().expect("there are arrays");
    let points = arrays
        .iter()
        .find(|array| array["name"] == "loss.raw")
        .expect("the loss is there");
    assert!(
        points["len"].as_u64() >= Some(3),
        "the curve begins where the run began: {points}"
    );
    let before = home.step(&run);
    until("it trains on", SOON, || {
        (home.step(&run) > before + 2).then_some(())
    });
    window.run("location.hash = '#/'");
    window.reload();
    assert_eq!(
        window.run_id(),
        run,
        "a page that knows nothing is shown the running training"
    );
}

#[test]
fn a_killed_page_does_not_stop_the_training() {
    let home = Home::new();
    let (window, run, _) = training(&home);
    until("it trains", SOON, || (home.step(&run) >= 3).then_some(()));
    let pages = window.processes("WebKitWebProces");
    assert_eq!(pages.len(), 1, "{pages:?}");
    let killed = Command::new("kill")
        .args(["-KILL", &pages[0]])
        .status()
        .expect("kill runs");
    assert!(killed.success());
    let before = home.step(&run);
    until("it trains on", SOON, || {
        (home.step(&run) > before + 5).then_some(())
    });
    let back = until("there is a page again", SOON, || {
        let pages_now = window.processes("WebKitWebProces");
        pages_now.into_iter().find(|page| *page != pages[0])
    });
    assert_ne!(back, pages[0]);
    let app = window.processes("ebb").pop().expect("the app lives");
    // On a signal to end, Ebb saves a checkpoint first.
    Command::new("kill")
        .args(["-TERM", &app])
        .status()
        .expect("kill runs");
    until("a checkpoint is on disk", SOON, || {
        home.checkpoints(&run).pop()
    });
    ended_as_stopped(&window, &home, &run);
}
