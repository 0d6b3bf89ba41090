//! A GGUF file as pretrained weights: a model that Ebb exports and reads back computes the same
//! scores within the rounding of its type, and tokenizes in the same way. What Ebb does not know is
//! refused by name.

use crate::folders::{assert_error_contains, copied, fixture, make};
use candle_core::quantized::gguf_file::{Content, Value};
use candle_core::quantized::{GgmlDType, QTensor, gguf_file};
use candle_core::{DType, Device, Tensor};
use dataset::{ChatTemplate, Tokenizer};
use models::export::{ChatFormat, GgufWeights, TokenizerFile, TrainedNetwork, export_gguf_folder};
use models::hub_format::{Head, Loaded};
use models::{Gpt, ModelId, Pretrained};
use serde_json::{Value as Json, json};
use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use tape::inplace::to_f64;
use tape::{Bits, Cancel, Kernels, Rng, Tape};
use tempfile::TempDir;
use trainer::ChatModel;

const VOCABULARY: usize = 17;

/// The families that a GGUF file can hold, with the changes that make the fixtures models that
/// llama.cpp knows, and the tokens that fit.
fn families() -> Vec<(&'static str, Json, usize)> {
    let sliding = ["sliding_attention", "sliding_attention"];
    vec![
        ("llama", json!({}), 12),
        ("llama-linear", json!({}), 12),
        ("mistral", json!({}), 4),
        ("qwen2", json!({}), 4),
        ("qwen3", json!({}), 12),
        ("gemma2", json!({"query_pre_attn_scalar": 6}), 12),
        (
            "gemma3",
            json!({"query_pre_attn_scalar": 6, "layer_types": sliding}),
            12,
        ),
        ("phi3", json!({}), 20),
        ("smollm3", json!({"no_rope_layers": [1, 1]}), 12),
        ("olmo2", json!({}), 12),
        ("olmo2", json!({"tie_word_embeddings": true}), 12),
    ]
}

fn change_config(folder: &Path, changes: &Json) {
    let file = folder.join("config.json");
    let mut config: Json = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    fs::write(&file, config.to_string()).unwrap();
}

/// A tokenizer of 17 tokens: 16 letters, and a merge.
fn write_letters(folder: &Path) {
    let tokens = ('a'..='p').map(String::from).chain(["ab".to_owned()]);
    let vocabulary = tokens.enumerate().map(|(id, token)| (token, json!(id)));
    let vocabulary: serde_json::Map<String, Json> = vocabulary.collect();
    let tokenizer = json!({
        "version": "1.0",
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "byte_fallback": false, "ignore_merges": false, "vocab": vocabulary, "merges": [["a", "b"]]},
    });
    fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
}

fn loaded(pretrained: &Pretrained) -> Loaded<Gpt> {
    let options = make(Head::Pretrained, DType::F32);
    pretrained.folder().language_model(&options).unwrap()
}

/// The GGUF file of a folder.
fn exported(folder: &Path, weights: GgufWeights, chat: &ChatFormat, place: &TempDir) -> PathBuf {
    let pretrained = Pretrained::open_frozen(folder, None).unwrap();
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
    let out = place.path().join(weights.name());
    export_gguf_folder(&trained, &out, weights, chat).unwrap();
    out.join(format!("model-{}.gguf", weights.name()))
}

/// The folder of a GGUF file.
fn unpacked(file: &Path, place: &TempDir) -> PathBuf {
    let folder = ChatModel::unpack_gguf(file, &place.path().join("unpacked")).unwrap();
    folder.expect("it is a GGUF file")
}

fn scores(folder: &Path, tokens: usize) -> Vec<f64> {
    let pretrained = Pretrained::open_frozen(folder, None).unwrap();
    let loaded = loaded(&pretrained);
    let tape = Tape::forward_only(&loaded.parameters, Cancel::default(), Kernels::Fused);
    let ids = (0..tokens).map(|i| ((7 * i * i + 3 * i) % VOCABULARY) as u32);
    let ids: Vec<u32> = ids.collect();
    to_f64(loaded.network.scores(&tape, &ids, 1).unwrap().tensor()).unwrap()
}

