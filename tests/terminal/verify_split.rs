//! `ebb verify-split` shows that the split of a batch does not change its gradient.

use crate::support::{CommandOutput, TestHome, draw_classes};
use serde_json::Value;

fn birds() -> TestHome {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 12);
    home
}

/// Parses the JSON line and checks that the largest difference is within the bound.
#[track_caller]
fn split_check(output: &CommandOutput) -> Value {
    let line: Value = serde_json::from_str(&output.out).expect("one line of JSON");
    assert_eq!(line["holds"], true, "{line:#}");
    let number = |value: &Value| value.as_f64().expect("a finite number");
    let largest = number(&line["worst"]["difference"]);
    assert!(largest <= number(&line["bound"]), "{line:#}");
    let parameters = line["parameters"].as_array().expect("a list");
    assert!(
        parameters
            .iter()
            .all(|p| number(&p["difference"]) <= largest)
    );
    assert!(parameters.iter().all(|p| number(&p["norm"]) > 0.0));
    line
}

#[test]
fn folders_and_runs_are_verified_in_f32_and_f64() {
    let home = birds();
    let line = "verify-split {birds} --device cpu --effective-batch 16 --json";
    let folder_check = split_check(&home.run(line).expect_code(0));
    assert_eq!(folder_check["splits"][2], serde_json::json!([5, 5, 5, 1]));
    assert_eq!(
        (
            folder_check["precision"].as_str(),
            folder_check["samples"].as_u64()
        ),
        (Some("f32"), Some(16))
    );
    let plan = "{birds} --image-size 16 --steps 4 --effective-batch 8 --model vit_micro";
    home.train(plan).expect_code(0);
    let id = home.only_run().id();
    for (flag, precision) in [("", "f32"), ("--double", "f64")] {
        let line = format!("verify-split {id} --device cpu --json {flag}");
        let run_check = split_check(&home.run(&line).expect_code(0));
        assert_eq!(run_check["precision"], precision);
        // A run is checked with its own batch, model and the weights of its last step.
        assert_eq!(run_check["samples"], 8);
        assert!(
            run_check["subject"]
                .as_str()
                .is_some_and(|text| text.ends_with("at step 4"))
        );
        let names: Vec<&str> = run_check["parameters"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|p| p["name"].as_str())
            .collect();
        assert!(names.contains(&"blocks.5.qkv.weight"), "{names:?}");
        assert_ne!(run_check["loss"]["norm"], folder_check["loss"]["norm"]);
    }
}

#[test]
fn the_table_ends_with_the_largest_difference() {
    let home = birds();
    let line = "verify-split {birds} --device cpu --effective-batch 5 --splits 2+3,1+4";
    let output = home.run(line).expect_code(0);
    let lines: Vec<&str> = output.out.lines().collect();
    assert!(
        lines[0].contains("5 samples in f32 on cpu; 2 splits"),
        "{}",
        lines[0]
    );
    let [.., largest, outcome] = lines.as_slice() else {
        panic!("{lines:?}");
    };
    let name = largest
        .split_whitespace()
        .next()
        .expect("a name")
        .trim_start_matches("the");
    assert!(
        outcome.starts_with("The sizes of the micro-batches do not change the gradient"),
        "{outcome}"
    );
    assert!(outcome.contains(name), "{largest} {outcome}");
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
