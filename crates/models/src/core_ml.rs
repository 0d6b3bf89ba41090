//! A classifier as a Core ML model with an ML Program, converted from its ONNX graph. It takes one
//! sample at a time, and texts are padded, so that every shape is known. Images go in as pixels;
//! the program normalizes them.

mod onnx_conversion;
mod description;
mod protobuf_messages;
mod program;
mod weight_file;

pub(crate) use protobuf_messages::Model;
pub(crate) use weight_file::WeightFile;

use crate::error::{ModelError, Result};
use crate::onnx_graph::{self, GraphMessage, ValueInfo};
use crate::pixel_normalization::PixelNormalization;
use description::{CLASS, PROBABILITIES, description};
use onnx_conversion::{Conversion, NoCounterpart};
use program::{
    Call, Setting, Tensor, argument, name_attribute, named_type, tensor_type, text_list,
};
use protobuf_messages::{Block, DataType, DictionaryType, Function, Operation, Program, ValueType};
use std::collections::BTreeMap;

/// Version of the model format: the first with ML Programs (macOS 12, iOS 15).
const FORMAT: i32 = 6;
/// Version of the operations that belongs to it.
const OPERATIONS: &str = "CoreML5";
/// Version of ML Programs.
const PROGRAM: i64 = 1;
/// Largest value of a pixel.
const WHITE: f32 = 255.0;

/// What goes into a classifier.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Input {
    /// An image of `side` x `side` pixels.
    Image {
        side: usize,
        normalization: PixelNormalization,
    },
    /// A text of this many tokens, with padding.
    Text { tokens: usize },
}

/// A classifier to convert.
pub(crate) struct CoreMlExport<'a> {
    /// Its name in messages.
    pub label: &'static str,
    pub input: Input,
    /// Class names in label order.
    pub classes: &'a [String],
    /// Names of its regression targets.
    pub targets: Vec<&'a str>,
}

impl CoreMlExport<'_> {
    /// Converts the classifier. The outputs are `classLabel` and the probability of each class, if
    /// there are classes, and `numbers` [1, targets], if there are targets.
    ///
    /// # Errors
    /// Core ML has no counterpart for an operation.
    pub fn convert(&self, graph: onnx_graph::Model) -> Result<(Model, WeightFile)> {
        let mut graph = graph.graph.unwrap_or_default();
        let mut conversion = Conversion::default();
        let inputs = self.inputs();
        for (input, name) in inputs
            .iter()
            .zip(graph.input.iter().map(|input| &input.name))
        {
            conversion.define(name, input.clone());
        }
        if let Input::Image { normalization, .. } = self.input {
            let pixels = normalized(&mut conversion, &inputs[0], normalization);
            conversion.define(&graph.input[0].name, pixels);
        }
        for constant in std::mem::take(&mut graph.initializer) {
            conversion.constant(constant);
        }
        for node in &graph.node {
            conversion
                .node(node)
                .map_err(|NoCounterpart| self.no_counterpart(&node.op_type))?;
        }
        let outputs = self.add_outputs(&mut conversion, &graph)?;
        let (operations, weights) = conversion.program.finish();
        let function = Function {
            inputs: inputs.iter().map(Tensor::named_type).collect(),
            opset: OPERATIONS.to_owned(),
            block_specializations: BTreeMap::from([(
                OPERATIONS.to_owned(),
                Block {
                    outputs,
                    operations,
                },
            )]),
        };
        let model = Model {
            specification_version: FORMAT,
            description: Some(description(self)),
            ml_program: Some(Program {
                version: PROGRAM,
                functions: BTreeMap::from([("main".to_owned(), function)]),
            }),
        };
        Ok((model, weights))
    }

    fn no_counterpart(&self, operation: &str) -> ModelError {
        ModelError::NotExportable(format!(
            "Core ML has no counterpart for the operation {operation} of {}; export the network as ONNX",
            self.label
        ))
    }

    /// Inputs of the program, in the order of the graph's.
    fn inputs(&self) -> Vec<Tensor> {
        let tensor = |name: &str, data_type, shape: &[usize]| Tensor {
            name: name.to_owned(),
            data_type,
            shape: shape.to_vec(),
        };
        match self.input {
            Input::Image { side, .. } => {
                vec![tensor("image", DataType::Float32, &[1, 3, side, side])]
            }
            Input::Text { tokens } => ["input_ids", "attention_mask"]
                .map(|name| tensor(name, DataType::Int32, &[1, tokens]))
                .into(),
        }
    }

    /// Adds the outputs and returns their names: of classes, the likeliest one and all
    /// probabilities, and the regression targets as they are.
    fn add_outputs(
        &self,
        conversion: &mut Conversion,
        graph: &GraphMessage,
    ) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for ValueInfo { name, .. } in &graph.output {
            let value = conversion
                .tensor(name)
                .map_err(|NoCounterpart| self.no_counterpart("Identity"))?;
            let program = &mut conversion.program;
            if name == "logits" {
                let softmax = Call::new("softmax").tensor("x", &value);
                let softmax = softmax.setting("axis", Setting::Int(-1));
                let probabilities = program.call_named("probabilities", softmax, &value.shape);
                program.push(classify(&probabilities, self.classes));
                names.extend([CLASS, PROBABILITIES].map(str::to_owned));
            } else {
                let identity = Call::new("identity").tensor("x", &value);
                program.call_named(name, identity, &value.shape);
                names.push(name.clone());
            }
        }
        Ok(names)
    }
}

/// Pixels of 0 to 255 as the network expects them.
fn normalized(conversion: &mut Conversion, image: &Tensor, by: PixelNormalization) -> Tensor {
    let bytes = |values: [f32; 3]| values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let channels = [1, 3, 1, 1];
    let scale = by.std.map(|std| 1.0 / (WHITE * std));
    let shift = [0, 1, 2].map(|channel| -by.mean[channel] / by.std[channel]);
    let program = &mut conversion.program;
    let scale = program.weight("pixel_scale", &channels, bytes(scale));
    let shift = program.weight("pixel_shift", &channels, bytes(shift));
    let scaled = Call::new("mul").tensor("x", image).tensor("y", &scale);
    let scaled = program.call(scaled, &image.shape);
    let shifted = Call::new("add").tensor("x", &scaled).tensor("y", &shift);
    program.call(shifted, &image.shape)
}

/// The operation that names the likeliest class.
fn classify(probabilities: &Tensor, classes: &[String]) -> Operation {
    let text = || Some(Box::new(tensor_type(DataType::String, &[])));
    let number = || Some(Box::new(tensor_type(DataType::Float64, &[])));
    let by_class = ValueType {
        dictionary: Some(DictionaryType {
            key: text(),
            value: number(),
        }),
        ..ValueType::default()
    };
    let likeliest = tensor_type(DataType::String, &[]);
    Operation {
        kind: "classify".to_owned(),
        inputs: BTreeMap::from([
            (
                "probabilities".to_owned(),
                argument(vec![probabilities.name.clone()]),
            ),
            ("classes".to_owned(), text_list(classes)),
        ]),
        outputs: vec![
            named_type(CLASS, likeliest),
            named_type(PROBABILITIES, by_class),
        ],
        attributes: name_attribute("classify"),
    }
}

#[cfg(test)]
mod tests;
