//! What a `tokenizer.json` may ask for so that llama.cpp tokenizes in the same way. llama.cpp knows
//! neither the settings that are refused here, nor every order of merges. Each refusal is the end
//! of a sentence, and names what is refused.

use serde_json::Value as Json;
use std::collections::{HashMap, HashSet};

/// Most bytes of a token that is formed by merges. Those of published models have about a hundred.
const MAX_TOKEN_BYTES: usize = 512;
/// The token that ends texts of Phi-3, where it is not special.
const PHI3_END: &str = "</s>";
/// Texts that would be written before or after the parts of a word.
const AFFIXES: [&str; 2] = ["continuing_subword_prefix", "end_of_word_suffix"];

/// The tokens that texts are tokenized to, besides the added tokens, which are found first.
pub(super) struct MergedTokens<'a> {
    /// The vocabulary, without the added tokens and the tokens of bytes.
    tokens: HashSet<&'a str>,
    merges: &'a [[&'a str; 2]],
}

/// Refuses settings of the model and of the added tokens that llama.cpp does not know.
pub(super) fn check_settings(json: &Json) -> Result<(), String> {
    let model = &json["model"];
    for key in AFFIXES {
        if let Some(text) = model[key].as_str().filter(|text| !text.is_empty()) {
            return Err(format!("its {key} is {text:?}"));
        }
    }
    if model["dropout"].as_f64().is_some_and(|share| share > 0.0) {
        return Err("the tokenizer leaves out merges at random (dropout)".to_owned());
    }
    for token in json["added_tokens"].as_array().into_iter().flatten() {
        let is_set = |key: &str| token[key].as_bool() == Some(true);
        let name = token["content"].as_str().unwrap_or_default();
        if is_set("single_word") {
            return Err(format!(
                "the tokenizer finds the token {name:?} only as a whole word (single_word)"
            ));
        }
        // llama.cpp has a rule of its own for the white space at special tokens, and at this one.
        let has_rule = is_set("special") || name == PHI3_END;
        let strips = ["lstrip", "rstrip"].into_iter().find(|key| is_set(key));
        if let Some(key) = strips.filter(|_| !has_rule) {
            return Err(format!(
                "the token {name:?} removes the white space next to it ({key})"
            ));
        }
    }
    Ok(())
}

/// Refuses merges of byte pairs that the format cannot express, and unknown tokens: llama.cpp
/// leaves out a byte that has no token.
pub(super) fn check_byte_pairs(
    model: &Json,
    ids: &HashMap<String, u32>,
    merges: &[[&str; 2]],
) -> Result<(), String> {
    let mut known = HashSet::new();
    for merge in merges {
        let [first, second] = merge;
        if first.contains(' ') || second.contains(' ') {
            return Err(format!(
                "the merge of {first:?} and {second:?} contains a space"
            ));
        }
        if !known.insert(merge) {
            return Err(format!(
                "the tokenizer has the merge of {first:?} and {second:?} twice"
            ));
        }
    }
    let unknown = model["unk_token"].as_str().filter(|name| !name.is_empty());
    if let Some(unknown) = unknown
        && let Some(missing) = byte_letters().find(|letter| !ids.contains_key(&letter.to_string()))
    {
        return Err(format!(
            "the tokenizer replaces bytes without a token, such as {missing:?}, with {unknown:?} (unk_token)"
        ));
    }
    Ok(())
}

/// The letters that stand for the 256 bytes, as in GPT-2: printable characters of Latin-1 stand for
/// themselves, and the others for the characters from U+0100.
fn byte_letters() -> impl Iterator<Item = char> {
    let is_printable = |byte: &u32| matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    let printable = (0..256u32).filter(is_printable);
    let others = (0..256u32).filter(move |byte| !is_printable(byte)).count() as u32;
    let letters = printable.chain(0x100..0x100 + others);
    letters.filter_map(char::from_u32)
}

