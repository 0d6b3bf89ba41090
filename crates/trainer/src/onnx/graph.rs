//! A graph as it grows: each call adds an operation and tells the name of what it gives. Parameters are looked up by Ebb's names
//! and written once.
//!
//! Refuses to know networks: whatever is made of these operations can be written.

use super::message::{
    Attribute, Axis, FLOAT, GraphMessage, INT64, Model, Node, OperatorSet, TensorMessage, ValueInfo,
};
use crate::error::{Result, TrainError};
use candle_core::{DType, Device, Tensor};
use std::collections::{BTreeSet, HashMap};
use tape::Activation;

/// The edition of the operators: the oldest that has LayerNormalization.
const OPERATORS: i64 = 17;
/// The edition of the format that goes with it.
const FORMAT: i64 = 8;

/// The name of a value in a graph.
pub type Name = String;

/// A graph with the parameters that it may take.
pub struct Graph<'a> {
    values: &'a HashMap<String, Tensor>,
    graph: GraphMessage,
    written: BTreeSet<String>,
}

impl<'a> Graph<'a> {
    /// An empty graph over parameters by Ebb's names.
    pub fn new(values: &'a HashMap<String, Tensor>) -> Self {
        Graph {
            values,
            graph: GraphMessage {
                name: "ebb".to_owned(),
                ..GraphMessage::default()
            },
            written: BTreeSet::new(),
        }
    }

    /// The file.
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

    /// Something that goes in: 32-bit floats.
    pub fn input(&mut self, name: &str, axes: &[Axis]) -> Name {
        self.graph.input.push(ValueInfo::of(name, FLOAT, axes));
        name.to_owned()
    }

    /// Something that goes in: whole numbers.
    pub fn input_of_ints(&mut self, name: &str, axes: &[Axis]) -> Name {
        self.graph.input.push(ValueInfo::of(name, INT64, axes));
        name.to_owned()
    }

    /// Gives `value` out under `name`.
    pub fn output(&mut self, name: &str, value: &str, axes: &[Axis]) {
        self.graph.output.push(ValueInfo::of(name, FLOAT, axes));
        self.push("Identity", &[value], name.to_owned(), Vec::new());
    }

    /// An operation with one output.
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

    /// The parameter of that name, on the CPU.
    pub fn value(&self, name: &str) -> Result<Tensor> {
        let tensor = self.values.get(name).ok_or_else(|| {
            let reason =
                format!("the run has no weights {name}; its checkpoint is of another network");
            TrainError::NotTrainable { message: reason }
        })?;
        Ok(tensor.to_device(&Device::Cpu)?.to_dtype(DType::F32)?)
    }

    /// The parameter as it is.
    pub fn parameter(&mut self, name: &str) -> Result<Name> {
        let value = self.value(name)?;
        self.tensor(name, &value)
    }

    /// The parameter in other axes.
    pub fn reshaped(&mut self, name: &str, axes: &[usize]) -> Result<Name> {
        let value = self.value(name)?.reshape(axes)?;
        self.tensor(name, &value)
    }

    /// Numbers under a name, once.
    pub fn tensor(&mut self, name: &str, value: &Tensor) -> Result<Name> {
        if self.written.insert(name.to_owned()) {
            let numbers = value.flatten_all()?.to_vec1::<f32>()?;
            let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
            self.graph.initializer.push(TensorMessage {
                dims: value.dims().iter().map(|&size| size as i64).collect(),
                data_type: FLOAT,
                name: name.to_owned(),
                raw_data: bytes.collect(),
            });
        }
        Ok(name.to_owned())
    }

    /// One number.
    pub fn number(&mut self, number: f64) -> Name {
        self.constant(format!("number.{number}"), &[], FLOAT, || {
            (number as f32).to_le_bytes().to_vec()
        })
    }

