//! The tokenizer in a GGUF file as `tokenizer.json`, and its special tokens and chat template as
//! `tokenizer_config.json`.
//!
//! There are two kinds. In one, `gpt2`, merges of byte pairs say how a text is tokenized, after it
//! was split by a rule that has a name. In the other, `llama`, which is made for SentencePiece,
//! scores do; the merges follow from them as in the transformers library.

use super::header::GgufHeader;
use super::token_types::{
    BYTE, CONTROL, LLAMA3_SPLIT, NORMAL, QWEN2_SPLIT, SPACE, UNKNOWN, UNUSED, USER_DEFINED,
};
use crate::error::Result;
use candle_core::quantized::gguf_file::Value;
use serde_json::{Map, Value as Json, json};
use std::collections::HashMap;

/// Names of rules that split texts.
const BYTE_PAIR_RULES: &str = "gpt-2, olmo, smollm, llama-bpe, llama3, dbrx, smaug-bpe and qwen2";
/// The special tokens of a `tokenizer_config.json`, and their keys in a GGUF file.
const SPECIAL: [(&str, &str); 4] = [
    ("bos_token", "bos"),
    ("eos_token", "eos"),
    ("unk_token", "unknown"),
    ("pad_token", "padding"),
];
/// Most bytes of a token that is formed by merges.
const MAX_TOKEN_BYTES: usize = 512;

/// The vocabulary of a GGUF file.
pub(super) struct Vocabulary<'a> {
    header: &'a GgufHeader,
    /// Text and type of each token.
    tokens: Vec<(&'a str, i32)>,
}

fn key(name: &str) -> String {
    format!("tokenizer.ggml.{name}")
}

impl<'a> Vocabulary<'a> {
    /// Reads the tokens of a model with embeddings for `rows` tokens.
    ///
    /// # Errors
    /// There are no tokens, or more than `rows`, or the types do not belong to the tokens.
    pub fn read(header: &'a GgufHeader, rows: usize) -> Result<Self> {
        let listed = header.list(&key("tokens"))?.unwrap_or_default();
        let types = header.list(&key("token_type"))?;
        if listed.is_empty() {
            return Err(header.refuse("the vocabulary has no tokens; download the file again"));
        }
        if listed.len() > rows {
            return Err(header.refuse(format!(
                "the vocabulary has {} tokens, but the network has embeddings for only {rows}; download the file again",
                listed.len()
            )));
        }
        if let Some(types) = types.filter(|types| types.len() != listed.len()) {
            return Err(header.refuse(format!(
                "the file has {} tokens, but {} token types; download the file again",
                listed.len(),
                types.len()
            )));
        }
        let mut tokens = Vec::with_capacity(listed.len());
        for (id, token) in listed.iter().enumerate() {
            let Value::String(text) = token else {
                return Err(header.refuse(format!("token {id} is not a string")));
            };
            let kind = match types.map(|types| &types[id]) {
                None => NORMAL,
                Some(Value::I32(kind)) => *kind,
                Some(Value::U32(kind)) => i32::try_from(*kind).unwrap_or(NORMAL),
                Some(_) => {
                    return Err(header.refuse(format!("the type of token {id} is not valid")));
                }
            };
            tokens.push((text.as_str(), kind));
        }
        Ok(Vocabulary { header, tokens })
    }

    /// The `tokenizer.json`.
    ///
    /// # Errors
    /// The kind of tokenizer, or the rule that splits texts, is not known.
    pub fn tokenizer(&self) -> Result<Json> {
        let mut json = match self.header.text(&key("model"))?.unwrap_or("none") {
            "gpt2" => self.byte_pairs()?,
            "llama" => self.scored()?,
            other => {
                return Err(self.header.refuse(format!(
                    "the tokenizer is of the kind {other:?}, but Ebb reads only gpt2 and llama; choose the Hugging Face folder of the model"
                )));
            }
        };
        json["version"] = json!("1.0");
        json["truncation"] = Json::Null;
        json["padding"] = Json::Null;
        json["added_tokens"] = self.added_tokens();
        json["post_processor"] = self.post_processor()?;
        Ok(json)
    }

    /// The `tokenizer_config.json`.
    pub fn settings(&self) -> Result<Json> {
        let mut settings = json!({
            "add_bos_token": self.header.flag(&key("add_bos_token")),
            "add_eos_token": self.header.flag(&key("add_eos_token")),
        });
        for (name, short) in SPECIAL {
            if let Some((text, _)) = self.special(short)? {
                settings[name] = json!(text);
            }
        }
        if let Some(template) = self.header.text("tokenizer.chat_template")? {
            settings["chat_template"] = json!(template);
        }
        Ok(settings)
    }

