//! `ebb chat` answers several messages with the chat template of a model, forgets on request, stays
//! within the context, and names what it cannot use.

use crate::conversations::chats;
use crate::support::{EBB, TestHome};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_run_answers_in_turns_with_what_it_learned() {
    let home = chats();
    home.train("{chats.jsonl} --from {model} --train-only all --learning-rate 0.01 --steps 250")
        .expect_code(0);
    let chat = |options: &str, input: &str| {
        let line = format!("chat chats.jsonl --temperature 0 {options}");
        home.run_with_input(&line, input).expect_code(0)
    };
    let found = chat("--tokens 24", "What is 3 plus 0?\nSure?\n");
    // The model is too small to add numbers.
    let first = found.out.strip_suffix("\nYes.\n").expect("the last answer");
    assert!(
        first.starts_with("It is ") && first.ends_with('.'),
        "{found:?}"
    );
    assert_eq!(found.err, "");
    // A forgotten question is answered as if it were the first one.
    let forgotten = chat(
        "",
        "What is 3 plus 0?\n/reset\nWhat is 3 plus 0?\n/quit\nSure?\n",
    );
    assert_eq!(forgotten.out, format!("{first}\n{first}\n"));
    assert!(
        forgotten.err.contains("new conversation"),
        "{}",
        forgotten.err
    );
    let stopped = chat("--stop is", "What is 3 plus 0?\n");
    assert_eq!(stopped.out, "It \n");
    let cut = chat("--tokens 1", "What is 3 plus 0?\n");
    assert!(
        cut.err.contains("cut after 1 token; --tokens"),
        "{}",
        cut.err
    );
}

#[test]
fn a_run_answers_beside_the_model_that_it_started_from() {
    let home = chats();
    let answers = |line: &str, input: &str| {
        let line = format!("chat {line} --temperature 0 --tokens 12");
        home.run_with_input(&line, input).expect_code(0).out
    };
    let (first, second) = ("What is 3 plus 0?\n", "Sure?\n");
    let both = format!("{first}/reset\n{second}");
    for (folder, options) in [("adapted", "--adapter 4"), ("whole", "--train-only all")] {
        let line = format!(
            "{{chats.jsonl}} --from {{model}} {options} --learning-rate 0.01 --steps 60 --out {{{folder}}}"
        );
        home.train(&line).expect_code(0);
        let runs = runlog::RunStore::open(home.path(folder)).list();
        let run = runs.expect("one run")[0].path.display().to_string();
        let expected = |trained: &str, base: &str| -> String {
            let one = |message: &str| {
                let after = answers(&run, message);
                let before = answers("{model}", message);
                assert_ne!(after, before, "it has learned something");
                format!("{trained}:\n{after}{base}:\n{before}")
            };
            one(first) + &one(second)
        };
        let compared = answers(&format!("{run} --compare"), &both);
        let beside = expected("After training", "Before training");
        assert_eq!(compared, beside, "{options}");
        let named = answers(&format!("{run} --compare {{model}}"), &both);
        let model = home.path("model").display().to_string();
        assert_eq!(named, expected(&run, &model), "{options}");
    }
    let error = home.run("chat {model} --compare").expect_code(2).err;
    assert!(error.contains("--compare MODEL"), "{error}");
    home.train("{chats.jsonl} --steps 2").expect_code(0);
    let error = home.run("chat chats.jsonl --compare").expect_code(2).err;
    assert!(error.contains("started from random weights"), "{error}");
}

#[test]
fn a_model_folder_answers_the_same_for_the_same_seed() {
    let home = chats();
    let chat = |options: &str| {
        let line = format!("chat {{model}} --tokens 12 --system Brief. {options}");
        let run = home.run_with_input(&line, "\"\"\"One\ntwo\"\"\"\nThree\n");
        run.expect_code(0).out
    };
    let once = chat("--seed 3 --temperature 1.5");
    assert_eq!(once, chat("--seed 3 --temperature 1.5"));
    assert_ne!(once, chat("--seed 4 --temperature 1.5"));
    chat("--quantize 8");
    chat("--quantize 4");
    chat("--quantize nf4");
}

