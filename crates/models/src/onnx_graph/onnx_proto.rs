//! The messages of an ONNX file that Ebb writes, with the fields and tags of `onnx.proto`, version
//! 8 of the intermediate representation.

use prost::Message;

/// `TensorProto.DataType` of a 32-bit float.
pub const FLOAT: i32 = 1;
/// `TensorProto.DataType` of a 64-bit integer.
pub const INT64: i32 = 7;

/// `ModelProto`: a file.
#[derive(Clone, PartialEq, Message)]
pub struct Model {
    #[prost(int64, tag = "1")]
    pub ir_version: i64,
    #[prost(string, tag = "2")]
    pub producer_name: String,
    #[prost(string, tag = "3")]
    pub producer_version: String,
    #[prost(message, optional, tag = "7")]
    pub graph: Option<GraphMessage>,
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSet>,
}

/// `OperatorSetIdProto`: the version of the operators.
#[derive(Clone, PartialEq, Message)]
pub struct OperatorSet {
    #[prost(string, tag = "1")]
    pub domain: String,
    #[prost(int64, tag = "2")]
    pub version: i64,
}

/// `GraphProto`: operations in order, their constants, inputs and outputs.
#[derive(Clone, PartialEq, Message)]
pub struct GraphMessage {
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<Node>,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<TensorMessage>,
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfo>,
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfo>,
}

/// `NodeProto`: an operation.
#[derive(Clone, PartialEq, Message)]
pub struct Node {
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(string, tag = "4")]
    pub op_type: String,
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<Attribute>,
}

/// `AttributeProto`: a setting of an operation, with exactly one value.
#[derive(Clone, PartialEq, Message)]
pub struct Attribute {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(float, optional, tag = "2")]
    pub f: Option<f32>,
    #[prost(int64, optional, tag = "3")]
    pub i: Option<i64>,
    #[prost(int64, repeated, tag = "8")]
    pub ints: Vec<i64>,
    #[prost(int32, tag = "20")]
    pub kind: i32,
}

impl Attribute {
    pub fn float(name: &str, value: f64) -> Self {
        Attribute {
            name: name.to_owned(),
            f: Some(value as f32),
            kind: 1,
            ..Attribute::default()
        }
    }

    /// An integer.
    pub fn int(name: &str, value: i64) -> Self {
        Attribute {
            name: name.to_owned(),
            i: Some(value),
            kind: 2,
            ..Attribute::default()
        }
    }

    /// A list of integers, at least one.
    pub fn ints(name: &str, values: &[i64]) -> Self {
        Attribute {
            name: name.to_owned(),
            ints: values.to_vec(),
            kind: 7,
            ..Attribute::default()
        }
    }
}

/// `TensorProto`: a constant.
#[derive(Clone, PartialEq, Message)]
pub struct TensorMessage {
    #[prost(int64, repeated, tag = "1")]
    pub dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    pub data_type: i32,
    #[prost(string, tag = "8")]
    pub name: String,
    /// Little-endian.
    #[prost(bytes = "vec", tag = "9")]
    pub raw_data: Vec<u8>,
}

/// `ValueInfoProto`: an input or output.
#[derive(Clone, PartialEq, Message)]
pub struct ValueInfo {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub kind: Option<TypeMessage>,
}

/// `TypeProto`: always a tensor here.
#[derive(Clone, PartialEq, Message)]
pub struct TypeMessage {
    #[prost(message, optional, tag = "1")]
    pub tensor: Option<TensorType>,
}

/// `TypeProto.Tensor`: element type and shape.
#[derive(Clone, PartialEq, Message)]
pub struct TensorType {
    #[prost(int32, tag = "1")]
    pub elem_type: i32,
    #[prost(message, optional, tag = "2")]
    pub shape: Option<ShapeMessage>,
}

/// `TensorShapeProto`: the sizes of all axes.
#[derive(Clone, PartialEq, Message)]
pub struct ShapeMessage {
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<Dimension>,
}

/// `TensorShapeProto.Dimension`: a number, or a name if it is free.
#[derive(Clone, PartialEq, Message)]
pub struct Dimension {
    #[prost(int64, optional, tag = "1")]
    pub dim_value: Option<i64>,
    #[prost(string, optional, tag = "2")]
    pub dim_param: Option<String>,
}

/// Size of an axis of an input or output.
#[derive(Debug, Clone, Copy)]
pub enum Axis {
    /// Always this size.
    Fixed(usize),
    /// Any size, under this name.
    Free(&'static str),
}

impl ValueInfo {
    /// A tensor with this element type and these axes.
    pub fn new(name: &str, elem_type: i32, axes: &[Axis]) -> Self {
        let dim = axes.iter().map(|axis| match axis {
            Axis::Fixed(size) => Dimension {
                dim_value: Some(*size as i64),
                dim_param: None,
            },
            Axis::Free(name) => Dimension {
                dim_value: None,
                dim_param: Some((*name).to_owned()),
            },
        });
        let shape = ShapeMessage { dim: dim.collect() };
        let tensor = TensorType {
            elem_type,
            shape: Some(shape),
        };
        ValueInfo {
            name: name.to_owned(),
            kind: Some(TypeMessage {
                tensor: Some(tensor),
            }),
        }
    }
}