/// The Euclidean distance, relative to the length of `expected`.
fn distance(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let apart = found.iter().zip(expected).map(|(a, b)| (a - b) * (a - b));
    let length = expected.iter().map(|b| b * b);
    (apart.sum::<f64>() / length.sum::<f64>()).sqrt()
}

#[test]
fn a_gguf_file_of_every_family_has_the_scores_of_its_folder() {
    for (name, changes, tokens) in families() {
        let folder = copied(&format!("decoders/{name}"));
        change_config(folder.path(), &changes);
        write_letters(folder.path());
        let place = tempfile::tempdir().unwrap();
        let expected = scores(folder.path(), tokens);
        for (weights, bar) in [(GgufWeights::F32, 1e-5), (GgufWeights::F16, 3e-3)] {
            let file = exported(folder.path(), weights, &ChatFormat::default(), &place);
            let apart = distance(&scores(&unpacked(&file, &place), tokens), &expected);
            assert!(apart < bar, "{name} in {weights:?}: {apart:e}");
        }
    }
}

/// A random Llama whose matrices have whole blocks of 256 values, and a few of its sizes.
fn wide_llama() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCABULARY,
        "hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true,
    });
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    write_letters(folder.path());
    let mut tensors: HashMap<String, Tensor> = HashMap::new();
    let mut add = |name: String, rows: usize| {
        let values = Rng::new(5).site(&name).truncated_normal(rows * 256, 0.06);
        let values: Vec<f32> = values.into_iter().map(|v| v as f32).collect();
        let tensor = Tensor::from_vec(values, (rows, 256), &Device::Cpu).unwrap();
        tensors.insert(name, tensor);
    };
    add("model.embed_tokens.weight".to_owned(), VOCABULARY);
    for layer in 0..3 {
        let parts =
            ["q_proj", "k_proj", "v_proj", "o_proj"].map(|part| format!("self_attn.{part}"));
        let mlp = ["gate_proj", "up_proj", "down_proj"].map(|part| format!("mlp.{part}"));
        for part in parts.into_iter().chain(mlp) {
            let is_shared = part.contains("k_proj") || part.contains("v_proj");
            let rows = if is_shared { 128 } else { 256 };
            add(format!("model.layers.{layer}.{part}.weight"), rows);
        }
    }
    let ones = Tensor::ones(256, DType::F32, &Device::Cpu).unwrap();
    tensors.insert("model.norm.weight".to_owned(), ones.clone());
    for layer in 0..3 {
        for norm in ["input_layernorm", "post_attention_layernorm"] {
            tensors.insert(format!("model.layers.{layer}.{norm}.weight"), ones.clone());
        }
    }
    candle_core::safetensors::save(&tensors, folder.path().join("model.safetensors")).unwrap();
    folder
}

#[test]
fn quantized_tensors_are_read_within_their_rounding() {
    let (folder, place) = (wide_llama(), tempfile::tempdir().unwrap());
    let expected = scores(folder.path(), 12);
    let bars = [
        (GgufWeights::F16, 2e-3, 1e-9),
        (GgufWeights::Q8_0, 0.04, 1e-4),
        (GgufWeights::Q4KM, 0.4, 1e-3),
    ];
    for (weights, most, least) in bars {
        let file = exported(folder.path(), weights, &ChatFormat::default(), &place);
        let apart = distance(&scores(&unpacked(&file, &place), 12), &expected);
        assert!(apart < most, "{weights:?}: {apart:e}");
        assert!(apart > least, "{weights:?} is quantized: {apart:e}");
    }
    let file = place.path().join("q4_k_m/model-q4_k_m.gguf");
    let content = Content::read(&mut File::open(file).unwrap()).unwrap();
    let kinds = |kind| {
        content
            .tensor_infos
            .values()
            .any(|info| info.ggml_dtype == kind)
    };
    assert!(kinds(GgmlDType::Q4K) && kinds(GgmlDType::Q6K));
}

