//! Conversations fine-tune a language model with its chat template: they are inspected, planned,
//! trained, resumed, evaluated and exported. What cannot be learned is named.

use crate::support::{self, TestHome, loss_bits, losses};
use runlog::RunEvent;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// A tiny random Llama with a chat template, and questions with short answers.
pub fn chats() -> TestHome {
    let home = TestHome::new();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let from = here.join("crates/models/tests/fixtures/published/chat");
    fs::create_dir(home.path("model")).expect("the folder can be created");
    for entry in fs::read_dir(from).expect("the fixture exists") {
        let entry = entry.expect("the fixture can be listed");
        let to = home.path("model").join(entry.file_name());
        fs::copy(entry.path(), to).expect("the file can be copied");
    }
    home.file("chats.jsonl", (0..80).map(row).collect::<String>());
    home
}

/// A conversation of one or two turns.
fn row(n: usize) -> String {
    let (a, b) = (n % 9, n / 9);
    let turn = |asked: String, answer: String| {
        [
            json!({"role": "user", "content": asked}),
            json!({"role": "assistant", "content": answer}),
        ]
    };
    let mut messages = turn(
        format!("What is {a} plus {b}?"),
        format!("It is {}.", a + b),
    )
    .to_vec();
    if n.is_multiple_of(3) {
        messages.extend(turn("Sure?".to_owned(), "Yes.".to_owned()));
    }
    json!({"messages": messages}).to_string() + "\n"
}

const CHATS: &str = "{chats.jsonl} --from {model} --adapter 4 --learning-rate 0.01";

#[test]
fn a_chat_file_fine_tunes_a_model_with_its_template() {
    let home = chats();
    home.file(
        "model/README.md",
        "---\nlicense: llama3.2\n---\n# A model\n",
    );
    let shown = home
        .run("inspect {chats.jsonl} --from {model}")
        .expect_code(0)
        .out;
    assert!(shown.contains("chats.jsonl: 80 conversations"), "{shown}");
    assert!(
        shown.contains("⟦It is ") && shown.contains(".<|im_end|>⟧"),
        "{shown}"
    );
    let found = support::json(&home.run("inspect {chats.jsonl} --json").expect_code(0).out);
    let example = &found["conversations"][0];
    assert!(example["learned_tokens"].as_u64() < example["tokens"].as_u64());
    let plan = format!("plan {CHATS}").replace(" --learning-rate 0.01", "");
    let plan = home.run(&plan).expect_code(0).out;
    assert!(plan.contains("Conversation 1: "), "{plan}");

    let run = home.train(&format!("{CHATS} --steps 60")).expect_code(0);
    let events = run.events();
    let all = losses(&events);
    assert!(
        all[59] < 0.6 * all[0],
        "it learns: {} to {}",
        all[0],
        all[59]
    );
    let out = home
        .run("verify-split chats.jsonl --json")
        .expect_code(0)
        .out;
    assert_eq!(support::json(&out)["holds"], true, "{out}");
    fs::remove_dir_all(home.path("model")).expect("the folder can be removed");
    let found = support::json(
        &home
            .run("evaluate chats.jsonl {chats.jsonl} --json")
            .expect_code(0)
            .out,
    );
    assert!(found["bits_per_byte"].as_f64() < Some(4.0), "{found}");
    for (format, library) in [("adapters", "peft"), ("hugging-face", "transformers")] {
        let line = format!("export chats.jsonl {{{format}}} --format {format}");
        home.run(&line).expect_code(0);
        let config = fs::read_to_string(home.path(format).join("tokenizer_config.json"));
        let config: Value = support::json(&config.expect("the template is exported"));
        assert!(
            config["chat_template"]
                .as_str()
                .is_some_and(|text| text.contains("im_start"))
        );
        check_card(&home.path(format), library);
    }
}

/// The model card of an export of adapters names its base and the licence of this base.
#[track_caller]
fn check_card(folder: &Path, library: &str) {
    let card = fs::read_to_string(folder.join("README.md")).expect("it has a model card");
    for part in [
        "license: llama3.2\n",
        &format!("library_name: {library}\n"),
        "- lora\n",
        "It started from the folder `model`; adapters of rank 4 were trained.",
        "The weights of step ",
    ] {
        assert!(card.contains(part), "{part}: {card}");
    }
}

#[test]
fn a_fine_tuned_model_is_exported_for_llama_cpp() {
    let home = chats();
    home.train(&format!("{CHATS} --steps 2")).expect_code(0);
    let exported = home
        .run("export chats.jsonl {gguf} --format gguf --weights q8_0")
        .expect_code(0)
        .out;
    assert!(
        exported.contains("Modelfile, README.md, model-q8_0.gguf"),
        "{exported}"
    );
    let model_file = fs::read_to_string(home.path("gguf/Modelfile")).expect("it is written");
    assert!(model_file.contains("<|im_end|>"), "{model_file}");
    let error = home
        .run("export chats.jsonl {other} --weights q8_0")
        .expect_code(2)
        .err;
    assert!(error.contains("--weights is for GGUF files"), "{error}");
    // The file is also a model to chat with, and to train again. It is no data.
    let file = "{gguf/model-q8_0.gguf}";
    for command in ["inspect", "plan", "train"] {
        let error = home.run(&format!("{command} {file}")).expect_code(1).err;
        let move_on = "not data. Open the texts or conversations to train on";
        assert!(
            error.contains("model-q8_0.gguf is a language model"),
            "{error}"
        );
        assert!(
            error.contains(move_on) && error.contains("--from FILE"),
            "{error}"
        );
    }
    let line = format!("chat {file} --tokens 8 --temperature 0");
    home.run_with_input(&line, "What is 3 plus 0?\n")
        .expect_code(0);
    let line = format!("{{chats.jsonl}} --from {file} --adapter 2 --quantize nf4 --steps 2");
    home.train(&line).expect_code(0);
}

