//! The n-gram baseline of text classification: trained before the network, shown, and used.

use crate::python::python;
use crate::support::{TestHome, json, losses, run_command};
use crate::text_datasets;
use runlog::RunEvent;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const TRAIN: &str = "{sms.tsv} --tokens 16 --vocabulary 400 --effective-batch 16 --steps 4";

/// After one step, the network guesses.
const ONE_STEP: &str = "{sms.tsv} --tokens 16 --vocabulary 400 --effective-batch 16 --steps 1";

/// Messages whose words decide the class.
fn messages() -> TestHome {
    text_datasets::messages(&[
        "today",
        "the train",
        "at home",
        "in town",
        "with Ann",
        "maybe",
        "\u{e9}t\u{e9}",
    ])
}

fn baseline_accuracy(events: &[RunEvent]) -> Option<f64> {
    events.iter().find_map(|event| match event {
        RunEvent::Baseline { metrics, .. } => metrics.get("accuracy").copied(),
        _ => None,
    })
}

#[test]
fn a_baseline_is_trained_first_and_used_like_a_model() {
    let home = messages();
    let events = home.train(TRAIN).expect_code(0).events();
    assert_eq!(baseline_accuracy(&events), Some(1.0));
    let place = |wanted: fn(&RunEvent) -> bool| events.iter().position(wanted);
    let baseline = place(|event| matches!(event, RunEvent::Baseline { .. }));
    assert!(baseline < place(|event| matches!(event, RunEvent::Step { .. })));

    let shown = home.run("runs show sms").expect_code(0).out;
    assert!(
        shown.contains("Baseline (word and character n-grams): 100.0 % in "),
        "{shown}"
    );
    assert!(shown.contains("Ebb predicts with "), "{shown}");

    let results = home.only_run().path.join("results-held-out.json");
    let of_model = std::fs::read(&results).expect("the run was evaluated");
    let found = json(
        &home
            .run("evaluate sms --baseline --json")
            .expect_code(0)
            .out,
    );
    assert_eq!(
        (found["accuracy"].as_f64(), found["samples"].as_u64()),
        (Some(1.0), Some(32))
    );
    assert!(std::fs::read(&results).is_ok_and(|results| results == of_model));
    let text = home.run("evaluate sms --baseline").expect_code(0).out;
    assert!(text.contains("n-gram baseline: accuracy 100.0 %"), "{text}");
    home.file("new.tsv", "label\ttext\nspam\twin cash\nham\tsee you\n");
    let found = json(
        &home
            .run("evaluate sms {new.tsv} --baseline --json")
            .expect_code(0)
            .out,
    );
    assert_eq!(
        (found["accuracy"].as_f64(), found["samples"].as_u64()),
        (Some(1.0), Some(2))
    );
    check_export(&home, &["win cash now", "see you at home, \u{c9}t\u{e9}!"]);
}

/// The exported Python file has the probabilities that Ebb predicts.
fn check_export(home: &TestHome, texts: &[&str]) {
    let ours = predictions(home, texts, &["--baseline"]);
    assert_eq!(
        [&ours[0], &ours[1]].map(|line| line["classes"][0]["class"].as_str()),
        [Some("spam"), Some("ham")]
    );

    let out = home
        .run("export sms {exported} --baseline")
        .expect_code(0)
        .out;
    assert!(
        out.contains("baseline.safetensors, ngram_baseline.py"),
        "{out}"
    );
    let Some(python) = python("json") else {
        return;
    };
    let script = "import json, sys; from ngram_baseline import Baseline; b = Baseline('baseline.safetensors'); [print(json.dumps(b.probabilities(t))) for t in sys.argv[1:]]";
    let mut theirs = Command::new(python);
    theirs
        .args(["-c", script])
        .args(texts)
        .current_dir(home.path("exported"));
    let theirs = run_command(theirs.env("PYTHONDONTWRITEBYTECODE", "1"))
        .expect_code(0)
        .out;
    let theirs: Vec<Value> = theirs.lines().map(json).collect();
    compare_probabilities(&ours, &theirs);
}

/// Accuracy, and the weight of the baseline, of each evaluation.
fn evaluations(events: &[RunEvent]) -> Vec<(f64, Option<f64>)> {
    let evaluations = events.iter().filter_map(|event| match event {
        RunEvent::Evaluation { metrics, .. } => Some(metrics),
        _ => None,
    });
    let figures = evaluations.map(|metrics| {
        let share = metrics.get("baseline_share").copied();
        (metrics["accuracy"], share)
    });
    figures.collect()
}

#[test]
fn predictions_combine_the_network_and_the_baseline() {
    let home = messages();
    let events = home.train(ONE_STEP).expect_code(0).events();
    // The baseline is always right.
    let [(accuracy, Some(share))] = evaluations(&events)[..] else {
        panic!("{:?}", evaluations(&events));
    };
    assert_eq!(accuracy, 1.0);
    assert!(share > 0.0);
    let found = json(&home.run("evaluate sms --json").expect_code(0).out);
    assert_eq!(
        (found["accuracy"].as_f64(), found["baseline_share"].as_f64()),
        (Some(1.0), Some(share))
    );
    assert!(found["network_accuracy"].as_f64() < Some(1.0), "{found}");
    let text = home.run("evaluate sms").expect_code(0).out;
    assert!(text.contains("and n-gram baseline (its weight: "), "{text}");
    let texts = ["win cash now", "see you at home, \u{c9}t\u{e9}!"];
    let best = |line: &Value| line["classes"][0]["class"].as_str().map(str::to_owned);
    let found: Vec<_> = predictions(&home, &texts, &[]).iter().map(best).collect();
    assert_eq!(found, [Some("spam".to_owned()), Some("ham".to_owned())]);
    check_mixed_export(&home, &texts);

    // A resumed run combines both again.
    let resumed = home.run("resume sms --steps 2").expect_code(0).out;
    assert!(!resumed.contains("without the baseline"), "{resumed}");
    let events = home.only_run().replay().expect("it can be read");
    let last = events.evaluations().last().expect("it was evaluated");
    assert_eq!((last.step, last.accuracy), (2, Some(1.0)));
    assert!(last.metrics.contains_key("baseline_share"));
}

