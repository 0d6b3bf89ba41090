//! The baseline of image networks: trained before the network, shown, and used.

use crate::python::python;
use crate::support::{TestHome, draw_classes, json, run_command};
use runlog::RunEvent;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// After one step, the network guesses.
const TRAIN: &str = "{birds} --image-size 32 --effective-batch 8 --steps 1";

/// The predicted probabilities of Ebb and of an exported file differ at most by this: both shrink
/// images differently.
const TOLERANCE: f64 = 0.02;

fn birds() -> TestHome {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 20);
    home
}

fn is_baseline(event: &RunEvent) -> bool {
    matches!(event, RunEvent::Baseline { .. })
}

#[test]
fn an_image_baseline_is_trained_first_and_used_like_a_model() {
    let home = birds();
    let events = home.train(TRAIN).expect_code(0).events();
    let baseline = events.iter().position(is_baseline);
    let step = events
        .iter()
        .position(|event| matches!(event, RunEvent::Step { .. }));
    assert!(
        baseline.is_some() && baseline < step,
        "{baseline:?} {step:?}"
    );
    let Some(RunEvent::Baseline {
        name,
        samples,
        metrics,
        ..
    }) = baseline.map(|at| &events[at])
    else {
        panic!("there is no baseline");
    };
    assert_eq!(
        (name.as_str(), *samples),
        ("edge directions and colors", 32)
    );
    assert_eq!(metrics.get("accuracy"), Some(&1.0));

    let shown = home.run("runs show birds").expect_code(0).out;
    assert!(
        shown.contains("Baseline (edge directions and colors): "),
        "{shown}"
    );
    let alone = home.run("evaluate birds --baseline --json").expect_code(0);
    let found = json(&alone.out);
    assert_eq!(
        (found["accuracy"].as_f64(), found["samples"].as_u64()),
        (Some(1.0), Some(8))
    );
    let text = home.run("evaluate birds --baseline").expect_code(0).out;
    assert!(
        text.contains("baseline of edges and colors: accuracy 100.0 %"),
        "{text}"
    );
    check_baseline_export(&home);
}

/// The exported Python file has the probabilities that Ebb predicts.
fn check_baseline_export(home: &TestHome) {
    let ours = predictions(home, &["--baseline"]);
    let classes = ours.iter().map(|line| line["classes"][0]["class"].as_str());
    let classes: Vec<_> = classes.collect();
    assert_eq!(classes, [Some("jay"), Some("owl")]);
    let export = home.run("export birds {alone} --baseline").expect_code(0);
    assert!(
        export
            .out
            .contains("baseline.safetensors, image_baseline.py"),
        "{}",
        export.out
    );
    if let Some(python) = python("numpy, PIL") {
        let script =
            "from image_baseline import Baseline as Model; m = Model('baseline.safetensors', 32)";
        compare(&ours, &predicted(&python, home, "alone", script));
    }
}

#[test]
fn predictions_combine_the_network_and_the_image_baseline() {
    let home = birds();
    let events = home.train(TRAIN).expect_code(0).events();
    let evaluation = events.iter().find_map(|event| match event {
        RunEvent::Evaluation { metrics, .. } => Some(metrics.clone()),
        _ => None,
    });
    let evaluation = evaluation.expect("the run was evaluated");
    // The baseline is always right.
    assert_eq!(evaluation["accuracy"], 1.0);
    let share = evaluation["baseline_share"];
    assert!(share > 0.0, "{evaluation:?}");
    let found = json(&home.run("evaluate birds --json").expect_code(0).out);
    assert_eq!(
        (found["accuracy"].as_f64(), found["baseline_share"].as_f64()),
        (Some(1.0), Some(share))
    );
    let text = home.run("evaluate birds").expect_code(0).out;
    let both = "and baseline of edges and colors (its weight: ";
    assert!(text.contains(both), "{text}");
    check_mixed_export(&home);

    // A resumed run combines both again.
    let resumed = home.run("resume birds --steps 2").expect_code(0).out;
    assert!(!resumed.contains("without the baseline"), "{resumed}");
    let run = home.only_run().replay().expect("it can be read");
    let last = run.evaluations().last().expect("it was evaluated");
    assert_eq!((last.step, last.accuracy), (2, Some(1.0)));
    assert!(last.metrics.contains_key("baseline_share"));
}