#[test]
fn a_long_conversation_stays_within_the_context() {
    let home = chats();
    let input = "What is one plus one?\n".repeat(6);
    let found = home
        .run_with_input("chat {model} --context 96 --tokens 16", &input)
        .expect_code(0);
    assert!(
        found
            .err
            .contains("the oldest message and its answer were left out"),
        "{}",
        found.err
    );
    // A message that does not fit is refused, and the conversation goes on.
    let long = format!("{}\nHi\n", "word ".repeat(200));
    let found = home
        .run_with_input("chat {model} --context 96 --tokens 16", long)
        .expect_code(0);
    assert!(
        found
            .err
            .contains("at most 80: a conversation and its answer together may have at most 96"),
        "{}",
        found.err
    );
    assert_eq!(
        found.err.matches("this message").count(),
        1,
        "{}",
        found.err
    );
    let error = home.run("chat {model} --context 9000").expect_code(2).err;
    assert!(error.contains("reads at most 512 tokens"), "{error}");
}

/// The cache of a conversation would need twice the memory that the process may have.
#[test]
fn a_context_that_does_not_fit_into_memory_is_refused_before_it_is_filled() {
    if !cfg!(target_os = "linux") {
        return println!("skipped: this system does not count these limits");
    }
    let home = chats();
    let path = home.path("model").join("config.json");
    let config = fs::read_to_string(&path).expect("the fixture has it");
    let long = config.replace(
        "\"max_position_embeddings\": 512",
        "\"max_position_embeddings\": 8000000",
    );
    assert_ne!(config, long);
    fs::write(&path, long).expect("it can be written");
    let chat = |context: &str| {
        let mut command = Command::new("sh");
        command
            .args(["-c", "ulimit -d 1000000; exec \"$0\" \"$@\"", EBB, "chat"])
            .arg(home.path("model"))
            .args(["--tokens", "4", "--context", context])
            .env("EBB_HOME", home.path("home"))
            .stdin(Stdio::null());
        let output = command.output().expect("sh starts");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), error)
    };
    let (code, error) = chat("8000000");
    assert_eq!(code, Some(2), "{error}");
    assert!(
        error.contains("needs 1.9 GB of memory besides the weights, but only"),
        "{error}"
    );
    assert_eq!(chat("4000"), (Some(0), String::new()));
}

#[test]
fn messages_and_models_that_cannot_be_used_are_named() {
    let home = chats();
    let mut input = b"\n/forget\n\xff\n".to_vec();
    input.extend("x".repeat(3 << 20).bytes());
    input.extend(b"\n\"\"\"open\n");
    let error = home
        .run_with_input("chat {model} --tokens 4", input)
        .expect_code(0)
        .err;
    for part in [
        "this message is empty",
        "no command /forget",
        "not text in UTF-8",
        "longer than 1.0 MB",
        "before the closing",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let refused = |line: &str, code: i32| home.run(line).expect_code(code).err;
    let error = refused("chat {model} --quantize 5", 2);
    assert!(error.contains("write 8, nf4 or 4"), "{error}");
    let error = refused("chat nothing", 1);
    assert!(error.contains("nothing"), "{error}");

    let config = home.path("model").join("tokenizer_config.json");
    let template = fs::read_to_string(&config).expect("the fixture has it");
    fs::remove_file(&config).expect("it can be removed");
    let error = refused("chat {model}", 1);
    assert!(
        error.contains("has no chat template; put the file"),
        "{error}"
    );
    home.file("model/chat_template.jinja", "{% for %}");
    let error = refused("chat {model}", 1);
    assert!(
        error.contains("chat_template.jinja cannot be used"),
        "{error}"
    );
    home.file(
        "model/chat_template.jinja",
        "{% if messages[0].role == 'system' %}{{ raise_exception('No system.') }}{% endif %}{{ messages[0].content }}",
    );
    let error = refused("chat {model} --system Brief.", 1);
    assert!(error.contains("the system prompt is refused"), "{error}");
    assert!(error.contains("No system"), "{error}");
    home.run("chat {model}").expect_code(0);
    home.file(
        "model/chat_template.jinja",
        "{{ raise_exception('Never.') }}",
    );
    let error = refused("chat {model}", 1);
    assert!(error.contains("Never"), "{error}");
    fs::remove_file(home.path("model/chat_template.jinja")).expect("it was written");
    fs::write(&config, template).expect("it can be written");
    fs::remove_file(home.path("model/tokenizer.json")).expect("it can be removed");
    let error = refused("chat {model}", 1);
    assert!(error.contains("tokenizer.json"), "{error}");
}

/// A chat whose answers do not end by themselves: each of them has at most 400 tokens.
fn talk(home: &TestHome) -> (Child, ChildStdin) {
    let mut command = home.ebb(["chat"]);
    command.arg(home.path("model")).args(["--tokens", "400"]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let stdin = child.stdin.take().expect("it is piped");
    (child, stdin)
}

fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    let sent = Command::new("kill").args([name, &id]).status();
    assert!(sent.is_ok_and(|status| status.success()), "kill {name}");
}

/// Reads the beginning of an answer.
fn read_some(child: &mut Child) {
    let stdout = child.stdout.as_mut().expect("it is piped");
    let mut begun = [0; 1];
    stdout.read_exact(&mut begun).expect("it answers");
}

fn exit_code(child: &mut Child) -> Option<i32> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().expect("it can be killed");
    panic!("the chat did not end");
}

