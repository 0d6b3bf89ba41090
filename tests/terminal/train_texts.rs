//! Text classifiers and language models: they are trained, resumed, evaluated and used.

use crate::support::{TestHome, evaluated, json, loss_bits, losses};
use crate::text_datasets::{self, book};
use runlog::RunEvent;
use serde_json::Value;

/// Messages of two classes that differ in a few words.
fn messages() -> TestHome {
    text_datasets::messages(&[
        "today",
        "the train",
        "at home",
        "in town",
        "with Ann",
        "maybe",
        "again",
        "soon",
    ])
}

const SMS: &str = "{sms.tsv} --tokens 16 --vocabulary 400 --effective-batch 10 --micro-batch 4";
const BOOK: &str = "{book} --model gpt_micro --tokens 32 --effective-batch 6 --micro-batch 4";

#[test]
fn a_text_classifier_is_trained_and_used() {
    let home = messages();
    let events = home
        .train(&format!("{SMS} --epochs 6"))
        .expect_code(0)
        .events();
    let started = events.iter().find_map(|event| match event {
        RunEvent::Started(started) => Some(started),
        _ => None,
    });
    let started = started.expect("the run has started");
    assert_eq!(
        (
            started.task.as_str(),
            started.model.as_str(),
            started.classes.len()
        ),
        ("text-classification", "text_micro", 2)
    );
    let (accuracy, f1) = (
        evaluated(&events, "accuracy"),
        evaluated(&events, "macro_f1"),
    );
    assert_eq!((accuracy.len(), f1.len()), (6, 6));
    assert!(accuracy[5] > 0.95 && f1[5] > 0.95, "{accuracy:?} {f1:?}");

    let found = json(&home.run("evaluate sms {sms.tsv} --json").expect_code(0).out);
    assert_eq!(found["samples"], 32);
    assert_eq!(
        found["accuracy"].as_f64(),
        accuracy.iter().copied().reduce(f64::max)
    );
    check_classifier_evaluation(&home);
    check_classifier_predictions(&home);

    let refused = home.run("generate sms --prompt win").expect_code(1).err;
    assert!(
        refused.contains("this run classifies texts and cannot continue a text"),
        "{refused}"
    );
    let out = home.run("verify-split sms --json").expect_code(0).out;
    assert_eq!(json(&out)["holds"], true, "{out}");
}

/// The classifier predicts texts and files of one text, and refuses tables and other encodings.
fn check_classifier_predictions(home: &TestHome) {
    home.file("one.txt", "WINNER! claim your free prize now");
    let output = home.run("predict sms {one.txt}").expect_code(0).out;
    assert!(output.contains("one.txt: "), "{output}");
    let output = home.run("predict sms {sms.tsv}").expect_code(2).err;
    assert!(output.contains("ebb evaluate"), "{output}");
    assert!(output.contains("--text-column COLUMN"), "{output}");
    check_predictions_of_a_table(home);
    home.file("odd.txt", b"\xff\xfe".as_slice());
    let output = home.run("predict sms {odd.txt}").expect_code(1).err;
    assert!(output.contains("UTF-8"), "{output}");
    let mut predict = home.ebb([
        "predict",
        "sms",
        "win cash now",
        "see you at home",
        "--json",
    ]);
    let out = crate::support::run_command(&mut predict).expect_code(0).out;
    let best: Vec<Value> = out
        .lines()
        .map(|line| json(line)["classes"][0]["class"].clone())
        .collect();
    assert_eq!(best, ["spam", "ham"], "{out}");
    assert_eq!(
        json(out.lines().next().unwrap_or_default())["text"],
        "win cash now"
    );
    let mut predict = home.ebb(["predict", "sms", "win cash now", ""]);
    let output = crate::support::run_command(&mut predict).expect_code(1);
    assert!(output.out.starts_with("win cash now: spam "), "{output:?}");
    assert!(output.err.contains("The text is empty."), "{output:?}");
}

