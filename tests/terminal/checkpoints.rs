//! Nothing is lost: a run that is killed at any instant goes on from a whole checkpoint; a damaged
//! one is passed over.

use crate::support::{TestHome, draw_classes};
use runlog::{RunEvent, RunFolder};
use std::fs;
use std::time::{Duration, Instant};

const PLAN: &str = "train {birds} --image-size 16 --effective-batch 4 --checkpoint-every 1steps";

fn place() -> TestHome {
    let place = TestHome::new();
    draw_classes(&place.path("birds"), &["jay", "owl"], 8);
    place
}

/// The instant of a kill is chosen, not waited for.
fn spin(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// The step up to which checkpoints were said to be on disk.
fn saved(events: &[RunEvent]) -> Option<u64> {
    let step = |event: &RunEvent| match event {
        RunEvent::Checkpoint { step, .. } => Some(*step),
        _ => None,
    };
    events.iter().filter_map(step).max()
}

#[test]
fn killed_at_any_instant_a_run_goes_on_from_a_whole_checkpoint() {
    let place = place();
    let mut live = place.start(&format!("{PLAN} --steps 5000"));
    let mut before = saved(&live.until(|event| matches!(event, RunEvent::Checkpoint { .. })));
    // A step is told just before its checkpoint is written: later and later within that, and within
    // the next piece.
    for round in 0..8u32 {
        let events = live.until(|event| matches!(event, RunEvent::Step { .. }));
        before = before.max(saved(&events));
        spin(Duration::from_micros(1_500) * round);
        live.signal("KILL");
        let (code, rest) = live.end();
        assert_eq!(code, None, "it was killed");
        before = before.max(saved(&rest));
        live = place.start(&format!("resume {}", place.only_run().id()));
        let again = live.until(|event| matches!(event, RunEvent::Resumed { .. }));
        let [RunEvent::Resumed { step, .. }] = again[..] else {
            panic!("round {round}: {again:#?}");
        };
        assert!(
            Some(step) >= before,
            "round {round}: {step} is before {before:?}"
        );
        before = Some(step);
    }
    live.until(|event| matches!(event, RunEvent::Checkpoint { .. }));
    live.signal("INT");
    assert_eq!(live.end().0, Some(0));
    let folder = fs::read_dir(place.only_run().checkpoints_path()).expect("it can be listed");
    let names: Vec<_> = folder.flatten().map(|entry| entry.file_name()).collect();
    let drafts = names
        .iter()
        .filter(|name| !name.to_string_lossy().starts_with("step-"));
    assert_eq!(drafts.count(), 0, "{names:?}");
}

fn damage(run: &RunFolder, file: &str) -> u64 {
    let newest = run
        .checkpoints()
        .expect("they can be listed")
        .pop()
        .expect("one");
    let path = newest.path.join(file);
    let mut bytes = fs::read(&path).expect("it can be read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(&path, bytes).expect("it can be written");
    newest.step
}

#[test]
fn a_damaged_checkpoint_is_reported_and_the_one_before_is_used() {
    for file in ["model.safetensors", "optimizer.safetensors", "state.json"] {
        let place = place();
        place.train(&format!("{} --steps 4", &PLAN[6..])).ended(0);
        let run = place.only_run();
        let newest = damage(&run, file);
        let (code, events) = place.start(&format!("resume {}", run.id())).end();
        assert_eq!(code, Some(0), "{file}: {events:#?}");
        let output = events.iter().any(|event| {
            matches!(event, RunEvent::Warning { code, message, .. }
                if code == "checkpoint_damaged" && message.contains(&format!("step-{newest:06}")))
        });
        assert!(output, "{file}: {events:#?}");
        let from = events.iter().find_map(|event| match event {
            RunEvent::Resumed { step, .. } => Some(*step),
            _ => None,
        });
        assert_eq!((newest, from), (4, Some(3)), "{file}");
    }
}

#[test]
fn without_a_whole_checkpoint_resume_reports_what_to_do() {
    let place = place();
    place.train(&format!("{} --steps 1", &PLAN[6..])).ended(0);
    let run = place.only_run();
    damage(&run, "model.safetensors");
    let output = place.run(&format!("resume {}", run.id())).ended(1);
    assert!(
        output.err.contains("no usable checkpoint"),
        "{}",
        output.err
    );
    assert!(output.err.contains("ebb train"), "{}", output.err);
}

#[test]
fn two_never_train_the_same_run() {
    let place = place();
    let mut live = place.start(&format!("{PLAN} --steps 5000"));
    live.until(|event| matches!(event, RunEvent::Checkpoint { .. }));
    let output = place
        .run(&format!("resume {}", place.only_run().id()))
        .ended(1);
    assert!(
        output.err.contains("is being trained by process"),
        "{}",
        output.err
    );
    live.signal("KILL");
    live.end();
}