#[test]
fn tensors_of_a_gguf_file_are_quantized_again_as_frozen_weights() {
    let (folder, place) = (wide_llama(), tempfile::tempdir().unwrap());
    let file = exported(
        folder.path(),
        GgufWeights::Q8_0,
        &ChatFormat::default(),
        &place,
    );
    let unpacked = unpacked(&file, &place);
    let expected = scores(&unpacked, 12);
    for (bits, bar) in [(Bits::Eight, 0.05), (Bits::Nf4, 0.5)] {
        let pretrained = Pretrained::open_frozen(&unpacked, Some(bits)).unwrap();
        let mut options = make(Head::Pretrained, DType::F32);
        options.tuning = pretrained.tuning();
        let loaded = pretrained.folder().language_model(&options).unwrap();
        let tape = Tape::forward_only(&loaded.parameters, Cancel::default(), Kernels::Fused);
        let ids: Vec<u32> = (0..12).map(|i| ((7 * i * i + 3 * i) % 17) as u32).collect();
        let found = loaded.network.scores(&tape, &ids, 1).unwrap();
        let apart = distance(&to_f64(found.tensor()).unwrap(), &expected);
        assert!(apart > 0.0 && apart < bar, "{bits:?}: {apart:e}");
    }
}

/// Texts with words, numbers, spaces, punctuation, several scripts and special tokens.
const TEXTS: [&str; 20] = [
    "Hello world, it's 12345 o'clock!",
    "  two  spaces\n\n\tand a tab\r\nDONE'S",
    "\u{dc}n\u{ef}code \u{f1}and\u{fa} \u{65e5}\u{672c}\u{8a9e} \u{1F980}\u{1F980}",
    "x1y22z333 3.14159",
    "<|im_start|>user\nHi<|im_end|>",
    "a",
    "",
    " ",
    "\n",
    "the thinking in the inn",
    "I'LL we've THEY'RE",
    "1",
    "1234567890",
    "a.b,c;d:e!f?g",
    "{\"key\": [1, 2, 3]}",
    "fn main() { println!(\"{}\", 1 + 2); }",
    "https://example.org/a?b=c&d=e",
    "tab\tand\u{a0}no-break space",
    "\u{41f}\u{440}\u{438}\u{432}\u{435}\u{442} \u{43c}\u{438}\u{440}",
    "...   ---   ***",
];

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The tokenizer of the chat fixture with other rules, and one in the form of SentencePiece.
fn tokenizers() -> Vec<(&'static str, Json)> {
    let file = fixture("chat").join("tokenizer.json");
    let plain: Json = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
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
    let with = |rule: Json, ignores_merges: bool| {
        let mut tokenizer = plain.clone();
        tokenizer["pre_tokenizer"] = rule;
        tokenizer["model"]["ignore_merges"] = json!(ignores_merges);
        tokenizer
    };
    vec![
        ("bytes", plain.clone()),
        ("Llama 3", with(split(LLAMA3), true)),
        ("dbrx", with(split(LLAMA3), false)),
        ("Qwen 2", with(split(QWEN2), false)),
        ("SmolLM", with(digits, false)),
        ("SentencePiece", sentencepiece_tokenizer()),
    ]
}

/// A tokenizer in the form of SentencePiece, with tokens for bytes and a few merges.
fn sentencepiece_tokenizer() -> Json {
    let merges = [
        ["l", "l"],
        ["\u{2581}", "w"],
        ["o", "r"],
        ["\u{2581}w", "or"],
        ["e", "ll"],
    ];
    let special = ["<unk>", "<s>", "</s>"];
    let mut tokens: Vec<String> = special.map(str::to_owned).to_vec();
    tokens.extend((0..=255u8).map(|byte| format!("<0x{byte:02X}>")));
    tokens.extend(merges.map(|[a, b]| format!("{a}{b}")));
    tokens.push("\u{2581}".to_owned());
    tokens.extend(('a'..='z').chain('0'..='9').map(String::from));
    let vocabulary = tokens.into_iter().enumerate();
    let vocabulary: serde_json::Map<String, Json> =
        vocabulary.map(|(id, token)| (token, json!(id))).collect();
    let added = special.iter().enumerate().map(|(id, token)| {
        json!({"id": id, "content": token, "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false})
    });
    let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"});
    json!({
        "version": "1.0",
        "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u{2581}"}, replace]},
        "pre_tokenizer": null,
        "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true, "ignore_merges": false, "vocab": vocabulary, "merges": merges},
    })
}

