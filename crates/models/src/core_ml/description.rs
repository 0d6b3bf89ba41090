//! What a Core ML model takes and returns, in words and types for Xcode and for the framework.

use super::protobuf_messages::{
    ArrayDataType, ArrayType, ColorSpace, DictionaryFeatureType, Empty, FeatureDescription,
    FeatureType, ImageType, Metadata, ModelDescription,
};
use super::{CoreMlExport, Input};
use std::collections::BTreeMap;

/// Name of the output with the likeliest class, as other programs call it.
pub const CLASS: &str = "classLabel";
/// Name of the output with the probability of each class.
pub const PROBABILITIES: &str = "classLabel_probs";

/// Describes the model.
pub fn description(export: &CoreMlExport) -> ModelDescription {
    let mut output = Vec::new();
    let (mut class, mut probabilities) = (String::new(), String::new());
    if !export.classes.is_empty() {
        (class, probabilities) = (CLASS.to_owned(), PROBABILITIES.to_owned());
        output.push(feature(CLASS, "The likeliest class", text()));
        let by_class = "The probability of each class";
        output.push(feature(PROBABILITIES, by_class, dictionary()));
    }
    if !export.targets.is_empty() {
        let words = export.targets.join(", ");
        let values = array(&[1, export.targets.len()], ArrayDataType::Float32);
        output.push(feature("numbers", &words, values));
    }
    ModelDescription {
        input: inputs(export.input),
        output,
        predicted_feature_name: class,
        predicted_probabilities_name: probabilities,
        metadata: Some(metadata(export)),
    }
}

fn inputs(input: Input) -> Vec<FeatureDescription> {
    match input {
        Input::Image { side, .. } => {
            let words = format!(
                "A square image; images of other sizes are resized to {side} x {side} pixels"
            );
            vec![feature("image", &words, image(side))]
        }
        Input::Text { tokens } => {
            let ids = format!("Token ids from tokenizer.json, padded with 0 to {tokens} tokens");
            let mask = "1 for each token, 0 for padding";
            let array = || array(&[1, tokens], ArrayDataType::Int32);
            vec![
                feature("input_ids", &ids, array()),
                feature("attention_mask", mask, array()),
            ]
        }
    }
}

fn metadata(export: &CoreMlExport) -> Metadata {
    let of = match export.input {
        Input::Image { .. } => "images",
        Input::Text { .. } => "texts",
    };
    Metadata {
        short_description: format!("{} for {of}, trained with Ebb", export.label),
        version_string: String::new(),
        author: "Ebb".to_owned(),
        user_defined: BTreeMap::from([(
            "Ebb version".to_owned(),
            env!("CARGO_PKG_VERSION").to_owned(),
        )]),
    }
}

fn feature(name: &str, words: &str, kind: FeatureType) -> FeatureDescription {
    FeatureDescription {
        name: name.to_owned(),
        short_description: words.to_owned(),
        kind: Some(kind),
    }
}

fn text() -> FeatureType {
    FeatureType {
        string: Some(Empty {}),
        ..FeatureType::default()
    }
}

fn dictionary() -> FeatureType {
    FeatureType {
        dictionary: Some(DictionaryFeatureType {
            string_key: Some(Empty {}),
        }),
        ..FeatureType::default()
    }
}

fn image(side: usize) -> FeatureType {
    FeatureType {
        image: Some(ImageType {
            width: side as i64,
            height: side as i64,
            color_space: ColorSpace::Rgb.into(),
        }),
        ..FeatureType::default()
    }
}

fn array(shape: &[usize], data_type: ArrayDataType) -> FeatureType {
    FeatureType {
        array: Some(ArrayType {
            shape: shape.iter().map(|&size| size as i64).collect(),
            data_type: data_type.into(),
        }),
        ..FeatureType::default()
    }
}
