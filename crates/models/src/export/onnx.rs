//! A trained classifier as an ONNX graph: the operations of the network in the same order. It is
//! written as a file that onnxruntime and other programs run, and converted for Core ML. The number
//! of samples, and of tokens per text, is free.

use super::trained_network::RegressionTarget;
use crate::error::{ModelError, Result};
use crate::image_network::ImageArchitecture;
use crate::onnx_graph::transformer::{TextInput, text_features};
use crate::onnx_graph::{Axis, Features, Graph, Model, Name};
use crate::text_backbone::SequenceShape;
use crate::text_encoder::TextEncoderStyle;
use candle_core::{Device, Tensor};
use format::format_bytes;
use prost::Message;
use std::collections::HashMap;

/// Largest file of this format in bytes: its encoding counts in `i32`.
const MAX_BYTES: usize = i32::MAX as usize;

/// The shape of a classifier.
#[derive(Debug)]
pub enum Classifier {
    /// Image network.
    Image(Box<dyn ImageArchitecture>),
    /// Text encoder.
    TextEncoder(SequenceShape, TextEncoderStyle),
}

/// A classifier to describe as an ONNX graph.
pub struct OnnxExport<'a> {
    /// Its shape.
    pub classifier: Classifier,
    /// Side of its images in pixels; not used for texts.
    pub input_size: usize,
    pub classes: usize,
    pub targets: &'a [RegressionTarget],
    /// Parameters by Ebb's names, adapters merged.
    pub parameters: HashMap<String, Tensor>,
}

/// The contents of an ONNX file. They are in memory twice for a moment.
///
/// # Errors
/// The file would be larger than the format allows.
pub fn encode(model: &Model) -> Result<Vec<u8>> {
    let bytes = model.encoded_len();
    if bytes > MAX_BYTES {
        return Err(ModelError::NotExportable(format!(
            "the weights need {}, but an ONNX file holds at most {}; export the network as a Hugging Face folder",
            format_bytes(bytes as u64),
            format_bytes(MAX_BYTES as u64)
        )));
    }
    Ok(model.encode_to_vec())
}

/// The axis of samples.
const BATCH: Axis = Axis::Free("batch");

impl OnnxExport<'_> {
    /// The graph. Inputs are `pixel_values` [batch, 3, side, side] for images, and `input_ids` and
    /// `attention_mask` [batch, tokens] for texts. Outputs are `logits` [batch, classes] and
    /// `numbers` [batch, targets] in the units of their columns, if there are any.
    ///
    /// # Errors
    /// A parameter is missing.
    pub fn graph(&self) -> Result<Model> {
        let mut g = Graph::new(&self.parameters);
        let features = match &self.classifier {
            Classifier::Image(network) => {
                let images = self.images(&mut g);
                network.onnx_features(&mut g, &images)?
            }
            Classifier::TextEncoder(shape, style) => {
                let axes = [BATCH, Axis::Free("tokens")];
                let ids = g.input_of_ints("input_ids", &axes);
                let mask = g.input_of_ints("attention_mask", &axes);
                text_features(&mut g, TextInput { ids, mask }, shape, style)?
            }
        };
        let outputs = match features {
            Features::One(map, features) => g.linear(&features, map)?,
            Features::Two(each) => {
                let [(map, features), (other_map, other)] = each;
                let scores = g.linear(&features, map)?;
                let other = g.linear(&other, other_map)?;
                let sum = g.add(&scores, &other);
                g.scaled(&sum, 0.5)
            }
        };
        self.add_outputs(&mut g, &outputs)?;
        Ok(g.finish())
    }

    fn images(&self, g: &mut Graph) -> Name {
        let side = Axis::Fixed(self.input_size);
        g.input("pixel_values", &[BATCH, Axis::Fixed(3), side, side])
    }

    /// Adds class scores and regression targets as outputs, the targets in the units of their
    /// columns.
    fn add_outputs(&self, g: &mut Graph, outputs: &str) -> Result<()> {
        let (classes, targets) = (self.classes as i64, self.targets.len());
        if targets == 0 {
            g.output("logits", outputs, &[BATCH, Axis::Fixed(self.classes)]);
            return Ok(());
        }
        if classes > 0 {
            let end = g.ints(&[classes]);
            let scores = g.slice(outputs, 1, 0, &end);
            g.output("logits", &scores, &[BATCH, Axis::Fixed(self.classes)]);
        }
        let end = g.ints(&[i64::MAX]);
        let deviations = g.slice(outputs, 1, classes, &end);
        let row = |value: fn(&RegressionTarget) -> f64| {
            let values = self.targets.iter().map(|target| value(target) as f32);
            Tensor::from_vec(values.collect(), targets, &Device::Cpu)
        };
        let deviation = g.tensor("columns.deviation", &row(|target| target.deviation)?)?;
        let mean = g.tensor("columns.mean", &row(|target| target.mean)?)?;
        let scaled = g.mul(&deviations, &deviation);
        let values = g.add(&scaled, &mean);
        g.output("numbers", &values, &[BATCH, Axis::Fixed(targets)]);
        Ok(())
    }
}