/// The exported Python file computes the probabilities that Ebb predicts, with ONNX and with the
/// baseline alone.
fn check_mixed_export(home: &TestHome) {
    let export = home.run("export birds {onnx} --format onnx").expect_code(0);
    let files = [
        "baseline.safetensors",
        "ebb_mixture.json",
        "ebb_predictor.py",
        "image_baseline.py",
        "model.onnx",
    ];
    let out = export.out;
    assert!(files.iter().all(|file| out.contains(file)), "{out}");
    let exported = home.run("export birds {hub}").expect_code(0).out;
    assert!(exported.contains("ebb_predictor.py IMAGE"), "{exported}");
    let script = "from ebb_predictor import Predictor; m = Predictor('.')";
    if let Some(python) = python("numpy, PIL, onnxruntime") {
        compare(
            &predictions(home, &[]),
            &predicted(&python, home, "onnx", script),
        );
    }
    if let Some(python) = python("numpy, PIL") {
        let alone = "{\"baseline_share\": 1.0, \"image_size\": 32}";
        home.file("hub/ebb_mixture.json", alone);
        let theirs = predicted(&python, home, "hub", script);
        compare(&predictions(home, &["--baseline"]), &theirs);
    }
}

/// One image of each class.
fn images(home: &TestHome) -> [String; 2] {
    ["birds/jay/004.png", "birds/owl/007.jpg"].map(|path| home.path(path).display().to_string())
}

/// What `ebb predict --json` prints for each image.
fn predictions(home: &TestHome, options: &[&str]) -> Vec<Value> {
    let images = images(home);
    let args = ["predict", "birds", "--json", "--top", "2"];
    let images = images.iter().map(String::as_str);
    let args = args.into_iter().chain(options.iter().copied());
    let mut predict = home.ebb(args.chain(images));
    let out = run_command(&mut predict).expect_code(0).out;
    out.lines().map(json).collect()
}

/// The probabilities that an exported Python file gives each image. `script` loads it as `m`.
fn predicted(python: &str, home: &TestHome, folder: &str, script: &str) -> Vec<Value> {
    let script = format!(
        "import json, sys; {script}; [print(json.dumps(m.probabilities(p))) for p in sys.argv[1:]]"
    );
    let mut theirs = Command::new(python);
    theirs.args(["-c", &script]).args(images(home));
    theirs.current_dir(Path::new(&home.path(folder)));
    let theirs = run_command(theirs.env("PYTHONDONTWRITEBYTECODE", "1"));
    theirs.expect_code(0).out.lines().map(json).collect()
}

fn compare(ours: &[Value], theirs: &[Value]) {
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(theirs) {
        for class in ours["classes"].as_array().expect("the classes") {
            let ours = class["probability"].as_f64().unwrap_or(f64::NAN);
            let name = class["class"].as_str().unwrap_or_default();
            let theirs = theirs[name].as_f64().unwrap_or(f64::NAN);
            assert!(
                (ours - theirs).abs() < TOLERANCE,
                "{name}: {ours} and {theirs}"
            );
        }
    }
}

#[test]
fn an_image_baseline_also_predicts_regression_targets() {
    let home = birds();
    let masses = [("jay", 100), ("owl", 300)];
    let rows = masses.into_iter().flat_map(|(class, mass)| {
        let extension = |number| if number % 2 == 0 { "png" } else { "jpg" };
        (0..20).map(move |number| {
            let mass = mass + number % 3;
            format!("{class}/{number:03}.{},{mass}\n", extension(number))
        })
    });
    let table: String = rows.collect();
    home.file("birds/targets.csv", format!("image,mass_g\n{table}"));
    let events = home.train(TRAIN).expect_code(0).events();
    let metrics = events.iter().find_map(|event| match event {
        RunEvent::Baseline { metrics, .. } => Some(metrics),
        _ => None,
    });
    let metrics = metrics.expect("there is a baseline");
    assert_eq!(metrics["accuracy"], 1.0);
    // Always predicting the mean is off by 100.
    assert!(metrics["mae.mass_g"] < 30.0, "{metrics:?}");
    let found = json(&home.run("evaluate birds --json").expect_code(0).out);
    assert!(found["baseline_share"].as_f64() > Some(0.0), "{found}");
    let error = found["numbers"][0]["mean_absolute_error"].as_f64();
    assert!(error < Some(100.0), "{found}");
    let lines = predictions(&home, &["--baseline"]);
    let mass = |line: &Value| line["numbers"]["mass_g"].as_f64();
    assert!(mass(&lines[0]) < mass(&lines[1]), "{lines:?}");
}

#[test]
fn an_image_baseline_that_is_only_compared_has_no_part_in_the_predictions() {
    let home = birds();
    let line = format!("{TRAIN} --baseline ngrams");
    let events = home.train(&line).expect_code(0).events();
    assert!(events.iter().any(is_baseline));
    let found = json(&home.run("evaluate birds --json").expect_code(0).out);
    assert!(found["baseline_share"].is_null(), "{found}");
}

#[test]
fn an_image_baseline_can_be_skipped() {
    let home = birds();
    let line = format!("{TRAIN} --baseline none");
    let events = home.train(&line).expect_code(0).events();
    assert!(!events.iter().any(is_baseline));
    let refused = home.run("evaluate birds --baseline").expect_code(1).err;
    assert!(refused.contains("this run has no baseline"), "{refused}");
}
