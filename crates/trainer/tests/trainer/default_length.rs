//! How long a run trains by default, and how Ebb explains its defaults.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use dataset::{DetectedDataset, InspectOptions, TextOptions, detect};
use runlog::{DeviceChoice, RunConfig};
use std::path::Path;
use trainer::Plan;

fn found(folder: &Path) -> DetectedDataset {
    let (options, texts) = (InspectOptions::default(), TextOptions::default());
    detect(folder, &options, &texts, &|_| {}).unwrap()
}

fn on_cpu() -> RunConfig {
    RunConfig {
        device: Some(DeviceChoice::Cpu),
        ..RunConfig::default()
    }
}

#[test]
fn a_large_text_is_read_in_part_by_default() {
    let folder = tempfile::tempdir().unwrap();
    let line = "The rain fell all day in the hills, and the river rose.\n";
    let text = line.repeat(16_000_000 / line.len());
    std::fs::write(folder.path().join("book.txt"), text).unwrap();
    let found = found(folder.path());
    let config = on_cpu();
    let plan = Plan::resolve(&config, &found).unwrap();
    assert!(plan.train_samples > 100_000, "{}", plan.train_samples);
    assert_eq!((plan.input_size, plan.effective_batch), (128, 16));
    let steps = 12_000_000 / 128 / 16;
    assert!(plan.steps.abs_diff(steps) <= 1, "{}", plan.steps);
    assert_eq!(plan.epochs(), 1);
    let sentences = plan.explain_defaults(&config).join("\n");
    assert!(sentences.contains(" steps, which read 93,7"), "{sentences}");

    let whole = RunConfig {
        epochs: Some(1),
        ..config.clone()
    };
    let whole_plan = Plan::resolve(&whole, &found).unwrap();
    assert_eq!(whole_plan.steps, whole_plan.steps_per_epoch);
    let sentences = whole_plan.explain_defaults(&whole).join("\n");
    assert!(!sentences.contains("steps, which read"), "{sentences}");

    // A resumed run has the same length.
    let resumed = Plan::resolve(&plan.config, &found).unwrap();
    assert_eq!(resumed.steps, plan.steps);
}

#[test]
fn each_default_for_texts_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let row = |i: usize| {
        format!(
            "{} {i},{}\n",
            ["fine rain today", "cold wind at sea"][i % 2],
            i % 2
        )
    };
    let rows: String = (0..100).map(row).collect();
    let table = format!("text,label\n{rows}");
    std::fs::write(folder.path().join("texts.csv"), table).unwrap();
    let found = found(folder.path());
    let open = on_cpu();
    let explained = |config: &RunConfig| {
        let plan = Plan::resolve(config, &found).unwrap();
        plan.explain_defaults(config).join("\n")
    };
    let all = explained(&open);
    let parts = [
        "At most 32 tokens of each text, because nearly all texts are this short; --tokens",
        "A vocabulary of 4,096 tokens, which Ebb learns from the training texts; --vocabulary",
        "60 epochs for 80 training texts; --epochs",
    ];
    for part in parts {
        assert!(all.contains(part), "no `{part}` in {all}");
    }
    let chosen = RunConfig {
        tokens: Some(64),
        vocabulary: Some(500),
        epochs: Some(2),
        ..open.clone()
    };
    assert_eq!(explained(&chosen), "");
    // The window has no flags.
    let plan = Plan::resolve(&open, &found).unwrap();
    let reasons = plan.reasons_of_defaults(&open);
    assert!(
        reasons.contains(&"60 epochs for 80 training texts.".to_owned()),
        "{reasons:?}"
    );
    assert!(
        reasons.iter().all(|reason| !reason.contains("--")),
        "{reasons:?}"
    );
}
