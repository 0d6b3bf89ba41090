//! Commands that train several times: `ebb sweep-batch`, `ebb find-lr` and `ebb tune`.

use crate::support::{TestHome, draw_classes};
use runlog::{BaselineChoice, RunEvent, read_events};
use serde_json::Value;

fn birds() -> TestHome {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl", "wren"], 12);
    home
}

fn lines(text: &str) -> Vec<Value> {
    let parse =
        |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    text.lines().map(parse).collect()
}

const SMALL: &str = "--image-size 16 --device cpu --threads 2";

#[test]
fn sweep_batch_prints_a_row_per_batch() {
    let home = birds();
    let rows = lines(
        &home
            .run(&format!(
                "sweep-batch {{birds}} {SMALL} --batches 2,8 --steps 3 --json"
            ))
            .expect_code(0)
            .out,
    );
    assert_eq!(rows.len(), 2);
    for (row, batch) in rows.iter().zip([2, 8]) {
        assert_eq!(
            (&row["batch"], &row["status"]),
            (&batch.into(), &"ok".into()),
            "{row}"
        );
        assert!(
            row["seconds_per_epoch"].as_f64().is_some_and(|s| s > 0.0),
            "{row}"
        );
        assert!(
            row["peak_bytes"]
                .as_u64()
                .is_some_and(|bytes| bytes > 1 << 20),
            "{row}"
        );
    }
    // At 512 px one sample needs more than the cap: a refused row, and the others still run.
    let line = "sweep-batch {birds} --image-size 512 --device cpu --threads 2 --batches 1,16 --steps 1 --memory-cap 200MB";
    let output = home.run(line);
    let table: Vec<&str> = output.out.lines().collect();
    assert!(table[0].starts_with(" Batch  Status"), "{output:?}");
    assert!(
        table[2].contains("16") && table[2].contains("refused") && table[2].contains("memory"),
        "{output:?}"
    );
    assert!(home.runs().is_empty(), "a sweep leaves no run");
}

#[test]
fn sweep_batch_compares_the_controller_with_fixed_sizes() {
    let home = birds();
    let line = format!("sweep-batch {{birds}} {SMALL} --controller --batches 4,8 --steps 3 --json");
    let rows = lines(&home.run(&line).expect_code(0).out);
    let sizes: Vec<_> = rows.iter().map(|row| row["micro_batch"].clone()).collect();
    assert_eq!(sizes, ["auto", "4", "8"]);
    for (row, micro_batches) in rows[1..].iter().zip([vec![4, 4], vec![8]]) {
        assert_eq!(row["micro_batches"], Value::from(micro_batches), "{row}");
    }
    let fraction = |row: &Value| row["of_best_fixed"].as_f64().unwrap_or(f64::NAN);
    assert!(rows.iter().all(|row| fraction(row) > 0.0), "{rows:?}");
    assert!(rows[1..].iter().any(|row| fraction(row) == 1.0), "{rows:?}");
    // In the comparison, a size that does not fit ends the command with the reason.
    let line = "sweep-batch {birds} --controller --image-size 512 --device cpu --threads 2 --batches 1,16 --steps 1 --memory-cap 200MB";
    let output = home.run(line).expect_code(2);
    assert!(output.err.contains("memory"), "{output:?}");
    assert!(home.runs().is_empty(), "a comparison leaves no run");
}

#[test]
fn find_lr_suggests_a_learning_rate() {
    let home = birds();
    let line = format!("find-lr {{birds}} {SMALL} --steps 60 --json");
    let found = lines(&home.run(&line).expect_code(0).out);
    let rate = found[0]["suggestion"].as_f64().unwrap_or(f64::NAN);
    assert!((1e-5..0.3).contains(&rate), "{rate}");
    assert!(
        found[0]["points"]
            .as_array()
            .is_some_and(|points| points.len() > 10)
    );
    assert!(home.runs().is_empty(), "a search leaves no run");
}