#[test]
fn the_tokenizer_of_a_gguf_file_gives_the_same_tokens() {
    for (name, tokenizer) in tokenizers() {
        let (folder, place) = (copied("chat"), tempfile::tempdir().unwrap());
        let source = folder.path().join("tokenizer.json");
        fs::write(&source, tokenizer.to_string()).unwrap();
        let file = exported(
            folder.path(),
            GgufWeights::F16,
            &ChatFormat::default(),
            &place,
        );
        let own = Tokenizer::load(&source).unwrap();
        let read = Tokenizer::load(&unpacked(&file, &place).join("tokenizer.json")).unwrap();
        for text in TEXTS {
            let (found, expected) = (read.encode_framed(text), own.encode_framed(text));
            let (found, expected) = (found.unwrap(), expected.unwrap());
            assert_eq!(found, expected, "{name}: {text:?}");
            assert_eq!(
                read.decode(&found),
                own.decode(&expected),
                "{name}: {text:?}"
            );
        }
    }
}

#[test]
fn the_chat_template_and_the_end_of_an_answer_are_read() {
    let (folder, place) = (copied("chat"), tempfile::tempdir().unwrap());
    let chat = ChatFormat {
        template: Some(
            "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}".to_owned(),
        ),
        answer_end: Some("<|im_end|>".to_owned()),
    };
    let file = exported(folder.path(), GgufWeights::F16, &chat, &place);
    let unpacked = unpacked(&file, &place);
    assert!(ChatTemplate::from_folder(&unpacked).unwrap().is_some());
    let settings = fs::read(unpacked.join("tokenizer_config.json")).unwrap();
    let settings: Json = serde_json::from_slice(&settings).unwrap();
    assert_eq!(settings["chat_template"], json!(chat.template));
    assert_eq!(settings["bos_token"], "<|begin_of_text|>");
    assert_eq!(settings["eos_token"], "</s>");
    let pretrained = Pretrained::open_frozen(&unpacked, None).unwrap();
    assert_eq!(pretrained.end_tokens(), [1, 3]);
}

/// A small file whose metadata and tensors a test changes.
struct Made {
    place: TempDir,
    metadata: Vec<(String, Value)>,
    tensors: Vec<(String, QTensor)>,
}

impl Made {
    fn new() -> Self {
        let (folder, place) = (copied("decoders/llama"), tempfile::tempdir().unwrap());
        write_letters(folder.path());
        let file = exported(
            folder.path(),
            GgufWeights::F16,
            &ChatFormat::default(),
            &place,
        );
        let mut file = File::open(file).unwrap();
        let content = Content::read(&mut file).unwrap();
        let names: Vec<&String> = content.tensor_infos.keys().collect();
        let mut tensors = Vec::new();
        for name in names {
            let tensor = content.tensor(&mut file, name, &Device::Cpu).unwrap();
            tensors.push((name.clone(), tensor));
        }
        Made {
            place,
            metadata: content.metadata.into_iter().collect(),
            tensors,
        }
    }

    fn set(mut self, key: &str, value: Value) -> Self {
        self.metadata.retain(|(known, _)| known != key);
        self.metadata.push((key.to_owned(), value));
        self
    }

    fn without(mut self, key: &str) -> Self {
        self.metadata.retain(|(known, _)| known != key);
        self
    }

