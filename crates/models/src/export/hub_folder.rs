//! Exports a trained network as a folder in the format of the Hugging Face hub. Vision transformers
//! become transformers' own `vit`, ConvNeXt its `convnext`, language models its `gpt2`. Residual
//! networks with GroupNorm and text encoders do not exist there, so their folders include a PyTorch
//! file that reads them.

use super::atomic_folder::{Exported, write, write_folder};
use super::config_json::{
    gpt2_config, preprocessor_config, pretty, text_encoder_config, with_classes,
};
use super::fine_tuned_folder::FineTunedFolder;
use super::safetensors_file::{published_tensors, to_cpu, write_tensors};
use super::tokenizer::write_tokenizer;
use super::trained_network::TrainedNetwork;
use crate::catalog::{ModelId, ModelTask, TextModel};
use crate::error::{ModelError, Result};
use crate::hub_format::{CONFIG, HubGpt2, HubNetwork, PREPROCESSOR};
use crate::image_network::{HubExport, HubTensors};
use crate::lora::merged_parameters;
use crate::output_heads::BALANCE;
use candle_core::Tensor;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;

/// PyTorch code that reads a text encoder.
const ENCODER_CODE: (&str, &str) = (
    "modeling_ebb_encoder.py",
    include_str!("modeling_ebb_encoder.py"),
);

/// Writes the folder, which must be new or empty. It appears complete or not at all.
///
/// # Errors
/// The folder is not empty or cannot be written; the network is a token compression.
pub fn export_hub_folder(trained: &TrainedNetwork, folder: &Path) -> Result<Exported> {
    if trained.model.task() == ModelTask::TokenCompression {
        let reason = "token compression trains two networks at once, and no export format holds both; the run itself stays usable";
        return Err(ModelError::hub_folder(folder, reason));
    }
    let fine_tuned = FineTunedFolder::new(trained, trained.output_names())?;
    write_folder(folder, |draft| match &fine_tuned {
        Some(fine_tuned) => fine_tuned.write(draft, with_targets(trained, fine_tuned.config())),
        None => write_from_scratch(trained, draft),
    })?;
    let opened_by = match &fine_tuned {
        Some(fine_tuned) => fine_tuned.opened_by(),
        None => opened_by(trained.model),
    };
    Exported::list(folder, opened_by)
}

/// How Python opens the folder of a network trained from scratch.
fn opened_by(model: ModelId) -> &'static str {
    match model {
        ModelId::Text(model) if model.size.task() == ModelTask::LanguageModel => {
            "AutoModelForCausalLM.from_pretrained(FOLDER)"
        }
        ModelId::Text(_) => {
            "AutoModelForSequenceClassification.from_pretrained(FOLDER, trust_remote_code=True)"
        }
        model => {
            let side = model.default_input_size() as usize;
            let export = model.image_architecture(side).map(|n| n.hub_export());
            match export.map(|export| export.tensors) {
                Some(HubTensors::WithCode { .. }) => {
                    "AutoModelForImageClassification.from_pretrained(FOLDER, trust_remote_code=True)"
                }
                Some(HubTensors::Published(_)) | None => {
                    "AutoModelForImageClassification.from_pretrained(FOLDER)"
                }
            }
        }
    }
}

fn write_from_scratch(trained: &TrainedNetwork, draft: &Path) -> Result<()> {
    let tensors = match trained.model {
        ModelId::Text(model) => write_text_network(trained, model, draft)?,
        ModelId::Image(_) | ModelId::Pretrained(_) => write_image_network(trained, draft)?,
    };
    write_tensors(draft, tensors)
}

/// Writes all files but the tensors, which are returned under their exported names.
fn write_image_network(trained: &TrainedNetwork, draft: &Path) -> Result<HashMap<String, Tensor>> {
    let preprocessor = preprocessor_config(trained.input_size);
    write(draft, PREPROCESSOR, pretty(&preprocessor))?;
    let side = trained.input_size as usize;
    let Some(architecture) = trained.model.image_architecture(side) else {
        let reason =
            "the run was fine-tuned from pretrained weights, but these weights are missing";
        return Err(ModelError::hub_folder(draft, reason));
    };
    let HubExport { config, tensors } = architecture.hub_export();
    let config = with_targets(trained, with_classes(config, &trained.output_names()));
    write(draft, CONFIG, pretty(&config))?;
    match tensors {
        HubTensors::Published(table) => {
            published_tensors(&merged_parameters(trained.parameters, None)?, &table)
        }
        HubTensors::WithCode { file, code } => {
            write(draft, file, code)?;
            let parameters = trained.parameters.iter().filter(|p| p.name != BALANCE);
            parameters
                .map(|p| Ok((p.name.clone(), to_cpu(&p.tensor)?)))
                .collect()
        }
    }
}

/// Writes all files but the tensors, which are returned under their exported names.
fn write_text_network(
    trained: &TrainedNetwork,
    model: TextModel,
    draft: &Path,
) -> Result<HashMap<String, Tensor>> {
    let shape = model.shape();
    let values = merged_parameters(trained.parameters, None)?;
    let tensors = match model.size.task() {
        ModelTask::LanguageModel => {
            let block = shape.block(true);
            let boundary = trained.tokenizer.and_then(|tokenizer| tokenizer.boundary);
            let config = gpt2_config(&shape, &block, boundary);
            write(draft, CONFIG, pretty(&config))?;
            published_tensors(&values, &HubGpt2 { shape, block }.table())?
        }
        ModelTask::TextClassification => {
            let config = with_classes(text_encoder_config(&shape), trained.classes);
            write(draft, CONFIG, pretty(&config))?;
            write(draft, ENCODER_CODE.0, ENCODER_CODE.1)?;
            values
                .into_iter()
                .map(|(name, tensor)| Ok((name, to_cpu(&tensor)?)))
                .collect::<Result<_>>()?
        }
        ModelTask::TokenCompression | ModelTask::ImageClassification => {
            let reason = "the network is neither a text classifier nor a language model";
            return Err(ModelError::hub_folder(draft, reason));
        }
    };
    if let Some(tokenizer) = trained.tokenizer {
        write_tokenizer(draft, tokenizer, shape.tokens)?;
    }
    Ok(tensors)
}

/// Adds the mean and deviation of regression targets, which turn the last outputs into the units of
/// their columns.
fn with_targets(trained: &TrainedNetwork, mut config: Value) -> Value {
    if !trained.targets.is_empty() {
        config["ebb_numbers"] = json!(trained.targets);
    }
    config
}
