//! Builds the operations of an ML Program. Each call adds an operation with its settings as
//! constants before it, and returns its output.

use super::protobuf_messages::{
    Argument, Binding, BlobFileValue, Bools, ConstantDimension, DataType, Dimension, Floats,
    ImmediateValue, Ints, ListType, ListValue, NamedValueType, Operation, Strings, TensorType,
    TensorValue, Value, ValueType,
};
use super::weight_file::WeightFile;
use std::collections::{BTreeMap, HashSet};

/// The weight file, as operations name it.
const WEIGHT_FILE: &str = "@model_path/weights/weight.bin";
/// Constants with fewer numbers are in the program itself, as coremltools writes them.
const MIN_WEIGHT: usize = 10;

/// A value of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    pub name: String,
    pub data_type: DataType,
    /// Size of each axis.
    pub shape: Vec<usize>,
}

impl Tensor {
    /// The value as an input or output.
    pub fn named_type(&self) -> NamedValueType {
        named_type(&self.name, tensor_type(self.data_type, &self.shape))
    }
}

/// A setting of an operation.
#[derive(Debug, Clone)]
pub enum Setting {
    Bool(bool),
    Bools(Vec<bool>),
    Float(f32),
    Int(i64),
    Ints(Vec<i64>),
    Text(&'static str),
}

impl Setting {
    /// Axes and sizes as a setting.
    pub fn sizes(sizes: &[usize]) -> Self {
        Setting::Ints(sizes.iter().map(|&size| size as i64).collect())
    }

    fn value(self) -> Value {
        let int = |int: i64| i32::try_from(int).unwrap_or(i32::MAX);
        let (data_type, shape, tensor) = match self {
            Setting::Bool(value) => (DataType::Bool, vec![], bools(vec![value])),
            Setting::Bools(values) => (DataType::Bool, vec![values.len()], bools(values)),
            Setting::Float(value) => (DataType::Float32, vec![], floats(vec![value])),
            Setting::Int(value) => (DataType::Int32, vec![], ints(vec![int(value)])),
            Setting::Ints(values) => {
                let values: Vec<i32> = values.into_iter().map(int).collect();
                (DataType::Int32, vec![values.len()], ints(values))
            }
            Setting::Text(text) => return text_value(text),
        };
        immediate(tensor_type(data_type, &shape), tensor)
    }
}

/// An operation to add: its type, the tensors it reads and its settings, by their names in the
/// format.
#[derive(Debug)]
pub struct Call {
    kind: &'static str,
    tensors: Vec<(&'static str, Vec<String>)>,
    settings: Vec<(&'static str, Setting)>,
}

impl Call {
    pub fn new(kind: &'static str) -> Self {
        Call {
            kind,
            tensors: Vec::new(),
            settings: Vec::new(),
        }
    }

    /// Adds a tensor.
    pub fn tensor(self, key: &'static str, tensor: &Tensor) -> Self {
        self.tensors(key, std::slice::from_ref(tensor))
    }

    /// Adds a list of tensors.
    pub fn tensors(mut self, key: &'static str, tensors: &[Tensor]) -> Self {
        let names = tensors.iter().map(|tensor| tensor.name.clone());
        self.tensors.push((key, names.collect()));
        self
    }

    /// Adds a setting.
    pub fn setting(mut self, key: &'static str, setting: Setting) -> Self {
        self.settings.push((key, setting));
        self
    }
}

/// Operations in order, and their weights.
#[derive(Debug, Default)]
pub struct ProgramBuilder {
    operations: Vec<Operation>,
    names: HashSet<String>,
    weights: WeightFile,
}

impl ProgramBuilder {
    /// The operations and their weights.
    pub fn finish(self) -> (Vec<Operation>, WeightFile) {
        (self.operations, self.weights)
    }

    /// Adds a constant tensor of 32-bit floats in little-endian order.
    pub fn weight(&mut self, name: &str, shape: &[usize], values: Vec<u8>) -> Tensor {
        let name = self.identifier(name);
        let kind = tensor_type(DataType::Float32, shape);
        let value = if values.len() / size_of::<f32>() < MIN_WEIGHT {
            let (numbers, _) = values.as_chunks();
            let numbers = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes));
            immediate(kind, floats(numbers.collect()))
        } else {
            Value {
                kind: Some(kind),
                immediate: None,
                blob_file: Some(BlobFileValue {
                    file_name: WEIGHT_FILE.to_owned(),
                    offset: self.weights.push(values),
                }),
            }
        };
        self.constant(&name, value);
        Tensor {
            name,
            data_type: DataType::Float32,
            shape: shape.to_vec(),
        }
    }

    /// Adds an operation with one output of 32-bit floats.
    pub fn call(&mut self, call: Call, shape: &[usize]) -> Tensor {
        let name = self.identifier(&format!("{}_{}", call.kind, self.operations.len()));
        self.call_named(&name, call, shape)
    }