    fn write(&self) -> PathBuf {
        let path = self.place.path().join("made.gguf");
        let metadata: Vec<(&str, &Value)> = self.metadata.iter().map(|(k, v)| (&**k, v)).collect();
        let tensors: Vec<(&str, &QTensor)> = self.tensors.iter().map(|(k, v)| (&**k, v)).collect();
        gguf_file::write(&mut File::create(&path).unwrap(), &metadata, &tensors).unwrap();
        path
    }

    fn refused(&self, words: &[&str]) {
        let home = self.place.path().join("home");
        let outcome = ChatModel::unpack_gguf(&self.write(), &home);
        assert_error_contains(outcome, words);
        assert!(!home.exists(), "nothing is written");
    }
}

#[test]
fn what_ebb_does_not_know_is_refused_by_name() {
    let text = |text: &str| Value::String(text.to_owned());
    let made = Made::new;
    made().set("general.architecture", text("mamba")).refused(&[
        "\"mamba\"",
        "qwen3",
        "Hugging Face folder",
    ]);
    made()
        .set("llama.expert_count", Value::U32(8))
        .refused(&["expert_count", "Hugging Face folder"]);
    made()
        .set("llama.rope.scaling.type", text("dynamic"))
        .refused(&["\"dynamic\""]);
    made()
        .set("tokenizer.ggml.pre", text("tekken"))
        .refused(&["\"tekken\"", "llama-bpe"]);
    made()
        .set("tokenizer.ggml.model", text("t5"))
        .refused(&["\"t5\"", "gpt2"]);
    made()
        .set("split.count", Value::U16(3))
        .refused(&["one of 3 parts", "--merge"]);
    made()
        .set("llama.block_count", Value::U32(4_000_000_000))
        .refused(&["4000000000 layers"]);
    made()
        .without("llama.context_length")
        .refused(&["no llama.context_length"]);
    made()
        .set("general.alignment", Value::U32(0))
        .refused(&["alignment is 0"]);
}

/// The vocabularies of some models take more than 16 MB.
#[test]
fn a_header_of_20_mb_is_read() {
    let merges = (0..900_000).map(|n| Value::String(format!("merge {n:08}")));
    let made = Made::new().set("tokenizer.ggml.other", Value::Array(merges.collect()));
    let file = made.write();
    assert!(fs::metadata(&file).unwrap().len() > 18_000_000);
    let folder = unpacked(&file, &made.place);
    let expected = scores(&unpacked(&Made::new().write(), &made.place), 12);
    assert_eq!(scores(&folder, 12), expected);
}

/// A list of this many values would take gigabytes.
#[test]
fn a_header_beyond_its_limits_is_refused() {
    let many = Value::Array(vec![Value::U8(1); 4_200_000]);
    let made = Made::new().set("tokenizer.ggml.other", many);
    made.refused(&["more than 4 million values", "Hugging Face folder"]);
}

#[test]
fn a_tensor_of_an_unknown_type_is_refused_with_the_name_of_the_type() {
    let made = Made::new();
    let path = made.write();
    let mut bytes = fs::read(&path).unwrap();
    // After the name: the number of axes, 2; two sizes; and the type, 1 for F16.
    let name = b"blk.0.attn_q.weight";
    let at = bytes
        .windows(name.len())
        .position(|part| part == name)
        .unwrap();
    let kind = at + name.len() + 4 + 16;
    assert_eq!(bytes[kind], 1);
    bytes[kind] = 20;
    fs::write(&path, &bytes).unwrap();
    let home = made.place.path().join("home");
    assert_error_contains(ChatModel::unpack_gguf(&path, &home), &["IQ4_NL", "Q4_K_M"]);
    bytes[kind] = 1;
    bytes.truncate(at + 400);
    fs::write(&path, &bytes).unwrap();
    assert_error_contains(
        ChatModel::unpack_gguf(&path, &home),
        &["made.gguf", "download"],
    );
}

