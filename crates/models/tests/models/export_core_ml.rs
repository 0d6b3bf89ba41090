//! A trained network is exported as a Core ML package. coremltools reads it, and its operations
//! compute the same scores.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::exports::core_ml::{Package, check, runtime};
use crate::exports::{TEXT_TOKENS, assert_close, built, classes, scores, text_model, tokenizer};
use candle_core::DType;
use models::export::{RegressionTarget, TrainedNetwork, export_core_ml};
use models::{ImageModel, ModelId, Network, TextSize};

const SIDE: usize = 32;

#[test]
fn the_operations_of_every_network_compute_the_same_scores() {
    let Some(python) = runtime() else { return };
    let tokenizer = tokenizer();
    let sized = [
        ImageModel::ResNet18,
        ImageModel::ResNet50,
        ImageModel::VitTiny,
        ImageModel::ConvNextTiny,
    ];
    let kinds = sized.map(ModelId::Image);
    let texts = [TextSize::TextMicro, TextSize::TextMini].map(text_model);
    let all = ModelId::SMALL.into_iter().chain(kinds).chain(texts);
    let classes = classes();
    let packages = all.map(|kind| {
        let (network, parameters) = built(kind, SIDE, classes.len());
        let of_texts = matches!(kind, ModelId::Text(_));
        let trained = TrainedNetwork {
            model: kind,
            input_size: if of_texts { TEXT_TOKENS } else { SIDE as u32 },
            classes: &classes,
            targets: &[],
            parameters: &parameters,
            pretrained: None,
            tokenizer: of_texts.then_some(&tokenizer),
        };
        let own = scores(&network, &parameters, SIDE);
        Package::export(&format!("{kind:?}"), &trained, own)
    });
    let packages: Vec<Package> = packages.collect();
    for output in check(&python, &packages) {
        let names: Vec<String> = serde_json::from_value(output["classes"].clone()).unwrap();
        assert_eq!(names, classes);
        let shares: Vec<f64> = serde_json::from_value(output["probabilities"].clone()).unwrap();
        for sample in shares.chunks_exact(classes.len()) {
            assert!(
                (sample.iter().sum::<f64>() - 1.0).abs() < 1e-5,
                "{sample:?}"
            );
        }
    }
}

#[test]
fn regression_targets_are_exported_in_their_units() {
    let Some(python) = runtime() else { return };
    let column = |name: &str, mean: f64, deviation: f64| RegressionTarget {
        name: name.to_owned(),
        mean,
        deviation,
        present: 10,
        range: (0.0, 5.0),
    };
    let columns = [column("mass_g", 2.0, 0.5), column("fat_g", 1.0, 0.4)];
    let (mut packages, mut values) = (Vec::new(), Vec::new());
    for classes in [classes(), Vec::new()] {
        let outputs = classes.len() + columns.len();
        let (network, parameters) = built(ModelId::CONV_NET, SIDE, outputs);
        let trained = TrainedNetwork {
            model: ModelId::CONV_NET,
            input_size: SIDE as u32,
            classes: &classes,
            targets: &columns,
            parameters: &parameters,
            pretrained: None,
            tokenizer: None,
        };
        let own = scores(&network, &parameters, SIDE);
        let samples = || own.chunks_exact(outputs);
        let logits = samples().flat_map(|sample| &sample[..classes.len()]);
        let deviations = samples().flat_map(|sample| &sample[classes.len()..]);
        let each = deviations.zip(columns.iter().cycle());
        values.push(
            each.map(|(v, c)| c.mean + v * c.deviation)
                .collect::<Vec<f64>>(),
        );
        packages.push(Package::export(
            "targets",
            &trained,
            logits.copied().collect(),
        ));
    }
    for (output, values) in check(&python, &packages).iter().zip(&values) {
        assert_close("numbers", values, &output["numbers"]);
    }
}

#[test]
fn networks_without_classes_are_refused_and_leave_no_files() {
    for size in [TextSize::GptMicro, TextSize::CompressMicro] {
        let kind = text_model(size);
        let (_, parameters) = Network::with_zeros(kind, SIDE, 0, DType::F32).unwrap();
        let trained = TrainedNetwork {
            model: kind,
            input_size: TEXT_TOKENS,
            classes: &[],
            targets: &[],
            parameters: &parameters,
            pretrained: None,
            tokenizer: None,
        };
        let place = tempfile::tempdir().unwrap();
        let error = export_core_ml(&trained, &place.path().join("out")).unwrap_err();
        let message = error.to_string();
        assert!(
            message.contains("only image and text classifiers as Core ML"),
            "{message}"
        );
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
