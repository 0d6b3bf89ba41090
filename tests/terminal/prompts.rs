//! A language model answers prompts after each evaluation. The answers are events of the run, and
//! change nothing of the training.

use crate::conversations::chats;
use crate::support::{TestHome, json, loss_bits};
use runlog::{PromptAnswer, RunEvent, RunFolder, RunStore, read_events};
use std::fs;

const CHATS: &str = "{chats.jsonl} --from {model} --train-only all --learning-rate 0.01";

/// Step and answers of each event of a run, and the steps that were evaluated.
fn answered(run: &RunFolder) -> (Vec<(u64, Vec<PromptAnswer>)>, Vec<u64>) {
    let events = read_events(&run.events_path()).expect("the run has events");
    let (mut answers, mut evaluated) = (Vec::new(), Vec::new());
    for event in events {
        match event {
            RunEvent::Answers {
                step, answers: all, ..
            } => answers.push((step, all)),
            RunEvent::Evaluation { step, .. } => evaluated.push(step),
            _ => {}
        }
    }
    (answers, evaluated)
}

fn run_in(home: &TestHome, folder: &str) -> RunFolder {
    let runs = RunStore::open(home.path(folder)).list();
    runs.expect("the folder can be listed")[0].clone()
}

fn prompts_of(answers: &[PromptAnswer]) -> Vec<&str> {
    answers.iter().map(|it| it.prompt.as_str()).collect()
}

#[test]
fn the_first_messages_of_held_out_conversations_are_answered_at_every_evaluation() {
    let home = chats();
    let shown = home.run(&format!("train {CHATS} --steps 250"));
    let shown = shown.expect_code(0).err;
    let (answers, evaluated) = answered(&home.only_run());
    let steps: Vec<u64> = answers.iter().map(|(step, _)| *step).collect();
    assert!(evaluated.len() > 2, "{evaluated:?}");
    assert_eq!(steps, evaluated);
    let prompts = prompts_of(&answers[0].1);
    assert_eq!(prompts.len(), 3);
    assert!(
        prompts
            .iter()
            .all(|it| it.starts_with("What is ") && it.ends_with('?')),
        "{prompts:?}"
    );
    let (_, last) = answers.last().expect("there are some");
    assert_eq!(prompts_of(last), prompts);
    assert_ne!(answers[0].1, *last, "the answers change with the training");
    assert!(
        last.iter().all(|it| it.answer.starts_with("It is ")),
        "{last:?}"
    );
    assert!(shown.contains("Answers at step "), "{shown}");
    assert!(
        shown.contains(&format!("\"{}\" \"It is ", prompts[0])),
        "{shown}"
    );
    let listed = home.run("runs show chats.jsonl").expect_code(0).out;
    assert!(listed.contains("\nAnswers at step "), "{listed}");
    assert!(listed.contains(prompts[0]), "{listed}");
    let found = home.run("runs show chats.jsonl --json").expect_code(0).out;
    assert_eq!(
        json(&found)["answers"][0]["answers"][0]["prompt"],
        prompts[0]
    );
}

#[test]
fn answers_change_no_bit_of_the_training() {
    let home = chats();
    let train = |options: &str, folder: &str| {
        let line = format!("{CHATS} --steps 40 --micro-batch 2 {options} --out {{{folder}}}");
        home.train(&line).expect_code(0);
        run_in(&home, folder)
    };
    let (asked, silent) = (train("", "asked"), train("--prompts 0", "silent"));
    assert!(!answered(&asked).0.is_empty());
    assert!(answered(&silent).0.is_empty());
    assert_eq!(loss_bits(&asked), loss_bits(&silent));
    let weights = |run: &RunFolder| {
        let file = run.path.join("checkpoints/step-000040/model.safetensors");
        fs::read(file).expect("the last step is saved")
    };
    assert!(weights(&asked) == weights(&silent), "the weights differ");
}

#[test]
fn a_run_keeps_the_prompts_of_its_file() {
    let home = chats();
    let file = home.file("prompts.txt", "What is 3 plus 0?\n\n  Sure? \n");
    let line = format!("train {CHATS} --epochs 2 --prompts {{prompts.txt}}");
    home.run(&line).expect_code(0);
    let run = home.only_run();
    let expected = ["What is 3 plus 0?", "Sure?"];
    let before = answered(&run).0;
    assert!(!before.is_empty());
    fs::remove_file(file).expect("it was written");
    home.run("resume chats.jsonl --epochs 4").expect_code(0);
    let after = answered(&run).0;
    assert!(after.len() > before.len(), "it answers again");
    for (step, answers) in &after {
        assert_eq!(prompts_of(answers), expected, "step {step}");
    }
    // The trained model still opens, too.
    home.run_with_input("chat chats.jsonl --tokens 4", "Hi\n")
        .expect_code(0);
}

#[test]
fn documents_are_continued_if_there_are_prompts() {
    let home = TestHome::new();
    fs::create_dir(home.path("book")).expect("the folder can be created");
    for part in 0..4 {
        let text = format!("It rained all day in part {part}. ").repeat(400);
        home.file(&format!("book/{part}.txt"), text);
    }
    home.file("prompts.txt", "It rained\n");
    home.run("train {book} --steps 3 --tokens 64 --prompts {prompts.txt}")
        .expect_code(0);
    let (answers, evaluated) = answered(&home.only_run());
    assert_eq!(answers.len(), evaluated.len());
    assert_eq!(prompts_of(&answers[0].1), ["It rained"]);
    home.run("train {book} --steps 3 --tokens 64 --out {alone}")
        .expect_code(0);
    assert!(
        answered(&run_in(&home, "alone")).0.is_empty(),
        "there is no default"
    );
}

#[test]
fn prompts_that_cannot_be_answered_are_named_with_the_next_move() {
    let home = chats();
    let refused = |line: &str| home.run(line).expect_code(2).err;
    let error = refused(&format!(
        "train {CHATS} --steps 2 --prompts {{missing.txt}}"
    ));
    assert!(error.contains("0 for no prompts"), "{error}");
    home.file("empty.txt", "\n\n");
    let error = refused(&format!("train {CHATS} --steps 2 --prompts {{empty.txt}}"));
    assert!(error.contains("write one prompt per line"), "{error}");
    assert!(home.runs().is_empty(), "nothing was created");
    home.file("long.txt", "word ".repeat(2_000));
    let error = refused(&format!("train {CHATS} --steps 2 --prompts {{long.txt}}"));
    assert!(
        error.contains("change it or remove it from the file"),
        "{error}"
    );
}
