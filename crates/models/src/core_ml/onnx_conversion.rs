//! Converts the nodes of an ONNX graph to operations of an ML Program, one operation per node. All
//! shapes are known, so nodes that compute with shapes become constants.

use super::program::{Call, ProgramBuilder, Setting, Tensor};
use crate::onnx_graph::{Attribute, FLOAT, Node, TensorMessage};
use std::collections::HashMap;

/// A value of the ONNX graph.
#[derive(Debug, Clone)]
pub enum Operand {
    /// Integers that are known: shapes, axes and indices.
    Ints(Vec<i64>),
    /// A value of the program.
    Tensor(Tensor),
}

/// Why a node was not converted: Core ML has no operation that does the same.
pub struct NoCounterpart;

type Converted<T> = Result<T, NoCounterpart>;

/// Values of an ONNX graph by their names, and the program so far.
#[derive(Default)]
pub struct Conversion {
    pub program: ProgramBuilder,
    values: HashMap<String, Operand>,
}

impl Conversion {
    /// Adds a constant of the graph.
    pub fn constant(&mut self, constant: TensorMessage) {
        let shape: Vec<usize> = constant.dims.iter().map(|&size| size as usize).collect();
        let operand = if constant.data_type == FLOAT {
            let weight = self
                .program
                .weight(&constant.name, &shape, constant.raw_data);
            Operand::Tensor(weight)
        } else {
            let (ints, _) = constant.raw_data.as_chunks();
            Operand::Ints(
                ints.iter()
                    .map(|bytes| i64::from_le_bytes(*bytes))
                    .collect(),
            )
        };
        self.values.insert(constant.name, operand);
    }

    /// Names a value of the program as the graph does.
    pub fn define(&mut self, name: &str, value: Tensor) {
        self.values.insert(name.to_owned(), Operand::Tensor(value));
    }

    /// The value of this name.
    pub fn tensor(&self, name: &str) -> Converted<Tensor> {
        match self.values.get(name) {
            Some(Operand::Tensor(tensor)) => Ok(tensor.clone()),
            _ => Err(NoCounterpart),
        }
    }

    fn ints(&self, name: &str) -> Converted<Vec<i64>> {
        match self.values.get(name) {
            Some(Operand::Ints(ints)) => Ok(ints.clone()),
            _ => Err(NoCounterpart),
        }
    }

    /// Adds the operation that does the same as `node`.
    ///
    /// # Errors
    /// There is none.
    pub fn node(&mut self, node: &Node) -> Converted<()> {
        let [output] = &node.output[..] else {
            return Err(NoCounterpart);
        };
        let operand = if self.computes_with_ints(node) {
            Operand::Ints(self.fold(node)?)
        } else {
            Operand::Tensor(self.operation(node)?)
        };
        self.values.insert(output.clone(), operand);
        Ok(())
    }

    fn computes_with_ints(&self, node: &Node) -> bool {
        let first = node.input.first().and_then(|name| self.values.get(name));
        node.op_type == "Shape" || matches!(first, Some(Operand::Ints(_)))
    }

    /// The result of a node that computes with shapes.
    fn fold(&self, node: &Node) -> Converted<Vec<i64>> {
        match node.op_type.as_str() {
            "Shape" => {
                let shape = self.tensor(input(node, 0)?)?.shape;
                Ok(shape.into_iter().map(|size| size as i64).collect())
            }
            "Concat" => {
                let parts: Converted<Vec<_>> = node.input.iter().map(|i| self.ints(i)).collect();
                Ok(parts?.concat())
            }
            "Slice" => {
                let ints = self.ints(input(node, 0)?)?;
                let (from, to) = self.range(node, ints.len())?;
                Ok(ints[from..to].to_vec())
            }
            _ => Err(NoCounterpart),
        }
    }

