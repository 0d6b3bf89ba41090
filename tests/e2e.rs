//! The window as a user meets it: the built app on a display, driven through WebKitWebDriver. On a Mac no window can be
//! driven from outside.
#![cfg(all(target_os = "linux", feature = "desktop"))]

mod support;

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::drag::drag;
use support::home::Home;
use support::until;
use support::window::Window;
use support::x11;

const SOON: Duration = Duration::from_secs(60);

fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sample/photographs")
}

/// Opens the sample by its link and presses Train.
fn training(home: &Home) -> (Window, String, Instant) {
    let window = Window::open(&["app"], home.path());
    window.click("#open-sample");
    window.click("#train");
    let clicked = Instant::now();
    let run = window.run_id();
    (window, run, clicked)
}

fn smoothed(home: &Home, run: &str) -> Vec<f64> {
    let events = home.events(run);
    let losses = events
        .iter()
        .filter(|event| event["kind"] == "step")
        .filter_map(|event| event["loss"].as_f64());
    losses
        .scan(None, |mean, loss| {
            *mean = Some(mean.map_or(loss, |mean: f64| 0.9 * mean + 0.1 * loss));
            *mean
        })
        .collect()
}

fn stop_durably(window: &Window, home: &Home, run: &str) -> u64 {
    let before = home.checkpoints(run);
    window.wait_for(
        "#stop",
        "return document.querySelector('#stop:enabled') ? true : null",
    );
    let clicked = Instant::now();
    window.click("#stop");
    until("a checkpoint is on disk", SOON, || {
        home.checkpoints(run)
            .into_iter()
            .find(|name| !before.contains(name))
    });
    let took = clicked.elapsed();
    println!("Stop & checkpoint: {took:.2?} from click to durable file");
    assert!(
        took <= Duration::from_secs(2),
        "{took:?} from click to durable file"
    );
    window.wait_for_status("stopped");
    let events = home.events(run);
    let stopped = events
        .iter()
        .rev()
        .find(|event| event["kind"] == "stopped")
        .expect("it says how it ended");
    stopped["step"].as_u64().expect("a step is a count")
}

#[test]
fn the_sample_is_trained_stopped_and_resumed() {
    let home = Home::new();
    let window = Window::open(&["app"], home.path());
    window.wait_for(
        "the sample is offered",
        "return document.querySelector('#open-sample')",
    );
    window.screenshot("welcome");
    window.click("#open-sample");
    window.wait_for(
        "Train can be pressed",
        "return document.querySelector('#train:enabled') ? true : null",
    );
    window.screenshot("plan");
    window.click("#train");
    let clicked = Instant::now();
    let run = window.run_id();
    let fell = until("the loss falls", SOON, || {
        let losses = smoothed(&home, &run);
        (losses.last() < losses.first().map(|first| 0.95 * first).as_ref())
            .then(|| (clicked.elapsed(), losses))
    });
    println!(
        "The loss fell from {:.3} to {:.3} within {:.1?} of the click, {} steps",
        fell.1[0],
        fell.1[fell.1.len() - 1],
        fell.0,
        fell.1.len()
    );
    assert!(fell.0 <= Duration::from_secs(20), "{:?}", fell.0);
    window.wait_for_status("training");
    let refused = window.invoke(
        "train",
        &json!({"inspection": "folder-1", "settings": settings(&window)}),
    );
    assert_eq!(refused.expect_err("one trains already")["code"], "busy");
    window.screenshot("training");
    let step = stop_durably(&window, &home, &run);
    window.screenshot("stopped");
    window.click("#resume");
    let resumed = until("it goes on", SOON, || {
        let events = home.events(&run);
        let at = events.iter().position(|event| event["kind"] == "resumed")?;
        let next = events[at..].iter().find(|event| event["kind"] == "step")?;
        Some((events[at]["step"].as_u64(), next["step"].as_u64()))
    });
    assert_eq!(resumed, (Some(step), Some(step + 1)));
    window.wait_for_status("training");
    window.screenshot("resumed");
    stop_durably(&window, &home, &run);
}

fn settings(window: &Window) -> Value {
    let view = window
        .invoke("inspection", &json!({"id": "folder-1", "seen": 0}))
        .expect("it is open");
    view["plan"]["settings"].clone()
}

#[test]
fn a_page_loaded_anew_in_the_middle_of_a_run_loses_nothing() {
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
    // Told to end, Ebb stops & checkpoints first.
    Command::new("kill")
        .args(["-TERM", &app])
        .status()
        .expect("kill runs");
    until("a checkpoint is on disk", SOON, || {
        home.checkpoints(&run).pop()
    });
    until("the app ends", SOON, || {
        window.processes("ebb").is_empty().then_some(())
    });
    let events = home.events(&run);
    assert_eq!(
        events.last().map(|event| event["kind"].clone()),
        Some("stopped".into())
    );
}

