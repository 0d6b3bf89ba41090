//! Fine-tuning of pretrained models: they are planned, trained, resumed without their source
//! folder, evaluated and used. Models that do not fit are refused before the training starts.

use crate::support::{TestHome, draw_classes, evaluated, json, loss_bits, losses};
use runlog::RunEvent;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Copies a tiny model with random weights in the Hugging Face format into the home.
fn copy_pretrained(home: &TestHome, name: &str) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let from = here
        .join("crates/models/tests/fixtures/published")
        .join(name);
    let to = home.path(name);
    fs::create_dir(&to).expect("the folder can be created");
    for entry in fs::read_dir(from).expect("the fixture exists") {
        let entry = entry.expect("the runs can be listed");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("the file can be copied");
    }
}

/// Writes a `tokenizer.json` with a vocabulary of whole words.
fn write_tokenizer(home: &TestHome, name: &str, special: &[&str], words: &str) {
    let all = special.iter().copied().chain(words.split(' '));
    let ids: serde_json::Map<String, Value> = all
        .enumerate()
        .map(|(id, word)| (word.to_owned(), json!(id)))
        .collect();
    let added: Vec<Value> = (0..special.len())
        .map(|id| {
            json!({"id": id, "content": special[id], "special": true, "single_word": false, "lstrip": false,
                   "rstrip": false, "normalized": false})
        })
        .collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": ids, "unk_token": special[0]},
    });
    home.file(&format!("{name}/tokenizer.json"), tokenizer.to_string());
}

/// Messages of two classes that differ in a few words, and a text encoder with their vocabulary.
fn messages() -> TestHome {
    let home = TestHome::new();
    let fillers = [
        "today", "train", "home", "town", "Ann", "maybe", "again", "soon",
    ];
    let row = |i: usize| {
        let filler = |n: usize| fillers[(i * n + i / 7) % fillers.len()];
        match i % 4 {
            0 => format!("spam\twin {} cash {} now\n", filler(3), filler(5)),
            _ => format!("ham\tsee you {} {}\n", filler(3), filler(5)),
        }
    };
    home.file("sms.tsv", (0..160).map(row).collect::<String>());
    copy_pretrained(&home, "bert");
    let words = format!("win cash now see you {}", fillers.join(" "));
    write_tokenizer(&home, "bert", &["[UNK]"], &words);
    home
}

/// Documents that repeat one sentence, and a language model with its vocabulary.
fn book() -> TestHome {
    let home = TestHome::new();
    fs::create_dir(home.path("book")).expect("the folder can be created");
    for i in 0..12 {
        let text = "It rained all day and we stayed in . ".repeat(20 + i);
        home.file(&format!("book/{i:02}.txt"), text);
    }
    copy_pretrained(&home, "gpt2");
    let words = "It rained all day and we stayed in .";
    write_tokenizer(&home, "gpt2", &["<unk>", "<|endoftext|>"], words);
    home
}

const SMS: &str =
    "{sms.tsv} --from {bert} --tokens 12 --effective-batch 10 --micro-batch 4 --learning-rate 0.01";
const BOOK: &str =
    "{book} --from {gpt2} --tokens 10 --effective-batch 6 --micro-batch 4 --learning-rate 0.01";