    fn operation(&mut self, node: &Node) -> Converted<Tensor> {
        let x = self.tensor(input(node, 0)?)?;
        match node.op_type.as_str() {
            "Identity" => Ok(x),
            "Relu" => Ok(self.unary("relu", &x)),
            "Tanh" => Ok(self.unary("tanh", &x)),
            "Erf" => Ok(self.unary("erf", &x)),
            "Cast" => {
                let call = Call::new("cast").tensor("x", &x);
                let call = call.setting("dtype", Setting::Text("fp32"));
                Ok(self.program.call(call, &x.shape))
            }
            "Softmax" => {
                let axis = Setting::Int(int(node, "axis")?);
                let call = Call::new("softmax").tensor("x", &x).setting("axis", axis);
                Ok(self.program.call(call, &x.shape))
            }
            "Add" => self.binary("add", &x, node),
            "Mul" => self.binary("mul", &x, node),
            "Div" => self.binary("real_div", &x, node),
            "MatMul" => self.matmul(&x, node),
            "Conv" => self.convolution(&x, node),
            "MaxPool" => self.max_pool(&x, node),
            "LayerNormalization" => self.layer_norm(&x, node),
            "InstanceNormalization" => self.instance_norm(&x, node),
            "ReduceMean" => {
                let axes = ints(node, "axes")?.to_vec();
                self.reduction("reduce_mean", &x, axes, node)
            }
            "ReduceSum" => {
                let axes = self.ints(input(node, 1)?)?;
                self.reduction("reduce_sum", &x, axes, node)
            }
            "Reshape" => self.reshape(&x, node),
            "Transpose" => self.transpose(&x, node),
            "Unsqueeze" => self.unsqueeze(&x, node),
            "Expand" => self.expand(x, node),
            "Concat" => self.concat(node),
            "Gather" => self.gather(&x, node),
            "Slice" => self.slice(x, node),
            _ => Err(NoCounterpart),
        }
    }

    fn unary(&mut self, kind: &'static str, x: &Tensor) -> Tensor {
        self.program.call(Call::new(kind).tensor("x", x), &x.shape)
    }

    fn binary(&mut self, kind: &'static str, x: &Tensor, node: &Node) -> Converted<Tensor> {
        let y = self.tensor(input(node, 1)?)?;
        let shape = broadcast(&x.shape, &y.shape);
        let call = Call::new(kind).tensor("x", x).tensor("y", &y);
        Ok(self.program.call(call, &shape))
    }

    fn matmul(&mut self, x: &Tensor, node: &Node) -> Converted<Tensor> {
        let y = self.tensor(input(node, 1)?)?;
        let ([samples @ .., rows, _], [others @ .., _, columns]) = (&x.shape[..], &y.shape[..])
        else {
            return Err(NoCounterpart);
        };
        let mut shape = broadcast(samples, others);
        shape.extend([*rows, *columns]);
        let call = Call::new("matmul").tensor("x", x).tensor("y", &y);
        let call = call.setting("transpose_x", Setting::Bool(false));
        let call = call.setting("transpose_y", Setting::Bool(false));
        Ok(self.program.call(call, &shape))
    }

    fn convolution(&mut self, x: &Tensor, node: &Node) -> Converted<Tensor> {
        let weight = self.tensor(input(node, 1)?)?;
        let window = Window::new(node)?;
        let [height, width] = window.outputs(x)?;
        let (&[samples, ..], &[outputs, ..]) = (&x.shape[..], &weight.shape[..]) else {
            return Err(NoCounterpart);
        };
        let mut call = Call::new("conv").tensor("x", x).tensor("weight", &weight);
        if let Ok(bias) = input(node, 2) {
            call = call.tensor("bias", &self.tensor(bias)?);
        }
        let call = call
            .setting("strides", Setting::Ints(window.strides.to_vec()))
            .setting("pad_type", Setting::Text("custom"))
            .setting("pad", window.padding())
            .setting("dilations", Setting::Ints(vec![1, 1]))
            .setting("groups", Setting::Int(int(node, "group").unwrap_or(1)));
        let shape = [samples, outputs, height, width];
        Ok(self.program.call(call, &shape))
    }

    fn max_pool(&mut self, x: &Tensor, node: &Node) -> Converted<Tensor> {
        let window = Window::new(node)?;
        let [height, width] = window.outputs(x)?;
        let &[samples, channels, ..] = &x.shape[..] else {
            return Err(NoCounterpart);
        };
        let call = Call::new("max_pool")
            .tensor("x", x)
            .setting("kernel_sizes", Setting::Ints(window.kernel.to_vec()))
            .setting("strides", Setting::Ints(window.strides.to_vec()))
            .setting("pad_type", Setting::Text("custom"))
            .setting("pad", window.padding())
            .setting("ceil_mode", Setting::Bool(false));
        Ok(self.program.call(call, &[samples, channels, height, width]))
    }

    fn layer_norm(&mut self, x: &Tensor, node: &Node) -> Converted<Tensor> {
        let (gamma, beta) = (self.tensor(input(node, 1)?)?, self.tensor(input(node, 2)?)?);
        let call = Call::new("layer_norm")
            .tensor("x", x)
            .setting("axes", Setting::Ints(vec![int(node, "axis")?]))
            .tensor("gamma", &gamma)
            .tensor("beta", &beta)
            .setting("epsilon", Setting::Float(float(node, "epsilon")?));
        Ok(self.program.call(call, &x.shape))
    }

