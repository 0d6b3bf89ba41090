//! A network that began with a published folder leaves as such a folder: the same settings with its own classes, every tensor
//! under its published name, adapters merged. What was quantised leaves as the numbers that it stood for.
//!
//! Refuses to know runs, and where the folder goes: whoever writes it names the place.

use super::export::{pretty, published, with_classes};
use super::settings::refusal;
use super::{Architecture, CONFIG, PREPROCESSOR, PublishedFolder, TOKENIZER};
use crate::error::{Result, at};
use crate::models::{Pooling, VitReads};
use candle_core::Tensor;
use safetensors::tensor::serialize_to_file;
use serde_json::json;
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
    /// Class names in label order; none of a language model.
    pub classes: &'a [String],
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

    /// Writes its files into a folder that is there.
    pub fn fill(&self, draft: &Path) -> Result<()> {
        let write = |name: &str, text: &str| {
            let path = draft.join(name);
            fs::write(&path, text).map_err(at(&path))
        };
        let mut config = self.folder.config.json().clone();
        config["torch_dtype"] = json!("float32");
        if !self.classes.is_empty() {
            config = with_classes(config, self.classes);
        }
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
                        write(MODELING, MODELING_TEXT)?;
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
                config["image_size"] = json!(self.side);
                (vit.class(), vit.table())
            }
            Architecture::ResNet(resnet) => ("ResNetForImageClassification", resnet.table()),
            Architecture::Gpt2(gpt) => ("GPT2LMHeadModel", gpt.table()),
        };
        config["architectures"] = json!([class]);
        write(CONFIG, &pretty(&config))?;
        self.take_along(draft)?;
        let path = draft.join(MODEL);
        let format = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        serialize_to_file(published(&self.values, &table)?, Some(format), &path)
            .map_err(|error| refusal(&path, error.to_string()))
    }

    /// What is done to samples first stays as it was, but for the side of images.
    fn take_along(&self, draft: &Path) -> Result<()> {
        let from = self.folder.tensors.folder();
        if let Some(mut settings) = super::Settings::read(from, PREPROCESSOR)?
            .map(|settings| settings.json().clone())
            .filter(|_| self.side > 0)
        {
            settings["size"] = json!({"height": self.side, "width": self.side});
            let path = draft.join(PREPROCESSOR);
            fs::write(&path, pretty(&settings)).map_err(at(&path))?;
        }
        if let Some(tokenizer) = self.folder.tokenizer() {
            let to = draft.join(TOKENIZER);
            fs::copy(tokenizer, &to).map_err(at(tokenizer))?;
            let path = draft.join(TOKENIZER_CONFIG);
            let settings = json!({"tokenizer_class": "PreTrainedTokenizerFast"});
            fs::write(&path, pretty(&settings)).map_err(at(&path))?;
        }
        Ok(())
    }
}