#[test]
fn a_folder_with_one_gguf_file_is_unpacked_once() {
    let made = Made::new();
    let file = made.write();
    let home = made.place.path().join("home");
    let folder = made.place.path().join("folder");
    fs::create_dir(&folder).unwrap();
    assert!(ChatModel::unpack_gguf(&folder, &home).unwrap().is_none());
    fs::copy(&file, folder.join("a.gguf")).unwrap();
    let first = ChatModel::unpack_gguf(&folder, &home).unwrap().unwrap();
    assert_eq!(
        ChatModel::unpack_gguf(&folder, &home).unwrap(),
        Some(first.clone())
    );
    assert_eq!(fs::read_dir(&home).unwrap().count(), 1);
    assert!(Pretrained::open_frozen(&first, None).is_ok());
    fs::copy(&file, folder.join("b.gguf")).unwrap();
    assert_error_contains(
        ChatModel::unpack_gguf(&folder, &home),
        &["2 GGUF files", "a.gguf"],
    );
}

#[test]
fn several_threads_may_unpack_a_file_with_a_long_name() {
    let made = Made::new();
    let home = made.place.path().join("home");
    let file = made
        .place
        .path()
        .join(format!("{}.gguf", "\u{f1}".repeat(120)));
    fs::rename(made.write(), &file).unwrap();
    let unpack = || ChatModel::unpack_gguf(&file, &home).unwrap().unwrap();
    let folders: Vec<PathBuf> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(unpack)).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(folders.iter().all(|folder| *folder == folders[0]));
    // A folder that was damaged is written again.
    fs::remove_file(folders[0].join("tokenizer.json")).unwrap();
    assert_eq!(unpack(), folders[0]);
    assert!(folders[0].join("tokenizer.json").is_file());
    assert_eq!(fs::read_dir(&home).unwrap().count(), 1, "no draft is left");
}

#[test]
fn folders_of_deleted_or_changed_files_are_removed() {
    let made = Made::new();
    let home = made.place.path().join("home");
    let first = made.write();
    let files = ["kept", "gone", "changed", "young"].map(|name| {
        let file = made.place.path().join(format!("{name}.gguf"));
        fs::copy(&first, &file).unwrap();
        file
    });
    let unpack = |file: &Path| ChatModel::unpack_gguf(file, &home).unwrap().unwrap();
    let folders = files.clone().map(|file| unpack(&file));
    let draft = home.join(".draft-crashed.1");
    fs::create_dir(&draft).unwrap();
    let two_days = std::time::Duration::from_secs(2 * 24 * 60 * 60);
    let long_ago = std::time::SystemTime::now() - two_days;
    for folder in folders[..3].iter().chain([&draft]) {
        fs::File::open(folder)
            .unwrap()
            .set_modified(long_ago)
            .unwrap();
    }
    fs::remove_file(&files[1]).unwrap();
    fs::remove_file(&files[3]).unwrap();
    let changed = fs::File::options().append(true).open(&files[2]).unwrap();
    changed.set_modified(long_ago).unwrap();
    let new = unpack(&first);
    let exist = [
        &folders[0],
        &folders[1],
        &folders[2],
        &folders[3],
        &draft,
        &new,
    ];
    let exist = exist.map(|folder| folder.exists());
    assert_eq!(exist, [true, false, false, true, false, true]);
    assert_eq!(unpack(&files[0]), folders[0], "it is used again");
}

#[test]
fn a_run_has_its_own_copy_of_the_gguf_file() {
    let made = Made::new();
    let file = made.write();
    let unpacked = ChatModel::unpack_gguf(&file, &made.place.path().join("home"))
        .unwrap()
        .unwrap();
    let run = made.place.path().join("run");
    fs::create_dir(&run).unwrap();
    let pretrained = Pretrained::open_frozen(&unpacked, None).unwrap();
    let copy = pretrained.copy_into(&run).unwrap();
    fs::remove_file(&file).unwrap();
    assert!(!copy.path().join("model.gguf").is_symlink());
    assert!(loaded(&copy).parameters.count() > 0);
}
