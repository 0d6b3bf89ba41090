//! llama.cpp computes the scores of exported GGUF files and tokenizes in the same way. What it
//! would compute in another way is refused by name. The tests with llama.cpp need the Python
//! package xllamacpp.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::exports::{answer, python};
use crate::folders::{assert_error_contains, copied, make};
use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::{Content, Value};
use candle_core::{DType, Device, Tensor};
use models::export::{
    ChatFormat, Exported, GgufWeights, TokenizerFile, TrainedNetwork, export_gguf_folder,
};
use models::hub_format::{Head, Loaded};
use models::{Gpt, ModelId, Pretrained};
use serde_json::{Value as Json, json};
use std::fs;
use std::path::Path;
use tape::inplace::to_f64;
use tape::{Cancel, Kernels, Tape};
use tempfile::TempDir;

const VOCABULARY: usize = 17;
/// Tokens that llama.cpp reserves memory for.
const CONTEXT: usize = 32;
/// Largest distance between two log probabilities, relative to the largest one. llama.cpp rounds
/// activations to 16 bits before it multiplies them with weights of 16 bits, and always reads the
/// GELU of Gemma from a table of 16-bit floats.
const APART: [(GgufWeights, f64); 2] = [(GgufWeights::F32, 1e-5), (GgufWeights::F16, 1e-2)];
const APART_GELU: f64 = 1e-3;

/// A model of the fixtures, with changes to its config, and how it is read.
struct Case {
    name: &'static str,
    changes: Json,
    tokens: usize,
}

/// Every family. The changes make them models that llama.cpp knows.
fn cases() -> Vec<Case> {
    let case = |name, changes, tokens| Case {
        name,
        changes,
        tokens,
    };
    let sliding = ["sliding_attention", "sliding_attention"];
    vec![
        case("llama", json!({}), 12),
        case("llama-linear", json!({}), 12),
        // The context ends where the window would, and needs room for one more token.
        case("mistral", json!({}), 4),
        case("qwen2", json!({}), 4),
        case("qwen3", json!({}), 12),
        case("gemma2", json!({"query_pre_attn_scalar": 6}), 12),
        case(
            "gemma3",
            json!({"query_pre_attn_scalar": 6, "layer_types": sliding}),
            12,
        ),
        // Longer sequences use other factors. llama.cpp chooses by the memory that it reserves, at
        // least 256 tokens.
        case("phi3", long_phi3(), 12),
        case("phi3", json!({}), 20),
        case("smollm3", json!({"no_rope_layers": [1, 1]}), 12),
        case("olmo2", json!({}), 12),
        case("olmo2", json!({"tie_word_embeddings": true}), 12),
    ]
}

/// A Phi-3 that was trained with 256 tokens, and reads 1,024.
fn long_phi3() -> Json {
    json!({
        "max_position_embeddings": 1024,
        "original_max_position_embeddings": 256,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 100.0,
            "partial_rotary_factor": 0.75,
            "short_factor": [1.0, 1.5, 2.0],
            "long_factor": [2.0, 3.0, 4.0],
            "original_max_position_embeddings": 256,
        },
    })
}

/// A copy of the folder with changes to its config, and with a tokenizer of letters.
fn changed(name: &str, changes: &Json) -> TempDir {
    let copy = copied(&format!("decoders/{name}"));
    let file = copy.path().join("config.json");
    let mut config: Json = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    fs::write(&file, config.to_string()).unwrap();
    write_tokenizer(copy.path(), &letters());
    copy
}

fn write_tokenizer(folder: &Path, tokenizer: &Json) {
    fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
}

/// A tokenizer of 17 tokens: three special ones, 13 letters, and a merge.
fn letters() -> Json {
    let special = ["<s>", "</s>", "<pad>"];
    let letters = ('a'..='m').map(String::from);
    let tokens = special.map(str::to_owned).into_iter().chain(letters);
    let vocabulary = tokens.chain(["ab".to_owned()]).enumerate();
    let vocabulary: serde_json::Map<String, Json> =
        vocabulary.map(|(id, token)| (token, json!(id))).collect();
    let added = special.iter().enumerate();
    let added: Vec<Json> = added
        .map(|(id, token)| json!({"id": id, "content": token, "special": true}))
        .collect();
    json!({
        "version": "1.0",
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "byte_fallback": false, "ignore_merges": false, "vocab": vocabulary, "merges": [["a", "b"]]},
    })
}

