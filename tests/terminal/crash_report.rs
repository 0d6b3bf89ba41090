//! `ebb runs show` explains the crash of a killed run from the last two minutes of its events.

use crate::support::{TestHome, draw_classes};
use pressure::Phase;
use runlog::RunEvent;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;

/// After 1.5 s, other apps take 3 of 16 GB: the level is a warning, but the training continues.
const SCRIPT: &str = r#"{"at_ms":0,"total_bytes":17179869184,"others_bytes":11381663335}
{"at_ms":1500,"total_bytes":17179869184,"others_bytes":14602888807}
"#;

/// The run is killed after this many milliseconds.
const KILLED_MS: u64 = 3_500;

/// A killed run and its id.
fn killed() -> (TestHome, String) {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 12);
    home.file("script", SCRIPT);
    let line = "train {birds} --image-size 32 --effective-batch 16 --steps 100000 --checkpoint-every 2steps --memory-script {script}";
    let mut training = home.start(line);
    training.until(|event| matches!(event, RunEvent::Step { at_ms, .. } if *at_ms > KILLED_MS));
    training.signal("KILL");
    let (code, _) = training.finish();
    assert_eq!(code, None, "it was killed");
    let id = home.only_run().id();
    (home, id)
}

/// Most runs that are killed: other processes may keep one of them from taking a memory sample.
const TRIES: usize = 4;
/// Memory events are a second apart, plus one micro-batch.
const LONGEST_GAP_MS: u64 = 2_000;

/// What `runs show --json` says of a run.
fn shown_json(home: &TestHome, id: &str) -> Value {
    let json = home
        .run(&format!("runs show {id} --json"))
        .expect_code(0)
        .out;
    serde_json::from_str(&json).expect("valid JSON")
}

/// Milliseconds from the newest memory sample of a killed run to its end.
fn gap_ms(report: &Value) -> Option<u64> {
    let (end, sample) = (&report["end_unix_ms"], &report["sample_unix_ms"]);
    let both = end.as_u64().zip(sample.as_u64());
    both.map(|(end, sample)| end - sample)
}

/// The number in "0.4 s before the end".
fn seconds_before_the_end(text: &str) -> f64 {
    let (before, _) = text
        .split_once(" s before the end")
        .unwrap_or_else(|| panic!("{text}"));
    let word = before.rsplit(' ').next().expect("there is a number");
    word.parse().expect("it is a number")
}

#[test]
fn runs_show_explains_the_crash_of_a_killed_run() {
    let (mut home, mut id) = killed();
    for _ in 1..TRIES {
        let gap_ms = gap_ms(&shown_json(&home, &id)["crash_report"]);
        if gap_ms.is_some_and(|ms| ms <= LONGEST_GAP_MS) {
            break;
        }
        println!("{gap_ms:?} ms from the last memory sample to the end");
        (home, id) = killed();
    }
    let shown = home.run(&format!("runs show {id}")).expect_code(0).out;
    println!("{shown}");
    for part in [
        "Ended early at step ",
        " while memory was ",
        ": Ebb quit unexpectedly",
        "The last two minutes:\n  The last memory sample was taken at ",
        "other apps had taken 3.0 GB in the last ",
        "Ebb used ",
        ", its budget was ",
        "The highest memory pressure of the last two minutes was 0.",
    ] {
        assert!(shown.contains(part), "{part:?} is missing in\n{shown}");
    }
    let next = format!("Run `ebb resume {id}` to continue from the checkpoint at step ");
    assert!(shown.contains(&next), "{shown}");
    assert!(seconds_before_the_end(&shown) <= 2.0, "{shown}");

    let json = shown_json(&home, &id);
    assert_eq!(json["status"], "ended_early");
    let report = &json["crash_report"];
    assert!(
        gap_ms(report).is_some_and(|ms| ms <= LONGEST_GAP_MS),
        "{report}"
    );
    assert!(report["highest_pressure"].as_f64() > Some(0.5), "{report}");

    // Without memory samples there is no report, but the run has still ended. The recorder file of
    // early versions is ignored.
    let events = home.only_run().events_path();
    let text = fs::read_to_string(&events).expect("the file can be read");
    let lines = text
        .lines()
        .filter(|line| !line.contains("\"kind\":\"memory\""));
    let rest: String = lines.map(|line| format!("{line}\n")).collect();
    fs::write(&events, rest).expect("the file can be written");
    fs::write(home.only_run().path.join("flight.ring"), "old").expect("the file can be written");
    let shown = home.run(&format!("runs show {id}")).expect_code(0).out;
    assert!(
        shown.contains(": Ebb quit unexpectedly") && !shown.contains("The last two"),
        "{shown}"
    );
}

#[test]
fn running_and_stopped_runs_have_no_crash_report() {
    let (home, id) = killed();
    let mut training = home.start(&format!("resume {id} --memory-script {{script}}"));
    training.until(|event| matches!(event, RunEvent::Step { .. }));
    let shown = home
        .run(&format!("runs show {id} --json"))
        .expect_code(0)
        .out;
    let json: Value = serde_json::from_str(&shown).expect("valid JSON");
    assert_eq!(json["status"], "training", "{shown}");
    assert_eq!(json["crash_report"], Value::Null);
    training.signal("INT");
    assert_eq!(training.finish().0, Some(0));
    let shown = home.run(&format!("runs show {id}")).expect_code(0).out;
    assert!(!shown.contains("The last two minutes"), "{shown}");
}

#[test]
fn predicted_peaks_are_logged_at_intervals_and_shown() {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 24);
    let line = "{birds} --image-size 32 --effective-batch 16 --steps 60";
    let events = home.train(line).expect_code(0).events();
    let mut times_by_phase: BTreeMap<Phase, Vec<u64>> = BTreeMap::new();
    for event in &events {
        if let RunEvent::Prediction {
            at_ms,
            phase,
            predicted_peak_bytes,
            measured_peak_bytes,
            error_fraction,
            ..
        } = event
        {
            let error = *predicted_peak_bytes as f64 / *measured_peak_bytes as f64 - 1.0;
            assert!((error - error_fraction).abs() < 1e-9, "{event:?}");
            assert!(error.abs() < 1.0, "{event:?}");
            times_by_phase.entry(*phase).or_default().push(*at_ms);
        }
    }
    let times: Vec<u64> = times_by_phase.into_values().flatten().collect();
    let last_ms = events.last().expect("the run has events").at_ms();
    assert!(
        !times.is_empty() && times.len() as u64 <= 1 + last_ms / 10_000,
        "{times:?}"
    );
    let shown = home
        .run(&format!("runs show {}", home.only_run().id()))
        .expect_code(0)
        .out;
    assert!(shown.contains("Predicted peaks:\n  "), "{shown}");
}
