//! Activation checkpointing saves memory and leaves every loss identical.

use crate::support::{TestHome, draw_classes, losses};
use pressure::Phase;
use runlog::RunEvent;
use std::collections::BTreeMap;

const PLAN: &str = "{birds} --model vit_micro --effective-batch 16 --steps";

fn birds() -> TestHome {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 16);
    home.file(
        "script",
        r#"{"at_ms":0,"total_bytes":8000000000,"others_bytes":1000000000}"#,
    );
    home
}

#[test]
fn checkpointing_changes_no_loss_and_is_reported() {
    let home = birds();
    let trained = |blocks: &str| {
        let line = format!("{PLAN} 4 --image-size 64 --micro-batch 5 --checkpoint-blocks {blocks}");
        home.train(&line).expect_code(0).events()
    };
    let whole = trained("0");
    for (blocks, expected) in [("2", 2), ("all", 6)] {
        let events = trained(blocks);
        let Some(RunEvent::Started(started)) = events.first() else {
            panic!("{:?}", events.first());
        };
        assert_eq!(started.checkpoint_blocks, expected);
        assert_eq!(losses(&events), losses(&whole), "{blocks}");
    }
}

/// The newest predicted peak of each micro-batch that has a prediction, in bytes. The images are
/// large enough that the activations of a block are more than the process's memory varies.
fn predicted(home: &TestHome, blocks: &str) -> BTreeMap<u32, u64> {
    let line = format!(
        "{PLAN} 8 --image-size 96 --checkpoint-blocks {blocks} --memory-script {{script}} --memory-script-by decision"
    );
    let events = home.train(&line).expect_code(0).events();
    let peak = |event: &RunEvent| match event {
        RunEvent::Decision {
            phase: Phase::Train,
            decision,
            ..
        } if decision.predicted_peak_bytes > 0 => {
            Some((decision.micro_batch, decision.predicted_peak_bytes))
        }
        _ => None,
    };
    events.iter().filter_map(peak).collect()
}

#[test]
fn the_predicted_peak_falls_with_every_checkpointed_block() {
    let home = birds();
    let [none, some, all] = ["0", "3", "all"].map(|blocks| predicted(&home, blocks));
    let size = none
        .keys()
        .rev()
        .find(|size| some.contains_key(size) && all.contains_key(size));
    let size = *size.expect("all three reach a common micro-batch");
    assert!(size >= 4, "{none:?}, {some:?}, {all:?}");
    assert!(
        none[&size] > some[&size] && some[&size] > all[&size],
        "micro-batch {size}: {none:?}, {some:?}, {all:?}"
    );
}
