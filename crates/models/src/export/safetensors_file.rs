//! `model.safetensors` of an exported folder.

use crate::error::{ModelError, Result, at};
use crate::tensor_map::{BATCH_NORM_EPSILON, TensorLayout, TensorTable};
use candle_core::{DType, Device, Tensor};
use safetensors::SafeTensorError;
use safetensors::tensor::serialize_to_file;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use tape::device::{read, to_host};

const FILE: &str = "model.safetensors";

/// Shape and values of a tensor in row-major order.
type Values = (Vec<usize>, Vec<f32>);

/// Writes tensors to a folder.
pub fn write_tensors(folder: &Path, tensors: HashMap<String, Tensor>) -> Result<()> {
    write_tensors_as(folder, FILE, tensors)
}

/// Writes tensors to the file `name` of a folder.
pub fn write_tensors_as(folder: &Path, name: &str, tensors: HashMap<String, Tensor>) -> Result<()> {
    let path = folder.join(name);
    let format = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let mut refusal = None;
    let written = disk::write_with(&path, |path| {
        let written = serialize_to_file(&tensors, Some(format.clone()), path);
        written.or_else(|error| match error {
            SafeTensorError::IoError(error) => Err(error),
            error => {
                refusal = Some(error.to_string());
                Ok(())
            }
        })
    });
    written.map_err(at(&path))?;
    match refusal {
        Some(reason) => Err(ModelError::hub_folder(&path, reason)),
        None => Ok(()),
    }
}

/// Copies a tensor to the CPU in f32.
pub fn to_cpu(tensor: &Tensor) -> Result<Tensor> {
    Ok(to_host(tensor)?.to_dtype(DType::F32)?)
}

/// Parameters under their published names and in their published shapes.
pub fn published_tensors(
    parameters: &HashMap<String, Tensor>,
    table: &TensorTable,
) -> Result<HashMap<String, Tensor>> {
    let mut tensors = BTreeMap::<String, Values>::new();
    let body = table.body.iter().map(|row| (table.prefix, row));
    for (prefix, row) in body.chain(table.head.iter().map(|row| ("", row))) {
        let tensor = parameters
            .get(&row.ours)
            .expect("a network's table names its parameters");
        let ours = read::<f32>(&to_cpu(tensor)?)?;
        let name = format!("{prefix}{}", row.theirs);
        if let TensorLayout::BatchNormScale | TensorLayout::BatchNormShift = row.layout {
            tensors.extend(batch_norm(&name, row.layout, ours));
            continue;
        }
        let shape = row.layout.published_shape(tensor.dims());
        let count = shape.iter().product();
        let (_, theirs) = tensors
            .entry(name)
            .or_insert_with(|| (shape, vec![0.0; count]));
        row.layout.write(&ours, tensor.dims(), theirs);
    }
    tensors
        .into_iter()
        .map(|(name, (shape, values))| Ok((name, Tensor::from_vec(values, shape, &Device::Cpu)?)))
        .collect()
}

/// One factor or one term per channel as part of a BatchNorm with mean 0 and deviation 1.
fn batch_norm(name: &str, layout: TensorLayout, ours: Vec<f32>) -> Vec<(String, Values)> {
    let channels = ours.len();
    let part = |part: &str, values: Vec<f32>| (format!("{name}.{part}"), (vec![channels], values));
    let variance = (1.0 - BATCH_NORM_EPSILON) as f32;
    match layout {
        TensorLayout::BatchNormScale => vec![
            part("weight", ours),
            part("running_mean", vec![0.0; channels]),
            part("running_var", vec![variance; channels]),
        ],
        _ => vec![part("bias", ours)],
    }
}
