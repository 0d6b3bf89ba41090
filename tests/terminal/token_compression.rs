//! Token compression from the folder to the answer: trained, measured, asked, gone on with.

use crate::support::{TestHome, losses, run_command};
use runlog::RunEvent;
use serde_json::Value;

fn book() -> TestHome {
    let place = TestHome::new();
    std::fs::create_dir(place.path("book")).expect("a folder can be made");
    for i in 0..12 {
        let text = format!(
            "Chapter {i}. {}",
            "It rained all day and we stayed in. ".repeat(20 + i)
        );
        place.file(&format!("book/{i:02}.txt"), text);
    }
    place
}

const BOOK: &str = "{book} --task token-compression --model compress_micro --tokens 32 --effective-batch 6 --micro-batch 4";

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

#[test]
fn texts_are_compressed_from_the_folder_to_the_answer() {
    let place = book();
    let trained = place
        .run(&format!("train {BOOK} --steps 40 --threads 2"))
        .ended(0);
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

    let found = json(&place.run("evaluate book {book} --json").ended(0).out);
    assert!(
        (found["kept_fraction"].as_f64().unwrap_or(0.0) - 0.5).abs() < 0.01,
        "{found}"
    );
    let loss = found["loss"].as_f64().unwrap_or(f64::NAN);
    let reward = found["reward"].as_f64().unwrap_or(f64::NAN);
    let kept = found["kept_fraction"].as_f64().unwrap_or(f64::NAN);
    assert!((reward + loss + kept).abs() < 1e-9, "{found}");
    let words = place.run("evaluate book {book}").ended(0).out;
    assert!(words.contains("of the tokens kept"), "{words}");

    let text = "It rained all day and we stayed in. It rained all day.";
    let mut ask = place.ebb(["predict", "book", text, "--json"]);
    let found = json(&run_command(&mut ask).ended(0).out);
    let kept = found["kept"].as_str().unwrap_or_default().chars().count();
    assert_eq!((kept, found["text"].as_str()), (27, Some(text)));
    let marked = found["marked"].as_str().unwrap_or_default();
    assert_eq!(
        marked.chars().filter(|c| *c == '·').count(),
        text.len() - kept
    );
    let shown = place.run("runs show book").ended(0).out;
    assert!(
        shown.contains("held out: kept 50.0 %") && shown.contains("policy entropy"),
        "{shown}"
    );
    let out = place.run("verify-split book --double --json").ended(0).out;
    assert_eq!(json(&out)["holds"], true, "{out}");
    let refused = place.run("generate book --prompt It").ended(1).err;
    for part in ["is token compression", "Try `ebb predict RUN \"a text\"`"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
}

#[test]
fn what_is_kept_of_a_text_is_shown_beside_its_gaps_and_what_fills_them() {
    let place = book();
    let trained = place
        .run(&format!("train {BOOK} --steps 20 --threads 2"))
        .ended(0);
    assert!(
        trained.out.contains("\nA token compression: "),
        "{}",
        trained.out
    );
    let evaluated = trained
        .err
        .lines()
        .find(|line| line.starts_with("Evaluated"));
    let evaluated = evaluated.unwrap_or_default();
    assert!(evaluated.contains("kept 50.0 %"), "{evaluated}");
    assert!(
        !evaluated.contains('–'),
        "nothing is said to be missing: {evaluated}"
    );

    let ask = |text: &str, more: &[&str]| {
        let words = ["predict", "book", text]
            .into_iter()
            .chain(more.iter().copied());
        run_command(&mut place.ebb(words)).ended(0).out
    };
    let shown = ask("It rained all day and we stayed in.", &[]);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 3, "{shown}");
    for (line, part) in lines.iter().zip([
        "kept 18 of 35 tokens (51.4 %): ",
        "with gaps (·): ",
        "filled in, ",
    ]) {
        assert!(line.starts_with(part), "{part}: {shown}");
    }
    assert!(lines[2].contains(" of 17 gaps right ("), "{shown}");

    // A text that has the usual sign gets another one, so that gaps can be told from it.
    let found = json(&ask("rain · rain · day", &["--json"]));
    let (gap, marked) = (&found["gap"], found["marked"].as_str().unwrap_or_default());
    assert_eq!(gap, "░", "{found}");
    let gaps = marked.chars().filter(|c| *c == '░').count();
    let kept = found["kept_places"].as_array().map_or(0, Vec::len);
    assert_eq!(
        Some((gaps + kept) as u64),
        found["tokens"].as_u64(),
        "{found}"
    );

    // A file stands for its text.
    let file = place.file("two.txt", "It rained all day.\nWe stayed in.\n");
    let file = file.display().to_string();
    let shown = ask(&file, &[]);
    let first = format!("{file}, kept 17 of 33 tokens (51.5 %)");
    assert!(shown.starts_with(&first), "{shown}");
    let found = json(&ask(&file, &["--json"]));
    assert_eq!(found["text"], "It rained all day.\nWe stayed in.\n");
    place.file("no.txt", b"\xff\xfe\x00");
    let refused = place.run("predict book {no.txt}").ended(1).err;
    assert!(refused.contains("give a file of UTF-8 text"), "{refused}");
}

#[test]
fn a_killed_compression_goes_on_to_the_bit() {
    for policy in ["learned", "random"] {
        let place = book();
        let line = format!("{BOOK} --policy {policy} --steps 16 --checkpoint-every 5steps");
        let whole = losses(
            &place
                .train(&format!("{line} --out {{whole}}"))
                .ended(0)
                .events(),
        );
        let mut live = place.start(&format!("train {line} --out {{killed}}"));
        live.until(|event| matches!(event, RunEvent::Step { step: 8, .. }));
        live.signal("KILL");
        live.end();
        let store = runlog::RunStore::open(place.path("killed"));
        let killed = store.list().expect("it can be listed");
        let (code, events) = place
            .start(&format!("resume {}", killed[0].path.display()))
            .end();
        assert_eq!(code, Some(0), "{events:#?}");
        let again = losses(&events);
        assert!(again.len() >= 6, "{policy}");
        let bits = |losses: &[f64]| losses.iter().map(|l| l.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&again), bits(&whole[16 - again.len()..]), "{policy}");
    }
}

#[test]
fn a_plan_lists_every_size_of_a_compression() {
    let place = book();
    let out = place
        .run("plan {book} --task token-compression --json")
        .ended(0)
        .out;
    for model in ["compress_micro", "compress_mini", "compress_small"] {
        assert!(out.contains(model), "{model}: {out}");
    }
    let refused = place
        .run("train {book} --policy random --steps 1")
        .ended(2)
        .err;
    assert!(refused.contains("--task token-compression"), "{refused}");
}
