//! The baseline of image classification: trained before the network, and shown.

use crate::support::{TestHome, draw_classes};
use runlog::RunEvent;

const TRAIN: &str = "{birds} --image-size 16 --effective-batch 8 --steps 2";

fn birds() -> TestHome {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 20);
    home
}

fn is_baseline(event: &RunEvent) -> bool {
    matches!(event, RunEvent::Baseline { .. })
}

#[test]
fn an_image_baseline_is_trained_first_and_only_shown() {
    let home = birds();
    let events = home.train(TRAIN).expect_code(0).events();
    let baseline = events.iter().position(is_baseline);
    let step = events
        .iter()
        .position(|event| matches!(event, RunEvent::Step { .. }));
    assert!(
        baseline.is_some() && baseline < step,
        "{baseline:?} {step:?}"
    );
    let Some(RunEvent::Baseline {
        name,
        samples,
        metrics,
        ..
    }) = baseline.map(|at| &events[at])
    else {
        panic!("there is no baseline");
    };
    assert_eq!(
        (name.as_str(), *samples),
        ("edge directions and colors", 32)
    );
    assert_eq!(metrics.get("accuracy"), Some(&1.0));

    let shown = home.run("runs show birds").expect_code(0).out;
    assert!(
        shown.contains("Baseline (edge directions and colors): "),
        "{shown}"
    );
    let refused = home.run("evaluate birds --baseline");
    assert_ne!(refused.code, Some(0), "{}", refused.out);
}

#[test]
fn an_image_baseline_can_be_skipped() {
    let home = birds();
    let line = format!("{TRAIN} --baseline none");
    let events = home.train(&line).expect_code(0).events();
    assert!(!events.iter().any(is_baseline));
}