    /// Text and id of a special token; `None` if there is none.
    fn special(&self, name: &str) -> Result<Option<(&str, usize)>> {
        let id = self.header.count(&key(&format!("{name}_token_id")))?;
        Ok(id.and_then(|id| Some((self.tokens.get(id)?.0, id))))
    }

    /// All tokens that texts are tokenized to, with their ids. Tokens that were added are also in
    /// the vocabulary, because the tokenizers library would give them other ids otherwise.
    fn ids(&self) -> Map<String, Json> {
        let used = self.tokens.iter().enumerate();
        let used = used.filter(|(_, (_, kind))| *kind != UNUSED);
        used.map(|(id, (text, _))| ((*text).to_owned(), json!(id)))
            .collect()
    }

    fn added_tokens(&self) -> Json {
        let added = self.tokens.iter().enumerate();
        let added =
            added.filter(|(_, (_, kind))| matches!(*kind, UNKNOWN | CONTROL | USER_DEFINED));
        let added = added.map(|(id, (text, kind))| {
            json!({
                "id": id,
                "content": text,
                "single_word": false,
                "lstrip": false,
                "rstrip": false,
                "normalized": false,
                "special": *kind != USER_DEFINED,
            })
        });
        added.collect()
    }

    fn merges(&self) -> Result<Vec<&str>> {
        let listed = self.header.list(&key("merges"))?.unwrap_or_default();
        let texts = listed.iter().map(|merge| match merge {
            Value::String(text) => Some(text.as_str()),
            _ => None,
        });
        let texts: Option<Vec<&str>> = texts.collect();
        texts.ok_or_else(|| {
            self.header
                .refuse("the merges are not strings; download the file again")
        })
    }

    fn byte_pairs(&self) -> Result<Json> {
        let rule = self.header.text(&key("pre"))?.unwrap_or("default");
        let bytes = |has_rule: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": has_rule});
        let split = |pattern: &str| {
            let split = json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
            json!({"type": "Sequence", "pretokenizers": [split, bytes(false)]})
        };
        let rules = match rule {
            "gpt-2" | "olmo" => bytes(true),
            "smollm" => json!({"type": "Sequence", "pretokenizers": [
                {"type": "Digits", "individual_digits": true},
                bytes(true),
            ]}),
            "llama-bpe" | "llama3" | "dbrx" | "smaug-bpe" => split(LLAMA3_SPLIT),
            "qwen2" => split(QWEN2_SPLIT),
            other => {
                return Err(self.header.refuse(format!(
                    "the tokenizer splits texts by the rule {other:?}, but Ebb knows only {BYTE_PAIR_RULES}; choose the Hugging Face folder of the model"
                )));
            }
        };
        let normalizer = match rule {
            "qwen2" => json!({"type": "NFC"}),
            _ => Json::Null,
        };
        Ok(json!({
            "normalizer": normalizer,
            "pre_tokenizer": rules,
            "decoder": bytes(true),
            "model": self.model(self.merges()?, None, matches!(rule, "llama-bpe" | "llama3")),
        }))
    }

    /// The model of a `tokenizer.json`. `unknown` is the token of a SentencePiece vocabulary that
    /// replaces characters without a token.
    fn model(&self, merges: impl Into<Json>, unknown: Option<&str>, ignores_merges: bool) -> Json {
        let is_scored = self.is_scored();
        let merges: Json = merges.into();
        json!({
            "type": "BPE",
            "dropout": null,
            "unk_token": unknown,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": is_scored,
            "byte_fallback": is_scored,
            "ignore_merges": ignores_merges,
            "vocab": self.ids(),
            "merges": merges,
        })
    }

    fn is_scored(&self) -> bool {
        self.tokens.iter().any(|(_, kind)| *kind == BYTE)
    }