/// Each row of a table is predicted.
fn check_predictions_of_a_table(home: &TestHome) {
    home.file(
        "new.csv",
        "id,message\n1,win cash now\n2,\n3,see you at home\n",
    );
    let rows = home.run("predict sms {new.csv} --text-column message --top 1 --json");
    let rows = rows.expect_code(1);
    assert!(rows.err.contains("row 2: the text is empty"), "{rows:?}");
    assert!(
        rows.err.contains("1 of 3 rows could not be read"),
        "{rows:?}"
    );
    let lines: Vec<Value> = rows.out.lines().map(json).collect();
    assert_eq!(lines.len(), 3, "{rows:?}");
    assert_eq!(lines[0]["text"], "win cash now");
    assert_eq!(lines[0]["classes"][0]["class"], "spam");
    assert_eq!(lines[2]["classes"][0]["class"], "ham");
    let csv = home.run("predict sms {new.csv} --text-column message --top 1 --csv");
    let csv = csv.expect_code(1).out;
    assert_eq!(csv.lines().count(), 4, "{csv}");
    let refused = home.run("predict sms {new.csv} --text-column text");
    let refused = refused.expect_code(2).err;
    assert!(
        refused.contains("has no column text; its columns are id and message"),
        "{refused}"
    );
}

/// The evaluation covers the held-out part of the dataset and all of a new file.
fn check_classifier_evaluation(home: &TestHome) {
    let text = home.run("evaluate sms {sms.tsv}").expect_code(0).out;
    assert!(
        text.contains("32 texts") && text.contains("macro-F1"),
        "{text}"
    );

    // All of a new file is evaluated, whatever its name.
    for name in ["new.tsv", "test.tsv"] {
        home.file(
            name,
            "spam\twin cash now\nham\tsee you at home\n".repeat(20),
        );
        let found = json(
            &home
                .run(&format!("evaluate sms {{{name}}} --json"))
                .expect_code(0)
                .out,
        );
        assert_eq!(
            (&found["samples"], &found["part"]),
            (&40.into(), &"whole".into())
        );
    }
    let text = home.run("evaluate sms {new.tsv}").expect_code(0).out;
    assert!(
        text.contains("40 texts (the whole folder), best weights (step"),
        "{text}"
    );
}

#[test]
fn a_language_model_is_trained_and_generates_text() {
    let home = book();
    let events = home
        .train(&format!("{BOOK} --steps 60"))
        .expect_code(0)
        .events();
    let bits = evaluated(&events, "bits_per_byte");
    let last = bits.last().copied().unwrap_or(f64::NAN);
    // Random bytes need 8 bits each; a repeated sentence needs far fewer.
    assert!(last < 3.0, "{bits:?}");
    let found = json(&home.run("evaluate book {book} --json").expect_code(0).out);
    let again = found["bits_per_byte"].as_f64().unwrap_or(f64::NAN);
    let best = bits.iter().copied().fold(f64::INFINITY, f64::min);
    assert!((again - best).abs() < 1e-9, "{again} {bits:?}");
    let text = home.run("evaluate book {book}").expect_code(0).out;
    assert!(text.contains("bits per byte"), "{text}");

    // A new document is evaluated from its first byte to its last.
    let one = "It rained all day and we stayed in.\n".repeat(30);
    home.file("one.txt", &one);
    let found = json(
        &home
            .run("evaluate book {one.txt} --json")
            .expect_code(0)
            .out,
    );
    assert_eq!(found["part"], "whole", "{found}");
    assert_eq!(found["samples"], (one.len() + 1).div_ceil(32), "{found}");

    // The text may be longer than the context of 32 tokens.
    let long = home
        .run("generate book --prompt It --tokens 90 --seed 3")
        .expect_code(0)
        .out;
    assert!(long.len() > 80, "{long}");
}

