//! Questions with choices and with answers, asked of published weights and of runs.

use super::*;
use dataset::AnswerRule;
use std::path::PathBuf;

fn fixture(name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../models/tests/fixtures/published").join(name)
}

const ROWS: &str = r#"{"question":"What is 3 plus 0?","choices":["It is 3.","Yes.","No, it is not."],"answer":0}
{"question":"Sure?","choices":["a","b"],"answer":1}
"#;

fn opened(rows: &str) -> (tempfile::TempDir, QuestionFile, QuestionModel) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("questions.jsonl");
    std::fs::write(&path, rows).expect("it can be written");
    let file = QuestionFile::check(&path).expect("it has questions");
    let (device, chat) = (DevicePreference::Cpu, fixture("chat"));
    let model = QuestionModel::from_folder(&chat, None, &file, device, None);
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

#[test]
fn a_choice_follows_its_question() {
    let (_folder, file, model) = opened(ROWS);
    let of_first = |letters| {
        let questions = encoded(&model, &file, letters);
        let choice = &questions[0].choices[1];
        let text = |ids: &[u32]| model.tokenizer.decode(ids);
        let skipped = usize::from(model.tokenizer.boundary().is_some());
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
    assert!(scores.reasons[0].1.contains("tokens that the model reads"));
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
