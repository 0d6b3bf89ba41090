//! The receipt in the terminal: of a folder and a run; what it prints, what it refuses.

use crate::support::{CommandOutput, TestHome, draw_classes};
use serde_json::Value;

const STEADY: &str = "--device cpu";

fn birds() -> TestHome {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 12);
    home
}

/// The one JSON line of a receipt, whose largest difference is within the bound of its precision.
#[track_caller]
fn split_check(output: &CommandOutput) -> Value {
    let line: Value = serde_json::from_str(&output.out).expect("one line of JSON");
    assert_eq!(line["holds"], true, "{line:#}");
    let number = |value: &Value| value.as_f64().expect("a finite number");
    let worst = number(&line["worst"]["difference"]);
    assert!(worst <= number(&line["bound"]), "{line:#}");
    let parameters = line["parameters"].as_array().expect("a list");
    assert!(parameters.iter().all(|p| number(&p["difference"]) <= worst));
    assert!(parameters.iter().all(|p| number(&p["norm"]) > 0.0));
    line
}

#[test]
fn folders_and_runs_are_verified_in_f32_and_f64() {
    let home = birds();
    let line = format!("verify-split {{birds}} {STEADY} --effective-batch 16 --json");
    let fresh = split_check(&home.run(&line).expect_code(0));
    assert_eq!(fresh["splits"][2], serde_json::json!([5, 5, 5, 1]));
    assert_eq!(
        (fresh["precision"].as_str(), fresh["samples"].as_u64()),
        (Some("f32"), Some(16))
    );
    let plan = "{birds} --image-size 16 --steps 4 --effective-batch 8 --model vit_micro";
    home.train(plan).expect_code(0);
    let id = home.only_run().id();
    for (more, precision) in [("", "f32"), ("--double", "f64")] {
        let line = format!("verify-split {id} {STEADY} --json {more}");
        let of_run = split_check(&home.run(&line).expect_code(0));
        assert_eq!(of_run["precision"], precision);
        // As it trains: eight samples, the transformer, the weights of the last step.
        assert_eq!(of_run["samples"], 8);
        assert!(
            of_run["subject"]
                .as_str()
                .is_some_and(|text| text.ends_with("at step 4"))
        );
        let names: Vec<&str> = of_run["parameters"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|p| p["name"].as_str())
            .collect();
        assert!(names.contains(&"blocks.5.qkv.weight"), "{names:?}");
        assert_ne!(of_run["loss"]["norm"], fresh["loss"]["norm"]);
    }
}

#[test]
fn the_table_ends_with_the_largest_difference() {
    let home = birds();
    let line = format!("verify-split {{birds}} {STEADY} --effective-batch 5 --splits 2+3,1+4");
    let output = home.run(&line).expect_code(0);
    let lines: Vec<&str> = output.out.lines().collect();
    assert!(
        lines[0].contains("5 samples in f32 on cpu, 2 splits"),
        "{}",
        lines[0]
    );
    let [.., worst, outcome] = lines.as_slice() else {
        panic!("{lines:?}");
    };
    let name = worst
        .split_whitespace()
        .next()
        .expect("a name")
        .trim_start_matches("the");
    assert!(
        outcome.starts_with("The split does not change the training"),
        "{outcome}"
    );
    assert!(outcome.contains(name), "{worst} {outcome}");
    assert!(output.out.contains("stem.conv.weight") && output.out.contains("the loss"));
}

#[test]
fn invalid_arguments_are_refused_with_a_remedy() {
    let home = birds();
    let check = |line: &str, code: i32, parts: &[&str]| {
        let output = home.run(&format!("verify-split {line}")).expect_code(code);
        for part in parts {
            assert!(
                output.err.contains(part),
                "{line}: no `{part}` in {}",
                output.err
            );
        }
    };
    check("", 2, &["RUN|FOLDER"]);
    check("nowhere", 1, &["there is no run `nowhere`"]);
    check(
        "--workload bert",
        2,
        &["there is no workload `bert`", "bert_mini"],
    );
    check("{birds} --workload gpt", 2, &["cannot be used with"]);
    check("{birds} --checkpoint-blocks 1", 2, &["cannot be used with"]);
    check("{birds} --splits 4+", 2, &["4+", "5+5+5+1"]);
    check(
        "{birds} --splits 4+4 --effective-batch 9",
        2,
        &["4+4", "9 samples"],
    );
    check("{birds} --effective-batch 0", 2, &["0"]);
    check(
        "{birds} --double --device cuda",
        2,
        &["precision", "--device cpu"],
    );
    check(
        "--workload bert_mini --effective-batch 60000 --device cpu",
        2,
        &["effective_batch = 60000", "samples fit"],
    );
}