#[test]
fn adapters_of_some_maps_are_trained_and_exported() {
    let home = chats();
    let line = format!(
        "{CHATS} --adapter-targets q_proj,v_proj --adapter-scaling rank-stabilized \
         --adapter-kind dora --adapter-dropout 0.25"
    );
    home.train(&format!("{line} --steps 2")).expect_code(0);
    home.run("export chats.jsonl {adapters} --format adapters")
        .expect_code(0);
    let config = fs::read_to_string(home.path("adapters/adapter_config.json"));
    let config: Value = support::json(&config.expect("it is exported"));
    assert_eq!(config["target_modules"], json!(["q_proj", "v_proj"]));
    assert_eq!(config["use_rslora"], true);
    assert_eq!(config["use_dora"], true);
    assert_eq!(config["lora_dropout"], 0.25);
    home.run("resume chats.jsonl --steps 3 --json")
        .expect_code(0);
    // Dropout belongs to the samples, so no split changes the gradient.
    let checked = home.run("verify-split chats.jsonl --double --json");
    let checked = support::json(&checked.expect_code(0).out);
    assert_eq!(checked["holds"], true, "{checked}");
    let wrong = CHATS.to_owned() + " --steps 2 --adapter-targets q_proj,head";
    let error = home.train(&wrong).expect_code(2).err;
    assert!(
        error.contains("adapter_targets = head") && error.contains("down_proj, gate_proj"),
        "{error}"
    );
    let without = "train {chats.jsonl} --from {model} --adapter-targets q_proj --steps 2";
    let error = home.run(without).expect_code(2).err;
    assert!(error.contains("needs adapters"), "{error}");
    for kind in ["lora", "dora"] {
        let without = format!("train {{chats.jsonl}} --from {{model}} --adapter-kind {kind}");
        let error = home.run(&without).expect_code(2).err;
        let named = format!("adapter_kind = {kind}");
        assert!(
            error.contains(&named) && error.contains("needs adapters"),
            "{error}"
        );
    }
}

/// Stops a training of `TRAINED --steps 300`, resumes it without the model folder, and compares its
/// losses with those of a training that was not stopped.
pub fn check_exact_resume(home: &TestHome, trained: &str, dataset: &str) {
    let line = format!("{trained} --steps 300 --micro-batch 2");
    let mut training = home.start(&format!("train {line}"));
    training.until(|event| matches!(event, RunEvent::Step { step: 5, .. }));
    training.signal("INT");
    assert_eq!(training.finish().0, Some(0));
    // The run has its own copy of the model and of its template.
    fs::rename(home.path("model"), home.path("moved")).expect("the folder can be renamed");
    let run = home.only_run();
    let stopped = loss_bits(&run).len();
    assert!((5..300).contains(&stopped), "{stopped}");
    home.run(&format!("resume {dataset} --json")).expect_code(0);
    let resumed = loss_bits(&run);
    fs::rename(home.path("moved"), home.path("model")).expect("the folder can be renamed");
    home.train(&format!("{line} --out {{whole}}"))
        .expect_code(0);
    let whole = runlog::RunStore::open(home.path("whole"))
        .list()
        .expect("one run");
    assert_eq!(resumed.len(), 300);
    assert_eq!(loss_bits(&whole[0]), resumed);
}

#[test]
fn a_stopped_run_of_conversations_continues_with_the_same_losses() {
    check_exact_resume(&chats(), CHATS, "chats.jsonl");
}

#[test]
fn what_cannot_be_learned_is_named_with_the_next_move() {
    let home = chats();
    let train = |line: &str| {
        home.run(&format!("train {line} --steps 2"))
            .expect_code(1)
            .err
    };
    // The model has no template.
    let config = home.path("model").join("tokenizer_config.json");
    let template = fs::read_to_string(&config).expect("the fixture has it");
    fs::remove_file(&config).expect("it can be removed");
    let error = train(CHATS);
    assert!(
        error.contains("put the file chat_template.jinja"),
        "{error}"
    );
    // The template is broken.
    home.file("model/chat_template.jinja", "{% for %}");
    let error = train(CHATS);
    assert!(
        error.contains("chat_template.jinja cannot be used as a chat template"),
        "{error}"
    );
    // The template refuses every conversation.
    home.file(
        "model/chat_template.jinja",
        "{{ raise_exception('No assistants here.') }}",
    );
    let error = train(CHATS);
    assert!(
        error.contains("reports an error: No assistants here"),
        "{error}"
    );
    fs::remove_file(home.path("model").join("chat_template.jinja")).expect("it was written");
    fs::write(&config, template).expect("it can be written");
    // Some answers begin after the window.
    let error = train(&format!("{CHATS} --tokens 8"));
    assert!(error.contains("set a larger one"), "{error}");
    // Prompts and completions need no template.
    fs::remove_file(&config).expect("it can be removed");
    let pairs = |n: usize| {
        format!(
            "{{\"prompt\":\"{n} and {n} is \",\"completion\":\"{}\"}}\n",
            2 * n
        )
    };
    home.file("pairs.jsonl", (0..80).map(pairs).collect::<String>());
    home.run("train {pairs.jsonl} --from {model} --adapter 4 --steps 2")
        .expect_code(0);
}

