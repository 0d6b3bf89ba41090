//! The main workflow with the mouse: train the sample, stop, resume, close.

use crate::SOON;
use crate::support::home::Home;
use crate::support::until;
use crate::support::window::Window;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

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

/// From the click on Stop to the saved checkpoint.
const MAX_STOP: Duration = Duration::from_secs(2);
/// The loss of the sample falls within this many steps. How long they take depends on the machine.
const FALLS_WITHIN: usize = 60;
/// Most times that a run is stopped: other processes may hold one of them up.
const STOPS: usize = 6;

/// Stops the run. Returns its step, and the time from the click to the saved checkpoint.
fn stop_durably(window: &Window, home: &Home, run: &str) -> (u64, Duration) {
    window.wait_for(
        "#stop",
        "return document.querySelector('#stop:enabled') ? true : null",
    );
    let clicked = Instant::now();
    window.click("#stop");
    // The last event comes after the checkpoint, so this time is late rather than early.
    until("the checkpoint of the last step is on disk", SOON, || {
        let last = home.events(run).pop()?;
        let name = format!("step-{:06}", last["step"].as_u64()?);
        (last["kind"] == "stopped" && home.checkpoints(run).contains(&name)).then_some(())
    });
    let took = clicked.elapsed();
    println!("Stop & checkpoint: {took:.2?} from click to durable file");
    window.wait_for_status("stopped");
    let events = home.events(run);
    let stopped = events
        .iter()
        .rev()
        .find(|event| event["kind"] == "stopped")
        .expect("it says how it ended");
    (stopped["step"].as_u64().expect("a step is a count"), took)
}

/// Resumes a run that was stopped at `step`, for the `times`-th time, and waits for its next step.
fn resume(window: &Window, home: &Home, run: &str, step: u64, times: usize) {
    window.click("#resume");
    let resumed = until("it goes on", SOON, || {
        let events = home.events(run);
        let mut places = (0..events.len()).filter(|place| events[*place]["kind"] == "resumed");
        let at = places.nth(times - 1)?;
        let next = events[at..].iter().find(|event| event["kind"] == "step")?;
        Some((events[at]["step"].as_u64(), next["step"].as_u64()))
    });
    assert_eq!(resumed, (Some(step), Some(step + 1)));
    window.wait_for_status("training");
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
    assert!(fell.1.len() <= FALLS_WITHIN, "{} steps", fell.1.len());
    window.wait_for_status("training");
    let refused = window.invoke(
        "train",
        &json!({"inspection": "folder-1", "settings": settings(&window)}),
    );
    assert_eq!(refused.expect_err("one trains already")["code"], "busy");
    window.screenshot("training");
    let (mut step, mut fastest) = stop_durably(&window, &home, &run);
    window.screenshot("stopped");
    for times in 1..STOPS {
        resume(&window, &home, &run, step, times);
        if times == 1 {
            window.screenshot("resumed");
        }
        let (next, took) = stop_durably(&window, &home, &run);
        (step, fastest) = (next, fastest.min(took));
        if fastest <= MAX_STOP {
            break;
        }
    }
    assert!(
        fastest <= MAX_STOP,
        "{fastest:?} from click to durable file"
    );
}

fn settings(window: &Window) -> Value {
    let view = window
        .invoke("inspection", &json!({"id": "folder-1", "seen": 0}))
        .expect("it is open");
    view["plans"][0]["settings"].clone()
}
