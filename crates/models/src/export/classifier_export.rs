//! A trained classifier with everything that goes into an export beside its graph: the names of its
//! classes, and how its inputs are prepared.

use super::atomic_folder::write;
use super::config_json::{preprocessor_config, pretty, text_encoder_config, with_classes};
use super::fine_tuned_folder::FineTunedFolder;
use super::onnx::{Classifier, OnnxExport};
use super::tokenizer::write_tokenizer;
use super::trained_network::TrainedNetwork;
use crate::catalog::{ModelId, ModelTask};
use crate::error::{ModelError, Result};
use crate::hub_format::{CONFIG, PREPROCESSOR};
use crate::lora::merged_parameters;
use crate::onnx_graph::Model;
use crate::text_encoder::TextEncoderStyle;
use serde_json::Value;
use std::path::Path;

/// A classifier to export.
pub struct ClassifierExport<'a> {
    trained: &'a TrainedNetwork<'a>,
    fine_tuned: Option<FineTunedFolder<'a>>,
    is_text: bool,
    graph: OnnxExport<'a>,
    config: Value,
}

impl<'a> ClassifierExport<'a> {
    /// Describes a trained network. Errors name the folder to write and the format.
    ///
    /// # Errors
    /// The network is not a classifier of images or texts.
    pub fn new(trained: &'a TrainedNetwork<'a>, folder: &Path, format: &str) -> Result<Self> {
        let fine_tuned = FineTunedFolder::new(trained, trained.classes.to_vec())?;
        let classifier = match &fine_tuned {
            Some(fine_tuned) => fine_tuned.classifier().map(|c| (c, fine_tuned.config())),
            None => from_scratch(trained),
        };
        let Some((classifier, mut config)) = classifier else {
            let reason = format!(
                "Ebb writes only image and text classifiers as {format}; a language model can be written as a Hugging Face folder (without --format)"
            );
            return Err(ModelError::hub_folder(folder, reason));
        };
        if !trained.targets.is_empty() {
            // The graph outputs targets in their own units, so only the names are needed.
            let names = trained.targets.iter().map(|target| target.name.as_str());
            config["ebb_numbers"] = names.collect();
        }
        let adapter = trained.pretrained.and_then(|p| p.tuning().adapter);
        Ok(ClassifierExport {
            trained,
            fine_tuned,
            is_text: matches!(classifier, Classifier::TextEncoder(..)),
            graph: OnnxExport {
                classifier,
                input_size: trained.input_size as usize,
                classes: trained.classes.len(),
                targets: trained.targets,
                parameters: merged_parameters(trained.parameters, adapter)?,
            },
            config,
        })
    }

    /// Whether it classifies texts, not images.
    pub fn is_text(&self) -> bool {
        self.is_text
    }

    /// The network as a graph.
    ///
    /// # Errors
    /// A parameter is missing.
    pub fn graph(&self) -> Result<Model> {
        self.graph.graph()
    }

    /// Writes `config.json`, and the tokenizer or the settings for images.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write_settings(&self, draft: &Path) -> Result<()> {
        write(draft, CONFIG, pretty(&self.config))?;
        match (&self.fine_tuned, self.is_text, self.trained.tokenizer) {
            (Some(fine_tuned), ..) => fine_tuned.copy_preprocessing(draft),
            (None, true, Some(tokenizer)) => {
                write_tokenizer(draft, tokenizer, self.trained.input_size as usize)
            }
            (None, true, None) => Ok(()),
            (None, false, _) => {
                let preprocessor = preprocessor_config(self.trained.input_size);
                write(draft, PREPROCESSOR, pretty(&preprocessor))
            }
        }
    }
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
