//! The tokenizer of a language model under the keys that llama.cpp reads.
//!
//! llama.cpp has two kinds. In one, merges of byte pairs say how a text is tokenized, after it was
//! split by a rule that has a name. In the other, made for SentencePiece, scores do: the pair of
//! neighbors whose union has the highest score is joined first.

use super::ChatFormat;
use super::tokenizer_checks::{
    MergedTokens, check_byte_pairs, check_scored_settings, check_settings,
};
use crate::error::{ModelError, Result, at};
use crate::hub_format::JsonConfig;
use crate::hub_format::token_types::{
    BYTE, CONTROL, LLAMA3_SPLIT, NORMAL, QWEN2_SPLIT, SPACE, UNKNOWN, UNUSED, USER_DEFINED,
};
use candle_core::quantized::gguf_file::Value;
use serde_json::Value as Json;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Most bytes of a `tokenizer.json`.
const MAX_BYTES: u64 = 64 << 20;

/// Special tokens of Phi-3 that llama.cpp looks up.
const PHI3_TOKENS: [&str; 4] = ["</s>", "<unk>", "<s>", "<|endoftext|>"];

/// A vocabulary that llama.cpp tokenizes with in the same way.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    kind: Kind,
    /// Text and type of each token.
    tokens: Vec<(String, i32)>,
    /// Special tokens under their keys.
    special: Vec<(&'static str, u32)>,
    adds_first: bool,
    adds_last: bool,
    ids: HashMap<String, u32>,
}

#[derive(Debug)]
enum Kind {
    /// Splits texts by the rule with this name, then merges.
    BytePairs {
        split: &'static str,
        merges: Vec<String>,
    },
    Scored {
        scores: Vec<f32>,
        adds_space: bool,
    },
}

/// Reads a `tokenizer.json`, and refuses it by name.
struct Source<'a> {
    path: &'a Path,
    json: &'a Json,
}

impl Vocabulary {
    /// Reads the tokenizer of a model with embeddings for `rows` tokens. `settings` is its
    /// `tokenizer_config.json`, and `config` its `config.json`.
    ///
    /// # Errors
    /// The file cannot be read, or llama.cpp would tokenize in another way.
    pub fn read(
        path: &Path,
        settings: Option<&JsonConfig>,
        config: &JsonConfig,
        rows: usize,
    ) -> Result<Self> {
        let text = disk::read_limited(path, MAX_BYTES).map_err(at(path))?;
        let json: Json = serde_json::from_slice(&text)
            .map_err(|error| ModelError::hub_folder(path, error.to_string()))?;
        let source = Source { path, json: &json };
        let model = &json["model"];
        let vocabulary = model["vocab"].as_object();
        let (Some(vocabulary), Some("BPE")) = (vocabulary, model["type"].as_str()) else {
            return Err(source.refuse("the model of the tokenizer is not byte-pair encoding"));
        };
        check_settings(&json).map_err(|what| source.refuse(&what))?;
        let mut ids: HashMap<String, u32> = HashMap::new();
        for (token, id) in vocabulary {
            ids.insert(token.clone(), id_of(id).unwrap_or(u32::MAX));
        }
        let has_byte_tokens = model["byte_fallback"].as_bool() == Some(true);
        let tokens = source.tokens(&mut ids, has_byte_tokens, rows);
        let kind = if has_byte_tokens {
            source.scored(&ids, rows)?
        } else {
            source.byte_pairs(&ids)?
        };
        let (adds_first, adds_last) = source.surrounding();
        Ok(Vocabulary {
            kind,
            special: special_tokens(settings, config, &ids, rows),
            tokens,
            adds_first,
            adds_last,
            ids,
        })
    }

