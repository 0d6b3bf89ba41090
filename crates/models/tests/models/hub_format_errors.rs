//! A folder that does not fit is refused with all its problems; pickled files are never opened,
//! and no file outside the folder is read.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::folders::{assert_error_contains, copied, make};
use candle_core::{DType, Device, Tensor};
use models::ModelError;
use models::hub_format::{Head, HubFolder, Loaded};
use serde_json::{Value as Json, json};
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use tape::device::contiguous;

fn loaded(folder: &Path) -> Result<Loaded<models::Network>, ModelError> {
    HubFolder::open(folder)?.image_classifier(None, &make(Head::Pretrained, DType::F32))
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
fn all_missing_unknown_and_misshaped_tensors_are_named() {
    let copy = copied("vit");
    with_tensors(copy.path(), |tensors| {
        tensors.remove("vit.layernorm.bias").unwrap();
        tensors.remove("classifier.weight").unwrap();
        let turned = tensors["vit.encoder.layer.1.intermediate.dense.weight"]
            .t()
            .unwrap();
        let name = "vit.encoder.layer.1.intermediate.dense.weight".to_owned();
        tensors.insert(name, contiguous(&turned).unwrap());
        let stranger = tensors["classifier.bias"].clone();
        tensors.insert("vit.encoder.layer.2.output.dense.bias".to_owned(), stranger);
    });
    assert_error_contains(
        loaded(copy.path()),
        &[
            "vit.layernorm.bias [24] is missing",
            "classifier.weight [5, 24] is missing",
            "vit.encoder.layer.1.intermediate.dense.weight has the shape [24, 40] instead of [40, 24]",
            "vit.encoder.layer.2.output.dense.bias is not known",
        ],
    );
    let copy = copied("resnet-basic");
    with_tensors(copy.path(), |tensors| {
        tensors
            .remove("resnet.embedder.embedder.normalization.running_var")
            .unwrap();
    });
    assert_error_contains(
        loaded(copy.path()),
        &["normalization.running_var [8] is missing"],
    );
}

#[test]
fn pickled_files_are_refused() {
    for file in ["pytorch_model.bin", "weights.pt", "last.ckpt", "model.PTH"] {
        let copy = copied("vit");
        fs::remove_file(copy.path().join("model.safetensors")).unwrap();
        fs::write(copy.path().join(file), b"\x80\x02.").unwrap();
        let words = [file, "pickled", "could run any program", "safetensors"];
        assert_error_contains(loaded(copy.path()), &words);
        assert_error_contains(loaded(&copy.path().join(file)), &words);
    }
    // Beside safetensors, pickled files are ignored.
    let copy = copied("vit");
    fs::write(copy.path().join("pytorch_model.bin"), b"\x80\x02.").unwrap();
    assert!(loaded(copy.path()).is_ok());
}

#[test]
fn errors_of_a_damaged_folder_name_the_problem() {
    let model = "model.safetensors";
    let copy = copied("vit");
    let whole = fs::read(copy.path().join(model)).unwrap();
    let length = |n: u64| [&n.to_le_bytes(), &whole[8..]].concat();
    for (bytes, word) in [
        (whole[..whole.len() - 4].to_vec(), "the tensors take"),
        ([&whole[..], &[0; 4]].concat(), "the tensors take"),
        (whole[..5].to_vec(), "too short"),
        (length(u64::MAX), "header is damaged"),
        (length(99_000_000), "header is damaged"),
        (length(16), "header is damaged"),
    ] {
        fs::write(copy.path().join(model), bytes).unwrap();
        assert_error_contains(loaded(copy.path()), &[word, model]);
    }
    let copy = copied("vit");
    with_tensors(copy.path(), |tensors| {
        let norm = &tensors["vit.layernorm.bias"] * f64::NAN;
        tensors.insert("vit.layernorm.bias".to_owned(), norm.unwrap());
    });
    assert_error_contains(
        loaded(copy.path()),
        &["vit.layernorm.bias", "NaN or infinite"],
    );
    let copy = copied("vit");
    fs::write(copy.path().join("config.json"), "{").unwrap();
    assert_error_contains(loaded(copy.path()), &["config.json", "not valid JSON"]);
    fs::remove_file(copy.path().join("config.json")).unwrap();
    assert_error_contains(loaded(copy.path()), &["no config.json"]);
    assert_error_contains(
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
    assert_error_contains(HubFolder::open(copy.path()), &[&shards[0], &shards[1]]);
}

#[test]
fn an_index_cannot_name_files_outside_the_folder() {
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
        let words = [stranger, "not a safetensors file in this folder"];
        assert_error_contains(HubFolder::open(copy.path()), &words);
    }
}

// tidy: table
#[test]
fn unsupported_configs_are_refused_by_key() {
    for (name, key, value, word) in [
        (
            "vit",
            "model_type",
            json!("swin"),
            "Ebb supports only vit, deit, dinov2, resnet, convnext, bert, gpt2, llama, mistral, qwen2, qwen3, gemma2, gemma3_text, phi3, smollm3, olmo2",
        ),
        ("vit", "hidden_act", json!("relu"), "hidden_act"),
        (
            "vit",
            "num_attention_heads",
            json!(5),
            "the width 24 is not divisible by the number of heads, 5",
        ),
        ("vit", "hidden_size", json!(-24), "hidden_size = -24"),
        ("vit", "num_channels", json!(1), "3 channels"),
        (
            "vit",
            "patch_size",
            json!(5),
            "not a multiple of patch_size",
        ),
        (
            "vit",
            "num_hidden_layers",
            json!(4_000_000_000u64),
            "the config describes a network of about",
        ),
        (
            "bert",
            "vocab_size",
            json!(4_000_000_000u64),
            "the config describes a network of about",
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
        ("resnet-basic", "depths", json!([1, 2]), "do not match"),
    ] {
        let copy = copied(name);
        with_setting(copy.path(), "config.json", key, value);
        assert_error_contains(HubFolder::open(copy.path()), &["config.json", word]);
    }
}

#[test]
fn preprocessors_are_read() {
    let copy = copied("vit");
    let file = "preprocessor_config.json";
    let read = |copy: &Path| *HubFolder::open(copy).unwrap().preprocessor().unwrap();
    let plain = read(copy.path());
    assert_eq!((plain.side, plain.shorter_side), (Some(16), None));
    assert_eq!(
        (plain.normalization.mean, plain.normalization.std),
        ([0.5; 3], [0.5; 3])
    );
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
    assert_error_contains(HubFolder::open(copy.path()), &["image_std", "above 0"]);
}
