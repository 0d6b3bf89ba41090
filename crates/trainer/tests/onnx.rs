//! A trained network leaves as an ONNX file: onnxruntime computes the same scores from it, for any number of samples at once.

// Helpers of tests are tests: what fails here fails the claim.
#![allow(clippy::unwrap_used)]

mod exports;

use candle_core::{DType, Device};
use dataset::{TargetColumn, Tokenizer, Vocabulary};
use exports::onnx::{check, runtime};
use exports::{classes, moved, scores};
use trainer::models::Network;
use trainer::rooms::Trained;
use trainer::{ImageSize, ModelKind, TextModel, TextSize};

const SIDE: usize = 32;

fn texts(size: TextSize) -> ModelKind {
    ModelKind::Texts(TextModel {
        size,
        tokens: 12,
        vocabulary: 40,
        policy: None,
    })
}

#[test]
fn onnxruntime_computes_the_same_scores_from_an_exported_network() {
    let Some(python) = runtime() else { return };
    let words = ["a few words to learn tokens from"].into_iter();
    let tokenizer = Tokenizer::train(Vocabulary::WordPieces, 40, words).unwrap();
    let sized = [
        ImageSize::ResNet18,
        ImageSize::ResNet34,
        ImageSize::ResNet50,
        ImageSize::VitTiny,
    ];
    let kinds = sized.map(ModelKind::Images);
    let texts = [texts(TextSize::TextMicro), texts(TextSize::TextMini)];
    let all = ModelKind::SMALL.into_iter().chain(kinds).chain(texts);
    for kind in all {
        let classes = classes();
        let built = Network::build(kind, SIDE, classes.len(), 9, DType::F32, &Device::Cpu);
        let (network, mut parameters) = built.unwrap();
        moved(&mut parameters);
        let trained = Trained {
            kind,
            side: SIDE as u32,
            classes: &classes,
            columns: &[],
            parameters: &parameters,
            origin: None,
            tokenizer: Some(&tokenizer),
        };
        let own = scores(&network, &parameters, SIDE);
        let said = check(&python, &format!("{kind:?}"), &trained, &own);
        let names: Vec<String> = serde_json::from_value(said["classes"].clone()).unwrap();
        assert_eq!(names, classes);
    }
}

#[test]
fn numbers_leave_in_the_units_of_their_columns() {
    let Some(python) = runtime() else { return };
    let column = |name: &str, mean: f64, deviation: f64| TargetColumn {
        name: name.to_owned(),
        mean,
        deviation,
        present: 10,
        range: (0.0, 500.0),
    };
    let columns = [column("mass_g", 200.0, 50.0), column("fat_g", 10.0, 4.0)];
    for classes in [classes(), Vec::new()] {
        let outputs = classes.len() + columns.len();
        let kind = ModelKind::ConvNet;
        let built = Network::build(kind, SIDE, outputs, 9, DType::F32, &Device::Cpu);
        let (network, mut parameters) = built.unwrap();
        moved(&mut parameters);
        let trained = Trained {
            kind,
            side: SIDE as u32,
            classes: &classes,
            columns: &columns,
            parameters: &parameters,
            origin: None,
            tokenizer: None,
        };
        let own = scores(&network, &parameters, SIDE);
        let (mut logits, mut numbers) = (Vec::new(), Vec::new());
        for sample in own.chunks_exact(outputs) {
            let (scores, deviations) = sample.split_at(classes.len());
            logits.extend_from_slice(scores);
            let each = deviations.iter().zip(&columns);
            numbers.extend(each.map(|(value, c)| c.mean + value * c.deviation));
        }
        let said = check(&python, "numbers", &trained, &logits);
        assert_eq!(said["logits"].is_null(), classes.is_empty());
        let theirs: Vec<f64> = serde_json::from_value(said["numbers"].clone()).unwrap();
        assert_eq!(theirs.len(), numbers.len());
        for (own, theirs) in numbers.iter().zip(&theirs) {
            // A float of some hundreds.
            assert!((own - theirs).abs() < 1e-2, "{numbers:?} {theirs:?}");
        }
    }
}

#[test]
fn what_tells_no_classes_is_refused_and_leaves_nothing_behind() {
    for size in [TextSize::GptMicro, TextSize::CompressMicro] {
        let kind = texts(size);
        let (_, parameters) = Network::of_zeros(kind, SIDE, 0, DType::F32).unwrap();
        let trained = Trained {
            kind,
            side: SIDE as u32,
            classes: &[],
            columns: &[],
            parameters: &parameters,
            origin: None,
            tokenizer: None,
        };
        let place = tempfile::tempdir().unwrap();
        let said = trained.write_onnx(&place.path().join("out")).unwrap_err();
        let said = said.to_string();
        assert!(
            said.contains("classifiers of photographs and texts"),
            "{said}"
        );
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
