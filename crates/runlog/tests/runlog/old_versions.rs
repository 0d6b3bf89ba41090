//! Runs and configs of earlier versions can still be opened, and so can events of later versions.

use pressure::{Action, Change};
use runlog::{
    CheckpointReason, EventReader, RunConfig, RunEvent, RunFolder, RunStatus, StopReason,
    read_events,
};
use std::fs;
use std::path::PathBuf;

/// A run folder written by version 0.1.0. It was stopped at step 5, resumed, and finished at step
/// 24.
fn old_run(name: &str) -> RunFolder {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures")).join(name);
    RunFolder::open(folder).expect("it is a run folder")
}

fn events(name: &str) -> Vec<RunEvent> {
    let mut reader = EventReader::open(&old_run(name).events_path()).expect("it can be opened");
    let events = reader.by_ref().map(|event| event.expect("it is readable"));
    let events = events.collect();
    assert_eq!(reader.skipped(), 0);
    events
}

#[test]
fn a_run_of_version_0_1_0_is_replayed() {
    let run = old_run("run-0.1.0").replay().expect("it can be replayed");
    assert_eq!(run.status(), RunStatus::Finished);
    assert_eq!(run.stop_reason(), Some(StopReason::Finished));
    assert_eq!(run.figures().step, 24);
    let message = "Finished at step 24: best held-out accuracy 36.5 %";
    assert_eq!(run.status_line().message, message);
    assert_eq!(run.started().map(|started| started.input_size), Some(16));
    assert_eq!(run.evaluations().len(), 2);
    assert!(run.marks().iter().any(|mark| mark.change == Change::Pause));
    assert!(run.last_minutes().is_empty());
}

#[test]
fn renamed_fields_are_read_under_their_old_names() {
    let (mut steps, mut reasons, mut waited) = (0, Vec::new(), false);
    for event in events("run-0.1.0") {
        match event {
            RunEvent::Step {
                micro_batches,
                checkpoint_blocks,
                ..
            } => {
                steps += 1;
                assert!(!micro_batches.is_empty());
                assert_eq!(checkpoint_blocks, vec![1; micro_batches.len()]);
            }
            RunEvent::Decision {
                decision,
                micro_batches,
                message,
                ..
            } => {
                assert!(!message.is_empty());
                waited |= decision.action == Action::Pause;
                assert_eq!(micro_batches == 0, decision.action == Action::Pause);
            }
            RunEvent::Checkpoint {
                duration_ms,
                reason,
                ..
            } => {
                assert!(duration_ms > 0.0);
                reasons.push(reason);
            }
            _ => {}
        }
    }
    assert_eq!((steps, waited), (24, true));
    assert!(reasons.contains(&CheckpointReason::Periodic));
}

#[test]
fn old_step_metrics_are_read() {
    let mut steps = 0;
    for event in events("compression-0.1.0") {
        if let RunEvent::Step { metrics, .. } = event {
            steps += 1;
            assert_eq!(metrics["kept_fraction"], 0.5);
        }
    }
    assert_eq!(steps, 3);
}

#[test]
fn old_config_keys_are_read_and_new_keys_are_written() {
    let config = old_run("run-0.1.0").config().expect("it can be read");
    assert_eq!(config.max_system_fraction, Some(0.9));
    assert_eq!(config.max_suspended_minutes, Some(60));
    let config = old_run("compression-0.1.0")
        .config()
        .expect("it can be read");
    assert_eq!(config.keep_fraction, Some(0.5));
    assert_eq!(config.keep_cost, Some(1.0));
    assert_eq!(config.final_temperature, Some(0.1));
    let text = config.to_toml();
    let keys: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    for key in ["keep_fraction", "keep_cost", "final_temperature"] {
        assert!(keys.contains(&key), "{text}");
    }
}

#[test]
fn a_key_under_both_names_is_refused() {
    // The old name is read from the fixture, where no rename can reach it.
    let old = fs::read_to_string(old_run("run-0.1.0").path.join("config.toml")).expect("a config");
    let text = format!("{old}\nmax_system_fraction = 0.8\n");
    let message = RunConfig::from_toml(&text, "run.toml").expect_err("it is ambiguous");
    let reason = "`max_system_fraction` is set twice, under two of its names";
    assert!(message.to_string().contains(reason), "{message}");
}

#[test]
fn events_with_new_fields_are_read() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("events.jsonl");
    let text = fs::read_to_string(old_run("run-0.1.0").events_path()).expect("it can be read");
    fs::write(
        &path,
        text.replace("{\"kind\":", "{\"new\":{\"a\":[1]},\"kind\":"),
    )
    .expect("a file");
    assert_eq!(
        read_events(&path).map_err(|error| error.to_string()),
        Ok(events("run-0.1.0"))
    );
}
