//! Token compression: models are trained, resumed, evaluated and used to compress texts.

use crate::support::{TestHome, json, losses, run_command};
use crate::text_datasets::book;
use runlog::RunEvent;

const BOOK: &str = "{book} --task token-compression --model compress_micro --tokens 32 --effective-batch 6 --micro-batch 4";

#[test]
fn a_compression_is_trained_evaluated_and_used() {
    let home = book();
    let trained = home
        .run(&format!("train {BOOK} --steps 40 --threads 2"))
        .expect_code(0);
    let lines: Vec<&str> = trained
        .err
        .lines()
        .filter(|l| l.starts_with("step "))
        .collect();
    assert_eq!(lines.len(), 5, "{}", trained.err);
    for part in [
        "step 10 · ",
        "memory ",
        " GB (",
        " %) · loss ",
        " · kept 50.0 % · reward ",
        " · NaN 0 · Inf 0",
    ] {
        assert!(lines[1].contains(part), "{part}: {}", lines[1]);
    }

    let found = json(&home.run("evaluate book {book} --json").expect_code(0).out);
    assert!(
        (found["kept_fraction"].as_f64().unwrap_or(0.0) - 0.5).abs() < 0.01,
        "{found}"
    );
    let loss = found["loss"].as_f64().unwrap_or(f64::NAN);
    let reward = found["reward"].as_f64().unwrap_or(f64::NAN);
    let retained = found["kept_fraction"].as_f64().unwrap_or(f64::NAN);
    assert!((reward + loss + retained).abs() < 1e-9, "{found}");
    let shown = home.run("evaluate book {book}").expect_code(0).out;
    assert!(shown.contains("of the tokens kept"), "{shown}");

    let text = "It rained all day and we stayed in. It rained all day.";
    let mut predict = home.ebb(["predict", "book", text, "--json"]);
    let found = json(&run_command(&mut predict).expect_code(0).out);
    let retained = found["kept"].as_str().unwrap_or_default().chars().count();
    assert_eq!((retained, found["text"].as_str()), (27, Some(text)));
    let marked = found["marked"].as_str().unwrap_or_default();
    assert_eq!(
        marked.chars().filter(|c| *c == '·').count(),
        text.len() - retained
    );
    let shown = home.run("runs show book").expect_code(0).out;
    assert!(
        shown.contains("held out: kept 50.0 %") && shown.contains("policy entropy"),
        "{shown}"
    );
    let out = home
        .run("verify-split book --double --json")
        .expect_code(0)
        .out;
    assert_eq!(json(&out)["holds"], true, "{out}");
    let refused = home.run("generate book --prompt It").expect_code(1).err;
    let part = "compresses texts and cannot continue a text; try `ebb predict RUN \"a text\"`";
    assert!(refused.contains(part), "{refused}");
}

/// The output of `ebb predict` for a text or a file.
fn predict(home: &TestHome, text: &str, flags: &[&str]) -> String {
    let args = ["predict", "book", text]
        .into_iter()
        .chain(flags.iter().copied());
    run_command(&mut home.ebb(args)).expect_code(0).out
}

#[test]
fn predict_shows_retained_tokens_and_gaps() {
    let home = book();
    let trained = home
        .run(&format!("train {BOOK} --steps 20 --threads 2"))
        .expect_code(0);
    assert!(
        trained.out.contains("\nTask: token compression, because "),
        "{}",
        trained.out
    );
    let evaluated = trained
        .err
        .lines()
        .find(|line| line.starts_with("Evaluated"));
    let evaluated = evaluated.unwrap_or_default();
    assert!(evaluated.contains("kept 50.0 %"), "{evaluated}");
    assert!(!evaluated.contains('–'), "no value is missing: {evaluated}");

    let shown = predict(&home, "It rained all day and we stayed in.", &[]);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 3, "{shown}");
    for (line, part) in lines.iter().zip([
        "kept 18 of 35 tokens (51.4 %): ",
        "with gaps (·): ",
        "gaps filled, ",
    ]) {
        assert!(line.starts_with(part), "{part}: {shown}");
    }
    assert!(lines[2].contains(" of 17 correct ("), "{shown}");

    // A text that contains the usual gap sign gets another one.
    let found = json(&predict(&home, "rain · rain · day", &["--json"]));
    let (gap, marked) = (&found["gap"], found["marked"].as_str().unwrap_or_default());
    assert_eq!(gap, "░", "{found}");
    let gaps = marked.chars().filter(|c| *c == '░').count();
    let retained = found["kept_places"].as_array().map_or(0, Vec::len);
    assert_eq!(
        Some((gaps + retained) as u64),
        found["tokens"].as_u64(),
        "{found}"
    );

    check_file_prediction(&home);
}

