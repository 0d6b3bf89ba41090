//! A trained network is exported as a folder from which PyTorch computes the same scores, from its
//! tensors alone and with transformers, and so does Ebb when it reads the folder back.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::exports::{answer, assert_close, built, classes, python, scores};
use candle_core::{DType, Device};
use models::Network;
use models::export::{TrainedNetwork, export_hub_folder};
use models::hub_format::{FineTuning, Head, HubFolder, LoadOptions};
use models::{ImageModel, ModelId};
use std::fs;
use std::path::Path;
use tape::Parameters;

const SIDE: usize = 32;

/// A network with parameters as after some training.
fn trained(kind: ModelId) -> (Network, Parameters) {
    built(kind, SIDE, classes().len())
}

fn written(kind: ModelId, parameters: &Parameters, folder: &Path) {
    let classes = classes();
    let trained = TrainedNetwork {
        targets: &[],
        model: kind,
        input_size: SIDE as u32,
        classes: &classes,
        parameters,
        pretrained: None,
        tokenizer: None,
    };
    let exported = export_hub_folder(&trained, folder).unwrap();
    let on_disk = exported.files.iter().map(|name| folder.join(name));
    let bytes: u64 = on_disk.map(|file| fs::metadata(file).unwrap().len()).sum();
    assert_eq!(exported.bytes, bytes);
}

#[test]
fn pytorch_computes_the_same_scores() {
    let Some(python) = python("torch") else {
        return;
    };
    let sized = [
        ImageModel::ResNet18,
        ImageModel::ResNet50,
        ImageModel::VitTiny,
        ImageModel::ConvNextTiny,
    ];
    let kinds = sized.map(ModelId::Image);
    for kind in ModelId::SMALL.into_iter().chain(kinds) {
        let folder = tempfile::tempdir().unwrap();
        let (network, parameters) = trained(kind);
        written(kind, &parameters, folder.path());
        let output = answer(&python, "pytorch_scores.py", folder.path(), &[]);
        let own = scores(&network, &parameters, SIDE);
        for loader in ["plain", "transformers"] {
            if output[loader].is_null() {
                println!("{kind:?}: transformers is not installed");
                continue;
            }
            assert_close(&format!("{kind:?} by {loader}"), &own, &output[loader]);
            if loader == "transformers" {
                let names: Vec<String> = serde_json::from_value(output["classes"].clone()).unwrap();
                assert_eq!(names, classes());
            }
        }
    }
}

#[test]
fn ebb_reads_its_own_transformer_back() {
    let folder = tempfile::tempdir().unwrap();
    let (network, parameters) = trained(ModelId::VIT_MICRO);
    written(ModelId::VIT_MICRO, &parameters, folder.path());
    let read = HubFolder::open(folder.path()).unwrap();
    assert_eq!(read.classes(), Some(classes()));
    let own = read.preprocessor().unwrap();
    assert_eq!((own.side, own.shorter_side), (Some(32), Some(32)));
    let make = LoadOptions {
        tuning: FineTuning::default(),
        head: Head::Pretrained,
        seed: 0,
        dtype: DType::F32,
        device: &Device::Cpu,
    };
    let loaded = read.image_classifier(None, &make).unwrap();
    assert_eq!(
        scores(&network, &parameters, SIDE),
        scores(&loaded.network, &loaded.parameters, SIDE)
    );
}

#[test]
fn a_folder_that_is_not_empty_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (_, parameters) = trained(ModelId::CONV_NET);
    fs::write(folder.path().join("notes.txt"), "mine").unwrap();
    let classes = classes();
    let trained = TrainedNetwork {
        targets: &[],
        model: ModelId::CONV_NET,
        input_size: SIDE as u32,
        classes: &classes,
        parameters: &parameters,
        pretrained: None,
        tokenizer: None,
    };
    let message = export_hub_folder(&trained, folder.path())
        .unwrap_err()
        .to_string();
    assert!(message.contains("new or empty"), "{message}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let refused = export_hub_folder(&trained, &folder.path().join("notes.txt"));
    assert!(refused.unwrap_err().to_string().contains("new or empty"));
    // No temporary folder remains if the folder cannot be created.
    let nowhere = folder.path().join("notes.txt").join("out");
    assert!(export_hub_folder(&trained, &nowhere).is_err());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
