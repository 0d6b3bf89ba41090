//! A trained network is exported as an ONNX file. onnxruntime computes the same scores from it,
//! for any number of samples.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::exports::onnx::{check, runtime};
use crate::exports::{built, classes, scores, text_model, tokenizer};
use candle_core::DType;
use models::export::{RegressionTarget, TrainedNetwork, export_onnx};
use models::{ImageModel, ModelId, Network, TextSize};

const SIDE: usize = 32;

#[test]
fn onnxruntime_computes_the_same_scores() {
    let Some(python) = runtime() else { return };
    let tokenizer = tokenizer();
    let sized = [
        ImageModel::ResNet18,
        ImageModel::ResNet34,
        ImageModel::ResNet50,
        ImageModel::VitTiny,
        ImageModel::ConvNextTiny,
    ];
    let kinds = sized.map(ModelId::Image);
    let texts = [TextSize::TextMicro, TextSize::TextMini].map(text_model);
    let all = ModelId::SMALL.into_iter().chain(kinds).chain(texts);
    for kind in all {
        let classes = classes();
        let (network, parameters) = built(kind, SIDE, classes.len());
        let trained = TrainedNetwork {
            model: kind,
            input_size: SIDE as u32,
            classes: &classes,
            targets: &[],
            parameters: &parameters,
            pretrained: None,
            tokenizer: Some(&tokenizer),
        };
        let own = scores(&network, &parameters, SIDE);
        let output = check(&python, &format!("{kind:?}"), &trained, &own);
        let names: Vec<String> = serde_json::from_value(output["classes"].clone()).unwrap();
        assert_eq!(names, classes);
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
        range: (0.0, 500.0),
    };
    let columns = [column("mass_g", 200.0, 50.0), column("fat_g", 10.0, 4.0)];
    for classes in [classes(), Vec::new()] {
        let outputs = classes.len() + columns.len();
        let kind = ModelId::CONV_NET;
        let (network, parameters) = built(kind, SIDE, outputs);
        let trained = TrainedNetwork {
            model: kind,
            input_size: SIDE as u32,
            classes: &classes,
            targets: &columns,
            parameters: &parameters,
            pretrained: None,
            tokenizer: None,
        };
        let own = scores(&network, &parameters, SIDE);
        let (mut logits, mut values) = (Vec::new(), Vec::new());
        for sample in own.chunks_exact(outputs) {
            let (scores, deviations) = sample.split_at(classes.len());
            logits.extend_from_slice(scores);
            let each = deviations.iter().zip(&columns);
            values.extend(each.map(|(value, c)| c.mean + value * c.deviation));
        }
        let output = check(&python, "numbers", &trained, &logits);
        assert_eq!(output["logits"].is_null(), classes.is_empty());
        let theirs: Vec<f64> = serde_json::from_value(output["numbers"].clone()).unwrap();
        assert_eq!(theirs.len(), values.len());
        for (own, theirs) in values.iter().zip(&theirs) {
            // The values are f32 of some hundreds.
            assert!((own - theirs).abs() < 1e-2, "{values:?} {theirs:?}");
        }
    }
}

#[test]
fn networks_without_classes_are_refused_and_leave_no_files() {
    for size in [TextSize::GptMicro, TextSize::CompressMicro] {
        let kind = text_model(size);
        let (_, parameters) = Network::with_zeros(kind, SIDE, 0, DType::F32).unwrap();
        let trained = TrainedNetwork {
            model: kind,
            input_size: SIDE as u32,
            classes: &[],
            targets: &[],
            parameters: &parameters,
            pretrained: None,
            tokenizer: None,
        };
        let place = tempfile::tempdir().unwrap();
        let error = export_onnx(&trained, &place.path().join("out")).unwrap_err();
        let message = error.to_string();
        assert!(
            message.contains("only image and text classifiers"),
            "{message}"
        );
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