fn loaded(pretrained: &Pretrained) -> Loaded<Gpt> {
    let options = make(Head::Pretrained, DType::F32);
    pretrained.folder().language_model(&options).unwrap()
}

fn export(
    folder: &Path,
    weights: GgufWeights,
    chat: &ChatFormat,
    out: &Path,
) -> models::Result<Exported> {
    let pretrained = Pretrained::open_frozen(folder, None)?;
    let loaded = loaded(&pretrained);
    let tokenizer = TokenizerFile {
        json: String::new(),
        boundary: None,
        special_tokens: Vec::new(),
    };
    let trained = TrainedNetwork {
        model: ModelId::Pretrained(pretrained.family()),
        input_size: 16,
        classes: &[],
        targets: &[],
        parameters: &loaded.parameters,
        pretrained: Some(&pretrained),
        tokenizer: Some(&tokenizer),
    };
    export_gguf_folder(&trained, out, weights, chat)
}

/// The exported file.
fn exported(folder: &Path, weights: GgufWeights, place: &TempDir) -> std::path::PathBuf {
    let out = place.path().join(weights.name());
    let found = export(folder, weights, &ChatFormat::default(), &out).unwrap();
    let name = format!("model-{}.gguf", weights.name());
    assert_eq!(found.files, ["Modelfile".to_owned(), name.clone()]);
    out.join(name)
}

/// Ebb's log probabilities of every next token.
fn own_scores(folder: &Path, ids: &[u32]) -> Vec<f64> {
    let pretrained = Pretrained::open_frozen(folder, None).unwrap();
    let loaded = loaded(&pretrained);
    let tape = Tape::forward_only(&loaded.parameters, Cancel::default(), Kernels::Fused);
    let scores = loaded.network.scores(&tape, ids, 1).unwrap();
    let scores = to_f64(scores.tensor()).unwrap();
    let rows = scores.chunks(VOCABULARY).flat_map(|row| {
        let sum = row.iter().map(|score| score.exp()).sum::<f64>().ln();
        row.iter().map(move |score| score - sum)
    });
    rows.collect()
}

fn ids(tokens: usize) -> Vec<u32> {
    let id = |i| ((7 * i * i + 3 * i) % VOCABULARY) as u32;
    (0..tokens).map(id).collect()
}

