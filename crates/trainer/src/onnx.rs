//! A trained classifier as an ONNX file: the same operations in the same order, written as a graph that onnxruntime and others
//! run. How many samples go in at once, and how many tokens a text has, each use chooses.
//!
//! Refuses to know folders and runs: a description of a network and its parameters by name go in, bytes come out.

mod message;
mod graph;
mod residual;
mod transformer;

use crate::error::{Result, TrainError};
use crate::models::{
    ResNetShape, ResNetStyle, SequenceShape, TextEncoderStyle, VitShape, VitStyle,
};
use candle_core::{Device, Tensor};
use dataset::TargetColumn;
use graph::{Graph, Name};
use message::Axis;
use prost::Message;
use std::collections::HashMap;
use transformer::Scored;

/// Largest file of this format, in bytes: what its encoding counts in.
const MOST_BYTES: usize = i32::MAX as usize;

/// A network that classifies, before it is written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Classifier {
    /// Residual convolutions, for images of any side.
    ResNet(ResNetShape, ResNetStyle),
    /// Vision transformer, for images of its side.
    Vit(VitShape, VitStyle),
    /// Text encoder.
    TextEncoder(SequenceShape, TextEncoderStyle),
}

/// What a file is made of.
pub(crate) struct Source<'a> {
    /// The network.
    pub classifier: Classifier,
    /// Side of its images in pixels; of texts it says nothing.
    pub side: usize,
    /// Scores of classes.
    pub classes: usize,
    /// Numbers behind them.
    pub columns: &'a [TargetColumn],
    /// Parameters by Ebb's names, adapters merged.
    pub values: &'a HashMap<String, Tensor>,
}

/// Samples of one use.
const BATCH: Axis = Axis::Free("batch");

impl Source<'_> {
    /// The file. Images go in as `pixel_values` [batch, 3, side, side], texts as `input_ids` and `attention_mask`
    /// [batch, tokens]; out come `logits` [batch, classes] and, where numbers were learnt, `numbers` [batch, columns] in the
    /// units of their columns. It is held in memory twice for a moment.
    ///
    /// # Errors
    /// A parameter is missing, or the file would be larger than the format allows.
    pub fn file(&self) -> Result<Vec<u8>> {
        let mut g = Graph::new(self.values);
        let scored = match &self.classifier {
            Classifier::ResNet(shape, style) => {
                let images = self.images(&mut g);
                let features = residual::features(&mut g, &images, shape, *style)?;
                Scored::By("head", features)
            }
            Classifier::Vit(shape, style) => {
                let images = self.images(&mut g);
                transformer::of_image(&mut g, &images, shape, style)?
            }
            Classifier::TextEncoder(shape, style) => {
                let axes = [BATCH, Axis::Free("tokens")];
                let ids = g.input_of_ints("input_ids", &axes);
                let mask = g.input_of_ints("attention_mask", &axes);
                transformer::of_text(&mut g, [&ids, &mask], shape, style)?
            }
        };
        let outputs = match scored {
            Scored::By(map, features) => g.linear(&features, map)?,
            Scored::ByTwo(each) => {
                let [(map, features), (other_map, other)] = each;
                let scores = g.linear(&features, map)?;
                let other = g.linear(&other, other_map)?;
                let sum = g.add(&scores, &other);
                g.scaled(&sum, 0.5)
            }
        };
        self.give(&mut g, &outputs)?;
        let model = g.finish();
        let bytes = model.encoded_len();
        if bytes > MOST_BYTES {
            return Err(TrainError::NotTrainable {
                message: format!(
                    "its weights make a file of {}, and ONNX holds at most {} in one; export it as a Hugging Face folder",
                    runlog::format_bytes(bytes as u64),
                    runlog::format_bytes(MOST_BYTES as u64)
                ),
            });
        }
        Ok(model.encode_to_vec())
    }

    fn images(&self, g: &mut Graph) -> Name {
        let side = Axis::Fixed(self.side);
        g.input("pixel_values", &[BATCH, Axis::Fixed(3), side, side])
    }

    /// Scores and numbers apart, the numbers in the units of their columns.
    fn give(&self, g: &mut Graph, outputs: &str) -> Result<()> {
        let (classes, numbers) = (self.classes as i64, self.columns.len());
        if numbers == 0 {
            g.output("logits", outputs, &[BATCH, Axis::Fixed(self.classes)]);
            return Ok(());
        }
        if classes > 0 {
            let end = g.ints(&[classes]);
            let scores = g.cut(outputs, 1, 0, &end);
            g.output("logits", &scores, &[BATCH, Axis::Fixed(self.classes)]);
        }
        let end = g.ints(&[i64::MAX]);
        let deviations = g.cut(outputs, 1, classes, &end);
        let row = |of: fn(&TargetColumn) -> f64| {
            let values = self.columns.iter().map(|column| of(column) as f32);
            Tensor::from_vec(values.collect(), numbers, &Device::Cpu)
        };
        let deviation = g.tensor("columns.deviation", &row(|column| column.deviation)?)?;
        let mean = g.tensor("columns.mean", &row(|column| column.mean)?)?;
        let scaled = g.mul(&deviations, &deviation);
        let values = g.add(&scaled, &mean);
        g.output("numbers", &values, &[BATCH, Axis::Fixed(numbers)]);
        Ok(())
    }
}