    /// The name of a model with this vocabulary, which is usually `label`. If the name is Phi-3,
    /// llama.cpp lets special tokens take up the white space after them, and fails if the
    /// vocabulary lacks one of Phi-3's special tokens.
    pub fn model_name(&self, label: &'static str) -> &'static str {
        let is_phi3 = PHI3_TOKENS
            .iter()
            .all(|token| self.ids.contains_key(*token));
        if label.contains("Phi") && !is_phi3 {
            return "Phi";
        }
        label
    }

    /// The keys of the file.
    pub fn metadata(&self, chat: &ChatFormat) -> Vec<(String, Value)> {
        let mut all = Vec::new();
        let mut add = |key: &str, value: Value| all.push((format!("tokenizer.{key}"), value));
        let text = |text: &str| Value::String(text.to_owned());
        match &self.kind {
            Kind::BytePairs { split, merges } => {
                add("ggml.model", text("gpt2"));
                add("ggml.pre", text(split));
                if !merges.is_empty() {
                    let merges = merges.iter().map(|merge| text(merge)).collect();
                    add("ggml.merges", Value::Array(merges));
                }
            }
            Kind::Scored { scores, adds_space } => {
                add("ggml.model", text("llama"));
                add("ggml.pre", text("default"));
                let scores = scores.iter().map(|score| Value::F32(*score)).collect();
                add("ggml.scores", Value::Array(scores));
                add("ggml.add_space_prefix", Value::Bool(*adds_space));
            }
        }
        let texts = self.tokens.iter().map(|(token, _)| text(token)).collect();
        add("ggml.tokens", Value::Array(texts));
        let types = self.tokens.iter().map(|(_, kind)| Value::I32(*kind));
        add("ggml.token_type", Value::Array(types.collect()));
        for (key, id) in &self.special {
            add(&format!("ggml.{key}_token_id"), Value::U32(*id));
        }
        let end = chat.answer_end.as_ref().and_then(|end| self.ids.get(end));
        if let Some(end) = end.filter(|end| (**end as usize) < self.tokens.len()) {
            add("ggml.eot_token_id", Value::U32(*end));
        }
        add("ggml.add_bos_token", Value::Bool(self.adds_first));
        add("ggml.add_eos_token", Value::Bool(self.adds_last));
        if let Some(template) = &chat.template {
            add("chat_template", text(template));
        }
        all
    }
}

impl Source<'_> {
    fn refuse(&self, what: &str) -> ModelError {
        ModelError::NotExportable(format!(
            "llama.cpp would split texts into other tokens than {}: {what}. Export the model as a Hugging Face folder instead.",
            self.path.display()
        ))
    }

    /// Text and type of `rows` tokens. Adds the tokens that were added to the vocabulary to `ids`.
    fn tokens(
        &self,
        ids: &mut HashMap<String, u32>,
        has_byte_tokens: bool,
        rows: usize,
    ) -> Vec<(String, i32)> {
        let mut tokens: Vec<(String, i32)> =
            (0..rows).map(|id| (format!("[PAD{id}]"), UNUSED)).collect();
        for (token, id) in &*ids {
            if let Some(entry) = tokens.get_mut(*id as usize) {
                let is_byte = has_byte_tokens && is_byte_token(token);
                *entry = (token.clone(), if is_byte { BYTE } else { NORMAL });
            }
        }
        if let Some(unknown) = self.json["model"]["unk_token"]
            .as_str()
            .and_then(|token| ids.get(token))
            && let Some(entry) = tokens.get_mut(*unknown as usize)
        {
            entry.1 = UNKNOWN;
        }
        for token in self.json["added_tokens"].as_array().into_iter().flatten() {
            let (Some(id), Some(text)) = (id_of(&token["id"]), token["content"].as_str()) else {
                continue;
            };
            ids.insert(text.to_owned(), id);
            if let Some(entry) = tokens
                .get_mut(id as usize)
                .filter(|entry| entry.1 != UNKNOWN)
            {
                let is_special = token["special"].as_bool() == Some(true);
                let kind = if is_special { CONTROL } else { USER_DEFINED };
                *entry = (text.to_owned(), kind);
            }
        }
        tokens
    }