    /// Adds an operation whose output is called `name`.
    pub fn call_named(&mut self, name: &str, call: Call, shape: &[usize]) -> Tensor {
        self.names.insert(name.to_owned());
        let output = Tensor {
            name: name.to_owned(),
            data_type: DataType::Float32,
            shape: shape.to_vec(),
        };
        let mut inputs = BTreeMap::new();
        for (key, names) in call.tensors {
            inputs.insert(key.to_owned(), argument(names));
        }
        for (key, setting) in call.settings {
            let constant = self.identifier(&format!("{name}_{key}"));
            self.constant(&constant, setting.value());
            inputs.insert(key.to_owned(), argument(vec![constant]));
        }
        self.push(Operation {
            kind: call.kind.to_owned(),
            inputs,
            outputs: vec![output.named_type()],
            attributes: name_attribute(name),
        });
        output
    }

    /// Adds a finished operation.
    pub fn push(&mut self, operation: Operation) {
        self.operations.push(operation);
    }

    fn constant(&mut self, name: &str, value: Value) {
        let kind = value.kind.clone().unwrap_or_default();
        let mut attributes = name_attribute(name);
        attributes.insert("val".to_owned(), value);
        self.push(Operation {
            kind: "const".to_owned(),
            inputs: BTreeMap::new(),
            outputs: vec![named_type(name, kind)],
            attributes,
        });
    }

    /// A name of letters, digits and underscores that nothing else has.
    fn identifier(&mut self, name: &str) -> String {
        let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let name = name.replace(|letter: char| !is_allowed(letter), "_");
        let mut unique = name.clone();
        let mut number = 1;
        while !self.names.insert(unique.clone()) {
            number += 1;
            unique = format!("{name}_{number}");
        }
        unique
    }
}

/// The attribute with the name of an operation.
pub fn name_attribute(name: &str) -> BTreeMap<String, Value> {
    BTreeMap::from([("name".to_owned(), text_value(name))])
}

/// The names of values as an argument.
pub fn argument(names: Vec<String>) -> Argument {
    let binding = |name| Binding {
        name: Some(name),
        value: None,
    };
    Argument {
        arguments: names.into_iter().map(binding).collect(),
    }
}

/// A value with its name and type.
pub fn named_type(name: &str, kind: ValueType) -> NamedValueType {
    NamedValueType {
        name: name.to_owned(),
        kind: Some(kind),
    }
}

/// A tensor of this element type and shape; without axes, a scalar.
pub fn tensor_type(data_type: DataType, shape: &[usize]) -> ValueType {
    ValueType {
        tensor: Some(TensorType {
            data_type: data_type.into(),
            rank: shape.len() as i64,
            dimensions: shape.iter().map(|&size| dimension(size)).collect(),
        }),
        ..ValueType::default()
    }
}

/// A known size.
fn dimension(size: usize) -> Dimension {
    Dimension {
        constant: Some(ConstantDimension { size: size as u64 }),
    }
}

/// A constant list of texts as an argument.
pub fn text_list(texts: &[String]) -> Argument {
    let list = ListType {
        element: Some(Box::new(tensor_type(DataType::String, &[]))),
        length: Some(dimension(texts.len())),
    };
    let value = Value {
        kind: Some(ValueType {
            list: Some(list),
            ..ValueType::default()
        }),
        immediate: Some(ImmediateValue {
            tensor: None,
            list: Some(ListValue {
                values: texts.iter().map(|text| text_value(text)).collect(),
            }),
        }),
        blob_file: None,
    };
    Argument {
        arguments: vec![Binding {
            name: None,
            value: Some(value),
        }],
    }
}

/// A constant text.
fn text_value(text: &str) -> Value {
    let strings = Strings {
        values: vec![text.to_owned()],
    };
    let tensor = TensorValue {
        strings: Some(strings),
        ..TensorValue::default()
    };
    immediate(tensor_type(DataType::String, &[]), tensor)
}

fn immediate(kind: ValueType, tensor: TensorValue) -> Value {
    Value {
        kind: Some(kind),
        immediate: Some(ImmediateValue {
            tensor: Some(tensor),
            list: None,
        }),
        blob_file: None,
    }
}

fn floats(values: Vec<f32>) -> TensorValue {
    TensorValue {
        floats: Some(Floats { values }),
        ..TensorValue::default()
    }
}

fn ints(values: Vec<i32>) -> TensorValue {
    TensorValue {
        ints: Some(Ints { values }),
        ..TensorValue::default()
    }
}

fn bools(values: Vec<bool>) -> TensorValue {
    TensorValue {
        bools: Some(Bools { values }),
        ..TensorValue::default()
    }
}