/// Refuses settings that only matter if scores decide what is merged.
pub(super) fn check_scored_settings(
    model: &Json,
    ids: &HashMap<String, u32>,
) -> Result<(), String> {
    if model["ignore_merges"].as_bool() == Some(true) {
        return Err(
            "the tokenizer looks up whole texts before it merges (ignore_merges)".to_owned(),
        );
    }
    // llama.cpp ends the process if it needs a missing one.
    let mut byte_tokens = (0..=255u8).map(|byte| format!("<0x{byte:02X}>"));
    if let Some(missing) = byte_tokens.find(|name| !ids.contains_key(name)) {
        return Err(format!(
            "the tokenizer lacks the token {missing} for a byte, although it uses tokens for bytes (byte_fallback)"
        ));
    }
    Ok(())
}

impl<'a> MergedTokens<'a> {
    /// The tokens of a vocabulary. `is_merged` is false for added tokens and the tokens of bytes.
    pub fn new(
        vocabulary: impl Iterator<Item = &'a str>,
        is_merged: impl Fn(&str) -> bool,
        merges: &'a [[&'a str; 2]],
    ) -> Self {
        MergedTokens {
            tokens: vocabulary.filter(|token| is_merged(token)).collect(),
            merges,
        }
    }

    /// Refuses merges that scores of tokens cannot express. llama.cpp forms every token of the
    /// vocabulary from any two neighbors, the token with the highest score first. So all pairs that
    /// form a token must be merges, and the merges of a token must stand together.
    pub fn check_scores(&self) -> Result<(), String> {
        let mut begun = HashSet::new();
        let mut before = String::new();
        for [first, second] in self.merges {
            let token = format!("{first}{second}");
            let is_checked = self.tokens.contains(&*token) && !is_run(&token);
            if token != before && is_checked && !begun.insert(token.clone()) {
                return Err(format!(
                    "the list of merges builds the token {token:?} in several places, but llama.cpp can store only one rank (score) for each token"
                ));
            }
            before = token;
        }
        let merges: HashSet<[&str; 2]> = self.merges.iter().copied().collect();
        let mut tokens: Vec<&str> = self.tokens.iter().copied().collect();
        // The same token is named each time.
        tokens.sort_unstable();
        for token in tokens {
            if token.len() > MAX_TOKEN_BYTES {
                return Err(format!(
                    "the tokenizer has a token of {} bytes",
                    token.len()
                ));
            }
            for (at, _) in token.char_indices().skip(1) {
                let (first, second) = token.split_at(at);
                let is_formed = self.tokens.contains(first) && self.tokens.contains(second);
                if is_formed && !merges.contains(&[first, second]) {
                    return Err(format!(
                        "the tokenizer has the token {token:?}, but does not merge {first:?} and {second:?} (older versions of transformers left out such merges; convert the tokenizer again with a current version)"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Whether a token is one character that is repeated, such as spaces. SentencePiece gives all runs
/// of spaces the same score, and transformers then mixes their merges. Either way, a run grows from
/// its left end.
fn is_run(token: &str) -> bool {
    let mut letters = token.chars();
    letters
        .next()
        .is_some_and(|first| letters.all(|letter| letter == first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_letters_of_bytes_are_those_of_gpt_2() {
        let letters: Vec<char> = byte_letters().collect();
        assert_eq!(letters.len(), 256);
        // A space, a line feed, the byte AD, and the last of the others.
        for letter in ['Ġ', 'Ċ', '\u{143}', 'a', 'ÿ'] {
            assert!(letters.contains(&letter), "{letter}");
        }
        assert!(!letters.contains(&' ') && !letters.contains(&'\u{144}'));
    }

    fn scores(tokens: &[&'static str], merges: &[[&str; 2]]) -> Result<(), String> {
        let is_merged = |token: &str| !token.starts_with('<');
        MergedTokens::new(tokens.iter().copied(), is_merged, merges).check_scores()
    }

    #[test]
    fn scores_express_merges_that_are_complete_and_stand_together() {
        let tokens = ["a", "b", "ab", "aba", "ba", "<ab>", "<"];
        let merges = [["a", "b"], ["b", "a"], ["ab", "a"], ["a", "ba"]];
        assert_eq!(scores(&tokens, &merges), Ok(()));
        let incomplete = scores(&tokens, &merges[..3]).expect_err("a and ba are missing");
        assert!(
            incomplete.contains("does not merge \"a\" and \"ba\""),
            "{incomplete}"
        );
        let apart = [["a", "b"], ["ab", "a"], ["b", "a"], ["a", "ba"]];
        let apart = scores(&tokens, &apart).expect_err("two merges to aba are apart");
        assert!(
            apart.contains("the token \"aba\" in several places"),
            "{apart}"
        );
        // Merges of longer left parts come first, as current versions of transformers sort them.
        let mixed = [
            ["___", "_"],
            ["__", "__"],
            ["__", "_"],
            ["_", "___"],
            ["_", "__"],
            ["_", "_"],
        ];
        assert_eq!(scores(&["_", "__", "___", "____"], &mixed), Ok(()));
        let long = "a".repeat(MAX_TOKEN_BYTES + 1);
        let long: &'static str = Box::leak(long.into_boxed_str());
        assert!(scores(&[long], &[]).is_err());
    }

    #[test]
    fn settings_that_llama_cpp_does_not_know_are_named() {
        let refused = |model: Json, token: Json| {
            check_settings(&json!({"model": model, "added_tokens": [token]}))
        };
        for (model, name) in [
            (
                json!({"continuing_subword_prefix": "##"}),
                "continuing_subword_prefix is \"##\"",
            ),
            (
                json!({"end_of_word_suffix": "</w>"}),
                "end_of_word_suffix is \"</w>\"",
            ),
            (json!({"dropout": 0.1}), "dropout"),
        ] {
            let error = refused(model, json!({})).expect_err(name);
            assert!(error.contains(name), "{error}");
        }
        for key in ["single_word", "lstrip", "rstrip"] {
            let error = refused(json!({}), json!({"content": "<x>", key: true})).expect_err(key);
            assert!(error.contains(key) && error.contains("<x>"), "{error}");
        }
        let unset =
            json!({"continuing_subword_prefix": "", "end_of_word_suffix": null, "dropout": 0.0});
        let special = json!({"content": "<x>", "special": true, "rstrip": true});
        assert_eq!(refused(unset, special), Ok(()));
        let end_of_phi3 = json!({"content": "</s>", "special": false, "rstrip": true});
        assert_eq!(refused(json!({}), end_of_phi3), Ok(()));
    }

    #[test]
    fn merges_and_bytes_that_a_file_cannot_express_are_named() {
        let ids: HashMap<String, u32> = HashMap::from([("a".to_owned(), 0)]);
        let pairs = |model: Json, merges: &[[&str; 2]]| check_byte_pairs(&model, &ids, merges);
        assert_eq!(pairs(json!({}), &[["a", "a"]]), Ok(()));
        let twice = pairs(json!({}), &[["a", "a"], ["a", "a"]]).expect_err("it is there twice");
        assert!(twice.contains("twice"), "{twice}");
        let space = pairs(json!({}), &[["a", " a"]]).expect_err("it has a space");
        assert!(space.contains("contains a space"), "{space}");
        let unknown = pairs(json!({"unk_token": "<unk>"}), &[]).expect_err("bytes are missing");
        assert!(unknown.contains("unk_token"), "{unknown}");
        let whole = check_scored_settings(&json!({"ignore_merges": true}), &ids);
        assert!(whole.is_err_and(|reason| reason.contains("ignore_merges")));
        let bytes = check_scored_settings(&json!({}), &ids);
        assert!(bytes.is_err_and(|reason| reason.contains("<0x00>")));
    }
}
