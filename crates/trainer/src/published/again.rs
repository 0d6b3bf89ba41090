//! A network that began with a published folder leaves as such a folder: the same settings with its own classes, every tensor
//! under its published name, adapters merged. What was quantized leaves as the numbers that it stood for.
//!
//! Refuses to know runs, and where the folder goes: whoever writes it names the place.

use super::export::{pretty, published, with_classes};
use super::settings::refusal;
use super::whole::write;
use super::{Architecture, CONFIG, PREPROCESSOR, PublishedFolder, TOKENIZER};
use crate::error::{Result, at};
use crate::models::{Pooling, VitReads};
use crate::onnx::Classifier;
use candle_core::Tensor;
use safetensors::tensor::serialize_to_file;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs;
use std::path::Path;

const MODEL: &str = "model.safetensors";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const MODELING: &str = "modeling_ebb_text.py";
/// The lines of PyTorch that tell a text from its mean or first token: transformers has a BERT with a pooler alone.
const MODELING_TEXT: &str = include_str!("modeling_ebb_text.py");

/// A trained network of a published folder.
pub(crate) struct Rewritten<'a> {
    /// The folder that it began with.
    pub folder: &'a PublishedFolder,
    /// Its parameters by Ebb's names, adapters merged.
    pub values: HashMap<String, Tensor>,
    /// Names of its classes in label order, and of numbers behind them; none of a language model.
    pub outputs: Vec<String>,
    /// Side of its images in pixels, where it sees images.
    pub side: usize,
}

impl Rewritten<'_> {
    /// How Python opens the folder.
    pub fn opened_by(&self) -> &'static str {
        match self.folder.architecture() {
            Architecture::Bert(bert) if bert.style.pooling == Pooling::FirstMapped => {
                "AutoModelForSequenceClassification.from_pretrained(FOLDER)"
            }
            Architecture::Bert(_) => {
                "AutoModelForSequenceClassification.from_pretrained(FOLDER, trust_remote_code=True)"
            }
            Architecture::Vit(_) | Architecture::ResNet(_) => {
                "AutoModelForImageClassification.from_pretrained(FOLDER)"
            }
            Architecture::Gpt2(_) => "AutoModelForCausalLM.from_pretrained(FOLDER)",
        }
    }

    /// Writes its files into a folder that is there, with such settings.
    pub fn fill(&self, draft: &Path, mut config: Value) -> Result<()> {
        let (class, table) = match self.folder.architecture() {
            Architecture::Bert(bert) => {
                let class = match bert.style.pooling {
                    Pooling::FirstMapped => "BertForSequenceClassification",
                    Pooling::Mean | Pooling::First => {
                        let class = "EbbBertForSequenceClassification";
                        let place = format!("modeling_ebb_text.{class}");
                        config["auto_map"] = json!({"AutoModelForSequenceClassification": place});
                        config["pooling"] = json!(match bert.style.pooling {
                            Pooling::Mean => "mean",
                            Pooling::First | Pooling::FirstMapped => "first",
                        });
                        write(draft, MODELING, MODELING_TEXT)?;
                        class
                    }
                };
                (class, bert.table())
            }
            Architecture::Vit(vit) => {
                let mut vit = vit.clone();
                vit.shape.image = self.side;
                if vit.style.reads == VitReads::ClassAndTeacher {
                    vit.style.reads = VitReads::Class;
                }
                (vit.class(), vit.table())
            }
            Architecture::ResNet(resnet) => ("ResNetForImageClassification", resnet.table()),
            Architecture::Gpt2(gpt) => ("GPT2LMHeadModel", gpt.table()),
        };
        config["architectures"] = json!([class]);
        write(draft, CONFIG, pretty(&config))?;
        self.take_along(draft)?;
        let path = draft.join(MODEL);
        let format = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        serialize_to_file(published(&self.values, &table)?, Some(format), &path)
            .map_err(|error| refusal(&path, error.to_string()))
    }

    /// The settings with its own classes and side.
    pub fn described(&self) -> Value {
        let mut config = self.folder.config.json().clone();
        config["torch_dtype"] = json!("float32");
        if !self.outputs.is_empty() {
            config = with_classes(config, &self.outputs);
        }
        if let Architecture::Vit(_) = self.folder.architecture() {
            config["image_size"] = json!(self.side);
        }
        config
    }

    /// The network that classifies, as it was trained: a teacher's head is not trained on. None tells classes of documents.
    pub fn classifier(&self) -> Option<Classifier> {
        Some(match self.folder.architecture() {
            Architecture::Bert(bert) => Classifier::TextEncoder(bert.shape, bert.style),
            Architecture::ResNet(resnet) => Classifier::ResNet(resnet.shape.clone(), resnet.style),
            Architecture::Vit(vit) => {
                let (mut shape, mut style) = (vit.shape, vit.style);
                shape.image = self.side;
                if style.reads == VitReads::ClassAndTeacher {
                    style.reads = VitReads::Class;
                }
                Classifier::Vit(shape, style)
            }
            Architecture::Gpt2(_) => return None,
        })
    }

    /// What is done to samples first stays as it was, but for the side of images.
    pub fn take_along(&self, draft: &Path) -> Result<()> {
        let from = self.folder.tensors.folder();
        if let Some(mut settings) = super::Settings::read(from, PREPROCESSOR)?
            .map(|settings| settings.json().clone())
            .filter(|_| self.side > 0)
        {
            settings["size"] = json!({"height": self.side, "width": self.side});
            write(draft, PREPROCESSOR, pretty(&settings))?;
        }
        if let Some(tokenizer) = self.folder.tokenizer() {
            let to = draft.join(TOKENIZER);
            fs::copy(tokenizer, &to).map_err(at(tokenizer))?;
            let settings = json!({"tokenizer_class": "PreTrainedTokenizerFast"});
            write(draft, TOKENIZER_CONFIG, pretty(&settings))?;
        }
        Ok(())
    }
}
