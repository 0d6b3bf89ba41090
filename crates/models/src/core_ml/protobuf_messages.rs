//! The messages of a Core ML model that Ebb writes, with the fields and tags of `Model.proto`,
//! `FeatureTypes.proto` and `MIL.proto` of coremltools 9 (github.com/apple/coremltools, folder
//! `mlmodel/format`). Of a `oneof`, exactly one field is set.

use prost::{Enumeration, Message};
use std::collections::BTreeMap;

/// `Model`: a file.
#[derive(Clone, PartialEq, Message)]
pub struct Model {
    #[prost(int32, tag = "1")]
    pub specification_version: i32,
    #[prost(message, optional, tag = "2")]
    pub description: Option<ModelDescription>,
    #[prost(message, optional, tag = "502")]
    pub ml_program: Option<Program>,
}

/// `ModelDescription`: what goes in and what comes out.
#[derive(Clone, PartialEq, Message)]
pub struct ModelDescription {
    #[prost(message, repeated, tag = "1")]
    pub input: Vec<FeatureDescription>,
    #[prost(message, repeated, tag = "10")]
    pub output: Vec<FeatureDescription>,
    #[prost(string, tag = "11")]
    pub predicted_feature_name: String,
    #[prost(string, tag = "12")]
    pub predicted_probabilities_name: String,
    #[prost(message, optional, tag = "100")]
    pub metadata: Option<Metadata>,
}

/// `Metadata`: what Xcode shows about a model.
#[derive(Clone, PartialEq, Message)]
pub struct Metadata {
    #[prost(string, tag = "1")]
    pub short_description: String,
    #[prost(string, tag = "2")]
    pub version_string: String,
    #[prost(string, tag = "3")]
    pub author: String,
    #[prost(btree_map = "string, string", tag = "100")]
    pub user_defined: BTreeMap<String, String>,
}

/// `FeatureDescription`: an input or output.
#[derive(Clone, PartialEq, Message)]
pub struct FeatureDescription {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub short_description: String,
    #[prost(message, optional, tag = "3")]
    pub kind: Option<FeatureType>,
}

/// `FeatureType`: a `oneof`.
#[derive(Clone, PartialEq, Message)]
pub struct FeatureType {
    #[prost(message, optional, tag = "3")]
    pub string: Option<Empty>,
    #[prost(message, optional, tag = "4")]
    pub image: Option<ImageType>,
    #[prost(message, optional, tag = "5")]
    pub array: Option<ArrayType>,
    #[prost(message, optional, tag = "6")]
    pub dictionary: Option<DictionaryFeatureType>,
}

/// `StringFeatureType`: a message without fields.
#[derive(Clone, PartialEq, Message)]
pub struct Empty {}

/// `ImageFeatureType`: size in pixels.
#[derive(Clone, PartialEq, Message)]
pub struct ImageType {
    #[prost(int64, tag = "1")]
    pub width: i64,
    #[prost(int64, tag = "2")]
    pub height: i64,
    #[prost(enumeration = "ColorSpace", tag = "3")]
    pub color_space: i32,
}

/// `ImageFeatureType.ColorSpace`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum ColorSpace {
    Invalid = 0,
    Rgb = 20,
}

/// `ArrayFeatureType`: shape and element type.
#[derive(Clone, PartialEq, Message)]
pub struct ArrayType {
    #[prost(int64, repeated, tag = "1")]
    pub shape: Vec<i64>,
    #[prost(enumeration = "ArrayDataType", tag = "2")]
    pub data_type: i32,
}

/// `ArrayFeatureType.ArrayDataType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum ArrayDataType {
    Invalid = 0,
    Float32 = 65568,
    Int32 = 131_104,
}

/// `DictionaryFeatureType` with strings as keys.
#[derive(Clone, PartialEq, Message)]
pub struct DictionaryFeatureType {
    #[prost(message, optional, tag = "2")]
    pub string_key: Option<Empty>,
}

/// `MILSpec.Program`: functions by their names.
#[derive(Clone, PartialEq, Message)]
pub struct Program {
    #[prost(int64, tag = "1")]
    pub version: i64,
    #[prost(btree_map = "string, message", tag = "2")]
    pub functions: BTreeMap<String, Function>,
}

/// `MILSpec.Function`: a block for each version of the operations.
#[derive(Clone, PartialEq, Message)]
pub struct Function {
    #[prost(message, repeated, tag = "1")]
    pub inputs: Vec<NamedValueType>,
    #[prost(string, tag = "2")]
    pub opset: String,
    #[prost(btree_map = "string, message", tag = "3")]
    pub block_specializations: BTreeMap<String, Block>,
}

/// `MILSpec.Block`: operations in order, and the names of the outputs.
#[derive(Clone, PartialEq, Message)]
pub struct Block {
    #[prost(string, repeated, tag = "2")]
    pub outputs: Vec<String>,
    #[prost(message, repeated, tag = "3")]
    pub operations: Vec<Operation>,
}

/// `MILSpec.Operation`.
#[derive(Clone, PartialEq, Message)]
pub struct Operation {
    #[prost(string, tag = "1")]
    pub kind: String,
    #[prost(btree_map = "string, message", tag = "2")]
    pub inputs: BTreeMap<String, Argument>,
    #[prost(message, repeated, tag = "3")]
    pub outputs: Vec<NamedValueType>,
    #[prost(btree_map = "string, message", tag = "5")]
    pub attributes: BTreeMap<String, Value>,
}