#[test]
fn cut_and_left_out_conversations_are_counted() {
    let home = chats();
    let long = row(1).replace("It is 1.", &"It is a very long answer. ".repeat(60));
    let bad = row(1).replace("\"assistant\"", "\"narrator\"");
    let rows: String = (0..80).map(row).chain([long, bad]).collect();
    home.file("chats.jsonl", rows);
    let run = home
        .run(&format!("train {CHATS} --steps 2 --tokens 96"))
        .expect_code(0);
    let all = run.out + &run.err;
    assert!(
        all.contains("1 of 81 conversations are longer than 96 tokens and are cut"),
        "{all}"
    );
    assert!(all.contains("message 2 has the role \"narrator\""), "{all}");
}

/// Conversations whose roles are out of order, whose messages are empty, or that have a token for
/// which the model has no weights.
#[test]
fn conversations_that_the_model_cannot_read_are_left_out_and_named() {
    let home = chats();
    let strict = "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate.') }}{% endif %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";
    home.file("model/chat_template.jinja", strict);
    let path = home.path("model").join("tokenizer.json");
    let tokenizer = fs::read_to_string(&path).expect("the fixture has it");
    let mut tokenizer: Value = support::json(&tokenizer);
    let mut extra = tokenizer["added_tokens"][0].clone();
    extra["id"] = json!(430);
    extra["content"] = json!("<|extra|>");
    let added = tokenizer["added_tokens"].as_array_mut();
    added.expect("it is a list").push(extra);
    fs::write(&path, tokenizer.to_string()).expect("it can be written");
    let twice = json!({"messages": [
        {"role": "user", "content": "Hello."},
        {"role": "user", "content": "What is 1 plus 0?"},
        {"role": "assistant", "content": "It is 1."},
    ]});
    let twice = twice.to_string() + "\n";
    let beyond = row(2).replace("What is", "What <|extra|> is");
    let empty = row(3).replace("It is 3.", "").replace("Yes.", "");
    home.file(
        "chats.jsonl",
        (0..80)
            .map(row)
            .chain([twice, beyond, empty])
            .collect::<String>(),
    );
    let run = home.run(&format!("train {CHATS} --steps 2")).expect_code(0);
    let all = run.out + &run.err;
    for expected in [
        "reports an error: Roles must alternate",
        "(<|extra|>), for which the model has no weights",
        "no answer",
    ] {
        assert!(all.contains(expected), "{expected}: {all}");
    }
}

#[test]
fn adapters_are_only_used_with_the_weights_that_they_were_trained_on() {
    let home = chats();
    home.train(&format!("{CHATS} --steps 2 --out {{runs}}"))
        .expect_code(0);
    let runs = runlog::RunStore::open(home.path("runs")).list();
    let run = runs.expect("the runs can be listed").remove(0).path;
    home.run(&format!(
        "export {} {{peft}} --format adapters",
        run.display()
    ))
    .expect_code(0);
    let error = home
        .run("train {chats.jsonl} --from {peft}")
        .expect_code(1)
        .err;
    assert!(
        error.contains("it holds adapters for another model"),
        "{error}"
    );
    let base = run.join("published/model.safetensors");
    let mut bytes = fs::read(&base).expect("the run has a copy");
    *bytes.last_mut().expect("the file is not empty") ^= 1;
    fs::write(&base, bytes).expect("the file can be written");
    for command in ["chat", "evaluate", "resume"] {
        let line = format!("{command} {}", run.display());
        let error = home.run(&line).expect_code(1).err;
        assert!(
            error.contains("has changed since Ebb copied it"),
            "{command}: {error}"
        );
    }
}

#[test]
fn settings_of_conversations_are_refused_for_other_texts() {
    let home = chats();
    fs::create_dir(home.path("book")).expect("the folder can be created");
    home.file("book/one.txt", "It rained all day. ".repeat(200));
    let error = home
        .run("train {book} --loss-on all --steps 1")
        .expect_code(2)
        .err;
    assert!(
        error.contains("this setting is for conversations"),
        "{error}"
    );
    let error = home
        .run("train {chats.jsonl} --packing on --steps 1")
        .expect_code(2)
        .err;
    assert!(
        error.contains("does not separate the conversations"),
        "{error}"
    );
}