#[test]
fn tune_trains_the_best_trials_longer() {
    let home = birds();
    let line = format!("tune {{birds}} {SMALL} --trials 3 --epochs 1 --model convnet --json");
    let rows = lines(&home.run(&line).expect_code(0).out);
    let (trials, best) = rows.split_at(rows.len() - 1);
    let epochs: Vec<u64> = trials
        .iter()
        .filter_map(|row| row["epochs"].as_u64())
        .collect();
    assert_eq!(epochs, [1, 1, 1, 3], "{rows:?}");
    assert_eq!(
        home.runs().len(),
        3,
        "the second round trains the best run on"
    );
    let run_of_best = trials[..3]
        .iter()
        .find(|row| row["run"] == trials[3]["run"]);
    assert_eq!(
        run_of_best.map(|row| &row["trial"]),
        Some(&trials[3]["trial"]),
        "{rows:?}"
    );
    assert!(
        best[0]["arguments"]
            .as_str()
            .is_some_and(|text| text.contains("--learning-rate")),
        "{rows:?}"
    );
    let first_scores: Vec<f64> = trials[..3]
        .iter()
        .filter_map(|row| row["score"].as_f64())
        .collect();
    let best_score = trials[..3]
        .iter()
        .find(|row| row["trial"] == trials[3]["trial"]);
    let best_score = best_score
        .and_then(|row| row["score"].as_f64())
        .unwrap_or(f64::NAN);
    assert!(
        first_scores.iter().all(|score| *score <= best_score),
        "{rows:?}"
    );
}

#[test]
fn tune_trains_the_best_settings_to_the_end() {
    let home = birds();
    home.file("short.toml", "epochs = 2");
    let line = format!(
        "tune {{birds}} {SMALL} --trials 2 --epochs 1 --model convnet --config {{short.toml}} --train"
    );
    let output = home.run(&line).expect_code(0);
    assert!(
        output.out.contains("Best of 3 trainings: trial "),
        "{}",
        output.out
    );
    for part in [
        "Training with these settings on all samples",
        "Finished at step ",
    ] {
        assert!(output.err.contains(part), "{part}: {}", output.err);
    }
    let runs = home.runs();
    assert_eq!(runs.len(), 3, "two trials and the last training");
    let tuned = runs.iter().filter(|run| run.id().contains("tuned"));
    let configs: Vec<_> = tuned.map(|run| run.config().expect("a config")).collect();
    assert_eq!(configs.len(), 1);
    assert_eq!((configs[0].epochs, configs[0].dev_samples), (Some(2), None));
    // The trials compare networks alone, but the last training is like `ebb train`.
    let baselines: Vec<_> = runs
        .iter()
        .map(|run| {
            let config = run.config().expect("a config");
            let events = read_events(&run.events_path()).expect("its events can be read");
            let is_trained = events
                .iter()
                .any(|event| matches!(event, RunEvent::Baseline { .. }));
            (run.id().contains("tuned"), config.baseline, is_trained)
        })
        .collect();
    for (is_tuned, baseline, is_trained) in baselines {
        let expected = if is_tuned {
            BaselineChoice::Combined
        } else {
            BaselineChoice::None
        };
        assert_eq!((baseline, is_trained), (Some(expected), is_tuned));
    }
}

#[test]
fn tune_without_time_trains_nothing() {
    let home = birds();
    let line = format!("tune {{birds}} {SMALL} --trials 2 --epochs 1 --minutes 0");
    let output = home.run(&line).expect_code(1);
    assert!(
        output.err.contains("no trial finished within 0 minutes"),
        "{}",
        output.err
    );
    assert!(home.runs().is_empty());
}

#[test]
fn a_training_may_look_for_its_learning_rate_first() {
    let home = birds();
    let line = format!("train {{birds}} {SMALL} --steps 2 --find-learning-rate");
    let output = home.run(&line).expect_code(0);
    let line = output
        .err
        .lines()
        .find(|line| line.starts_with("Learning rate "));
    let found = line.and_then(|line| line.split([' ', ':']).nth(2)?.parse::<f64>().ok());
    let found = found.unwrap_or_else(|| panic!("{}", output.err));
    assert!((1e-5..0.3).contains(&found), "{found}");
    let config = home.only_run().config().expect("a config");
    let used = config.learning_rate.expect("the config is complete");
    assert!((used / found - 1.0).abs() < 0.1, "{used} {found}");
    let line = format!("train {{birds}} {SMALL} --learning-rate 1e-3 --find-learning-rate");
    let refused = home.run(&line).expect_code(2).err;
    assert!(refused.contains("give only one of them"), "{refused}");
}