#[test]
fn fine_tuned_classifiers_work_without_the_pretrained_folder() {
    let home = messages();
    for options in ["", "--train-only last:1", "--adapter 4 --quantize 8"] {
        let line = format!("{SMS} {options} --epochs 12 --out {{runs}}");
        let events = home.train(&line).expect_code(0).events();
        let accuracy = evaluated(&events, "accuracy");
        let best = accuracy.iter().copied().fold(0.0, f64::max);
        assert!(best > 0.95, "{options}: {accuracy:?}");
        let started = events.iter().find_map(|event| match event {
            RunEvent::Started(started) => Some(started),
            _ => None,
        });
        assert_eq!(started.map(|s| s.model.as_str()), Some("bert"));
    }
    fs::remove_dir_all(home.path("bert")).expect("the folder can be removed");
    for run in runlog::RunStore::open(home.path("runs"))
        .list()
        .expect("the runs can be listed")
    {
        let run = run.path.display().to_string();
        let words = |words: &[&str]| {
            let mut command = home.ebb(words);
            crate::support::run_command(&mut command).expect_code(0).out
        };
        let sms = home.path("sms.tsv").display().to_string();
        let found = json(&words(&["evaluate", &run, &sms, "--json"]));
        assert!(found["accuracy"].as_f64() > Some(0.95), "{found}");
        let out = words(&[
            "predict",
            &run,
            "win home cash town now",
            "see you home Ann",
            "--json",
        ]);
        let best: Vec<Value> = out
            .lines()
            .map(|line| json(line)["classes"][0]["class"].clone())
            .collect();
        assert_eq!(best, ["spam", "ham"], "{out}");
        let out = words(&["verify-split", &run, "--json"]);
        assert_eq!(json(&out)["holds"], true, "{out}");
    }
}

#[test]
fn fine_tuned_language_models_generate_text() {
    let home = book();
    for options in [
        "",
        "--adapter 8",
        "--adapter 4 --quantize 4",
        "--train-only last:1",
    ] {
        let line = format!("{BOOK} {options} --epochs 3 --out {{runs}}");
        let events = home.train(&line).expect_code(0).events();
        let found = evaluated(&events, "bits_per_byte");
        // Nine random words of 37 bytes in all would need 0.8 bits per byte.
        assert!(found.last() < Some(&0.5), "{options}: {found:?}");
        // The length of an epoch is counted in tokens, not in bytes.
        let started = events.iter().find_map(|event| match event {
            RunEvent::Started(started) => Some(started),
            _ => None,
        });
        let windows = started.map_or(0, |started| started.train_samples);
        assert!((150..300).contains(&windows), "{windows}");
    }
    fs::remove_dir_all(home.path("gpt2")).expect("the folder can be removed");
    let runs = runlog::RunStore::open(home.path("runs")).list();
    let mut before = Vec::new();
    for run in runs.expect("the runs can be listed") {
        let is_quantized = run.config().expect("it has one").quantize.is_some();
        let run = run.path.display();
        let line = format!("generate {run} --tokens 9 --temperature 0 --prompt rained");
        let text = home.run(&line).expect_code(0).out;
        assert!(text.contains("all day"), "{text}");
        let found = home
            .run(&format!("evaluate {run} {{book}} --json"))
            .expect_code(0);
        let found = json(&found.out);
        assert!(found["bits_per_byte"].as_f64() < Some(0.5));
        let loss = found["loss"].as_f64().unwrap_or(f64::NAN);
        let perplexity = found["perplexity"].as_f64().unwrap_or(f64::NAN);
        assert!((perplexity - loss.exp()).abs() < 1e-9, "{found}");
        let of_base = found["before"]["loss"].as_f64().unwrap_or(f64::NAN);
        assert!(of_base > 2.0 * loss, "{found}");
        let bits = [&found["before"], &found].map(|it| it["bits_per_byte"].as_f64());
        let ratio = bits[0].zip(bits[1]).map(|(base, own)| base / own);
        assert!(
            ratio.is_some_and(|it| (it - of_base / loss).abs() < 1e-6),
            "{found}"
        );
        if !is_quantized {
            before.push(of_base);
        }
    }
    // The base is the same, whichever part of it was trained.
    let apart = |loss: &f64| (loss - before[0]).abs() / before[0];
    assert_eq!(before.len(), 3);
    assert!(before.iter().all(|loss| apart(loss) < 1e-5), "{before:?}");
}

