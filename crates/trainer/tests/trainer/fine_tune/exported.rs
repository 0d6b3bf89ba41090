//! transformers computes the same scores from an exported fine-tuned network.

use super::Tuned;
use crate::exports::{answer, assert_close, classes, moved, python, scores};
use crate::folders::{copied, fixture, opened};
use candle_core::{DType, Device};
use models::ModelTask;
use models::export::{TrainedNetwork, export_hub_folder};
use models::hub_format::{Head, HubFolder, LoadOptions};
use std::fs;
use std::path::Path;
use trainer::ModelId;

const SIDE: usize = 16;

fn check(python: &str, way: Tuned, folder: &Path) {
    let pretrained = trainer::pretrained::open(&way.config(folder))
        .unwrap()
        .unwrap();
    let kind = pretrained.family();
    let (wanted, input) = match kind.task() {
        ModelTask::LanguageModel => (Head::Pretrained, "documents"),
        ModelTask::TextClassification => (Head::New(3), "texts"),
        _ => (Head::New(3), "images"),
    };
    let make = LoadOptions {
        head: wanted,
        tuning: pretrained.tuning(),
        seed: 3,
        dtype: DType::F32,
        device: &Device::Cpu,
    };
    let folder = HubFolder::open(folder).unwrap();
    let mut loaded = folder.network(Some(SIDE), &make).unwrap();
    moved(&mut loaded.parameters);
    let names = classes();
    let place = tempfile::tempdir().unwrap();
    let trained = TrainedNetwork {
        model: ModelId::Pretrained(kind),
        input_size: SIDE as u32,
        classes: if input == "documents" { &[] } else { &names },
        targets: &[],
        parameters: &loaded.parameters,
        pretrained: Some(&pretrained),
        tokenizer: None,
    };
    let out = place.path().join("out");
    export_hub_folder(&trained, &out).unwrap();
    let theirs = answer(
        python,
        "fine_tuned_scores.py",
        &out,
        &[input, &SIDE.to_string()],
    );
    let own = scores(&loaded.network, &loaded.parameters, SIDE);
    assert_close(&format!("{way:?}"), &own, &theirs);
}

#[test]
fn transformers_computes_the_same_scores() {
    let Some(python) = python("torch, transformers") else {
        return;
    };
    let of = |from: &'static str, adapter: Option<u32>| Tuned {
        from,
        adapter,
        ..Tuned::default()
    };
    for way in [
        of("vit", Some(2)),
        of("deit-taught", None),
        of("dinov2", Some(2)),
        of("resnet-bottleneck", None),
        of("bert", Some(2)),
        of("gpt2", Some(2)),
    ] {
        check(&python, way, &fixture(way.from));
    }
    // Without a pooler, the mean token represents a text. The folder includes PyTorch code for
    // that.
    let copy = copied("bert");
    let pooling = copy.path().join("1_Pooling");
    fs::create_dir(&pooling).unwrap();
    fs::write(
        pooling.join("config.json"),
        r#"{"pooling_mode_mean_tokens": true}"#,
    )
    .unwrap();
    check(&python, of("bert", None), copy.path());
    assert!(
        opened("bert").classes().is_some(),
        "the fixture stays as it was"
    );
}
