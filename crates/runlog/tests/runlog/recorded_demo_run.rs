//! The recorded demo run, which the tests fold and the window replays in a browser.

use crate::support;
use runlog::RunEvent;

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/demo.jsonl");

/// With `EBB_UPDATE_DEMO=1` the file is rewritten.
#[test]
fn the_recorded_demo_matches_its_generator() {
    let mut written = String::new();
    for event in support::demo::events() {
        written += &serde_json::to_string(&event).expect("every event has a JSON form");
        written.push('\n');
    }
    if std::env::var_os("EBB_UPDATE_DEMO").is_some() {
        std::fs::write(RECORDED, &written).expect("the demo can be written");
    }
    let recorded = std::fs::read_to_string(RECORDED).expect("the demo is committed");
    assert!(recorded == written, "run again with EBB_UPDATE_DEMO=1");
}

#[test]
fn the_demo_contains_the_planned_decisions() {
    let events = support::demo::events();
    let sizes: Vec<u32> = events
        .iter()
        .filter_map(|event| match event {
            RunEvent::Decision { decision, .. } => Some(decision.micro_batch),
            _ => None,
        })
        .collect();
    assert_eq!(sizes, [1, 2, 4, 8, 16, 11, 16, 8]);
    let last = events.iter().map(RunEvent::at_ms).max();
    assert!(
        last.is_some_and(|ms| (580_000..586_000).contains(&ms)),
        "{last:?}"
    );
}
