//! What tries settings: a sweep over batches, a search for a rate, a search over settings.

use crate::support::{TestHome, draw_classes};
use serde_json::Value;

fn birds() -> TestHome {
    let place = TestHome::new();
    draw_classes(&place.path("birds"), &["jay", "owl", "wren"], 12);
    place
}

fn lines(text: &str) -> Vec<Value> {
    let parse =
        |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    text.lines().map(parse).collect()
}

const STEADY: &str = "--image-size 16 --device cpu --threads 2";

#[test]
fn each_batch_of_a_sweep_is_a_row_and_one_that_fails_is_too() {
    let place = birds();
    let rows = lines(
        &place
            .run(&format!(
                "sweep-batch {{birds}} {STEADY} --batches 2,8 --steps 3 --json"
            ))
            .ended(0)
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
    // At 512 px one sample needs more than the cap: a row, and the end of none.
    let line = "sweep-batch {birds} --image-size 512 --device cpu --threads 2 --batches 1,16 --steps 1 --memory-cap 200MB";
    let output = place.run(line);
    let table: Vec<&str> = output.out.lines().collect();
    assert!(table[0].starts_with(" Batch  Status"), "{output:?}");
    assert!(
        table[2].contains("16") && table[2].contains("refused") && table[2].contains("memory"),
        "{output:?}"
    );
    assert!(place.runs().is_empty(), "a sweep leaves no run");
}

#[test]
fn the_automatic_size_is_measured_beside_fixed_ones_in_turn() {
    let place = birds();
    let line =
        format!("sweep-batch {{birds}} {STEADY} --controller --batches 4,8 --steps 3 --json");
    let rows = lines(&place.run(&line).ended(0).out);
    let sizes: Vec<_> = rows.iter().map(|row| row["micro_batch"].clone()).collect();
    assert_eq!(sizes, ["auto", "4", "8"]);
    for (row, micro_batches) in rows[1..].iter().zip([vec![4, 4], vec![8]]) {
        assert_eq!(row["micro_batches"], Value::from(micro_batches), "{row}");
    }
    let share = |row: &Value| row["of_best_fixed"].as_f64().unwrap_or(f64::NAN);
    assert!(rows.iter().all(|row| share(row) > 0.0), "{rows:?}");
    assert!(rows[1..].iter().any(|row| share(row) == 1.0), "{rows:?}");
    // A size that is refused ends all of them, and says why.
    let line = "sweep-batch {birds} --controller --image-size 512 --device cpu --threads 2 --batches 1,16 --steps 1 --memory-cap 200MB";
    let output = place.run(line).ended(2);
    assert!(output.err.contains("memory"), "{output:?}");
    assert!(place.runs().is_empty(), "it leaves no run");
}

#[test]
fn a_rate_is_suggested_from_where_the_loss_falls() {
    let place = birds();
    let line = format!("find-lr {{birds}} {STEADY} --steps 60 --json");
    let found = lines(&place.run(&line).ended(0).out);
    let rate = found[0]["suggestion"].as_f64().unwrap_or(f64::NAN);
    assert!((1e-5..0.3).contains(&rate), "{rate}");
    assert!(
        found[0]["points"]
            .as_array()
            .is_some_and(|points| points.len() > 10)
    );
    assert!(place.runs().is_empty(), "a test of rates leaves no run");
}

#[test]
fn every_trial_of_a_search_is_a_run_and_the_better_ones_see_more() {
    let place = birds();
    let line = format!("tune {{birds}} {STEADY} --trials 3 --epochs 1 --model convnet --json");
    let rows = lines(&place.run(&line).ended(0).out);
    let (trials, best) = rows.split_at(rows.len() - 1);
    let epochs: Vec<u64> = trials
        .iter()
        .filter_map(|row| row["epochs"].as_u64())
        .collect();
    assert_eq!(epochs, [1, 1, 1, 3], "{rows:?}");
    assert_eq!(place.runs().len(), 4);
    assert!(
        best[0]["arguments"]
            .as_str()
            .is_some_and(|words| words.contains("--learning-rate")),
        "{rows:?}"
    );
    let first: Vec<f64> = trials[..3]
        .iter()
        .filter_map(|row| row["score"].as_f64())
        .collect();
    let kept = trials[..3]
        .iter()
        .find(|row| row["trial"] == trials[3]["trial"]);
    let kept = kept
        .and_then(|row| row["score"].as_f64())
        .unwrap_or(f64::NAN);
    assert!(first.iter().all(|score| *score <= kept), "{rows:?}");
}