    fn scored(&self) -> Result<Json> {
        if !self.is_scored() {
            let reason = "the tokenizer has no tokens for single bytes, which Ebb needs; choose the Hugging Face folder of the model";
            return Err(self.header.refuse(reason));
        }
        let listed = self.header.list(&key("scores"))?.unwrap_or_default();
        let scores = listed.iter().map(|score| match score {
            Value::F32(score) => Some(*score),
            _ => None,
        });
        let scores: Option<Vec<f32>> = scores.collect();
        let scores = scores.filter(|scores| scores.len() == self.tokens.len());
        let Some(scores) = scores else {
            let reason = "the file does not have one score for each token; download it again";
            return Err(self.header.refuse(reason));
        };
        // llama.cpp puts a space before a text unless the file says otherwise.
        let adds_space = self.header.flag(&key("add_space_prefix")).unwrap_or(true);
        let unknown = self.tokens.iter().find(|(_, kind)| *kind == UNKNOWN);
        let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE});
        let back = json!({"type": "Replace", "pattern": {"String": SPACE}, "content": " "});
        let (bytes, fuse) = (json!({"type": "ByteFallback"}), json!({"type": "Fuse"}));
        let (normalizer, decoders) = if adds_space {
            let prepend = json!({"type": "Prepend", "prepend": SPACE});
            let strip = json!({"type": "Strip", "content": " ", "start": 1, "stop": 0});
            (
                json!({"type": "Sequence", "normalizers": [prepend, replace]}),
                json!([back, bytes, fuse, strip]),
            )
        } else {
            (replace, json!([back, bytes, fuse]))
        };
        let merges = self.merges_by_score(&scores);
        Ok(json!({
            "normalizer": normalizer,
            "pre_tokenizer": null,
            "decoder": {"type": "Sequence", "decoders": decoders},
            "model": self.model(merges, unknown.map(|(text, _)| *text), false),
        }))
    }

    /// Every way to join two tokens to a third, the union with the highest score first. Equal
    /// scores are ordered as in the transformers library: pairs with longer parts come first.
    fn merges_by_score(&self, scores: &[f32]) -> Vec<String> {
        let normal = self.tokens.iter().enumerate();
        let normal =
            normal.filter(|(_, (text, kind))| *kind == NORMAL && text.len() <= MAX_TOKEN_BYTES);
        let ids: HashMap<&str, usize> = normal.map(|(id, (text, _))| (*text, id)).collect();
        let mut pairs: Vec<(f32, &str, &str)> = Vec::new();
        for (text, id) in &ids {
            for (at, _) in text.char_indices().skip(1) {
                let (first, second) = text.split_at(at);
                if ids.contains_key(first) && ids.contains_key(second) {
                    pairs.push((scores[*id], first, second));
                }
            }
        }
        let length = |text: &str| text.chars().count();
        pairs.sort_by(|a, b| {
            let by_score = b.0.total_cmp(&a.0);
            let by_length = (length(b.1), length(b.2)).cmp(&(length(a.1), length(a.2)));
            by_score
                .then(by_length)
                .then_with(|| (ids[a.1], ids[a.2]).cmp(&(ids[b.1], ids[b.2])))
        });
        let merges = pairs.into_iter();
        merges
            .map(|(_, first, second)| format!("{first} {second}"))
            .collect()
    }

    /// Whether llama.cpp puts a special token before a text if the file does not say so.
    fn usually_begins_texts(&self) -> bool {
        let is_llama3 = ["llama-bpe", "llama3"].map(Some).contains(&self.rule());
        self.is_scored() || is_llama3
    }

    /// The rule that splits texts.
    fn rule(&self) -> Option<&str> {
        self.header.text(&key("pre")).ok().flatten()
    }

    /// Puts a special token before or after a text, if the file says so.
    fn post_processor(&self) -> Result<Json> {
        let added = |name: &str| {
            let is_added = self.header.flag(&key(&format!("add_{name}_token")));
            let is_usual = name == "bos" && self.usually_begins_texts();
            if is_added.unwrap_or(is_usual) {
                self.special(name)
            } else {
                Ok(None)
            }
        };
        let (first, last) = (added("bos")?, added("eos")?);
        if first.is_none() && last.is_none() {
            return Ok(Json::Null);
        }
        let mut special = Map::new();
        for (text, id) in [first, last].into_iter().flatten() {
            let entry = json!({"id": text, "ids": [id], "tokens": [text]});
            special.insert(text.to_owned(), entry);
        }
        let template = |sequences: &[(&str, u32)]| {
            let mut parts = Vec::new();
            for (sequence, type_id) in sequences {
                let token = |(text, _): (&str, usize)| json!({"SpecialToken": {"id": text, "type_id": type_id}});
                parts.extend(first.map(token));
                parts.push(json!({"Sequence": {"id": sequence, "type_id": type_id}}));
                parts.extend(last.map(token));
            }
            parts
        };
        Ok(json!({
            "type": "TemplateProcessing",
            "single": template(&[("A", 0)]),
            "pair": template(&[("A", 0), ("B", 1)]),
            "special_tokens": special,
        }))
    }
}