#[test]
fn what_the_capabilities_do_not_list_is_refused() {
    let home = Home::new();
    let window = Window::open(&["app"], home.path());
    for (command, args) in [
        (
            "plugin:event|emit",
            json!({"event": "show", "payload": null}),
        ),
        ("plugin:window|close", json!({"label": "main"})),
        (
            "plugin:webview|create_webview_window",
            json!({"options": {"label": "other", "url": "https://example.org"}}),
        ),
        ("plugin:dialog|open", json!({"options": {}})),
        ("plugin:path|resolve_directory", json!({"directory": 1})),
    ] {
        let refused = window
            .invoke(command, &args)
            .expect_err(command)
            .to_string();
        assert!(
            refused.contains("not allowed") || refused.contains("not found"),
            "{command}: {refused}"
        );
    }
    for id in ["../../etc", "/etc", ""] {
        let query = json!({"run": id, "fromMs": 0, "toMs": 1, "columns": 4, "seen": 0});
        assert_eq!(
            window.invoke("pull", &query).expect_err(id)["code"],
            "unknown_id"
        );
        assert_eq!(
            window
                .invoke("inspection", &json!({"id": id, "seen": 0}))
                .expect_err(id)["code"],
            "unknown_id"
        );
    }
}

#[test]
fn a_folder_dragged_onto_the_window_is_inspected() {
    let home = Home::new();
    let folder = home.path().join("my data set é");
    for (class, count) in [("apple", 12), ("lemon", 9)] {
        std::fs::create_dir_all(folder.join(class)).expect("it can be made");
        let from = std::fs::read_dir(sample().join(class)).expect("the sample is there");
        for file in from
            .take(count)
            .map(|file| file.expect("it can be read").path())
        {
            let name = file.file_name().expect("a file has a name");
            std::fs::copy(&file, folder.join(class).join(name)).expect("it can be copied");
        }
    }
    let window = Window::open(&["app"], home.path());
    drag(&folder, || {
        window.wait_for(
            "the window names what hangs over it",
            "return document.body.textContent.includes('Release to look at my data set é') || null",
        );
        window.screenshot("drag");
    });
    window.wait_for(
        "the folder was read",
        "return document.querySelector('#train:enabled') ? true : null",
    );
    window.screenshot("dropped");
    let view = window
        .invoke("inspection", &json!({"id": "folder-1", "seen": 0}))
        .expect("it is open");
    assert_eq!(
        (&view["name"], &view["photographs"]),
        (&json!("my data set é"), &json!(21))
    );
    std::fs::remove_dir_all(folder.join("lemon")).expect("it can be removed");
    window.wait_for(
        "the inspection follows the folder",
        "return document.body.textContent.includes('This cannot be trained yet') || null",
    );
    window.screenshot("one-class");
}

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

#[test]
fn what_is_no_folder_is_answered_by_a_sentence() {
    let home = Home::new();
    let file = home.path().join("notes.txt");
    std::fs::write(&file, "plain").expect("it can be written");
    let check = |target: &str, sentence: &str| {
        let window = Window::open(&["app", target], home.path());
        let shown = window.wait_for(
            "a refusal",
            "return document.querySelector('.proposal .refusal')?.textContent ?? null",
        );
        assert!(
            shown.as_str().is_some_and(|shown| shown.contains(sentence)),
            "{shown}"
        );
        window
    };
    let window = check(&file.display().to_string(), "is a file, not a folder");
    window.screenshot("not-a-folder");
    drop(window);
    check("/no/such/folder", "There is no folder /no/such/folder");
}

#[test]
fn closing_asks_while_it_trains() {
    let home = Home::new();
    let _manager = x11::manager();
    let (window, run, _) = training(&home);
    until("it trains", SOON, || (home.step(&run) >= 3).then_some(()));
    let ask_to_close = || {
        let _ = x11::xdotool(&["windowactivate", "--sync", &x11::found("Ebb")]);
        let _ = x11::xdotool(&["key", "alt+F4"]);
        x11::found("Stop the training\\?")
    };
    let answer = |dialog: &str, key: &str| {
        let _ = x11::xdotool(&["windowactivate", "--sync", dialog]);
        let _ = x11::xdotool(&["key", key]);
        let closed =
            || x11::xdotool(&["search", "--onlyvisible", "--name", "^Stop the training"]).is_none();
        until("the question is answered", SOON, || closed().then_some(()));
    };
    let dialog = ask_to_close();
    let before = home.step(&run);
    until("it trains while the question stands", SOON, || {
        (home.step(&run) > before + 2).then_some(())
    });
    answer(&dialog, "Escape");
    let before = home.step(&run);
    until("it trains on", SOON, || {
        (home.step(&run) > before + 2).then_some(())
    });
    assert!(home.checkpoints(&run).is_empty(), "nothing was stopped");
    answer(&ask_to_close(), "Return");
    until("a checkpoint is on disk", SOON, || {
        home.checkpoints(&run).pop()
    });
    until("the app ends", SOON, || {
        window.processes("ebb").is_empty().then_some(())
    });
    let events = home.events(&run);
    assert_eq!(
        events.last().map(|event| event["kind"].clone()),
        Some("stopped".into())
    );
}
