//! Exports a trained classifier as a folder with one ONNX file, the names of its classes, and how
//! its inputs are prepared.

use super::atomic_folder::{Exported, write, write_folder};
use super::config_json::{preprocessor_config, pretty, text_encoder_config, with_classes};
use super::fine_tuned_folder::FineTunedFolder;
use super::onnx::{Classifier, OnnxExport};
use super::tokenizer::write_tokenizer;
use super::trained_network::TrainedNetwork;
use crate::catalog::{ModelId, ModelTask};
use crate::error::{ModelError, Result};
use crate::hub_format::{CONFIG, PREPROCESSOR};
use crate::lora::merged_parameters;
use crate::text_encoder::TextEncoderStyle;
use serde_json::Value;
use std::path::Path;

const FILE: &str = "model.onnx";

/// Writes the folder, which must be new or empty. It appears complete or not at all.
///
/// # Errors
/// The folder is not empty or cannot be written; the network is not a classifier of images or
/// texts, or is larger than the format allows.
pub fn export_onnx(trained: &TrainedNetwork, folder: &Path) -> Result<Exported> {
    let fine_tuned = FineTunedFolder::new(trained, trained.classes.to_vec())?;
    let classifier = match &fine_tuned {
        Some(fine_tuned) => fine_tuned.classifier().map(|c| (c, fine_tuned.config())),
        None => from_scratch(trained),
    };
    let Some((classifier, mut config)) = classifier else {
        let reason = "the network generates text or drops tokens, but Ebb writes only image and text classifiers as ONNX; remove --format to write a Hugging Face folder";
        return Err(ModelError::hub_folder(folder, reason));
    };
    if !trained.targets.is_empty() {
        // The ONNX file outputs targets in their own units, so only the names are needed.
        let names = trained.targets.iter().map(|target| target.name.as_str());
        config["ebb_numbers"] = names.collect();
    }
    let is_text = matches!(classifier, Classifier::TextEncoder(..));
    let adapter = trained.pretrained.and_then(|p| p.tuning().adapter);
    let export = OnnxExport {
        classifier,
        input_size: trained.input_size as usize,
        classes: trained.classes.len(),
        targets: trained.targets,
        parameters: &merged_parameters(trained.parameters, adapter)?,
    };
    let file = export.encode()?;
    write_folder(folder, |draft| {
        write(draft, CONFIG, pretty(&config))?;
        match (&fine_tuned, is_text, trained.tokenizer) {
            (Some(fine_tuned), ..) => fine_tuned.copy_preprocessing(draft)?,
            (None, true, Some(tokenizer)) => {
                write_tokenizer(draft, tokenizer, trained.input_size as usize)?;
            }
            (None, true, None) => {}
            (None, false, _) => {
                let preprocessor = preprocessor_config(trained.input_size);
                write(draft, PREPROCESSOR, pretty(&preprocessor))?;
            }
        }
        write(draft, FILE, file)
    })?;
    Exported::list(
        folder,
        "onnxruntime.InferenceSession(\"FOLDER/model.onnx\")",
    )
}

/// A classifier trained from scratch with its `config.json`; `None` for other networks.
fn from_scratch(trained: &TrainedNetwork) -> Option<(Classifier, Value)> {
    let (classifier, config) = match trained.model {
        ModelId::Text(model) => {
            if model.size.task() != ModelTask::TextClassification {
                return None;
            }
            let shape = model.shape();
            let style = TextEncoderStyle::from_scratch(shape);
            let config = text_encoder_config(&shape);
            (Classifier::TextEncoder(shape, style), config)
        }
        model => {
            let network = model.image_architecture(trained.input_size as usize)?;
            let config = network.hub_export().config;
            (Classifier::Image(network), config)
        }
    };
    Some((classifier, with_classes(config, trained.classes)))
}