/// A file is compressed like its text, and must be UTF-8.
fn check_file_prediction(home: &TestHome) {
    let file = home.file("two.txt", "It rained all day.\nWe stayed in.\n");
    let file = file.display().to_string();
    let shown = predict(home, &file, &[]);
    let first = format!("{file}, kept 17 of 33 tokens (51.5 %)");
    assert!(shown.starts_with(&first), "{shown}");
    let found = json(&predict(home, &file, &["--json"]));
    assert_eq!(found["text"], "It rained all day.\nWe stayed in.\n");
    home.file("no.txt", b"\xff\xfe\x00");
    let refused = home.run("predict book {no.txt}").expect_code(1).err;
    assert!(refused.contains("choose a file of UTF-8 text"), "{refused}");
}

#[test]
fn a_killed_compression_resumes_exactly() {
    for policy in ["learned", "random"] {
        let home = book();
        let line = format!("{BOOK} --policy {policy} --steps 16 --checkpoint-every 5steps");
        let whole = losses(
            &home
                .train(&format!("{line} --out {{whole}}"))
                .expect_code(0)
                .events(),
        );
        let mut training = home.start(&format!("train {line} --out {{killed}}"));
        training.until(|event| matches!(event, RunEvent::Step { step: 8, .. }));
        training.signal("KILL");
        training.finish();
        let store = runlog::RunStore::open(home.path("killed"));
        let killed = store.list().expect("the runs can be listed");
        let (code, events) = home
            .start(&format!("resume {}", killed[0].path.display()))
            .finish();
        assert_eq!(code, Some(0), "{events:#?}");
        let again = losses(&events);
        assert!(again.len() >= 6, "{policy}");
        let bits = |losses: &[f64]| losses.iter().map(|l| l.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&again), bits(&whole[16 - again.len()..]), "{policy}");
    }
}

#[test]
fn plan_lists_every_compression_model() {
    let home = book();
    let out = home
        .run("plan {book} --task token-compression --json")
        .expect_code(0)
        .out;
    for model in ["compress_micro", "compress_mini", "compress_small"] {
        assert!(out.contains(model), "{model}: {out}");
    }
    let refused = home
        .run("train {book} --policy random --steps 1")
        .expect_code(2)
        .err;
    assert!(refused.contains("--task token-compression"), "{refused}");
}

#[test]
fn the_neighbors_of_a_token_can_be_set() {
    let parameters = |home: &TestHome, options: &str| {
        let line = format!("{BOOK} --steps 1 {options}");
        let events = home.train(&line).expect_code(0).events();
        match events.first() {
            Some(RunEvent::Started(started)) => started.parameters,
            other => panic!("{other:?}"),
        }
    };
    let usual = parameters(&book(), "");
    assert_eq!(parameters(&book(), "--neighbors 4"), usual);
    let home = book();
    let narrow = parameters(&home, "--neighbors 1");
    assert!(narrow < usual, "{narrow} {usual}");
    // The weights are loaded again with the same setting.
    home.run("evaluate book").expect_code(0);
    let line = "train {book} --task language-model --neighbors 2";
    let refused = home.run(line).expect_code(2).err;
    assert!(
        refused.contains("this setting is for --task token-compression"),
        "{refused}"
    );
}
