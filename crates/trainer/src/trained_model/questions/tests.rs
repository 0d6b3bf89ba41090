//! Questions with choices and with answers, asked of published weights and of runs.

use super::*;
use dataset::AnswerRule;
use serde_json::Value as Json;
use std::path::PathBuf;

fn fixture(name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../models/tests/fixtures/published").join(name)
}

const ROWS: &str = r#"{"question":"What is 3 plus 0?","choices":["It is 3.","Yes.","No, it is not."],"answer":0}
{"question":"Sure?","choices":["a","b"],"answer":1}
"#;

fn opened(rows: &str) -> (tempfile::TempDir, QuestionFile, QuestionModel) {
    opened_with(&fixture("chat"), rows)
}

/// The questions of these rows, and the model of a folder.
fn opened_with(model: &Path, rows: &str) -> (tempfile::TempDir, QuestionFile, QuestionModel) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("questions.jsonl");
    std::fs::write(&path, rows).expect("it can be written");
    let file = QuestionFile::check(&path).expect("it has questions");
    let model = QuestionModel::from_folder(model, None, &file, DevicePreference::Cpu, None);
    (folder, file, model.expect("it is a language model"))
}

fn options(letters: bool) -> QuestionOptions {
    QuestionOptions {
        letters,
        tokens: 4,
        rule: AnswerRule::default(),
    }
}

fn encoded(model: &QuestionModel, file: &QuestionFile, letters: bool) -> Vec<EncodedQuestion> {
    let rows = file.rows().expect("it can be read");
    let questions = rows.map(|row| {
        let question = row.expect("it can be read").question.expect("it is one");
        let Expected::Choice { choices, right } = &question.expected else {
            panic!("it has choices");
        };
        let encoded = model.encode(&question, choices, *right, &options(letters));
        encoded.expect("it can be encoded").expect("it fits")
    });
    questions.collect()
}

/// The log-likelihood of the choice from the scores of all tokens.
fn expected(model: &QuestionModel, choice: &EncodedChoice) -> f64 {
    let parts = model.weights().parts().expect("it is a language model");
    let tape = Tape::forward_only(parts.parameters, parts.cancel, parts.kernels);
    let inputs = &choice.ids[..choice.ids.len() - 1];
    let scores = parts.network.scores(&tape, inputs, 1).expect("it fits");
    let vocabulary = scores.dims()[2];
    let scores = to_f64(scores.tensor()).expect("it is computed");
    let places = choice.start..choice.ids.len();
    let terms = places.map(|place| {
        let row = &scores[(place - 1) * vocabulary..place * vocabulary];
        let total: f64 = row.iter().map(|score| score.exp()).sum();
        row[choice.ids[place] as usize] - total.ln()
    });
    terms.sum()
}

#[test]
fn likelihoods_of_a_padded_batch_are_those_of_the_scores() {
    let (_folder, file, model) = opened(ROWS);
    for letters in [false, true] {
        let questions = encoded(&model, &file, letters);
        let all: Vec<&EncodedChoice> = questions.iter().flat_map(|q| &q.choices).collect();
        let found = model.log_likelihoods(&all).expect("it is computed");
        assert_eq!(found.len(), 5);
        for (choice, found) in all.into_iter().zip(found) {
            let expected = expected(&model, choice);
            let distance = (found - expected).abs();
            assert!(expected < 0.0 && distance < 1e-4, "{found} {expected}");
        }
    }
}

/// A copy of the model whose tokenizer puts tokens around texts with this part.
fn with_post_processor(part: &Json) -> tempfile::TempDir {
    let copy = tempfile::tempdir().expect("a temporary folder");
    for entry in std::fs::read_dir(fixture("chat")).expect("it is a folder") {
        let entry = entry.expect("it can be listed");
        let to = copy.path().join(entry.file_name());
        std::fs::copy(entry.path(), to).expect("it can be copied");
    }
    let file = copy.path().join("tokenizer.json");
    let json = std::fs::read(&file).expect("it can be read");
    let mut json: Json = serde_json::from_slice(&json).expect("it is JSON");
    json["post_processor"] = part.clone();
    std::fs::write(&file, json.to_string()).expect("it can be written");
    copy
}

