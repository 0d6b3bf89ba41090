//! The files of a written package.

use super::*;
use crate::core_ml::Model;
use crate::{ModelId, Network};
use candle_core::{DType, Device};
use std::collections::HashMap;
use std::fs;
use tape::Parameters;
use tape::device::read;

const SIDE: usize = 32;

/// Exports a small network with these parameters.
fn exported(parameters: &Parameters, place: &Path) -> Exported {
    let classes = ["jay", "owl"].map(str::to_owned);
    let trained = TrainedNetwork {
        model: ModelId::CONV_NET,
        input_size: SIDE as u32,
        classes: &classes,
        targets: &[],
        parameters,
        pretrained: None,
        tokenizer: None,
    };
    export_core_ml(&trained, &place.join("birds")).expect("it can be exported")
}

/// The weights of a program by their names.
fn weights(folder: &Path) -> HashMap<String, Vec<f32>> {
    let framework = folder.join(DATA).join(FRAMEWORK);
    let model = fs::read(framework.join(MODEL)).expect("there is a model");
    let model = Model::decode(&model[..]).expect("it is a Core ML model");
    let file = fs::read(framework.join(WEIGHTS).join(WEIGHT_FILE)).expect("there are weights");
    let program = model.ml_program.expect("it has a program");
    let block = &program.functions["main"].block_specializations["CoreML5"];
    let mut weights = HashMap::new();
    for operation in &block.operations {
        let Some(value) = operation.attributes.get("val") else {
            continue;
        };
        let Some(blob) = &value.blob_file else {
            continue;
        };
        let at = blob.offset as usize;
        let int = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().expect("8 bytes"));
        assert_eq!(int(at), 0x2_DEAD_BEEF, "a description of 32-bit floats");
        let (bytes, offset) = (int(at + 8) as usize, int(at + 16) as usize);
        let (numbers, _) = file[offset..offset + bytes].as_chunks();
        let numbers = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes));
        weights.insert(operation.outputs[0].name.clone(), numbers.collect());
    }
    weights
}

#[test]
fn a_package_holds_every_weight_and_names_its_files() {
    let built = Network::build(ModelId::CONV_NET, SIDE, 2, 9, DType::F32, &Device::Cpu);
    let (_, parameters) = built.expect("it can be built");
    let place = tempfile::tempdir().expect("a temporary folder");
    let exported = exported(&parameters, place.path());
    assert_eq!(exported.folder, place.path().join("birds.mlpackage"));
    assert_eq!(
        exported.files,
        [
            "Data/com.apple.CoreML/model.mlmodel",
            "Data/com.apple.CoreML/weights/weight.bin",
            "Data/ebb/config.json",
            "Data/ebb/preprocessor_config.json",
            "Manifest.json",
        ]
    );
    let weights = weights(&exported.folder);
    let mut compared = 0;
    for parameter in parameters.iter() {
        let name = parameter.name.replace('.', "_");
        let Some(written) = weights.get(&name) else {
            continue;
        };
        let own = read::<f32>(&parameter.tensor).expect("it can be read");
        assert_eq!(written, &own, "{name}");
        compared += 1;
    }
    // All but the head, which is transposed, and vectors of fewer than 10 numbers.
    assert!(
        compared + 2 >= parameters.len(),
        "{compared} {}",
        weights.len()
    );
}

#[test]
fn a_manifest_names_items_that_exist() {
    let built = Network::build(ModelId::CONV_NET, SIDE, 2, 9, DType::F32, &Device::Cpu);
    let (_, parameters) = built.expect("it can be built");
    let place = tempfile::tempdir().expect("a temporary folder");
    let exported = exported(&parameters, place.path());
    let manifest = fs::read(exported.folder.join(MANIFEST)).expect("there is a manifest");
    let manifest: Value = serde_json::from_slice(&manifest).expect("it is JSON");
    let items = manifest["itemInfoEntries"]
        .as_object()
        .expect("it has items");
    for item in items.values() {
        let path = item["path"].as_str().expect("an item has a path");
        assert!(exported.folder.join(DATA).join(path).exists(), "{path}");
    }
    let root = manifest["rootModelIdentifier"].as_str().expect("a root");
    assert_eq!(items[root]["name"], MODEL);
}
