//! Chat templates give the text, the tokens and the learned tokens of transformers. The fixtures
//! are written by `fixtures/chat/make_conversations.py`.

use dataset::{ChatTemplate, ConversationEncoder, EncodedConversation, LearnedTokens, Tokenizer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

const TEMPLATES: [&str; 7] = [
    "chatml", "marked", "llama3", "mistral", "gemma", "phi3", "thinking",
];

fn fixture(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    folder.join("tests/fixtures/chat").join(name)
}

fn conversations() -> Vec<String> {
    let text = fs::read_to_string(fixture("conversations.jsonl")).expect("the fixture exists");
    text.lines().map(str::to_owned).collect()
}

/// What transformers gives for each conversation.
fn expected(template: &str) -> Vec<Value> {
    let text = fs::read_to_string(fixture("expected.json")).expect("the fixture exists");
    let all: Value = serde_json::from_str(&text).expect("it is JSON");
    all[template].as_array().expect("a list").clone()
}

fn encoder(template: &str, learned: LearnedTokens) -> ConversationEncoder {
    let source = fs::read_to_string(fixture(&format!("templates/{template}.jinja")));
    let tokens = [("bos_token", "<|begin_of_text|>"), ("eos_token", "</s>")];
    let tokens: BTreeMap<String, String> = tokens
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .into();
    let template = ChatTemplate::new(&source.expect("the fixture exists"), None, &tokens);
    let tokenizer = Tokenizer::load(&fixture("tokenizer.json")).expect("it is a tokenizer");
    ConversationEncoder::new(
        tokenizer,
        Some(template.expect("it is valid")),
        learned,
        u32::MAX,
    )
}

fn learned(found: &EncodedConversation) -> String {
    let parts = found.parts().into_iter().filter(|part| part.is_learned);
    parts.map(|part| part.text).collect::<Vec<_>>().join("|")
}

#[test]
fn fifty_conversations_have_the_text_and_the_tokens_of_transformers() {
    let conversations = conversations();
    assert_eq!(conversations.len(), 50);
    let (mut texts, mut refused, mut tokens) = (0, 0, 0);
    for template in TEMPLATES {
        let encoder = encoder(template, LearnedTokens::All);
        for (conversation, expected) in conversations.iter().zip(expected(template)) {
            let found = encoder.encode(conversation);
            if let Some(error) = expected["error"].as_str() {
                let reason = found.expect_err("transformers refuses it");
                let error = error.trim_end_matches('.');
                assert!(
                    reason.contains(error),
                    "{template}: {reason} is not {error}"
                );
                refused += 1;
                continue;
            }
            let found = found.unwrap_or_else(|error| panic!("{template}: {error}\n{conversation}"));
            assert_eq!(found.text, expected["text"], "{template}: {conversation}");
            texts += 1;
            if let Some(expected) = expected["tokens"].as_str() {
                let ids: Vec<String> = found.tokens.iter().map(u32::to_string).collect();
                assert_eq!(ids.join(" "), expected, "{template}: {conversation}");
                tokens += 1;
            }
        }
    }
    println!("{texts} equal texts, {refused} refused by both, {tokens} equal lists of tokens");
    assert!(texts + refused == 350 && refused > 20 && tokens == 150);
}

#[test]
fn marked_answers_are_those_of_transformers() {
    let encoder = encoder("marked", LearnedTokens::Answers);
    let mut compared = 0;
    for (conversation, expected) in conversations().iter().zip(expected("marked")) {
        let found = encoder
            .encode(conversation)
            .expect("every one has an answer");
        let mask: String = found
            .is_learned
            .iter()
            .map(|is_learned| if *is_learned { '1' } else { '0' })
            .collect();
        assert_eq!(mask, expected["mask"], "{conversation}");
        compared += usize::from(mask.contains('1'));
    }
    assert_eq!(compared, 50);
}

#[test]
fn answers_without_marks_are_found_in_every_template() {
    let two_turns = r#"{"messages":[{"role":"user","content":"A?"},{"role":"assistant","content":"one"},
        {"role":"user","content":"B?"},{"role":"assistant","content":"two"}]}"#;
    let with_system = two_turns.replacen('[', r#"[{"role":"system","content":"Brief."},"#, 1);
    for (template, conversation, expected) in [
        ("chatml", two_turns, "one<|im_end|>\n|two<|im_end|>\n"),
        ("marked", two_turns, "one<|im_end|>\n|two<|im_end|>\n"),
        ("llama3", &with_system, "one<|eot_id|>|two<|eot_id|>"),
        ("gemma", two_turns, "one<end_of_turn>\n|two<end_of_turn>\n"),
        ("mistral", two_turns, " one</s>| two</s>"),
        // The system's text is in the last question only, so marks find the first answer.
        ("mistral", &with_system, "one</s>| two</s>"),
        ("phi3", two_turns, "one<|end|>\n|two<|end|>\n</s>"),
        (
            "thinking",
            two_turns,
            "one<|im_end|>\n|<think>\n\n</think>\n\ntwo<|im_end|>\n",
        ),
    ] {
        let found = encoder(template, LearnedTokens::Answers).encode(conversation);
        let found = found.unwrap_or_else(|error| panic!("{template}: {error}"));
        assert_eq!(learned(&found), expected, "{template}");
        assert_eq!(found.lost_answers, 0, "{template}");
    }
}

#[test]
fn calls_of_tools_are_learned_and_their_results_are_not() {
    let conversations = conversations();
    let with_tools = conversations
        .iter()
        .find(|text| text.contains("tool_calls"));
    let conversation = with_tools.expect("some have tools");
    for template in ["chatml", "llama3"] {
        let found = encoder(template, LearnedTokens::Answers).encode(conversation);
        let learned = learned(&found.expect("it renders"));
        assert!(
            learned.contains("\"city\": \"Köln\""),
            "{template}: {learned}"
        );
        assert!(learned.contains("21.5 degrees."), "{template}: {learned}");
        assert!(!learned.contains("\"degrees\""), "{template}: {learned}");
    }
}
