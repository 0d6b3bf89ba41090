//! onnxruntime computes the same scores from an exported fine-tuned network.

use crate::Tuned;
use crate::exports::onnx::{check, runtime};
use crate::exports::{classes, moved, scores};
use crate::folders::{copied, fixture};
use candle_core::{DType, Device};
use models::export::TrainedNetwork;
use models::hub_format::{Head, HubFolder, LoadOptions};
use std::fs;
use std::path::Path;
use trainer::ModelId;

const SIDE: usize = 16;

fn written(python: &str, way: Tuned, folder: &Path) {
    let pretrained = trainer::pretrained::open(&way.config(folder))
        .unwrap()
        .unwrap();
    let make = LoadOptions {
        head: Head::New(3),
        tuning: pretrained.tuning(),
        seed: 3,
        dtype: DType::F32,
        device: &Device::Cpu,
    };
    let published = HubFolder::open(folder).unwrap();
    let mut loaded = published.network(Some(SIDE), &make).unwrap();
    moved(&mut loaded.parameters);
    let trained = TrainedNetwork {
        model: ModelId::Pretrained(pretrained.family()),
        input_size: SIDE as u32,
        classes: &classes(),
        targets: &[],
        parameters: &loaded.parameters,
        pretrained: Some(&pretrained),
        tokenizer: None,
    };
    let own = scores(&loaded.network, &loaded.parameters, SIDE);
    check(python, &format!("{way:?}"), &trained, &own);
}

#[test]
fn onnxruntime_computes_the_same_scores() {
    let Some(python) = runtime() else { return };
    let of = |from: &'static str, adapter: Option<u32>| Tuned {
        from,
        adapter,
        ..Tuned::default()
    };
    for way in [
        of("vit", Some(2)),
        of("deit", None),
        of("deit-taught", None),
        of("dinov2", Some(2)),
        of("resnet-basic", None),
        of("resnet-bottleneck", None),
        of("resnet-early", None),
        of("bert", Some(2)),
    ] {
        let copy = copied(way.from);
        if way.from == "bert" {
            // The export copies a tokenizer if there is one; the fixture has none.
            fs::write(copy.path().join("tokenizer.json"), "{}").unwrap();
        }
        written(&python, way, copy.path());
    }
    let copy = copied("bert");
    fs::write(copy.path().join("tokenizer.json"), "{}").unwrap();
    for pooling in ["mean_tokens", "cls_token"] {
        let folder = copy.path().join("1_Pooling");
        fs::create_dir_all(&folder).unwrap();
        let config = format!("{{\"pooling_mode_{pooling}\": true}}");
        fs::write(folder.join("config.json"), config).unwrap();
        written(&python, of("bert", None), copy.path());
    }
    assert!(!fixture("bert").join("tokenizer.json").exists());
}
