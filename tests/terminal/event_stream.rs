//! `ebb inspect` describes a folder, and `ebb train --json` prints the events of a run in order.

use crate::support::{TestHome, draw_classes, losses};
use runlog::{RunEvent, StopReason};

#[test]
fn inspect_prints_text_and_json() {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl", "wren"], 10);
    let text = home.run("inspect {birds}").expect_code(0).out;
    for part in [
        "birds: 30 images in 3 classes",
        "32 x 32 px",
        "owl",
        "20 % of each class, 6 images",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json = home.run("inspect {birds} --json").expect_code(0).out;
    let found: serde_json::Value = serde_json::from_str(&json).expect("valid JSON");
    assert_eq!(found["images"], 30);
    assert_eq!(found["classes"][1]["name"], "owl");
    assert_eq!(found["classes"][1]["train"], 8);
    assert_eq!(found["typical_size"], serde_json::json!([32, 32]));
    assert!(found["refusal"].is_null() && home.leftover_files().is_empty());
}

#[test]
fn train_json_prints_every_event_in_order() {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 10);
    let output = home
        .train("{birds} --image-size 16 --steps 6 --effective-batch 8")
        .expect_code(0);
    let events = output.events();
    let Some(RunEvent::Started(started)) = events.first() else {
        panic!("{:?}", events.first());
    };
    assert_eq!((started.steps, started.effective_batch), (6, 8));
    assert_eq!(started.device, "cpu");
    assert!(!started.device_reason.is_empty() && started.loader.contains("workers"));
    let Some(RunEvent::Stopped {
        step: 6,
        reason: StopReason::Finished,
        ..
    }) = events.last()
    else {
        panic!("{:?}", events.last());
    };
    let steps: Vec<(u64, u32)> = events.iter().filter_map(step_and_samples).collect();
    assert_eq!(steps, [(1, 8), (2, 8), (3, 8), (4, 8), (5, 8), (6, 8)]);
    assert!(events.is_sorted_by_key(RunEvent::at_ms), "{events:#?}");
    let kinds = |wanted: fn(&RunEvent) -> bool| events.iter().filter(|e| wanted(e)).count();
    assert!(kinds(|e| matches!(e, RunEvent::Decision { .. })) > 0);
    assert!(kinds(|e| matches!(e, RunEvent::Memory { .. })) > 0);
    assert!(kinds(|e| matches!(e, RunEvent::Evaluation { .. })) > 0);
    let logged =
        runlog::read_events(&home.only_run().events_path()).expect("the events can be read");
    assert_eq!(logged, events, "the event log has the printed events");
}

fn step_and_samples(event: &RunEvent) -> Option<(u64, u32)> {
    match event {
        RunEvent::Step {
            step,
            micro_batches,
            ..
        } => Some((*step, micro_batches.iter().sum())),
        _ => None,
    }
}

#[test]
fn memory_events_separate_the_state_from_the_footprint() {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 20);
    let line = "{birds} --image-size 32 --steps 30 --effective-batch 8";
    let events = home.train(line).expect_code(0).events();
    let Some(RunEvent::Started(started)) = events.first() else {
        panic!("{:?}", events.first());
    };
    let newest = events.iter().rev().find_map(|event| match event {
        RunEvent::Memory {
            sample,
            state_bytes,
            ..
        } => Some((*state_bytes, sample.own_bytes)),
        _ => None,
    });
    let (state, own) = newest.expect("there are memory events");
    // Weights, gradients and two moments in f32; the process needs more than that.
    let network = 16 * started.parameters;
    assert!(2 * network < state && state < own, "{state} bytes of {own}");
}

#[test]
fn train_prints_device_loader_memory_and_plan() {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 6);
    let output = home
        .run("train {birds} --image-size 16 --steps 2 --effective-batch 8")
        .expect_code(0);
    for part in [
        "Device: cpu (no GPU that Ebb can use was found), ",
        "Loader: ",
        "Memory: ",
        "Plan: 2 steps of 8 samples",
        "Finished at step 2",
    ] {
        assert!(output.err.contains(part), "{part}: {}", output.err);
    }
    assert!(output.out.contains("birds: 12 images"), "{}", output.out);
}

#[test]
fn training_lowers_the_loss_and_learns_the_classes() {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl", "wren"], 20);
    let events = home
        .train("{birds} --image-size 16 --steps 24 --effective-batch 16 --augment none")
        .expect_code(0)
        .events();
    let losses = losses(&events);
    let (first, last) = (losses[0], losses[losses.len() - 1]);
    assert!(last < 0.7 * first, "{first} to {last}");
    let accuracy = events.iter().rev().find_map(|event| match event {
        RunEvent::Evaluation { metrics, .. } => metrics.get("accuracy").copied(),
        _ => None,
    });
    assert!(
        accuracy.is_some_and(|accuracy| accuracy > 0.9),
        "{accuracy:?}"
    );
}