#[test]
fn llama_cpp_computes_the_scores_of_exported_models() {
    let Some(python) = python("xllamacpp") else {
        return;
    };
    for case in cases() {
        let folder = changed(case.name, &case.changes);
        let place = tempfile::tempdir().unwrap();
        let ids = ids(case.tokens);
        let own = own_scores(folder.path(), &ids);
        let largest = own.iter().fold(0.0f64, |most, score| most.max(score.abs()));
        let words = ["scores".to_owned(), CONTEXT.to_string()].into_iter();
        let words: Vec<String> = words.chain(ids.iter().map(u32::to_string)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        for (weights, bar) in APART {
            let file = exported(folder.path(), weights, &place);
            let theirs = answer(&python, "llama_cpp_scores.py", &file, &words);
            let theirs: Vec<f64> = serde_json::from_value(theirs).unwrap();
            assert_eq!(own.len(), theirs.len(), "{}", case.name);
            let mut scores = own.iter().chain(&theirs);
            assert!(scores.all(|score| score.is_finite()), "{}", case.name);
            let pairs = own.iter().zip(&theirs);
            let apart = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            println!(
                "{} of {} tokens in {}: {apart:.1e} apart, largest {largest:.1}",
                case.name,
                case.tokens,
                weights.name()
            );
            let has_table = case.name.starts_with("gemma");
            let bar = if has_table { bar.max(APART_GELU) } else { bar };
            assert!(apart <= bar * largest, "{}: {apart:e} apart", case.name);
        }
    }
}

/// Texts with words, numbers, spaces, punctuation, several scripts and special tokens.
const TEXTS: [&str; 6] = [
    "Hello world, it's 12345 o'clock!",
    "  two  spaces\n\n\tand a tab\r\nDONE'S",
    "Ünïcode ñandú 日本語 \u{1F980}\u{1F980}",
    "x1y22z333 3.14159",
    "<|im_start|>user\nHi<|im_end|>",
    "a",
];

#[test]
fn llama_cpp_tokenizes_texts_as_the_tokenizer_does() {
    let Some(python) = python("xllamacpp, tokenizers") else {
        return;
    };
    let chat = crate::folders::fixture("chat");
    let plain: Json =
        serde_json::from_slice(&fs::read(chat.join("tokenizer.json")).unwrap()).unwrap();
    let split = |pattern: &str| {
        json!({"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        ]})
    };
    let digits = json!({"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": true},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
    ]});
    let with = |rule: Json| {
        let mut tokenizer = plain.clone();
        tokenizer["pre_tokenizer"] = rule;
        tokenizer
    };
    let tokenizers = [
        ("bytes", plain.clone()),
        ("Llama 3", with(split(LLAMA3))),
        ("Qwen 2", with(split(QWEN2))),
        ("SmolLM", with(digits)),
        (
            "SentencePiece",
            scored(json!({"type": "Sequence", "normalizers": [
                {"type": "Prepend", "prepend": "\u{2581}"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"},
            ]})),
        ),
        (
            "SentencePiece without a first space",
            scored(json!({"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"})),
        ),
    ];
    for (name, tokenizer) in tokenizers {
        let folder = copied("chat");
        write_tokenizer(folder.path(), &tokenizer);
        let place = tempfile::tempdir().unwrap();
        let file = exported(folder.path(), GgufWeights::Q8_0, &place);
        for text in TEXTS {
            let theirs = answer(&python, "llama_cpp_scores.py", &file, &["tokens", text]);
            let source = folder.path().join("tokenizer.json");
            let own = answer(&python, "tokens_of_text.py", &source, &[text]);
            assert_eq!(theirs, own, "{name}: {text:?}");
        }
    }
}

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// A tokenizer in the form of SentencePiece, with byte tokens, letters and a few merges.
fn scored(normalizer: Json) -> Json {
    let merges = [
        ["l", "l"],
        ["\u{2581}", "w"],
        ["o", "r"],
        ["\u{2581}w", "or"],
        ["e", "ll"],
        ["1", "2"],
        ["\u{2581}", "\u{2581}"],
        ["l", "d"],
        ["\u{2581}wor", "ld"],
    ];
    let special = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"];
    let mut tokens: Vec<String> = special.map(str::to_owned).to_vec();
    tokens.extend((0..=255u8).map(|byte| format!("<0x{byte:02X}>")));
    tokens.extend(merges.map(|[a, b]| format!("{a}{b}")));
    tokens.push("\u{2581}".to_owned());
    tokens.extend(
        ('a'..='z')
            .chain('0'..='9')
            .chain(['H', ',', '!', '\''])
            .map(String::from),
    );
    let vocabulary: serde_json::Map<String, Json> = tokens
        .iter()
        .enumerate()
        .map(|(id, token)| (token.clone(), json!(id)))
        .collect();
    let added: Vec<Json> = special
        .iter()
        .enumerate()
        .map(|(id, token)| json!({"id": id, "content": token, "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}))
        .collect();
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": null,
        "post_processor": null,
        "decoder": null,
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "vocab": vocabulary, "merges": merges},
    })
}

fn content(file: &Path) -> (Content, fs::File) {
    let mut opened = fs::File::open(file).unwrap();
    (Content::read(&mut opened).unwrap(), opened)
}

fn tensor(file: &Path, name: &str) -> Tensor {
    let (content, mut opened) = content(file);
    let tensor = content.tensor(&mut opened, name, &Device::Cpu).unwrap();
    tensor.dequantize(&Device::Cpu).unwrap()
}

#[test]
fn rows_of_queries_and_keys_have_the_order_that_llama_cpp_rotates() {
    let folder = changed("llama", &json!({}));
    let place = tempfile::tempdir().unwrap();
    let file = exported(folder.path(), GgufWeights::F16, &place);
    let weights = folder.path().join("model.safetensors");
    let weights = candle_core::safetensors::load(weights, &Device::Cpu).unwrap();
    let rows = |tensor: &Tensor| {
        let width = tensor.dims()[1];
        let values = tape::device::read::<f32>(&tensor.to_dtype(DType::F32).unwrap()).unwrap();
        let rows: Vec<Vec<f32>> = values.chunks(width).map(<[f32]>::to_vec).collect();
        rows
    };
    // 4 heads of 4 values: values 0 and 2 of a head become neighbors.
    let published = rows(&weights["model.layers.1.self_attn.q_proj.weight"]);
    let written = rows(&tensor(&file, "blk.1.attn_q.weight"));
    for (at, row) in written.iter().enumerate() {
        let (head, place) = (at / 4, at % 4);
        let from = head * 4 + place % 2 * 2 + place / 2;
        assert_eq!(row, &published[from], "row {at}");
    }
    let value = rows(&weights["model.layers.1.self_attn.v_proj.weight"]);
    assert_eq!(rows(&tensor(&file, "blk.1.attn_v.weight")), value);
    // Qwen rotates halves, as published.
    let folder = changed("qwen2", &json!({}));
    let file = exported(folder.path(), GgufWeights::Q8_0, &place);
    let weights = folder.path().join("model.safetensors");
    let weights = candle_core::safetensors::load(weights, &Device::Cpu).unwrap();
    let published = rows(&weights["model.layers.0.self_attn.q_proj.weight"]);
    assert_eq!(rows(&tensor(&file, "blk.0.attn_q.weight")), published);
}

#[test]
fn a_file_has_the_tokenizer_and_the_chat_template() {
    let folder = crate::folders::fixture("chat");
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    let chat = ChatFormat {
        template: Some("{{ messages }}".to_owned()),
        answer_end: Some("<|im_end|>".to_owned()),
    };
    export(&folder, GgufWeights::Q4KM, &chat, &out).unwrap();
    let (content, _) = content(&out.join("model-q4_k_m.gguf"));
    let text = |key: &str| content.metadata[key].to_string().unwrap().as_str();
    assert_eq!(text("general.architecture"), "llama");
    assert_eq!(text("tokenizer.ggml.model"), "gpt2");
    assert_eq!(text("tokenizer.ggml.pre"), "gpt-2");
    assert_eq!(text("tokenizer.chat_template"), "{{ messages }}");
    let number = |key: &str| content.metadata[key].to_u32().unwrap();
    assert_eq!(number("tokenizer.ggml.bos_token_id"), 0);
    assert_eq!(number("tokenizer.ggml.eos_token_id"), 1);
    assert_eq!(number("tokenizer.ggml.eot_token_id"), 3);
    assert_eq!(number("general.file_type"), 15);
    let list = |key: &str| content.metadata[key].to_vec().unwrap();
    assert_eq!(list("tokenizer.ggml.tokens").len(), 420);
    assert_eq!(list("tokenizer.ggml.merges").len(), 149);
    assert!(
        matches!(list("tokenizer.ggml.merges")[2], Value::String(ref merge) if merge == "in k")
    );
    let types = list("tokenizer.ggml.token_type");
    assert_eq!(
        types[3].to_i32().unwrap(),
        3,
        "special tokens are control tokens"
    );
    // Rows of 16 values are no blocks of 32.
    let embeddings = &content.tensor_infos["token_embd.weight"];
    assert_eq!(embeddings.ggml_dtype, GgmlDType::F16);
    let model_file = fs::read_to_string(out.join("Modelfile")).unwrap();
    assert!(
        model_file.contains("\nFROM ./model-q4_k_m.gguf\n"),
        "{model_file}"
    );
    assert!(
        model_file.contains("\nPARAMETER stop \"<|im_end|>\"\n"),
        "{model_file}"
    );
}

#[test]
fn what_llama_cpp_computes_in_another_way_is_refused_by_name() {
    let refused = |name: &str, changes: Json, words: &[&str]| {
        let folder = changed(name, &changes);
        let place = tempfile::tempdir().unwrap();
        let out = place.path().join("out");
        let outcome = export(
            folder.path(),
            GgufWeights::F16,
            &ChatFormat::default(),
            &out,
        );
        assert_error_contains(outcome, words);
        assert!(!out.exists(), "nothing is written");
    };
    refused("gemma2", json!({}), &["unusual scale"]);
    refused(
        "gemma3",
        json!({"query_pre_attn_scalar": 6}),
        &["same layers", "sliding window"],
    );
    refused("smollm3", json!({}), &["positions"]);
    refused(
        "qwen3",
        json!({"hidden_act": "gelu_pytorch_tanh"}),
        &["activation"],
    );
    let yarn = json!({"rope_type": "yarn", "rope_theta": 100.0, "factor": 2.0, "beta_fast": 16.0,
        "original_max_position_embeddings": 16});
    refused(
        "qwen3",
        json!({"rope_parameters": yarn}),
        &["positions", "unusual"],
    );
}

#[test]
fn a_tokenizer_that_llama_cpp_does_not_know_is_refused_by_name() {
    let cases = [
        (
            "pre_tokenizer",
            json!({"type": "Whitespace"}),
            "a rule that Ebb does not know",
        ),
        (
            "normalizer",
            json!({"type": "Lowercase"}),
            "it normalizes texts",
        ),
        (
            "model",
            json!({"type": "Unigram", "vocab": []}),
            "not byte-pair encoding",
        ),
    ];
    for (key, value, words) in cases {
        let mut tokenizer = letters();
        tokenizer[key] = value;
        refused(&tokenizer, words);
    }
}

/// Fails if a model with this tokenizer is exported, or refused for another reason.
fn refused(tokenizer: &Json, words: &str) {
    let folder = changed("llama", &json!({}));
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    write_tokenizer(folder.path(), tokenizer);
    let outcome = export(
        folder.path(),
        GgufWeights::F16,
        &ChatFormat::default(),
        &out,
    );
    assert_error_contains(outcome, &["tokenizer.json", words]);
    assert!(!out.exists(), "nothing is written");
}

#[test]
fn settings_of_a_tokenizer_that_change_its_tokens_are_refused_by_name() {
    let of_model = [
        ("continuing_subword_prefix", json!("##")),
        ("end_of_word_suffix", json!("</w>")),
        ("dropout", json!(0.1)),
        ("unk_token", json!("<pad>")),
    ];
    for (key, value) in of_model {
        let mut tokenizer = letters();
        tokenizer["model"][key] = value;
        refused(&tokenizer, key);
    }
    for key in ["single_word", "lstrip", "rstrip"] {
        let mut tokenizer = letters();
        tokenizer["added_tokens"] = json!([{"id": 4, "content": "b", "special": false, key: true}]);
        refused(&tokenizer, key);
    }
    let mut twice = letters();
    twice["model"]["merges"] = json!([["a", "b"], ["a", "b"]]);
    refused(&twice, "twice");
}

#[test]
fn merges_that_scores_cannot_express_are_refused_by_name() {
    let normalizer = json!({"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"});
    let plain = scored(normalizer);
    let changed_model = |key: &str, value: Json| {
        let mut tokenizer = plain.clone();
        tokenizer["model"][key] = value;
        tokenizer
    };
    refused(
        &changed_model("ignore_merges", json!(true)),
        "ignore_merges",
    );
    let mut tokenizer = plain.clone();
    let vocabulary = tokenizer["model"]["vocab"].as_object_mut().unwrap();
    vocabulary.remove("<0x41>");
    refused(&tokenizer, "<0x41>");
    // The tokens stay, but one of them is no longer formed.
    let merges = plain["model"]["merges"].as_array().unwrap();
    refused(
        &changed_model("merges", json!(merges[1..])),
        "does not merge \"l\" and \"l\"",
    );
}