/// Trains to the end, and again with a kill in the middle and without the pretrained folder. The
/// losses must be bit-identical.
#[track_caller]
fn check_resume(home: &TestHome, line: &str, folder: &str) {
    let line = format!("{line} --steps 24 --checkpoint-every 5steps");
    let whole = home
        .train(&format!("{line} --out {{whole}}"))
        .expect_code(0);
    let whole: Vec<u64> = losses(&whole.events())
        .into_iter()
        .map(f64::to_bits)
        .collect();
    let mut training = home.start(&format!("train {line} --out {{killed}}"));
    training.until(|event| matches!(event, RunEvent::Step { step: 12, .. }));
    training.signal("KILL");
    training.finish();
    fs::remove_dir_all(home.path(folder)).expect("the folder can be removed");
    let killed = runlog::RunStore::open(home.path("killed"))
        .list()
        .expect("the runs can be listed");
    let (code, events) = home
        .start(&format!("resume {}", killed[0].path.display()))
        .finish();
    assert_eq!(code, Some(0), "{events:#?}");
    assert_eq!(whole.len(), 24);
    assert_eq!(loss_bits(&killed[0]), whole);
}

#[test]
fn fine_tuning_resumes_exactly_without_the_pretrained_folder() {
    check_resume(
        &messages(),
        &format!("{SMS} --adapter 4 --quantize 8"),
        "bert",
    );
    check_resume(&book(), &format!("{BOOK} --train-only last:1"), "gpt2");
}

#[test]
fn changed_pretrained_weights_are_refused() {
    let home = messages();
    home.train(&format!("{SMS} --train-only head --steps 2 --out {{runs}}"))
        .expect_code(0);
    let runs = runlog::RunStore::open(home.path("runs")).list();
    let run = runs.expect("the runs can be listed").remove(0).path;
    let saved = run.join("published/model.safetensors");
    let mut bytes = fs::read(&saved).expect("the run has a copy");
    *bytes.last_mut().expect("the file is not empty") ^= 1;
    fs::write(&saved, bytes).expect("the file can be written");
    let output = home
        .run(&format!("predict {} rain", run.display()))
        .expect_code(1)
        .err;
    assert!(output.contains("model.safetensors"), "{output}");
    assert!(
        output.contains("has changed since Ebb copied it"),
        "{output}"
    );
}

#[test]
fn pretrained_models_of_another_task_are_refused() {
    let home = messages();
    copy_pretrained(&home, "vit");
    let output = home.run("train {sms.tsv} --from {vit}").expect_code(2).err;
    for word in ["ViT", "text classification", "bert"] {
        assert!(output.contains(word), "{word}: {output}");
    }
    let output = home.run("train {sms.tsv} --adapter 4").expect_code(2).err;
    assert!(output.contains("--from"), "{output}");
    let output = home
        .run("train {sms.tsv} --from {bert} --model text_mini")
        .expect_code(2)
        .err;
    assert!(
        output.contains("BERT") && output.contains("remove this setting or --from"),
        "{output}"
    );
    fs::remove_file(home.path("bert/tokenizer.json")).expect("the file exists");
    let output = home
        .run("train {sms.tsv} --from {bert} --tokens 12")
        .expect_code(1)
        .err;
    assert!(output.contains("no tokenizer.json"), "{output}");
}

#[test]
fn a_pretrained_vit_is_planned_and_fine_tuned() {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 12);
    copy_pretrained(&home, "vit");
    let line = "{birds} --from {vit} --train-only head";
    let planned = home
        .run(&format!("plan {line} --device cpu --json"))
        .expect_code(0);
    let planned = json(&planned.out);
    let baseline = |options: &str| {
        let out = home.run(&format!(
            "plan {{birds}} --from {{vit}} {options} --device cpu --json"
        ));
        json(&out.expect_code(0).out)["models"][0]["baseline"].clone()
    };
    assert_eq!(planned["chosen"]["model"], "vit");
    assert_eq!(planned["chosen"]["resolution"], 16);
    assert!(
        baseline("--train-only head")["moments_bytes"].as_u64()
            < baseline("")["moments_bytes"].as_u64()
    );
    let events = home
        .train(&format!("{line} --epochs 30 --effective-batch 6"))
        .expect_code(0);
    let best = evaluated(&events.events(), "accuracy")
        .into_iter()
        .fold(0.0, f64::max);
    assert!(best > 0.9, "{best}");
}