/// What `ebb predict --json` prints for each text.
fn predictions(home: &TestHome, texts: &[&str], options: &[&str]) -> Vec<Value> {
    let args = ["predict", "sms", "--json", "--top", "2"];
    let mut predict = home.ebb(args.iter().chain(options).chain(texts));
    let out = run_command(&mut predict).expect_code(0).out;
    out.lines().map(json).collect()
}

/// The exported Python file computes the probabilities that Ebb predicts, with ONNX and with the
/// baseline alone.
fn check_mixed_export(home: &TestHome, texts: &[&str]) {
    let out = home.run("export sms {onnx} --format onnx").expect_code(0);
    let files = [
        "baseline.safetensors",
        "ebb_classifier.py",
        "ebb_mixture.json",
        "model.onnx",
    ];
    let out = out.out;
    assert!(files.iter().all(|file| out.contains(file)), "{out}");
    let exported = home.run("export sms {hub}").expect_code(0).out;
    assert!(exported.contains("modeling_ebb_encoder.py"), "{exported}");
    assert!(exported.contains("ebb_classifier.py TEXT"), "{exported}");
    if let Some(python) = python("numpy, onnxruntime, tokenizers") {
        let theirs = classified(&python, &home.path("onnx"), texts);
        compare_probabilities(&predictions(home, texts, &[]), &theirs);
    }
    if let Some(python) = python("json") {
        let alone = "{\"baseline_share\": 1.0, \"tokens\": 16}";
        home.file("hub/ebb_mixture.json", alone);
        let theirs = classified(&python, &home.path("hub"), texts);
        compare_probabilities(&predictions(home, texts, &["--baseline"]), &theirs);
    }
}

/// The probabilities that the exported Python file prints for each text.
fn classified(python: &str, folder: &Path, texts: &[&str]) -> Vec<Value> {
    let script = "import json, sys; from ebb_classifier import Classifier; c = Classifier('.'); [print(json.dumps(c.probabilities(t))) for t in sys.argv[1:]]";
    let mut theirs = Command::new(python);
    theirs.args(["-c", script]).args(texts).current_dir(folder);
    let theirs = run_command(theirs.env("PYTHONDONTWRITEBYTECODE", "1"));
    theirs.expect_code(0).out.lines().map(json).collect()
}

fn compare_probabilities(ours: &[Value], theirs: &[Value]) {
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(theirs) {
        for class in ours["classes"].as_array().expect("the classes") {
            let ours = class["probability"].as_f64().unwrap_or(f64::NAN);
            let name = class["class"].as_str().unwrap_or_default();
            let theirs = theirs[name].as_f64().unwrap_or(f64::NAN);
            assert!((ours - theirs).abs() < 1e-4, "{name}: {ours} and {theirs}");
        }
    }
}

#[test]
fn a_baseline_that_is_only_compared_has_no_part_in_the_predictions() {
    let home = messages();
    let line = format!("{ONE_STEP} --baseline ngrams");
    let events = home.train(&line).expect_code(0).events();
    assert_eq!(baseline_accuracy(&events), Some(1.0));
    let evaluations = evaluations(&events);
    assert!(
        evaluations
            .iter()
            .all(|(accuracy, share)| *accuracy < 1.0 && share.is_none()),
        "{evaluations:?}"
    );
    let shown = home.run("runs show sms").expect_code(0).out;
    assert!(shown.contains("Not better than the baseline: "), "{shown}");
    let exported = home.run("export sms {out}").expect_code(0).out;
    assert!(!exported.contains("ebb_classifier.py"), "{exported}");
}

#[test]
fn the_baseline_does_not_change_the_training_and_can_be_left_out() {
    let home = messages();
    let with = home.train(TRAIN).expect_code(0).events();
    let without = home
        .train(&format!("{TRAIN} --baseline none"))
        .expect_code(0)
        .events();
    assert_eq!(losses(&with), losses(&without));
    assert_eq!(
        (baseline_accuracy(&with), baseline_accuracy(&without)),
        (Some(1.0), None)
    );
    let runs = home.runs();
    let bare = runs
        .iter()
        .find(|run| !run.path.join("baseline.safetensors").exists());
    let id = bare.expect("the second run has no baseline").id();
    let refused = home.run(&format!("predict {id} win --baseline"));
    let refused = refused.expect_code(1).err;
    assert!(refused.contains("this run has no baseline"), "{refused}");
    let refused = home
        .run("train {sms.tsv} --baseline bayes")
        .expect_code(2)
        .err;
    assert!(refused.contains("ngrams"), "{refused}");
}