#[test]
fn a_terminated_chat_ends_at_once_and_cleanly() {
    let home = chats();
    for name in ["-TERM", "-HUP"] {
        let (mut child, mut stdin) = talk(&home);
        // There is more input than answers, so only the signal can end the chat.
        writeln!(stdin, "{}", "What is one plus one?\n".repeat(2_000)).expect("it reads");
        read_some(&mut child);
        signal(&child, name);
        let mut rest = Vec::new();
        let stdout = child.stdout.as_mut().expect("it is piped");
        stdout.read_to_end(&mut rest).expect("it can be read");
        assert_eq!(exit_code(&mut child), Some(0), "{name}");
    }
}

#[test]
fn ctrl_c_ends_an_answer_and_at_the_prompt_the_chat() {
    let home = chats();
    let (mut child, mut stdin) = talk(&home);
    writeln!(stdin, "What is one plus one?").expect("it reads");
    read_some(&mut child);
    signal(&child, "-INT");
    // If the answer had just ended, the interrupt has ended the chat at its prompt.
    std::thread::sleep(Duration::from_millis(500));
    if child.try_wait().expect("it can be waited for").is_none() {
        writeln!(stdin, "Three").expect("it still reads");
        read_some(&mut child);
        drop(stdin);
    }
    assert_eq!(exit_code(&mut child), Some(0));

    let (mut child, mut stdin) = talk(&home);
    writeln!(stdin, "/reset").expect("it reads");
    let mut line = String::new();
    let stderr = child.stderr.as_mut().expect("it is piped");
    let read = BufReader::new(stderr).read_line(&mut line);
    read.expect("it answers the command");
    assert!(line.contains("new conversation"), "{line}");
    signal(&child, "-INT");
    assert_eq!(exit_code(&mut child), Some(0));
}

#[test]
fn a_system_prompt_that_is_too_long_is_named_instead_of_the_messages() {
    let home = chats();
    let long = "word ".repeat(60);
    let mut command = home.ebb(["chat"]);
    command.arg(home.path("model"));
    command.args(["--context", "96", "--tokens", "16", "--system", &long]);
    let error = crate::support::run_command(&mut command).expect_code(1).err;
    assert!(error.contains("the system prompt needs "), "{error}");
    assert!(
        error.contains("at most 80: a conversation and its answer together may have at most 96"),
        "{error}"
    );
    // A message that would fit alone is not the only one to blame.
    let system = "x".repeat(40);
    let message = "y".repeat(40);
    let found = home
        .run_with_input(
            &format!("chat {{model}} --context 96 --tokens 16 --system {system}"),
            format!("{message}\n"),
        )
        .expect_code(0);
    assert!(
        found.err.contains("with the system prompt") && found.err.contains("shorten one of them"),
        "{}",
        found.err
    );
}