    fn byte_pairs(&self, ids: &HashMap<String, u32>) -> Result<Kind> {
        let normalizer = &self.json["normalizer"];
        // llama.cpp does not normalize; texts in the common form are the same.
        if !normalizer.is_null() && normalizer["type"] != "NFC" {
            return Err(self.refuse("it normalizes texts"));
        }
        let Some(split) = self.split() else {
            return Err(self.refuse("the tokenizer splits texts by a rule that Ebb does not know"));
        };
        let pairs = self.merges()?;
        check_byte_pairs(&self.json["model"], ids, &pairs).map_err(|what| self.refuse(&what))?;
        Ok(Kind::BytePairs {
            split,
            merges: pairs.iter().map(|[a, b]| format!("{a} {b}")).collect(),
        })
    }

    /// The name of the rule that splits texts.
    fn split(&self) -> Option<&'static str> {
        let ignores_merges = self.json["model"]["ignore_merges"].as_bool() == Some(true);
        let rule = &self.json["pre_tokenizer"];
        let is_bytes = |rule: &Json, has_rule: bool| {
            rule["type"] == "ByteLevel"
                && rule["add_prefix_space"].as_bool() == Some(false)
                && rule["use_regex"].as_bool().unwrap_or(true) == has_rule
        };
        if is_bytes(rule, true) {
            return (!ignores_merges).then_some("gpt-2");
        }
        let [first, second] = rule["pretokenizers"].as_array()?.as_slice() else {
            return None;
        };
        if first["type"] == "Digits" && first["individual_digits"].as_bool() == Some(true) {
            return (is_bytes(second, true) && !ignores_merges).then_some("smollm");
        }
        let keeps_matches = match first["behavior"].as_str()? {
            "Isolated" => first["invert"].as_bool() == Some(false),
            "Removed" => first["invert"].as_bool() == Some(true),
            _ => false,
        };
        if first["type"] != "Split" || !keeps_matches || !is_bytes(second, false) {
            return None;
        }
        match (first["pattern"]["Regex"].as_str()?, ignores_merges) {
            (LLAMA3_SPLIT, true) => Some("llama-bpe"),
            (LLAMA3_SPLIT, false) => Some("dbrx"),
            (QWEN2_SPLIT, false) => Some("qwen2"),
            _ => None,
        }
    }

    fn merges(&self) -> Result<Vec<[&str; 2]>> {
        let listed = self.json["model"]["merges"].as_array();
        let pairs: Option<Vec<[&str; 2]>> = listed.into_iter().flatten().map(merge_pair).collect();
        pairs.ok_or_else(|| self.refuse("the merges are not pairs of tokens"))
    }

    fn scored(&self, ids: &HashMap<String, u32>, rows: usize) -> Result<Kind> {
        let Some(adds_space) = self.adds_space() else {
            return Err(self.refuse("the tokenizer writes spaces in a way that Ebb does not know"));
        };
        let model = &self.json["model"];
        check_scored_settings(model, ids).map_err(|what| self.refuse(&what))?;
        let merges = self.merges()?;
        let added = self.json["added_tokens"].as_array();
        let added = added.into_iter().flatten();
        let added: HashSet<&str> = added.filter_map(|it| it["content"].as_str()).collect();
        let is_merged = |token: &str| !added.contains(token) && !is_byte_token(token);
        let names = ids.keys().map(String::as_str);
        let checked = MergedTokens::new(names, is_merged, &merges).check_scores();
        checked.map_err(|what| self.refuse(&what))?;
        let mut scores = vec![0.0f32; rows];
        for (rank, [first, second]) in merges.into_iter().enumerate() {
            let joined = ids.get(&format!("{first}{second}"));
            if let Some(score) = joined.and_then(|id| scores.get_mut(*id as usize))
                && *score == 0.0
            {
                *score = -(rank as f32) - 1.0;
            }
        }
        Ok(Kind::Scored { scores, adds_space })
    }

    /// Whether a space is put before a text; `None` if spaces are not replaced as in SentencePiece.
    fn adds_space(&self) -> Option<bool> {
        let (normalizer, rule) = (&self.json["normalizer"], &self.json["pre_tokenizer"]);
        let replaces = |rule: &Json| {
            rule["type"] == "Replace"
                && rule["pattern"]["String"] == " "
                && rule["content"] == SPACE
        };
        if rule["type"] == "Metaspace" && normalizer.is_null() {
            let adds_space = match rule["prepend_scheme"].as_str() {
                Some("never") => false,
                Some("always") => true,
                None => rule["add_prefix_space"].as_bool().unwrap_or(true),
                // Only before the whole text, while llama.cpp also adds one after special tokens.
                Some(_) => return None,
            };
            return (rule["replacement"] == SPACE).then_some(adds_space);
        }
        // After the replacement there is no space to split at.
        let splits_at_spaces = rule["type"] == "Split" && rule["pattern"]["String"] == " ";
        if !rule.is_null() && !splits_at_spaces {
            return None;
        }
        if replaces(normalizer) {
            return Some(false);
        }
        match normalizer["normalizers"].as_array()?.as_slice() {
            [first, second] if first["type"] == "Prepend" && first["prepend"] == SPACE => {
                replaces(second).then_some(true)
            }
            _ => None,
        }
    }

    /// Whether a special token is put before and after a text.
    fn surrounding(&self) -> (bool, bool) {
        let processor = &self.json["post_processor"];
        let listed = processor["processors"].as_array();
        let all = listed.map_or(std::slice::from_ref(processor), Vec::as_slice);
        let template = all.iter().find(|part| part["type"] == "TemplateProcessing");
        let parts = template.and_then(|template| template["single"].as_array());
        let is_special =
            |part: Option<&Json>| part.is_some_and(|part| part["SpecialToken"].is_object());
        let parts = parts.map_or(&[][..], Vec::as_slice);
        (is_special(parts.first()), is_special(parts.last()))
    }
}