#[test]
fn a_text_is_generated_by_the_options_of_the_command() {
    let home = book();
    home.train(&format!("{BOOK} --steps 60")).expect_code(0);
    let generate = |options: &str| {
        home.run(&format!("generate book --prompt It --tokens 24 {options}"))
            .expect_code(0)
            .out
    };
    let (once, again) = (generate("--seed 3"), generate("--seed 3"));
    assert_eq!(once, again);
    assert!(once.starts_with("It"), "{once}");
    let hot = generate("--seed 3 --temperature 5");
    let most_probable = generate("--seed 4 --temperature 0");
    for options in [
        "--temperature 0",
        "--temperature 5 --top-p 0",
        "--temperature 5 --min-p 1",
        "--temperature 5 --top-k 1",
        "--top-k 1",
    ] {
        let chosen = generate(&format!("--seed 3 {options}"));
        assert_eq!(chosen, most_probable, "{options}");
    }
    let new = generate("--temperature 0 --repetition-penalty 10");
    assert_ne!(new, most_probable, "it repeats itself");
    let continued = &once["It".len()..];
    let mut letters = continued.chars().filter(char::is_ascii_alphabetic);
    let stop = letters.nth(6).expect("seven letters");
    let before = continued.split(stop).next().expect("a first part");
    let stopped = generate(&format!("--seed 3 --stop {stop}"));
    assert_eq!(stopped, format!("It{before}\n"));
    home.run("generate book --prompt It --top-p 2")
        .expect_code(2);
    assert_ne!(hot, generate("--seed 4 --temperature 5"));

    check_refusals_of_a_language_model(&home);
    let out = home.run("verify-split book --json").expect_code(0).out;
    assert_eq!(json(&out)["holds"], true, "{out}");
}

/// A language model predicts no classes, and is not evaluated on images.
fn check_refusals_of_a_language_model(home: &TestHome) {
    let refused = home.run("predict book rain").expect_code(1).err;
    assert!(
        refused
            .contains("this run is a language model and cannot predict classes; try `ebb generate"),
        "{refused}"
    );
    std::fs::create_dir(home.path("folder")).expect("the folder can be created");
    crate::support::draw_classes(&home.path("folder"), &["jay", "owl"], 2);
    let refused = home.run("evaluate book {folder}").expect_code(1).err;
    assert!(
        refused.contains("this run is a language model, but the folder holds images"),
        "{refused}"
    );
}

#[test]
fn a_language_model_is_trained_on_byte_pairs() {
    let home = book();
    let line = format!("{BOOK} --vocabulary 300 --epochs 8");
    let events = home.train(&line).expect_code(0).events();
    let started = events.iter().find_map(|event| match event {
        RunEvent::Started(started) => Some(started),
        _ => None,
    });
    let started = started.expect("the run has started");
    // As bytes, the documents have about 380 windows of 32 tokens. As byte pairs they have fewer.
    assert!(started.train_samples < 200, "{}", started.train_samples);
    let per_epoch = started.train_samples.div_ceil(6);
    assert_eq!(
        (started.steps_per_epoch, started.steps),
        (per_epoch, 8 * per_epoch)
    );
    let bits = evaluated(&events, "bits_per_byte");
    let best = bits.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(best < 3.0, "{bits:?}");
    assert!(home.only_run().path.join("tokenizer.json").is_file());
    let found = json(&home.run("evaluate book {book} --json").expect_code(0).out);
    let again = found["bits_per_byte"].as_f64().unwrap_or(f64::NAN);
    assert!((again - best).abs() < 1e-9, "{again} {bits:?}");
    let text = home
        .run("generate book --prompt It --tokens 12")
        .expect_code(0)
        .out;
    assert!(text.starts_with("It"), "{text}");
    check_resume(&book(), &format!("{BOOK} --vocabulary 300"));
}