    fn instance_norm(&mut self, x: &Tensor, node: &Node) -> Converted<Tensor> {
        let (gamma, beta) = (self.tensor(input(node, 1)?)?, self.tensor(input(node, 2)?)?);
        let call = Call::new("instance_norm")
            .tensor("x", x)
            .tensor("gamma", &gamma)
            .tensor("beta", &beta)
            .setting("epsilon", Setting::Float(float(node, "epsilon")?));
        Ok(self.program.call(call, &x.shape))
    }

    fn reduction(
        &mut self,
        kind: &'static str,
        x: &Tensor,
        axes: Vec<i64>,
        node: &Node,
    ) -> Converted<Tensor> {
        if int(node, "keepdims")? != 0 {
            return Err(NoCounterpart);
        }
        let remaining = x.shape.iter().enumerate();
        let remaining = remaining.filter(|(axis, _)| !axes.contains(&(*axis as i64)));
        let shape: Vec<usize> = remaining.map(|(_, &size)| size).collect();
        let call = Call::new(kind)
            .tensor("x", x)
            .setting("axes", Setting::Ints(axes))
            .setting("keep_dims", Setting::Bool(false));
        Ok(self.program.call(call, &shape))
    }

    fn reshape(&mut self, x: &Tensor, node: &Node) -> Converted<Tensor> {
        let axes = self.ints(input(node, 1)?)?;
        // 0 keeps an axis, -1 is inferred.
        let kept = axes.iter().enumerate().map(|(axis, &size)| match size {
            0 => x.shape[axis],
            -1 => 1,
            size => size as usize,
        });
        let mut shape: Vec<usize> = kept.collect();
        if let Some(inferred) = axes.iter().position(|&size| size == -1) {
            let elements: usize = x.shape.iter().product();
            shape[inferred] = elements / shape.iter().product::<usize>();
        }
        let call = Call::new("reshape").tensor("x", x);
        let call = call.setting("shape", Setting::sizes(&shape));
        Ok(self.program.call(call, &shape))
    }

    fn transpose(&mut self, x: &Tensor, node: &Node) -> Converted<Tensor> {
        let order = ints(node, "perm")?;
        let shape: Vec<usize> = order.iter().map(|&axis| x.shape[axis as usize]).collect();
        let call = Call::new("transpose").tensor("x", x);
        let call = call.setting("perm", Setting::Ints(order.to_vec()));
        Ok(self.program.call(call, &shape))
    }

    fn unsqueeze(&mut self, x: &Tensor, node: &Node) -> Converted<Tensor> {
        let axes = self.ints(input(node, 1)?)?;
        let mut shape = x.shape.clone();
        for &axis in &axes {
            shape.insert(axis as usize, 1);
        }
        let call = Call::new("expand_dims").tensor("x", x);
        let call = call.setting("axes", Setting::Ints(axes));
        Ok(self.program.call(call, &shape))
    }

    /// Repeats a tensor for each sample. There is only one, so nothing is repeated.
    fn expand(&self, x: Tensor, node: &Node) -> Converted<Tensor> {
        let shape = self.ints(input(node, 1)?)?;
        let is_same = shape.iter().map(|&size| size as usize).eq(x.shape.clone());
        if is_same { Ok(x) } else { Err(NoCounterpart) }
    }

    fn concat(&mut self, node: &Node) -> Converted<Tensor> {
        let values: Converted<Vec<_>> = node.input.iter().map(|i| self.tensor(i)).collect();
        let (values, axis) = (values?, int(node, "axis")?);
        let mut shape = values[0].shape.clone();
        shape[axis as usize] = values.iter().map(|v| v.shape[axis as usize]).sum();
        let call = Call::new("concat")
            .tensors("values", &values)
            .setting("axis", Setting::Int(axis))
            .setting("interleave", Setting::Bool(false));
        Ok(self.program.call(call, &shape))
    }

    /// Rows of a table, or the slice at a known index of an axis.
    fn gather(&mut self, x: &Tensor, node: &Node) -> Converted<Tensor> {
        let axis = int(node, "axis")? as usize;
        let by = input(node, 1)?;
        if let Ok(index) = self.ints(by) {
            let [index] = index[..] else {
                return Err(NoCounterpart);
            };
            let mut part = Range::whole(x);
            (part.begin[axis], part.end[axis]) = (index, index + 1);
            part.squeezed[axis] = true;
            return Ok(self.range_of(x, part));
        }
        let indices = self.tensor(by)?;
        let (before, after) = (&x.shape[..axis], &x.shape[axis + 1..]);
        let shape = [before, &indices.shape, after].concat();
        let call = Call::new("gather")
            .tensor("x", x)
            .tensor("indices", &indices)
            .setting("axis", Setting::Int(axis as i64));
        Ok(self.program.call(call, &shape))
    }