/// `MILSpec.Argument`: one value, or the values of a list.
#[derive(Clone, PartialEq, Message)]
pub struct Argument {
    #[prost(message, repeated, tag = "1")]
    pub arguments: Vec<Binding>,
}

/// `MILSpec.Argument.Binding`: the name of a value or the value itself, a `oneof`.
#[derive(Clone, PartialEq, Message)]
pub struct Binding {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(message, optional, tag = "2")]
    pub value: Option<Value>,
}

/// `MILSpec.NamedValueType`.
#[derive(Clone, PartialEq, Message)]
pub struct NamedValueType {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub kind: Option<ValueType>,
}

/// `MILSpec.ValueType`: a `oneof`.
#[derive(Clone, PartialEq, Message)]
pub struct ValueType {
    #[prost(message, optional, tag = "1")]
    pub tensor: Option<TensorType>,
    #[prost(message, optional, tag = "2")]
    pub list: Option<ListType>,
    #[prost(message, optional, tag = "4")]
    pub dictionary: Option<DictionaryType>,
}

/// `MILSpec.TensorType`: element type and shape.
#[derive(Clone, PartialEq, Message)]
pub struct TensorType {
    #[prost(enumeration = "DataType", tag = "1")]
    pub data_type: i32,
    #[prost(int64, tag = "2")]
    pub rank: i64,
    #[prost(message, repeated, tag = "3")]
    pub dimensions: Vec<Dimension>,
}

/// `MILSpec.DataType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum DataType {
    Unused = 0,
    Bool = 1,
    String = 2,
    Float32 = 11,
    Float64 = 12,
    Int32 = 23,
}

/// `MILSpec.Dimension`: always a known size here.
#[derive(Clone, PartialEq, Message)]
pub struct Dimension {
    #[prost(message, optional, tag = "1")]
    pub constant: Option<ConstantDimension>,
}

/// `MILSpec.Dimension.ConstantDimension`.
#[derive(Clone, PartialEq, Message)]
pub struct ConstantDimension {
    #[prost(uint64, tag = "1")]
    pub size: u64,
}

/// `MILSpec.ListType`.
#[derive(Clone, PartialEq, Message)]
pub struct ListType {
    #[prost(message, optional, boxed, tag = "1")]
    pub element: Option<Box<ValueType>>,
    #[prost(message, optional, tag = "2")]
    pub length: Option<Dimension>,
}

/// `MILSpec.DictionaryType`.
#[derive(Clone, PartialEq, Message)]
pub struct DictionaryType {
    #[prost(message, optional, boxed, tag = "1")]
    pub key: Option<Box<ValueType>>,
    #[prost(message, optional, boxed, tag = "2")]
    pub value: Option<Box<ValueType>>,
}

/// `MILSpec.Value`: a constant in the file, or its place in the weight file, a `oneof`.
#[derive(Clone, PartialEq, Message)]
pub struct Value {
    #[prost(message, optional, tag = "2")]
    pub kind: Option<ValueType>,
    #[prost(message, optional, tag = "3")]
    pub immediate: Option<ImmediateValue>,
    #[prost(message, optional, tag = "5")]
    pub blob_file: Option<BlobFileValue>,
}

/// `MILSpec.Value.ImmediateValue`: a `oneof`.
#[derive(Clone, PartialEq, Message)]
pub struct ImmediateValue {
    #[prost(message, optional, tag = "1")]
    pub tensor: Option<TensorValue>,
    #[prost(message, optional, tag = "3")]
    pub list: Option<ListValue>,
}

/// `MILSpec.Value.BlobFileValue`: offset of a weight's description in a file.
#[derive(Clone, PartialEq, Message)]
pub struct BlobFileValue {
    #[prost(string, tag = "1")]
    pub file_name: String,
    #[prost(uint64, tag = "2")]
    pub offset: u64,
}

/// `MILSpec.TensorValue`: a `oneof`.
#[derive(Clone, PartialEq, Message)]
pub struct TensorValue {
    #[prost(message, optional, tag = "1")]
    pub floats: Option<Floats>,
    #[prost(message, optional, tag = "2")]
    pub ints: Option<Ints>,
    #[prost(message, optional, tag = "3")]
    pub bools: Option<Bools>,
    #[prost(message, optional, tag = "4")]
    pub strings: Option<Strings>,
}

/// `MILSpec.TensorValue.RepeatedFloats`.
#[derive(Clone, PartialEq, Message)]
pub struct Floats {
    #[prost(float, repeated, tag = "1")]
    pub values: Vec<f32>,
}

/// `MILSpec.TensorValue.RepeatedInts`.
#[derive(Clone, PartialEq, Message)]
pub struct Ints {
    #[prost(int32, repeated, tag = "1")]
    pub values: Vec<i32>,
}

/// `MILSpec.TensorValue.RepeatedBools`.
#[derive(Clone, PartialEq, Message)]
pub struct Bools {
    #[prost(bool, repeated, tag = "1")]
    pub values: Vec<bool>,
}

/// `MILSpec.TensorValue.RepeatedStrings`.
#[derive(Clone, PartialEq, Message)]
pub struct Strings {
    #[prost(string, repeated, tag = "1")]
    pub values: Vec<String>,
}

/// `MILSpec.ListValue`.
#[derive(Clone, PartialEq, Message)]
pub struct ListValue {
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<Value>,
}
