//! `--memory-target` limits the footprint to a fraction of all memory, in runs and in plans.

use crate::support::{TestHome, draw_classes, memory_script};
use runlog::RunEvent;

const TOTAL_BYTES: u64 = 8_000_000_000;
const CALM: u64 = 1_000_000_000;

fn birds() -> TestHome {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 14);
    home
}

/// The highest budget in the memory events of a run.
fn budget_bytes(options: &str) -> u64 {
    let home = birds();
    home.file("script", memory_script(TOTAL_BYTES, 250, [CALM]));
    home.file("third.toml", "memory_cap_fraction = 0.33");
    let line = format!(
        "{{birds}} --image-size 16 --steps 6 --effective-batch 8 {options} --memory-script {{script}} --memory-script-by decision"
    );
    let events = home.train(&line).expect_code(0).events();
    let budgets = events.iter().filter_map(|event| match event {
        RunEvent::Memory { budget_bytes, .. } => Some(*budget_bytes),
        _ => None,
    });
    budgets.max().expect("there are memory events")
}

#[test]
fn the_memory_target_limits_the_budget() {
    let fraction = |fraction: f64| (fraction * TOTAL_BYTES as f64) as u64;
    assert!(budget_bytes("") > fraction(0.6));
    assert_eq!(budget_bytes("--memory-target 0.5"), fraction(0.5));
    assert_eq!(budget_bytes("--config {third.toml}"), fraction(0.33));
    // The smaller limit applies.
    assert_eq!(
        budget_bytes("--memory-target 0.5 --memory-cap 1GB"),
        1 << 30
    );
}

#[test]
fn plans_for_another_mac_use_the_memory_target() {
    let line =
        "plan {birds} --model convnet --image-size 32 --for 48GB --memory-target 0.25 --json";
    let output = birds().run(line).expect_code(0).out;
    let answer: serde_json::Value = serde_json::from_str(&output).expect("one JSON object");
    assert_eq!(answer["budget_bytes"], 12u64 << 30);
}