    fn slice(&mut self, x: Tensor, node: &Node) -> Converted<Tensor> {
        let [axis] = self.ints(input(node, 3)?)?[..] else {
            return Err(NoCounterpart);
        };
        let axis = axis as usize;
        let (from, to) = self.range(node, x.shape[axis])?;
        let mut part = Range::whole(&x);
        (part.begin[axis], part.end[axis]) = (from as i64, to as i64);
        Ok(self.range_of(&x, part))
    }

    /// The range of a slice of an axis of this size.
    fn range(&self, node: &Node, size: usize) -> Converted<(usize, usize)> {
        let (from, to) = (self.ints(input(node, 1)?)?, self.ints(input(node, 2)?)?);
        match (&from[..], &to[..]) {
            (&[from], &[to]) if from >= 0 && to >= from => {
                Ok(((from as usize).min(size), (to as usize).min(size)))
            }
            _ => Err(NoCounterpart),
        }
    }

    fn range_of(&mut self, x: &Tensor, range: Range) -> Tensor {
        let shape = range.shape();
        let call = Call::new("slice_by_index")
            .tensor("x", x)
            .setting("begin", Setting::Ints(range.begin))
            .setting("end", Setting::Ints(range.end))
            .setting("squeeze_mask", Setting::Bools(range.squeezed));
        self.program.call(call, &shape)
    }
}

/// A range of each axis.
struct Range {
    begin: Vec<i64>,
    end: Vec<i64>,
    /// Whether the axis is removed.
    squeezed: Vec<bool>,
}

impl Range {
    fn whole(x: &Tensor) -> Self {
        Range {
            begin: vec![0; x.shape.len()],
            end: x.shape.iter().map(|&size| size as i64).collect(),
            squeezed: vec![false; x.shape.len()],
        }
    }

    fn shape(&self) -> Vec<usize> {
        let sizes = self.begin.iter().zip(&self.end).zip(&self.squeezed);
        let remaining = sizes.filter(|(_, squeezed)| !**squeezed);
        remaining
            .map(|((from, to), _)| (to - from) as usize)
            .collect()
    }
}

/// The window of a convolution or pooling, of height and width.
struct Window {
    kernel: [i64; 2],
    strides: [i64; 2],
    /// Top, left, bottom, right.
    pads: [i64; 4],
}

impl Window {
    fn new(node: &Node) -> Converted<Self> {
        let sizes = |key| ints(node, key)?.try_into().map_err(|_| NoCounterpart);
        let pads = ints(node, "pads").unwrap_or(&[0; 4]);
        Ok(Window {
            kernel: sizes("kernel_shape")?,
            strides: sizes("strides")?,
            pads: pads.try_into().map_err(|_| NoCounterpart)?,
        })
    }

    /// Top, bottom, left, right.
    fn padding(&self) -> Setting {
        let [top, left, bottom, right] = self.pads;
        Setting::Ints(vec![top, bottom, left, right])
    }

    /// Height and width of the output.
    fn outputs(&self, x: &Tensor) -> Converted<[usize; 2]> {
        let &[_, _, height, width] = &x.shape[..] else {
            return Err(NoCounterpart);
        };
        let output = |axis: usize, size: usize| {
            let padded = size as i64 + self.pads[axis] + self.pads[axis + 2];
            ((padded - self.kernel[axis]) / self.strides[axis] + 1) as usize
        };
        Ok([output(0, height), output(1, width)])
    }
}

/// Shape of an elementwise operation on two tensors, by the rules of NumPy.
fn broadcast(a: &[usize], b: &[usize]) -> Vec<usize> {
    let rank = a.len().max(b.len());
    let size = |shape: &[usize], axis: usize| match (axis + shape.len()).checked_sub(rank) {
        Some(axis) => shape[axis],
        None => 1,
    };
    (0..rank)
        .map(|axis| size(a, axis).max(size(b, axis)))
        .collect()
}

fn input(node: &Node, index: usize) -> Converted<&str> {
    node.input
        .get(index)
        .map(String::as_str)
        .ok_or(NoCounterpart)
}

fn attribute<'a>(node: &'a Node, name: &str) -> Converted<&'a Attribute> {
    let found = node
        .attribute
        .iter()
        .find(|attribute| attribute.name == name);
    found.ok_or(NoCounterpart)
}

fn int(node: &Node, name: &str) -> Converted<i64> {
    attribute(node, name)?.i.ok_or(NoCounterpart)
}

fn ints<'a>(node: &'a Node, name: &str) -> Converted<&'a [i64]> {
    Ok(&attribute(node, name)?.ints)
}

fn float(node: &Node, name: &str) -> Converted<f32> {
    attribute(node, name)?.f.ok_or(NoCounterpart)
}
