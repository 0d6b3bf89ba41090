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

fn stop_durably(window: &Window, home: &Home, run: &str) -> u64 {
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
    view["plans"][0]["settings"].clone()
}
