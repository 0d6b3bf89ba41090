//! `ebb evaluate` asks a language model questions: of a model folder, and of a run before and after
//! its training. Rows that cannot be used are named with their lines.

use crate::conversations::chats;
use crate::support::json;

const CHOICES: &str = r#"{"question":"What is 3 plus 0?","choices":["It is 3.","Yes.","No, it is not."],"answer":0}
{"question":"Sure?","choices":{"text":["It is 3.","Yes."],"label":["A","B"]},"answerKey":"B"}
"#;
const ANSWERS: &str = r#"{"question":"What is 3 plus 0?","regex":"^It is "}
{"question":"What is 3 plus 0?","answer":"no model writes this"}
"#;

#[test]
fn a_model_folder_answers_questions_with_choices_and_with_answers() {
    let home = chats();
    home.file("questions.jsonl", format!("{CHOICES}{ANSWERS}"));
    let line = "evaluate {model} {questions.jsonl} --tokens 8";
    let text = home.run(line).expect_code(0).out;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "2 questions with choices, 2 questions with answers"
    );
    assert!(lines[1].ends_with("    model"), "{text}");
    assert_eq!(lines.len(), 5, "{text}");
    for (line, name) in lines[2..]
        .iter()
        .zip(["accuracy ", "accuracy by", "exact match "])
    {
        assert!(line.starts_with(name) && line.ends_with('%'), "{text}");
    }
    let found = json(&home.run(&format!("{line} --json")).expect_code(0).out);
    assert_eq!(
        (&found["choices"], &found["answers"]),
        (&2.into(), &2.into())
    );
    assert_eq!(found["results"][0]["model"], "model");
    assert_eq!(found["results"][0]["skipped"], 0);
    let again = json(&home.run(&format!("{line} --json")).expect_code(0).out);
    assert_eq!(again, found, "nothing is random");
    for options in ["--letters", "--quantize 8", "--quantize 4"] {
        home.run(&format!("{line} {options}")).expect_code(0);
    }
    // Questions with choices need no chat template.
    std::fs::remove_file(home.path("model/tokenizer_config.json")).expect("it can be removed");
    let error = home.run(line).expect_code(1).err;
    assert!(error.contains("has no chat template"), "{error}");
    home.file("choices.jsonl", CHOICES);
    home.run("evaluate {model} {choices.jsonl}").expect_code(0);
}

#[test]
fn a_run_is_compared_with_the_model_that_it_started_from() {
    let home = chats();
    home.train("{chats.jsonl} --from {model} --train-only all --learning-rate 0.01 --steps 250")
        .expect_code(0);
    home.file("questions.jsonl", format!("{CHOICES}{ANSWERS}"));
    let line = "evaluate chats.jsonl {questions.jsonl} --tokens 24";
    let found = json(&home.run(&format!("{line} --json")).expect_code(0).out);
    let [before, after] = [0, 1].map(|index| &found["results"][index]);
    assert_eq!(
        (&before["model"], &after["model"]),
        (&"before".into(), &"after".into())
    );
    assert_eq!(before["exact_match"], 0.0, "{found}");
    assert_eq!(after["exact_match"], 0.5, "{found}");
    for result in [before, after] {
        let accuracy = result["accuracy"].as_f64().expect("there are choices");
        assert!((0.0..=1.0).contains(&accuracy), "{found}");
    }
    let text = home.run(line).expect_code(0).out;
    assert!(text.contains("   before    after\n"), "{text}");
    // A file of conversations is still evaluated as such.
    let text = home
        .run("evaluate chats.jsonl {chats.jsonl}")
        .expect_code(0)
        .out;
    assert!(text.contains("bits per byte, perplexity"), "{text}");
    let rows: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split("  ").next())
        .collect();
    for measure in ["Loss per token", "Perplexity", "Bits per byte"] {
        assert!(rows.contains(&measure), "{text}");
    }
    let error = home
        .run("evaluate chats.jsonl {questions.jsonl} --quantize 8")
        .expect_code(2)
        .err;
    assert!(error.contains("a run keeps the weights"), "{error}");
}

#[test]
fn questions_that_cannot_be_used_are_named_with_their_lines() {
    let home = chats();
    let rows = format!(
        "{CHOICES}\n{{\"question\":\"Q\"}}\n{{\"question\":\"Q\",\"choices\":[\"a\",\"b\"],\"answer\":\"E\"}}\n\
         {{\"question\":\"Q\",\"choices\":[\"a\",\"{}\"],\"answer\":\"A\"}}\n",
        "word ".repeat(600)
    );
    home.file("questions.jsonl", rows);
    let found = home
        .run("evaluate {model} {questions.jsonl}")
        .expect_code(0);
    assert!(
        found
            .out
            .starts_with("2 questions with choices, 3 rows skipped"),
        "{}",
        found.out
    );
    for part in [
        "line 4: this row has no answer",
        "line 5: this row has the answer \"E\", which is not among its choices (A to B",
        "line 6: this row has a choice B with more tokens than the 512 that the model reads",
    ] {
        assert!(found.err.contains(part), "{part}: {}", found.err);
    }
    let refused = |line: &str, code: i32| home.run(line).expect_code(code).err;
    home.file("empty.jsonl", "\n");
    let error = refused("evaluate {model} {empty.jsonl}", 1);
    assert!(error.contains("the file is empty"), "{error}");
    home.file(
        "wrong.jsonl",
        "{\"question\":\"Q\",\"choices\":[\"a\",\"b\"]}\n",
    );
    let error = refused("evaluate {model} {wrong.jsonl}", 1);
    assert!(error.contains("line 1: this row has no answer"), "{error}");
    let error = refused("evaluate {model}", 2);
    assert!(error.contains("add a .jsonl file"), "{error}");
    let error = refused("evaluate {model} {questions.jsonl} --extract (", 2);
    assert!(error.contains("invalid regular expression"), "{error}");
    let error = refused("evaluate {model} {questions.jsonl} --baseline", 2);
    assert!(error.contains("no baseline"), "{error}");
    let error = refused("evaluate nothing {questions.jsonl}", 1);
    assert!(error.contains("nothing"), "{error}");
}
