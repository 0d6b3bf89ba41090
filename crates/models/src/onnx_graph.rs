//! Builds an ONNX graph: each call adds an operation and returns the name of its output. Parameters
//! are looked up by Ebb's names and written once.

mod onnx_proto;
pub(crate) mod transformer;

pub(crate) use onnx_proto::{
    Attribute, Axis, FLOAT, GraphMessage, Model, Node, TensorMessage, ValueInfo,
};

use crate::error::{ModelError, Result};
use candle_core::{DType, Tensor};
use onnx_proto::{INT64, OperatorSet};
use std::collections::{BTreeSet, HashMap};
use tape::Activation;
use tape::device::{contiguous, read, to_host};

/// Version of the operators: the oldest with LayerNormalization.
const OPERATORS: i64 = 17;
/// Version of the format that belongs to it.
const FORMAT: i64 = 8;

/// The name of a value in a graph.
pub type Name = String;

/// Inputs of the head, each with the name of its linear map.
pub enum Features {
    /// One map.
    One(&'static str, Name),
    /// Two maps whose scores are averaged.
    Two([(&'static str, Name); 2]),
}

/// A graph, and the parameters it can use.
pub struct Graph<'a> {
    parameters: &'a HashMap<String, Tensor>,
    graph: GraphMessage,
    written: BTreeSet<String>,
}

impl<'a> Graph<'a> {
    /// An empty graph over parameters by Ebb's names.
    pub fn new(parameters: &'a HashMap<String, Tensor>) -> Self {
        Graph {
            parameters,
            graph: GraphMessage {
                name: "ebb".to_owned(),
                ..GraphMessage::default()
            },
            written: BTreeSet::new(),
        }
    }

    /// The complete file.
    pub fn finish(self) -> Model {
        Model {
            ir_version: FORMAT,
            producer_name: "Ebb".to_owned(),
            producer_version: env!("CARGO_PKG_VERSION").to_owned(),
            graph: Some(self.graph),
            opset_import: vec![OperatorSet {
                domain: String::new(),
                version: OPERATORS,
            }],
        }
    }

    /// Adds an input of 32-bit floats.
    pub fn input(&mut self, name: &str, axes: &[Axis]) -> Name {
        self.graph.input.push(ValueInfo::new(name, FLOAT, axes));
        name.to_owned()
    }

    /// Adds an input of 64-bit integers.
    pub fn input_of_ints(&mut self, name: &str, axes: &[Axis]) -> Name {
        self.graph.input.push(ValueInfo::new(name, INT64, axes));
        name.to_owned()
    }

    /// Adds `value` as an output called `name`.
    pub fn output(&mut self, name: &str, value: &str, axes: &[Axis]) {
        self.graph.output.push(ValueInfo::new(name, FLOAT, axes));
        self.push("Identity", &[value], name.to_owned(), Vec::new());
    }

    /// Adds an operation with one output.
    pub fn node(&mut self, op: &str, inputs: &[&str], attributes: Vec<Attribute>) -> Name {
        let name = format!("{op}.{}", self.graph.node.len());
        self.push(op, inputs, name.clone(), attributes);
        name
    }

    fn push(&mut self, op: &str, inputs: &[&str], output: Name, attribute: Vec<Attribute>) {
        self.graph.node.push(Node {
            input: inputs.iter().map(|&input| input.to_owned()).collect(),
            name: output.clone(),
            output: vec![output],
            op_type: op.to_owned(),
            attribute,
        });
    }

    /// The values of a parameter, on the CPU.
    pub fn value(&self, name: &str) -> Result<Tensor> {
        let tensor = self.parameters.get(name).ok_or_else(|| {
            let reason = format!(
                "the run has no parameter {name}; its checkpoint belongs to another network"
            );
            ModelError::NotExportable(reason)
        })?;
        Ok(to_host(tensor)?.to_dtype(DType::F32)?)
    }

    /// Adds a parameter.
    pub fn parameter(&mut self, name: &str) -> Result<Name> {
        let value = self.value(name)?;
        self.tensor(name, &value)
    }

    /// Adds a parameter in another shape.
    pub fn reshaped(&mut self, name: &str, axes: &[usize]) -> Result<Name> {
        let value = self.value(name)?.reshape(axes)?;
        self.tensor(name, &value)
    }

    /// Adds a tensor, unless there is one of this name.
    pub fn tensor(&mut self, name: &str, value: &Tensor) -> Result<Name> {
        if self.written.insert(name.to_owned()) {
            let values = read::<f32>(value)?;
            let bytes = values.iter().flat_map(|value| value.to_le_bytes());
            self.graph.initializer.push(TensorMessage {
                dims: value.dims().iter().map(|&size| size as i64).collect(),
                data_type: FLOAT,
                name: name.to_owned(),
                raw_data: bytes.collect(),
            });
        }
        Ok(name.to_owned())
    }

    /// A constant scalar.
    pub fn number(&mut self, number: f64) -> Name {
        self.constant(format!("number.{number}"), &[], FLOAT, || {
            (number as f32).to_le_bytes().to_vec()
        })
    }

    /// A constant vector of integers.
    pub fn ints(&mut self, numbers: &[i64]) -> Name {
        self.constant(
            format!("ints.{numbers:?}"),
            &[numbers.len() as i64],
            INT64,
            || numbers.iter().flat_map(|n| n.to_le_bytes()).collect(),
        )
    }

    /// A constant integer scalar.
    pub fn int(&mut self, number: i64) -> Name {
        self.constant(format!("int.{number}"), &[], INT64, || {
            number.to_le_bytes().to_vec()
        })
    }

    fn constant(
        &mut self,
        name: Name,
        dims: &[i64],
        data_type: i32,
        bytes: impl FnOnce() -> Vec<u8>,
    ) -> Name {
        if self.written.insert(name.clone()) {
            self.graph.initializer.push(TensorMessage {
                dims: dims.to_vec(),
                data_type,
                name: name.clone(),
                raw_data: bytes(),
            });
        }
        name
    }

    /// `a + b`.
    pub fn add(&mut self, a: &str, b: &str) -> Name {
        self.node("Add", &[a, b], Vec::new())
    }

    /// `a * b`, elementwise.
    pub fn mul(&mut self, a: &str, b: &str) -> Name {
        self.node("Mul", &[a, b], Vec::new())
    }

    /// `x * factor`.
    pub fn scaled(&mut self, x: &str, factor: f64) -> Name {
        let factor = self.number(factor);
        self.mul(x, &factor)
    }

    /// The matrix product of `a` and `b`.
    pub fn matmul(&mut self, a: &str, b: &str) -> Name {
        self.node("MatMul", &[a, b], Vec::new())
    }

    /// `x` in another shape; 0 keeps an axis, -1 is inferred.
    pub fn reshape(&mut self, x: &str, axes: &[i64]) -> Name {
        let axes = self.ints(axes);
        self.node("Reshape", &[x, &axes], Vec::new())
    }

    /// `x` with its axes in another order.
    pub fn transpose(&mut self, x: &str, order: &[i64]) -> Name {
        self.node("Transpose", &[x], vec![Attribute::ints("perm", order)])
    }

    /// `values` concatenated along an axis.
    pub fn concat(&mut self, values: &[&str], axis: i64) -> Name {
        self.node("Concat", values, vec![Attribute::int("axis", axis)])
    }

    /// The slice of `x` at `index` of an axis, without that axis.
    pub fn at(&mut self, x: &str, axis: i64, index: i64) -> Name {
        let index = self.int(index);
        self.node("Gather", &[x, &index], vec![Attribute::int("axis", axis)])
    }

    /// The range of an axis from `from` to `to`, the name of an integer vector.
    pub fn slice(&mut self, x: &str, axis: i64, from: i64, to: &str) -> Name {
        let (from, axis) = (self.ints(&[from]), self.ints(&[axis]));
        self.node("Slice", &[x, &from, to, &axis], Vec::new())
    }

    /// `x Wᵀ + b` with the parameters under `name`: [.., inputs] to [.., outputs].
    pub fn linear(&mut self, x: &str, name: &str) -> Result<Name> {
        let bias = self.parameter(&format!("{name}.bias"))?;
        let y = self.map(x, &format!("{name}.weight"))?;
        Ok(self.add(&y, &bias))
    }

    /// `x Wᵀ` with the parameter `name`.
    pub fn map(&mut self, x: &str, name: &str) -> Result<Name> {
        let transposed = contiguous(&self.value(name)?.t()?)?;
        let transposed = self.tensor(&format!("{name}.transposed"), &transposed)?;
        Ok(self.matmul(x, &transposed))
    }

    /// Layer norm over the last axis with the parameters under `name`.
    pub fn layer_norm(&mut self, x: &str, name: &str, epsilon: f64) -> Result<Name> {
        let weight = self.parameter(&format!("{name}.weight"))?;
        let bias = self.parameter(&format!("{name}.bias"))?;
        let settings = vec![
            Attribute::int("axis", -1),
            Attribute::float("epsilon", epsilon),
        ];
        Ok(self.node("LayerNormalization", &[x, &weight, &bias], settings))
    }

    /// `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x³)))`.
    pub fn gelu(&mut self, x: &str) -> Name {
        let square = self.mul(x, x);
        let cube = self.mul(&square, x);
        let cube = self.scaled(&cube, 0.044715);
        let inner = self.add(x, &cube);
        let inner = self.scaled(&inner, (2.0 / std::f64::consts::PI).sqrt());
        let factor = self.node("Tanh", &[&inner], Vec::new());
        self.half_of_one_plus(x, &factor)
    }

    /// `x/2 (1 + erf(x / sqrt 2))`.
    pub fn gelu_erf(&mut self, x: &str) -> Name {
        let inner = self.scaled(x, std::f64::consts::FRAC_1_SQRT_2);
        let factor = self.node("Erf", &[&inner], Vec::new());
        self.half_of_one_plus(x, &factor)
    }

    /// `x/2 (1 + factor)`.
    fn half_of_one_plus(&mut self, x: &str, factor: &str) -> Name {
        let one = self.number(1.0);
        let sum = self.add(factor, &one);
        let y = self.mul(x, &sum);
        self.scaled(&y, 0.5)
    }

    /// Applies an activation.
    pub fn activate(&mut self, x: Name, activation: Activation) -> Name {
        match activation {
            Activation::None => x,
            Activation::Relu => self.node("Relu", &[&x], Vec::new()),
            Activation::Gelu => self.gelu(&x),
        }
    }
}
