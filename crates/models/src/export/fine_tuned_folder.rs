//! Exports a fine-tuned network in the format of the folder it started from: the same settings with
//! its own classes, every tensor under its published name, adapters merged and quantized weights in
//! floating point.

use super::atomic_folder::write;
use super::config_json::{pretty, with_classes};
use super::onnx::Classifier;
use super::safetensors_file::{published_tensors, write_tensors};
use super::tokenizer::{copy_chat_files, write_tokenizer_config};
use super::trained_network::TrainedNetwork;
use crate::catalog::ModelTask;
use crate::error::{Result, at};
use crate::hub_format::json_config::JsonConfig;
use crate::hub_format::{CONFIG, HubArchitecture, HubFolder, HubNetwork, PREPROCESSOR, TOKENIZER};
use crate::lora::merged_parameters;
use crate::text_encoder::Pooling;
use candle_core::Tensor;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;

/// PyTorch code for a BERT that classifies by its mean or first token: transformers only has one
/// with a pooler.
const POOLING_CODE: (&str, &str) = ("modeling_ebb_text.py", include_str!("modeling_ebb_text.py"));

/// A fine-tuned network and the folder it started from.
pub struct FineTunedFolder<'a> {
    folder: &'a HubFolder,
    /// Parameters by Ebb's names, adapters merged.
    values: HashMap<String, Tensor>,
    /// Names of the outputs; empty for a language model.
    outputs: Vec<String>,
    /// Side of its images in pixels; 0 for texts.
    side: usize,
}

impl<'a> FineTunedFolder<'a> {
    /// The folder that `trained` started from, with these names of outputs; `None` if it was
    /// trained from scratch.
    pub fn new(trained: &TrainedNetwork<'a>, outputs: Vec<String>) -> Result<Option<Self>> {
        let Some(pretrained) = trained.pretrained else {
            return Ok(None);
        };
        Ok(Some(FineTunedFolder {
            folder: pretrained.folder(),
            values: merged_parameters(trained.parameters, pretrained.tuning().adapter)?,
            outputs,
            side: match pretrained.family().task() {
                ModelTask::ImageClassification => trained.input_size as usize,
                _ => 0,
            },
        }))
    }

    /// Python expression that opens the folder.
    pub fn opened_by(&self) -> &'static str {
        match self.folder.architecture() {
            HubArchitecture::Bert(bert) if bert.style.pooling == Pooling::Pooler => {
                "AutoModelForSequenceClassification.from_pretrained(FOLDER)"
            }
            HubArchitecture::Bert(_) => {
                "AutoModelForSequenceClassification.from_pretrained(FOLDER, trust_remote_code=True)"
            }
            HubArchitecture::Image(_) => "AutoModelForImageClassification.from_pretrained(FOLDER)",
            HubArchitecture::Gpt2(_) | HubArchitecture::Decoder(_) => {
                "AutoModelForCausalLM.from_pretrained(FOLDER)"
            }
        }
    }

    /// Writes all files, with `config` and the class of transformers that reads it as
    /// `config.json`.
    pub fn write(&self, draft: &Path, mut config: Value) -> Result<()> {
        let (class, table) = match self.folder.architecture() {
            HubArchitecture::Bert(bert) => {
                let class = match bert.style.pooling {
                    Pooling::Pooler => "BertForSequenceClassification",
                    Pooling::Mean | Pooling::First => {
                        let class = "EbbBertForSequenceClassification";
                        let path = format!("modeling_ebb_text.{class}");
                        config["auto_map"] = json!({"AutoModelForSequenceClassification": path});
                        config["pooling"] = json!(match bert.style.pooling {
                            Pooling::Mean => "mean",
                            Pooling::First | Pooling::Pooler => "first",
                        });
                        write(draft, POOLING_CODE.0, POOLING_CODE.1)?;
                        class
                    }
                };
                (class, bert.table())
            }
            HubArchitecture::Image(network) => (
                network.transformers_class(),
                network.fine_tuned_table(self.side),
            ),
            HubArchitecture::Gpt2(gpt) => ("GPT2LMHeadModel", gpt.table()),
            HubArchitecture::Decoder(decoder) => (decoder.family.class, decoder.table()),
        };
        config["architectures"] = json!([class]);
        write(draft, CONFIG, pretty(&config))?;
        self.copy_preprocessing(draft)?;
        write_tensors(draft, published_tensors(&self.values, &table)?)
    }

    /// The folder's `config.json` with the network's classes and side.
    pub fn config(&self) -> Value {
        let mut config = self.folder.config().json().clone();
        // Newer folders have the shorter name.
        let dtype = if config["dtype"].is_null() {
            "torch_dtype"
        } else {
            "dtype"
        };
        config[dtype] = json!("float32");
        if !self.outputs.is_empty() {
            config = with_classes(config, &self.outputs);
        }
        if let HubArchitecture::Image(network) = self.folder.architecture() {
            network.set_side(&mut config, self.side);
        }
        config
    }

    /// The network as a classifier for ONNX; `None` for language models.
    pub fn classifier(&self) -> Option<Classifier> {
        match self.folder.architecture() {
            HubArchitecture::Bert(bert) => Some(Classifier::TextEncoder(bert.shape, bert.style)),
            HubArchitecture::Image(network) => {
                // It was trained at this side, so there is such a network.
                let trained = network.architecture(Some(self.side), true);
                trained.ok().map(Classifier::Image)
            }
            HubArchitecture::Gpt2(_) | HubArchitecture::Decoder(_) => None,
        }
    }

    /// Copies the settings for images, with the network's side, and the tokenizer.
    pub fn copy_preprocessing(&self, draft: &Path) -> Result<()> {
        if let Some(mut settings) = JsonConfig::read(self.folder.path(), PREPROCESSOR)?
            .map(|settings| settings.json().clone())
            .filter(|_| self.side > 0)
        {
            // Processors that name the shorter side accept no other form.
            settings["size"] = if settings["size"]["shortest_edge"].is_null() {
                json!({"height": self.side, "width": self.side})
            } else {
                json!({"shortest_edge": self.side})
            };
            write(draft, PREPROCESSOR, pretty(&settings))?;
        }
        if let Some(tokenizer) = self.folder.tokenizer() {
            let to = draft.join(TOKENIZER);
            disk::copy(tokenizer, &to).map_err(at(tokenizer))?;
            let is_language = !self.folder.architecture().network().has_new_head();
            if !is_language || !copy_chat_files(self.folder.path(), draft)? {
                let settings = json!({"tokenizer_class": "PreTrainedTokenizerFast"});
                write_tokenizer_config(draft, &settings)?;
            }
        }
        Ok(())
    }
}
