//! Files of questions: the layouts, the rows that cannot be used, and the rule of answers.

use super::*;
use std::fs;

fn rows(text: &[u8]) -> (tempfile::TempDir, Vec<QuestionRow>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("questions.jsonl");
    fs::write(&path, text).expect("it can be written");
    let rows = QuestionRows::open(&path).expect("it can be opened");
    let rows = rows.map(|row| row.expect("it can be read")).collect();
    (folder, rows)
}

fn only(row: &str) -> Result<Question, String> {
    let (_folder, rows) = rows(row.as_bytes());
    assert_eq!(rows.len(), 1, "{row}");
    rows.into_iter().next().expect("one row").question
}

#[test]
fn the_layouts_of_arc_and_mmlu_are_read() {
    for (row, expected) in [
        // MMLU.
        (r#"{"question":"Q","choices":["x","y","z"],"answer":2}"#, 2),
        (
            r#"{"question":"Q","choices":["x","y","z"],"answer":"B"}"#,
            1,
        ),
        (
            r#"{"question":"Q","choices":["x","y","z"],"answer":"b"}"#,
            1,
        ),
        (
            r#"{"question":"Q","choices":["x","y","z"],"answer":"z"}"#,
            2,
        ),
        (r#"{"question":"Q","choices":[3,5,8],"answer":"1"}"#, 1),
        // ARC at the hub, whose labels may be numbers from 1.
        (
            r#"{"id":"a","question":"Q","choices":{"text":["x","y","z"],"label":["A","B","C"]},"answerKey":"C"}"#,
            2,
        ),
        (
            r#"{"question":"Q","choices":{"text":["x","y","z"],"label":["1","2","3"]},"answerKey":"1"}"#,
            0,
        ),
        (
            r#"{"question":"Q","choices":{"text":["x","y","z"],"label":[1,2,3]},"answerKey":3}"#,
            2,
        ),
        // ARC's own files.
        (
            r#"{"question":{"stem":"Q","choices":[{"text":"x","label":"A"},{"text":"y","label":"B"},{"text":"z","label":"C"}]},"answerKey":"B"}"#,
            1,
        ),
    ] {
        match only(row) {
            Ok(Question {
                text,
                expected: Expected::Choice { choices, right },
            }) => {
                assert_eq!((text.as_str(), choices.len()), ("Q", 3), "{row}");
                assert_eq!(right, expected, "{row}");
            }
            other => panic!("{row}: {other:?}"),
        }
    }
}

#[test]
fn answers_are_texts_numbers_lists_or_expressions() {
    let is_right = |row: &str, rule: Option<&str>, given: &str| {
        let rule = AnswerRule::new(rule).expect("it is valid");
        rule.is_right(&only(row).expect("it is a question").expected, given)
    };
    let text = r#"{"question":"Q","answer":"Paris"}"#;
    assert!(is_right(text, None, " Paris\n"));
    assert!(!is_right(text, None, "paris"));
    assert!(!is_right(text, None, "It is Paris"));
    assert!(is_right(r#"{"question":"Q","answer":18}"#, None, "18"));
    assert!(is_right(
        r#"{"question":"Q","answer":["a","b"]}"#,
        None,
        "b"
    ));
    let pattern = r#"{"question":"Q","regex":"(?i)\\bparis\\b"}"#;
    assert!(is_right(pattern, None, "It is PARIS."));
    assert!(!is_right(pattern, None, "Parisian"));
    // The layout of GSM8K.
    let steps = r###"{"question":"Q","answer":"9 + 9 = 18\n#### 18"}"###;
    assert!(is_right(
        steps,
        Some(r"#### (-?[\d.,]*\d)"),
        "So #### 18 it is"
    ));
    assert!(!is_right(steps, Some(r"#### (-?[\d.,]*\d)"), "18"));
    assert!(is_right(text, Some("[A-Z][a-z]+"), "it is Paris"));
    let error = AnswerRule::new(Some("(")).expect_err("it is invalid");
    assert!(error.starts_with("invalid regular expression: "), "{error}");
}

#[test]
fn rows_that_cannot_be_used_are_named() {
    for (row, reason) in [
        ("[1]", "is not a JSON object"),
        ("{\"question\":", "is not JSON"),
        (r#"{"choices":["x","y"],"answer":0}"#, "has no question"),
        (r#"{"question":" ","answer":"a"}"#, "has an empty question"),
        (r#"{"question":"Q"}"#, "has no answer"),
        (r#"{"question":"Q","answer":null}"#, "has no answer"),
        (r#"{"question":"Q","answer":""}"#, "has an empty answer"),
        (
            r#"{"question":"Q","answer":{"a":1}}"#,
            "neither a text nor a number",
        ),
        (r#"{"question":"Q","choices":["x","y"]}"#, "has no answer"),
        (
            r#"{"question":"Q","choices":["x","y"],"answer":2}"#,
            r#"has the answer "2", which is not among its choices (A to B, or 0 to 1)"#,
        ),
        (
            r#"{"question":"Q","choices":["x","y"],"answer":-1}"#,
            "not among its choices",
        ),
        (
            r#"{"question":"Q","choices":{"text":["x","y"],"label":["1","2"]},"answer":"E"}"#,
            "not among its choices (1, 2)",
        ),
        (
            r#"{"question":"Q","choices":["x"],"answer":0}"#,
            "has 1 choice, but",
        ),
        (
            r#"{"question":"Q","choices":["x",""],"answer":0}"#,
            "an empty choice B",
        ),
        (
            r#"{"question":"Q","choices":["x",[1]],"answer":0}"#,
            "not a text",
        ),
        (
            r#"{"question":"Q","choices":"x","answer":0}"#,
            "neither a list",
        ),
        (
            r#"{"question":"Q","choices":{"text":["x","y"],"label":["1"]},"answer":"1"}"#,
            "different numbers of labels",
        ),
        (
            r#"{"question":"Q","regex":"("}"#,
            "has an invalid regular expression: ",
        ),
    ] {
        let error = only(row).expect_err(row);
        assert!(error.contains(reason), "{row}: {error}");
    }
}

#[test]
fn lines_are_counted_with_empty_and_long_ones() {
    let long = "x".repeat(3 << 20);
    let text = format!(
        "\u{FEFF}{{\"question\":\"Q\",\"answer\":\"a\"}}\r\n\n{long}\n{{\"question\":\"R\",\"answer\":\"b\"}}"
    );
    let (folder, rows) = rows(text.as_bytes());
    let found: Vec<(u64, bool)> = rows
        .iter()
        .map(|row| (row.line, row.question.is_ok()))
        .collect();
    assert_eq!(found, [(1, true), (3, false), (4, true)]);
    let path = folder.path().join("questions.jsonl");
    assert!(is_question_file(&path));
    let file = QuestionFile::check(&path).expect("it has questions");
    assert_eq!((file.choices, file.answers, file.skipped), (0, 2, 1));
    assert_eq!(file.reasons[0].0, 3);
    assert!(file.reasons[0].1.contains("is longer than"));
}

#[test]
fn files_without_questions_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let check = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("it can be written");
        let error = QuestionFile::check(&path).err();
        (
            is_question_file(&path),
            error.map(|error| error.to_string()),
        )
    };
    let (is_one, error) = check("empty.jsonl", "\n \n");
    assert!(!is_one && error.is_some_and(|error| error.contains("the file is empty")));
    let row = "\n{\"question\":\"Q\",\"choices\":[\"x\",\"y\"]}\n";
    let (is_one, error) = check("unanswered.jsonl", row);
    let error = error.expect("no row can be used");
    assert!(
        is_one && error.contains("line 2: this row has no answer"),
        "{error}"
    );
    let (is_one, _) = check("texts.jsonl", "{\"text\":\"a\",\"answer\":\"b\"}\n");
    assert!(!is_one);
    let (is_one, _) = check("questions.csv", "{\"question\":\"Q\",\"answer\":\"b\"}\n");
    assert!(!is_one);
    assert!(!is_question_file(folder.path()));
    assert!(QuestionFile::check(&folder.path().join("absent.jsonl")).is_err());
}