    /// Whole numbers on one axis.
    pub fn ints(&mut self, numbers: &[i64]) -> Name {
        self.constant(
            format!("ints.{numbers:?}"),
            &[numbers.len() as i64],
            INT64,
            || numbers.iter().flat_map(|n| n.to_le_bytes()).collect(),
        )
    }

    /// One whole number without an axis.
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

    /// A sum.
    pub fn add(&mut self, a: &str, b: &str) -> Name {
        self.node("Add", &[a, b], Vec::new())
    }

    /// A product, number by number.
    pub fn mul(&mut self, a: &str, b: &str) -> Name {
        self.node("Mul", &[a, b], Vec::new())
    }

    /// A value times a number.
    pub fn scaled(&mut self, x: &str, factor: f64) -> Name {
        let factor = self.number(factor);
        self.mul(x, &factor)
    }

    /// A product of matrices.
    pub fn matmul(&mut self, a: &str, b: &str) -> Name {
        self.node("MatMul", &[a, b], Vec::new())
    }

    /// The same numbers in other axes: 0 as it was, -1 what is left.
    pub fn reshape(&mut self, x: &str, axes: &[i64]) -> Name {
        let axes = self.ints(axes);
        self.node("Reshape", &[x, &axes], Vec::new())
    }

    /// Axes in another order.
    pub fn transpose(&mut self, x: &str, order: &[i64]) -> Name {
        self.node("Transpose", &[x], vec![Attribute::ints("perm", order)])
    }

    /// Values one behind the other along an axis.
    pub fn concat(&mut self, values: &[&str], axis: i64) -> Name {
        self.node("Concat", values, vec![Attribute::int("axis", axis)])
    }

    /// What stands at one place of an axis; the axis goes.
    pub fn at(&mut self, x: &str, axis: i64, place: i64) -> Name {
        let place = self.int(place);
        self.node("Gather", &[x, &place], vec![Attribute::int("axis", axis)])
    }

    /// A stretch of an axis; `to` is the name of whole numbers.
    pub fn cut(&mut self, x: &str, axis: i64, from: i64, to: &str) -> Name {
        let (from, axis) = (self.ints(&[from]), self.ints(&[axis]));
        self.node("Slice", &[x, &from, to, &axis], Vec::new())
    }

    /// `x Wᵀ + b` by the parameters under `name`: [.., inputs] to [.., outputs].
    pub fn linear(&mut self, x: &str, name: &str) -> Result<Name> {
        let bias = self.parameter(&format!("{name}.bias"))?;
        let y = self.map(x, &format!("{name}.weight"))?;
        Ok(self.add(&y, &bias))
    }

    /// `x Wᵀ` by the parameter `name`.
    pub fn map(&mut self, x: &str, name: &str) -> Result<Name> {
        let turned = self.value(name)?.t()?.contiguous()?;
        let turned = self.tensor(&format!("{name}.turned"), &turned)?;
        Ok(self.matmul(x, &turned))
    }

    /// Layer norm over the last axis by the parameters under `name`.
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
        let share = self.node("Tanh", &[&inner], Vec::new());
        self.half_of_one_more(x, &share)
    }

    /// `x/2 (1 + erf(x / sqrt 2))`.
    pub fn gelu_erf(&mut self, x: &str) -> Name {
        let inner = self.scaled(x, std::f64::consts::FRAC_1_SQRT_2);
        let share = self.node("Erf", &[&inner], Vec::new());
        self.half_of_one_more(x, &share)
    }

    fn half_of_one_more(&mut self, x: &str, share: &str) -> Name {
        let one = self.number(1.0);
        let more = self.add(share, &one);
        let y = self.mul(x, &more);
        self.scaled(&y, 0.5)
    }

    /// What follows a norm.
    pub fn activate(&mut self, x: Name, activation: Activation) -> Name {
        match activation {
            Activation::None => x,
            Activation::Relu => self.node("Relu", &[&x], Vec::new()),
            Activation::Gelu => self.gelu(&x),
        }
    }
}
