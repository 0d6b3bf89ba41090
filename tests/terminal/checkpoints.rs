//! A killed run resumes from its newest valid checkpoint, and damaged checkpoints are skipped.

use crate::support::{TestHome, draw_classes};
use runlog::{RunEvent, RunFolder};
use std::fs;
use std::time::{Duration, Instant};

const PLAN: &str = "train {birds} --image-size 16 --effective-batch 4 --checkpoint-every 1steps";

fn birds() -> TestHome {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 8);
    home
}

/// Waits without sleeping, because a sleep is less exact than a millisecond.
fn spin(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// The newest step whose checkpoint was reported as saved.
fn saved(events: &[RunEvent]) -> Option<u64> {
    let step = |event: &RunEvent| match event {
        RunEvent::Checkpoint { step, .. } => Some(*step),
        _ => None,
    };
    events.iter().filter_map(step).max()
}

#[test]
fn a_run_killed_at_any_time_resumes_from_a_valid_checkpoint() {
    let home = birds();
    let mut training = home.start(&format!("{PLAN} --steps 5000"));
    let mut before = saved(&training.until(|event| matches!(event, RunEvent::Checkpoint { .. })));
    // A step event comes just before its checkpoint is written. Each round kills later: while the
    // checkpoint is written, then during the next micro-batch.
    for round in 0..8u32 {
        let events = training.until(|event| matches!(event, RunEvent::Step { .. }));
        before = before.max(saved(&events));
        spin(Duration::from_micros(1_500) * round);
        training.signal("KILL");
        let (code, rest) = training.finish();
        assert_eq!(code, None, "it was killed");
        before = before.max(saved(&rest));
        training = home.start(&format!("resume {}", home.only_run().id()));
        let again = training.until(|event| matches!(event, RunEvent::Resumed { .. }));
        let [RunEvent::Resumed { step, .. }] = again[..] else {
            panic!("round {round}: {again:#?}");
        };
        assert!(
            Some(step) >= before,
            "round {round}: {step} is before {before:?}"
        );
        before = Some(step);
    }
    training.until(|event| matches!(event, RunEvent::Checkpoint { .. }));
    training.signal("INT");
    assert_eq!(training.finish().0, Some(0));
    let folder = fs::read_dir(home.only_run().checkpoints_path()).expect("the runs can be listed");
    let names: Vec<_> = folder.flatten().map(|entry| entry.file_name()).collect();
    let drafts = names
        .iter()
        .filter(|name| !name.to_string_lossy().starts_with("step-"));
    assert_eq!(drafts.count(), 0, "{names:?}");
}

/// Every third checkpoint stays, also after the run was resumed, and so do the newest and the best.
#[test]
fn the_user_chooses_which_checkpoints_are_kept() {
    let home = birds();
    let line = PLAN.trim_start_matches("train ");
    home.train(&format!("{line} --steps 6 --keep 1 --keep-every 3"))
        .expect_code(0);
    let run = home.only_run();
    let check = |expected: &[u64]| {
        let checkpoints = run.checkpoints().expect("they can be listed");
        let steps: Vec<u64> = checkpoints.iter().map(|saved| saved.step).collect();
        let are_kept = expected.iter().all(|step| steps.contains(step));
        // One more may be the best.
        assert!(are_kept && steps.len() <= expected.len() + 1, "{steps:?}");
    };
    check(&[3, 6]);
    home.run(&format!("resume {} --steps 10", run.id()))
        .expect_code(0);
    check(&[3, 6, 9, 10]);
}

/// Flips a bit of a file of the newest checkpoint. Returns its step.
fn damage(run: &RunFolder, file: &str) -> u64 {
    let newest = run
        .checkpoints()
        .expect("the checkpoints can be listed")
        .pop()
        .expect("there is a checkpoint");
    let path = newest.path.join(file);
    let mut bytes = fs::read(&path).expect("the file can be read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(&path, bytes).expect("the file can be written");
    newest.step
}

#[test]
fn a_damaged_checkpoint_falls_back_to_the_previous_one() {
    for file in ["model.safetensors", "optimizer.safetensors", "state.json"] {
        let home = birds();
        home.train(&format!("{} --steps 4", &PLAN[6..]))
            .expect_code(0);
        let run = home.only_run();
        let newest = damage(&run, file);
        let (code, events) = home.start(&format!("resume {}", run.id())).finish();
        assert_eq!(code, Some(0), "{file}: {events:#?}");
        let warned = events.iter().any(|event| {
            matches!(event, RunEvent::Warning { code, message, .. }
                if code == "checkpoint_damaged" && message.contains(&format!("step-{newest:06}")))
        });
        assert!(warned, "{file}: {events:#?}");
        let from = events.iter().find_map(|event| match event {
            RunEvent::Resumed { step, .. } => Some(*step),
            _ => None,
        });
        assert_eq!((newest, from), (4, Some(3)), "{file}");
    }
}

#[test]
fn resume_without_a_valid_checkpoint_suggests_a_new_run() {
    let home = birds();
    home.train(&format!("{} --steps 1", &PLAN[6..]))
        .expect_code(0);
    let run = home.only_run();
    damage(&run, "model.safetensors");
    let output = home.run(&format!("resume {}", run.id())).expect_code(1);
    assert!(
        output.err.contains("no usable checkpoint"),
        "{}",
        output.err
    );
    assert!(output.err.contains("ebb train"), "{}", output.err);
}

#[test]
fn a_checkpoint_that_the_system_refuses_to_read_is_not_called_missing() {
    let home = birds();
    home.train(&format!("{} --steps 1", &PLAN[6..]))
        .expect_code(0);
    let run = home.only_run();
    for checkpoint in run.checkpoints().expect("the checkpoints can be listed") {
        let state = checkpoint.path.join("state.json");
        fs::remove_file(&state).expect("the file exists");
        fs::create_dir(&state).expect("the folder can be created");
    }
    for command in ["resume", "evaluate"] {
        let output = home.run(&format!("{command} {}", run.id())).expect_code(1);
        for part in ["cannot be read", "state.json: this is not a file"] {
            assert!(output.err.contains(part), "{part}: {}", output.err);
        }
        assert!(!output.err.contains("ebb train"), "{}", output.err);
    }
}

#[test]
fn a_running_run_cannot_be_resumed() {
    let home = birds();
    let mut training = home.start(&format!("{PLAN} --steps 5000"));
    training.until(|event| matches!(event, RunEvent::Checkpoint { .. }));
    let output = home
        .run(&format!("resume {}", home.only_run().id()))
        .expect_code(1);
    assert!(
        output.err.contains("is being trained by process"),
        "{}",
        output.err
    );
    training.signal("KILL");
    training.finish();
}
