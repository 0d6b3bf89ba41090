//! How many held-out samples an evaluation uses, and how often a run is evaluated.

use crate::support::{TestHome, evaluated};
use runlog::RunEvent;

/// 30,000 short texts of two classes, of which 6,000 are held out.
fn many_texts() -> TestHome {
    let home = TestHome::new();
    let row = |i: u32| {
        let (word, label) = [("rain", "wet"), ("sand", "dry")][i as usize % 2];
        format!("{word} {i},{label}\n")
    };
    let rows: String = (0..30_000).map(row).collect();
    home.file("texts.csv", format!("text,label\n{rows}"));
    home
}

const TRAIN: &str = "{texts.csv} --tokens 16 --vocabulary 400 --baseline none --dev-samples 100 --effective-batch 20 --steps 7";

/// Step and number of samples of each evaluation.
fn evaluations(events: &[RunEvent]) -> Vec<(u64, u64)> {
    let evaluation = |event: &RunEvent| match event {
        RunEvent::Evaluation { step, samples, .. } => Some((*step, *samples)),
        _ => None,
    };
    events.iter().filter_map(evaluation).collect()
}

#[test]
fn evaluations_during_training_use_a_fixed_selection_and_the_last_one_all_samples() {
    let home = many_texts();
    let train = |micro_batch: u32| {
        let line = format!("{TRAIN} --micro-batch {micro_batch}");
        home.train(&line).expect_code(0).events()
    };
    let events = train(8);
    assert_eq!(evaluations(&events), [(5, 5000), (7, 6000)]);
    let started = events.iter().find_map(|event| match event {
        RunEvent::Started(started) => Some(started.loader.clone()),
        _ => None,
    });
    let loader = started.expect("the run has started");
    let expected = "an evaluation every 5 steps uses 5,000 of 6,000 held-out texts, the evaluation after the last step uses all of them";
    assert!(loader.contains(expected), "{loader}");
    let others = train(5);
    assert_eq!(evaluations(&others), evaluations(&events));
    let pairs = evaluated(&events, "accuracy").into_iter();
    for (a, b) in pairs.zip(evaluated(&others, "accuracy")) {
        assert!((a - b).abs() < 0.002, "{a} {b}");
    }
}
