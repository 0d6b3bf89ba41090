//! A trained classifier as a folder around one ONNX file: beside it what is done to samples first, and the names of the classes.
//!
//! Refuses to know the format of the file.

use super::export::{Trained, pretty, resnet, vit, with_classes};
use super::own_texts::{encoder, write_vocabulary};
use super::settings::refusal;
use super::whole::{Exported, whole, write};
use super::{CONFIG, PREPROCESSOR};
use crate::error::Result;
use crate::models::{ImageShape, TextEncoderStyle, VitStyle, merged};
use crate::onnx::{Classifier, Source};
use crate::plan::ModelKind;
use dataset::Task;
use serde_json::Value;
use std::path::Path;

/// The file's name.
const MODEL: &str = "model.onnx";

impl Trained<'_> {
    /// Writes an ONNX file with what goes with it: first in a folder beside `folder`, which takes its name when it is whole.
    ///
    /// # Errors
    /// The folder has something in it, or cannot be written; the network tells no classes and no numbers of a sample, or is
    /// larger than the format allows.
    pub fn write_onnx(&self, folder: &Path) -> Result<Exported> {
        let rewritten = self.rewritten(self.classes.to_vec()).transpose()?;
        let (classifier, mut config) = match &rewritten {
            Some(rewritten) => (rewritten.classifier(), rewritten.described()),
            None => self.own(),
        };
        if !self.columns.is_empty() {
            // The file gives them in their own units: names are all that is left to say.
            let names = self.columns.iter().map(|column| column.name.as_str());
            config["ebb_numbers"] = names.collect();
        }
        let classifier = classifier.ok_or_else(|| {
            let reason = "its run writes text or leaves tokens out, and ONNX is written of classifiers of photographs and texts; leave --format out for a Hugging Face folder";
            refusal(folder, reason.to_owned())
        })?;
        let adapter = self.origin.and_then(|origin| origin.tuning().adapter);
        let of_texts = matches!(classifier, Classifier::TextEncoder(..));
        let source = Source {
            classifier,
            side: self.side as usize,
            classes: self.classes.len(),
            columns: self.columns,
            values: &merged(self.parameters, adapter)?,
        };
        let file = source.file()?;
        whole(folder, |draft| {
            write(draft, CONFIG, pretty(&config))?;
            match &rewritten {
                Some(rewritten) => rewritten.take_along(draft)?,
                None if of_texts => {
                    if let Some(tokenizer) = self.tokenizer {
                        write_vocabulary(draft, tokenizer, self.side as usize)?;
                    }
                }
                None => write(draft, PREPROCESSOR, pretty(&self.preprocessor()))?,
            }
            write(draft, MODEL, file)
        })?;
        Exported::of(
            folder,
            "onnxruntime.InferenceSession(\"FOLDER/model.onnx\")",
        )
    }

    /// One of Ebb's own networks, where it classifies.
    fn own(&self) -> (Option<Classifier>, Value) {
        if let ModelKind::Texts(model) = self.kind
            && model.size.task() == Task::TextClassification
        {
            let shape = model.shape();
            let style = TextEncoderStyle::own(shape);
            let config = encoder(&shape);
            let classifier = Classifier::TextEncoder(shape, style);
            return (Some(classifier), with_classes(config, self.classes));
        }
        match ImageShape::of(self.kind, self.side as usize) {
            Some(ImageShape::Vit(shape)) => {
                let classifier = Classifier::Vit(shape, VitStyle::own(shape));
                (Some(classifier), with_classes(vit(shape), self.classes))
            }
            Some(ImageShape::ResNet(shape, style)) => {
                let config = with_classes(resnet(&shape, style.branch), self.classes);
                (Some(Classifier::ResNet(shape, style)), config)
            }
            None => (None, Value::Null),
        }
    }
}