/// A merge in either form: a text with a space, or two texts.
fn merge_pair(merge: &Json) -> Option<[&str; 2]> {
    if let Some(text) = merge.as_str() {
        return text.split_once(' ').map(|(a, b)| [a, b]);
    }
    match merge.as_array()?.as_slice() {
        [first, second] => Some([first.as_str()?, second.as_str()?]),
        _ => None,
    }
}

fn id_of(id: &Json) -> Option<u32> {
    id.as_u64().and_then(|id| u32::try_from(id).ok())
}

/// Whether a token stands for a byte: `<0x0A>`.
fn is_byte_token(token: &str) -> bool {
    let digits = token
        .strip_prefix("<0x")
        .and_then(|rest| rest.strip_suffix('>'));
    digits.is_some_and(|digits| digits.len() == 2 && u8::from_str_radix(digits, 16).is_ok())
}

/// The special tokens that the settings of the tokenizer name, or else the config.
fn special_tokens(
    settings: Option<&JsonConfig>,
    config: &JsonConfig,
    ids: &HashMap<String, u32>,
    rows: usize,
) -> Vec<(&'static str, u32)> {
    let keys = [
        ("bos", "bos_token", "bos_token_id"),
        ("eos", "eos_token", "eos_token_id"),
        ("unknown", "unk_token", "unk_token_id"),
        ("padding", "pad_token", "pad_token_id"),
    ];
    let found = keys.into_iter().filter_map(|(key, name, number)| {
        let named = settings.and_then(|settings| {
            let token = &settings.json()[name];
            let text = token.as_str().or_else(|| token["content"].as_str())?;
            ids.get(text).copied()
        });
        let numbered = || {
            let listed = &config.json()[number];
            id_of(
                listed
                    .as_array()
                    .and_then(|list| list.first())
                    .unwrap_or(listed),
            )
        };
        let id = named.or_else(numbered)?;
        ((id as usize) < rows).then_some((key, id))
    });
    found.collect()
}