#[test]
fn a_stop_ends_the_learning_of_a_vocabulary() {
    let home = TestHome::new();
    // Many different words, so that learning them takes several seconds.
    let word = |i: u64| {
        let end = if i % 12 == 11 { "\n" } else { " " };
        format!("{:x}{end}", i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32)
    };
    home.file("long.txt", (0..1_400_000).map(word).collect::<String>());
    let line =
        "train {long.txt} --model gpt_micro --vocabulary 8000 --steps 1 --device cpu --threads 2";
    let training = home.start_for_people(line);
    while !training
        .stderr()
        .contains("Learning a vocabulary of 8,000 tokens")
    {
        assert!(
            !training.stderr().contains("ebb: "),
            "{}",
            training.stderr()
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let requested = std::time::Instant::now();
    training.signal("INT");
    assert_eq!(training.wait(), Some(0));
    let took = requested.elapsed();
    assert!(took < std::time::Duration::from_secs(10), "{took:?}");
    let stderr = std::fs::read_to_string(home.path("stderr")).unwrap_or_default();
    assert!(stderr.contains("stopped before the first step"), "{stderr}");
    assert!(home.leftover_files().is_empty(), "the run has no folder");
}

/// Trains to the end, and again with a kill in the middle. The losses must be bit-identical.
#[track_caller]
fn check_resume(home: &TestHome, line: &str) {
    let line = format!("{line} --steps 24 --checkpoint-every 5steps");
    let whole = losses(
        &home
            .train(&format!("{line} --out {{whole}}"))
            .expect_code(0)
            .events(),
    );
    let mut training = home.start(&format!("train {line} --out {{killed}}"));
    training.until(|event| matches!(event, RunEvent::Step { step: 12, .. }));
    training.signal("KILL");
    training.finish();
    let killed = runlog::RunStore::open(home.path("killed"))
        .list()
        .expect("the runs can be listed");
    // The resumed run must not use a file that was added after its start.
    home.file("book/new.txt", "Something else. ".repeat(40));
    let (code, events) = home
        .start(&format!("resume {}", killed[0].path.display()))
        .finish();
    assert_eq!(code, Some(0), "{events:#?}");
    assert!(
        matches!(events[0], RunEvent::Resumed { step: 10..24, .. }),
        "{:?}",
        events[0]
    );
    let whole: Vec<u64> = whole.into_iter().map(f64::to_bits).collect();
    assert_eq!(whole.len(), 24);
    assert_eq!(loss_bits(&killed[0]), whole);
}

#[test]
fn a_killed_text_classifier_resumes_exactly() {
    let home = messages();
    std::fs::create_dir(home.path("book")).expect("the folder can be created");
    check_resume(&home, SMS);
}

#[test]
fn a_killed_language_model_resumes_exactly() {
    check_resume(&book(), BOOK);
}

#[test]
fn options_for_other_data_are_refused() {
    let home = messages();
    let check = |line: &str, part: &str| {
        let output = home.run(line);
        assert!(
            output.code != Some(0) && output.err.contains(part),
            "{line}: {output:?}"
        );
        assert!(home.leftover_files().is_empty(), "{line}");
    };
    check(
        "train {sms.tsv} --image-size 64",
        "image_size = 64 does not work: this setting is for images",
    );
    for flag in ["--targets x", "--group-by x", "--augment standard"] {
        let line = format!("train {{sms.tsv}} {flag}");
        check(&line, "does not work: this setting is for images");
    }
    check(
        "train {sms.tsv} --model convnet",
        "choose text_micro or text_mini",
    );
    check(
        "train {sms.tsv} --task image-classification",
        "is a file, not a folder",
    );
    check(
        "train {sms.tsv} --class-weights some",
        "must be one of `none`, `balanced`",
    );
    check(
        "train {sms.tsv} --label-column mood",
        "No table in this folder has a column mood",
    );
    check(
        "train {sms.tsv} --vocabulary 300 --tokens 2",
        "'--tokens <TOKENS>': must be a whole number from 8 to 8192",
    );
}

#[test]
fn dev_samples_limits_the_training_set() {
    let home = messages();
    let events = home
        .train(&format!("{SMS} --steps 2 --dev-samples 40"))
        .expect_code(0)
        .events();
    let counts = events.iter().find_map(|event| match event {
        RunEvent::Started(started) => Some((started.train_samples, started.held_out_samples)),
        _ => None,
    });
    assert_eq!(counts, Some((40, 32)));
}

#[test]
fn plan_suggests_a_text_model() {
    let home = messages();
    let planned = json(
        &home
            .run("plan {sms.tsv} --device cpu --json")
            .expect_code(0)
            .out,
    );
    assert_eq!(planned["chosen"]["model"], "text_micro", "{planned}");
}
