//! Published folders become networks that say what transformers says of the same input; whatever does not fit is refused with
//! all of its names. The folders are tiny and random, in the exact format that is published
//! (`fixtures/published/make_fixtures.py`).

// Helpers of tests are tests: what fails here fails the claim.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use serde_json::{Value as Json, json};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use tape::inplace::to_f64;
use tape::{Cancel, Kernels, Tape, Value};
use trainer::TrainError;
use trainer::published::{Classes, Loaded, Make, PublishedFolder};

const IMAGES: [&str; 7] = [
    "vit",
    "deit",
    "deit-taught",
    "dinov2",
    "resnet-basic",
    "resnet-bottleneck",
    "resnet-early",
];
/// Most that rounding in f32 and the six digits of the references leave between two scores of size about 1.
const APART: f64 = 1e-5;
/// Every form in which operations run.
const FORMS: [(DType, Kernels); 3] = [
    (DType::F32, Kernels::Fused),
    (DType::F32, Kernels::Composed),
    (DType::F64, Kernels::Fused),
];

fn fixture(name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("tests/fixtures/published").join(name)
}

fn opened(name: &str) -> PublishedFolder {
    PublishedFolder::open(&fixture(name)).unwrap()
}

fn make(classes: Classes, dtype: DType) -> Make<'static> {
    Make {
        classes,
        seed: 3,
        dtype,
        device: &Device::Cpu,
    }
}