/// Compares the log-likelihoods of all choices, and the number of right answers, with what
/// `make_references.py` got from lm-evaluation-harness.
fn check_reference(model: &Path, rows: &Json, letters: bool, expected: &Json) {
    let list = |json: &Json| json.as_array().expect("it is a list").clone();
    let lines: String = list(rows).iter().map(|row| format!("{row}\n")).collect();
    let (_folder, file, model) = opened_with(model, &lines);
    let (questions, expected) = (encoded(&model, &file, letters), list(expected));
    assert_eq!(questions.len(), expected.len());
    for (question, expected) in questions.iter().zip(&expected) {
        let choices: Vec<&EncodedChoice> = question.choices.iter().collect();
        let found = model.log_likelihoods(&choices).expect("it is computed");
        let expected = list(&expected["log_likelihoods"]);
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            let expected = expected.as_f64().expect("it is a number");
            let apart = (found - expected).abs() / expected.abs();
            assert!(apart < 1e-4, "{found} {expected}, {letters}");
        }
    }
    let scores = model.evaluate(&file, &options(letters)).expect("it runs");
    let right = |metric: &str| {
        let each = expected.iter().map(|question| question[metric].as_f64());
        each.map(|right| right.expect("it is a number"))
            .sum::<f64>()
    };
    assert_eq!(
        (scores.choices, scores.skipped),
        (questions.len() as u64, 0)
    );
    assert_eq!(scores.right as f64, right("acc"));
    assert_eq!(scores.right_normalized as f64, right("acc_bytes"));
}

#[test]
fn choices_have_the_likelihoods_of_lm_evaluation_harness() {
    let file = fixture("references").join("questions.json");
    let json = std::fs::read(file).expect("it can be read");
    let all: Json = serde_json::from_slice(&json).expect("it is JSON");
    let with_first = with_post_processor(&all["first_token"]["post_processor"]);
    let (plain, expected) = (fixture("chat"), &all["no_first_token"]);
    check_reference(&plain, &all["arc"], false, &expected["arc"]);
    check_reference(&plain, &all["mmlu"], true, &expected["mmlu"]);
    let expected = &all["first_token"];
    check_reference(with_first.path(), &all["arc"], false, &expected["arc"]);
    check_reference(with_first.path(), &all["mmlu"], true, &expected["mmlu"]);
}

#[test]
fn a_choice_follows_its_question() {
    let (_folder, file, model) = opened(ROWS);
    let of_first = |letters| {
        let questions = encoded(&model, &file, letters);
        let choice = &questions[0].choices[1];
        let text = |ids: &[u32]| model.tokenizer.decode(ids);
        let skipped = usize::from(model.first.is_some());
        let before = text(&choice.ids[skipped..choice.start]);
        (before, text(&choice.ids[choice.start..]), choice.bytes)
    };
    let (before, choice, bytes) = of_first(false);
    assert_eq!(before, "Question: What is 3 plus 0?\nAnswer:");
    assert_eq!((choice.as_str(), bytes), (" Yes.", 4));
    let (before, choice, bytes) = of_first(true);
    let listed = "What is 3 plus 0?\nA. It is 3.\nB. Yes.\nC. No, it is not.\nAnswer:";
    assert_eq!(before, listed);
    assert_eq!((choice.as_str(), bytes), (" B", 1));
}

#[test]
fn long_questions_lose_their_beginning_and_long_choices_are_refused() {
    let (_folder, file, mut model) = opened(ROWS);
    let whole = encoded(&model, &file, false);
    let longest = whole[0].choices.iter().map(|choice| choice.ids.len()).max();
    model.limit = longest.expect("it has choices") - 4;
    let cut = encoded(&model, &file, false);
    for (whole, cut) in whole[0].choices.iter().zip(&cut[0].choices) {
        assert!(cut.ids.len() <= model.limit + 1);
        assert_eq!(whole.ids[whole.start..], cut.ids[cut.start..]);
        assert!(whole.ids.ends_with(&cut.ids));
    }
    model.limit = 1;
    let scores = model.evaluate(&file, &options(false)).expect("it runs");
    assert!(scores.skipped > 0, "{scores:?}");
    assert!(scores.reasons[0].1.contains("that the model reads"));
}

#[test]
fn the_choice_with_the_highest_likelihood_is_the_answer() {
    let (folder, _, model) = opened(ROWS);
    // With the right choice at every place, exactly one of the files is answered correctly.
    for letters in [false, true] {
        let (mut right, mut right_normalized) = (0, 0);
        for answer in 0..3 {
            let row = format!(
                "{{\"question\":\"Q\",\"choices\":[\"one\",\"twenty\",\"3\"],\"answer\":{answer}}}\n"
            );
            let path = folder.path().join("rotated.jsonl");
            std::fs::write(&path, row.repeat(20)).expect("it can be written");
            let file = QuestionFile::check(&path).expect("it has questions");
            let scores = model.evaluate(&file, &options(letters)).expect("it runs");
            assert_eq!((scores.choices, scores.skipped), (20, 0));
            assert!(scores.right == 0 || scores.right == 20, "{scores:?}");
            right += scores.right;
            right_normalized += scores.right_normalized;
        }
        assert_eq!((right, right_normalized), (20, 20));
    }
    assert_eq!(best(&[-2.0, -1.0, -1.0]), 1);
}
