//! Other programs compute the same scores from exported fine-tuned networks: onnxruntime from ONNX
//! files, and the operations of Core ML packages.

use super::Tuned;
use crate::exports::core_ml::Package;
use crate::exports::{classes, core_ml, moved, onnx, scores};
use crate::folders::{copied, fixture};
use candle_core::{DType, Device};
use models::export::TrainedNetwork;
use models::hub_format::{Head, HubFolder, LoadOptions};
use std::fs;
use std::path::Path;
use trainer::ModelId;

const SIDE: usize = 16;

/// A test of an exported network: its name, the network, and Ebb's own scores.
type Check<'a> = &'a mut dyn FnMut(&str, &TrainedNetwork, Vec<f64>);

fn fine_tuned(way: Tuned, folder: &Path, check: Check) {
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
    check(&format!("{way:?}"), &trained, own);
}

/// Checks a classifier of every family.
fn each_family(check: Check) {
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
        fine_tuned(way, copy.path(), check);
    }
    let copy = copied("bert");
    fs::write(copy.path().join("tokenizer.json"), "{}").unwrap();
    for pooling in ["mean_tokens", "cls_token"] {
        let folder = copy.path().join("1_Pooling");
        fs::create_dir_all(&folder).unwrap();
        let config = format!("{{\"pooling_mode_{pooling}\": true}}");
        fs::write(folder.join("config.json"), config).unwrap();
        fine_tuned(of("bert", None), copy.path(), check);
    }
    assert!(!fixture("bert").join("tokenizer.json").exists());
}

#[test]
fn onnxruntime_computes_the_same_scores() {
    let Some(python) = onnx::runtime() else {
        return;
    };
    each_family(&mut |name, trained, own| {
        onnx::check(&python, name, trained, &own);
    });
}

#[test]
fn the_operations_of_core_ml_compute_the_same_scores() {
    let Some(python) = core_ml::runtime() else {
        return;
    };
    let mut packages = Vec::new();
    each_family(&mut |name, trained, own| packages.push(Package::export(name, trained, own)));
    core_ml::check(&python, &packages);
}