fn references(name: &str) -> Vec<Json> {
    let text = fs::read(fixture(name).join("reference.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn numbers(json: &Json) -> Vec<f64> {
    let list = json.as_array().unwrap().iter();
    list.map(|v| v.as_f64().unwrap()).collect()
}

/// The images of the references' formula.
fn images(count: usize, side: usize, dtype: DType) -> Value {
    let all = 0..count * 3 * side * side;
    let values: Vec<f64> = all.map(|i| (0.37 * i as f64 + 0.1).sin()).collect();
    let images = Tensor::from_vec(values, (count, 3, side, side), &Device::Cpu).unwrap();
    Value::constant(images.to_dtype(dtype).unwrap())
}

fn expect_near(name: &str, found: &Tensor, expected: &Json, bar: f64) {
    let (found, expected) = (to_f64(found).unwrap(), numbers(expected));
    assert_eq!(found.len(), expected.len(), "{name}");
    let apart = found
        .iter()
        .zip(&expected)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max);
    let largest = expected.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    println!("{name}: {apart:.1e} apart, scores up to {largest:.2}");
    assert!(largest > 0.1, "{name}: the scores say something");
    assert!(apart < bar * largest.max(1.0), "{name}: {apart:e} apart");
}

#[test]
fn networks_of_images_say_what_transformers_says() {
    for name in IMAGES {
        let folder = opened(name);
        for reference in references(name) {
            let side = reference["side"].as_u64().unwrap() as usize;
            for (dtype, kernels) in FORMS {
                let loaded = folder
                    .image_classifier(Some(side), &make(Classes::Published, dtype))
                    .unwrap();
                let tape = Tape::forward_only(&loaded.parameters, Cancel::default(), kernels);
                let images = images(2, side, dtype);
                let scores = loaded.network.forward(&tape, &images, 0).unwrap();
                let what = format!("{name} at {side} px, {dtype:?} {kernels:?}");
                expect_near(&what, scores.tensor(), &reference["scores"], APART);
            }
        }
    }
}

#[test]
fn an_encoder_of_texts_says_what_transformers_says() {
    let reference = references("bert").remove(0);
    let texts: Vec<Vec<u32>> = serde_json::from_value(reference["texts"].clone()).unwrap();
    let longest = texts.iter().map(Vec::len).max().unwrap();
    let lengths: Vec<usize> = texts.iter().map(Vec::len).collect();
    let padding = |text: &Vec<u32>| vec![1; longest - text.len()];
    let ids: Vec<u32> = texts
        .iter()
        .flat_map(|text| [text.clone(), padding(text)].concat())
        .collect();
    for (dtype, kernels) in FORMS {
        let loaded = opened("bert")
            .text_classifier(&make(Classes::Published, dtype))
            .unwrap();
        let tape = Tape::forward_only(&loaded.parameters, Cancel::default(), kernels);
        let scores = loaded.network.forward(&tape, &ids, &lengths, 0).unwrap();
        let what = format!("bert, {dtype:?} {kernels:?}");
        expect_near(&what, scores.tensor(), &reference["scores"], APART);
    }
}

#[test]
fn a_language_model_says_what_transformers_says() {
    for name in ["gpt2", "gpt2-sharded"] {
        let reference = references(name).remove(0);
        let texts: Vec<Vec<u32>> = serde_json::from_value(reference["texts"].clone()).unwrap();
        for (dtype, kernels) in FORMS {
            let loaded = opened(name)
                .language_model(&make(Classes::New(1), dtype))
                .unwrap();
            let tape = Tape::forward_only(&loaded.parameters, Cancel::default(), kernels);
            let scores = loaded
                .network
                .scores(&tape, &texts.concat(), texts.len())
                .unwrap();
            let what = format!("{name}, {dtype:?} {kernels:?}");
            expect_near(&what, scores.tensor(), &reference["scores"], APART);
        }
    }
}

#[test]
fn every_published_network_trains_checkpointed_or_not_alike() {
    for name in IMAGES {
        let loaded = opened(name)
            .image_classifier(None, &make(Classes::New(3), DType::F64))
            .unwrap();
        let side = if name.starts_with("resnet") { 33 } else { 16 };
        let gradient = |checkpointed: usize, samples: &[usize]| {
            let tape = Tape::record(&loaded.parameters, Cancel::default(), Kernels::Fused);
            let all = images(4, side, DType::F64);
            let rows: Vec<u32> = samples.iter().map(|s| *s as u32).collect();
            let rows = Tensor::new(&*rows, &Device::Cpu).unwrap();
            let images = Value::constant(all.tensor().index_select(&rows, 0).unwrap());
            let labels: Vec<u32> = samples.iter().map(|s| (s % 3) as u32).collect();
            let scores = loaded
                .network
                .forward(&tape, &images, checkpointed)
                .unwrap();
            let loss = tape.cross_entropy(&scores, &labels, 0.0).unwrap();
            let gradients = tape.backward(vec![(loss.sum, 1.0)]).unwrap();
            let gradients = gradients.into_iter().zip(loaded.parameters.iter());
            gradients
                .flat_map(|(g, p)| match g {
                    Some(g) => to_f64(&g).unwrap(),
                    None => vec![0.0; p.tensor.elem_count()],
                })
                .collect::<Vec<f64>>()
        };
        let whole = gradient(0, &[0, 1, 2, 3]);
        let checkpointed = gradient(usize::MAX, &[0, 1, 2, 3]);
        let (first, rest) = (gradient(0, &[0]), gradient(2, &[1, 2, 3]));
        let split: Vec<f64> = first.iter().zip(&rest).map(|(a, b)| a + b).collect();
        let norm =
            |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
        let size = norm(&mut whole.iter().copied());
        assert!(size > 1e-3, "{name}");
        for (how, other) in [("checkpointed", checkpointed), ("split", split)] {
            let apart = norm(&mut whole.iter().zip(&other).map(|(a, b)| a - b));
            assert!(apart / size < 1e-12, "{name} {how}: {:e}", apart / size);
        }
    }
}

#[test]
fn a_new_head_begins_as_ebbs_do_and_leaves_the_body_as_published() {
    for name in ["vit", "vit-body", "deit-taught", "dinov2", "resnet-basic"] {
        let folder = opened(name);
        let loaded = folder
            .image_classifier(None, &make(Classes::New(7), DType::F32))
            .unwrap();
        let head = loaded.parameters.iter().find(|p| p.name == "head.weight");
        let head = head.unwrap().tensor.clone();
        assert_eq!(head.dims()[0], 7, "{name}");
        let values = to_f64(&head).unwrap();
        let spread = values.iter().map(|v| v * v).sum::<f64>() / values.len() as f64;
        assert!(spread > 0.0 && spread.sqrt() < 0.05, "{name}: {spread}");
        let zeros = loaded.parameters.iter().filter(|p| {
            let all = to_f64(&p.tensor).unwrap();
            all.iter().all(|v| *v == 0.0)
        });
        let zeros: Vec<&str> = zeros.map(|p| &*p.name).collect();
        let without_biases = [
            "blocks.0.query.bias",
            "blocks.0.value.bias",
            "blocks.1.query.bias",
            "blocks.1.value.bias",
            "head.bias",
        ];
        match name {
            "vit-body" => assert_eq!(zeros, without_biases),
            _ => assert_eq!(zeros, ["head.bias"], "{name}"),
        }
    }
    let labels = opened("vit").classes().unwrap();
    assert_eq!(labels, ["ant", "bee", "cat", "dog", "eel"]);
    assert_eq!(opened("vit-body").classes(), None);
    let refused = opened("vit-body").image_classifier(None, &make(Classes::Published, DType::F32));
    assert_says(refused, &["published without a head"]);
}

fn assert_says<T>(outcome: Result<T, TrainError>, words: &[&str]) {
    let said = outcome.err().expect("it is refused").to_string();
    for word in words {
        assert!(said.contains(word), "{word:?} is missing in: {said}");
    }
}

/// A copy of a fixture that may be changed.
fn copied(name: &str) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(fixture(name)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

fn loaded(folder: &Path) -> Result<Loaded<trainer::models::Network>, TrainError> {
    PublishedFolder::open(folder)?.image_classifier(None, &make(Classes::Published, DType::F32))
}

/// The copy with other tensors.
fn with_tensors(copy: &Path, change: impl FnOnce(&mut HashMap<String, Tensor>)) {
    let file = copy.join("model.safetensors");
    let mut tensors = candle_core::safetensors::load(&file, &Device::Cpu).unwrap();
    change(&mut tensors);
    candle_core::safetensors::save(&tensors, &file).unwrap();
}

/// The copy with another setting in one of its files.
fn with_setting(copy: &Path, file: &str, key: &str, value: Json) {
    let file = copy.join(file);
    let mut settings: Json = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    settings[key] = value;
    fs::write(&file, settings.to_string()).unwrap();
}

#[test]
fn missing_extra_and_misshaped_tensors_are_all_named() {
    let copy = copied("vit");
    with_tensors(copy.path(), |tensors| {
        tensors.remove("vit.layernorm.bias").unwrap();
        tensors.remove("classifier.weight").unwrap();
        let turned = tensors["vit.encoder.layer.1.intermediate.dense.weight"]
            .t()
            .unwrap();
        let name = "vit.encoder.layer.1.intermediate.dense.weight".to_owned();
        tensors.insert(name, turned.contiguous().unwrap());
        let stranger = tensors["classifier.bias"].clone();
        tensors.insert("vit.encoder.layer.2.output.dense.bias".to_owned(), stranger);
    });
    assert_says(
        loaded(copy.path()),
        &[
            "vit.layernorm.bias [24] is missing",
            "classifier.weight [5, 24] is missing",
            "vit.encoder.layer.1.intermediate.dense.weight is [24, 40] and must be [40, 24]",
            "vit.encoder.layer.2.output.dense.bias is not known",
        ],
    );
    let copy = copied("resnet-basic");
    with_tensors(copy.path(), |tensors| {
        tensors
            .remove("resnet.embedder.embedder.normalization.running_var")
            .unwrap();
    });
    assert_says(
        loaded(copy.path()),
        &["normalization.running_var [8] is missing"],
    );
}

#[test]
fn pickled_files_are_refused_with_the_reason() {
    for file in ["pytorch_model.bin", "weights.pt", "last.ckpt", "model.PTH"] {
        let copy = copied("vit");
        fs::remove_file(copy.path().join("model.safetensors")).unwrap();
        fs::write(copy.path().join(file), b"\x80\x02.").unwrap();
        let words = [
            file,
            "pickled",
            "runs whatever program is in it",
            "safetensors",
        ];
        assert_says(loaded(copy.path()), &words);
        assert_says(loaded(&copy.path().join(file)), &words);
    }
    // Beside safetensors they are not looked at.
    let copy = copied("vit");
    fs::write(copy.path().join("pytorch_model.bin"), b"\x80\x02.").unwrap();
    assert!(loaded(copy.path()).is_ok());
}

#[test]
fn a_damaged_folder_says_what_is_wrong() {
    let model = "model.safetensors";
    let copy = copied("vit");
    let whole = fs::read(copy.path().join(model)).unwrap();
    let length = |n: u64| [&n.to_le_bytes(), &whole[8..]].concat();
    for (bytes, word) in [
        (whole[..whole.len() - 4].to_vec(), "its tensors take"),
        ([&whole[..], &[0; 4]].concat(), "its tensors take"),
        (whole[..5].to_vec(), "too short"),
        (length(u64::MAX), "header is damaged"),
        (length(99_000_000), "header is damaged"),
        (length(16), "header is damaged"),
    ] {
        fs::write(copy.path().join(model), bytes).unwrap();
        assert_says(loaded(copy.path()), &[word, model]);
    }
    let copy = copied("vit");
    with_tensors(copy.path(), |tensors| {
        let norm = &tensors["vit.layernorm.bias"] * f64::NAN;
        tensors.insert("vit.layernorm.bias".to_owned(), norm.unwrap());
    });
    assert_says(loaded(copy.path()), &["vit.layernorm.bias", "not finite"]);
    let copy = copied("vit");
    fs::write(copy.path().join("config.json"), "{").unwrap();
    assert_says(loaded(copy.path()), &["config.json", "no JSON"]);
    fs::remove_file(copy.path().join("config.json")).unwrap();
    assert_says(loaded(copy.path()), &["no config.json"]);
    assert_says(
        loaded(&copy.path().join("nowhere")),
        &["nowhere", "no config.json"],
    );
    let copy = copied("gpt2-sharded");
    let shards = fs::read_dir(copy.path())
        .unwrap()
        .map(|e| e.unwrap().file_name());
    let shards = shards.map(|name| name.to_string_lossy().into_owned());
    let shards: Vec<String> = shards.filter(|n| n.ends_with(".safetensors")).collect();
    assert!(shards.len() > 2, "{shards:?}");
    for shard in &shards[..2] {
        fs::remove_file(copy.path().join(shard)).unwrap();
    }
    assert_says(
        PublishedFolder::open(copy.path()),
        &[&shards[0], &shards[1]],
    );
}

#[test]
fn an_index_leads_nowhere_else() {
    for stranger in [
        "../model.safetensors",
        "/etc/passwd",
        "..",
        "sub/model.safetensors",
    ] {
        let copy = copied("gpt2-sharded");
        let index = "model.safetensors.index.json";
        with_setting(
            copy.path(),
            index,
            "weight_map",
            json!({ "wte.weight": stranger }),
        );
        let words = [stranger, "no safetensors file beside it"];
        assert_says(PublishedFolder::open(copy.path()), &words);
    }
}

#[test]
fn what_ebbs_networks_cannot_be_is_refused_by_name() {
    for (name, key, value, word) in [
        (
            "vit",
            "model_type",
            json!("swin"),
            "Ebb knows bert, vit, deit",
        ),
        ("vit", "hidden_act", json!("relu"), "hidden_act"),
        (
            "vit",
            "num_attention_heads",
            json!(5),
            "5 heads do not divide a width of 24",
        ),
        ("vit", "hidden_size", json!(-24), "hidden_size = -24"),
        ("vit", "num_channels", json!(1), "3 channels"),
        ("vit", "patch_size", json!(5), "no multiple of its patches"),
        (
            "vit",
            "num_hidden_layers",
            json!(4_000_000_000u64),
            "it describes a network of about",
        ),
        (
            "bert",
            "vocab_size",
            json!(4_000_000_000u64),
            "it describes a network of about",
        ),
        ("dinov2", "use_swiglu_ffn", json!(true), "use_swiglu_ffn"),
        (
            "bert",
            "position_embedding_type",
            json!("relative_key"),
            "relative_key",
        ),
        ("bert", "is_decoder", json!(true), "is_decoder"),
        (
            "gpt2",
            "scale_attn_by_inverse_layer_idx",
            json!(true),
            "scale_attn_by_inverse_layer_idx",
        ),
        (
            "gpt2",
            "tie_word_embeddings",
            json!(false),
            "tie_word_embeddings",
        ),
        ("resnet-basic", "hidden_act", json!("silu"), "silu"),
        (
            "resnet-basic",
            "depths",
            json!([1, 2]),
            "do not go together",
        ),
    ] {
        let copy = copied(name);
        with_setting(copy.path(), "config.json", key, value);
        assert_says(PublishedFolder::open(copy.path()), &["config.json", word]);
    }
}

#[test]
fn a_preprocessor_is_read_as_it_stands() {
    let copy = copied("vit");
    let file = "preprocessor_config.json";
    let read = |copy: &Path| *PublishedFolder::open(copy).unwrap().preprocessor().unwrap();
    let plain = read(copy.path());
    assert_eq!((plain.side, plain.shorter_side), (Some(16), None));
    assert_eq!((plain.mean, plain.deviation), ([0.5; 3], [0.5; 3]));
    with_setting(copy.path(), file, "size", json!({ "shortest_edge": 256 }));
    with_setting(
        copy.path(),
        file,
        "crop_size",
        json!({ "height": 224, "width": 224 }),
    );
    with_setting(copy.path(), file, "do_center_crop", json!(true));
    let cropped = read(copy.path());
    assert_eq!((cropped.side, cropped.shorter_side), (Some(224), Some(256)));
    with_setting(copy.path(), file, "image_std", json!([0.5, 0.0, 0.5]));
    assert_says(
        PublishedFolder::open(copy.path()),
        &["image_std", "above 0"],
    );
}
