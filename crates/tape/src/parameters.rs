//! The trained tensors by name, in one fixed order. The order is the identity: gradients, moments and checkpoints follow it.

use crate::error::{Result, TapeError};
use crate::half::is_half;
use candle_core::{DType, Device, Tensor};

/// Position of a parameter in its [`Parameters`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParameterId(pub(crate) usize);

impl ParameterId {
    /// The position itself.
    pub fn index(self) -> usize {
        self.0
    }
}

/// One trained tensor.
#[derive(Debug, Clone)]
pub struct Parameter {
    /// Published name: `blocks.0.norm1.weight`.
    pub name: String,
    /// Its values now.
    pub tensor: Tensor,
    /// Weight decay applies: true for matrices and kernels, false for norms and biases.
    pub decays: bool,
}

/// All parameters of a model.
#[derive(Debug, Clone, Default)]
pub struct Parameters(Vec<Parameter>);

impl Parameters {
    /// Adds a parameter from host values, so that the device allocates its exact size.
    pub fn add(
        &mut self,
        name: String,
        values: Vec<f64>,
        shape: &[usize],
        dtype: DType,
        device: &Device,
    ) -> Result<ParameterId> {
        let tensor = host_tensor(values, shape, dtype, device)?;
        let decays = shape.len() > 1;
        self.0.push(Parameter {
            name,
            tensor,
            decays,
        });
        Ok(ParameterId(self.0.len() - 1))
    }

    /// Adds a parameter of zeros, which takes no memory before something is written to it.
    pub fn add_zeros(
        &mut self,
        name: String,
        shape: &[usize],
        dtype: DType,
        device: &Device,
    ) -> Result<ParameterId> {
        self.0.push(Parameter {
            name,
            tensor: Tensor::zeros(shape, dtype, device)?,
            decays: shape.len() > 1,
        });
        Ok(ParameterId(self.0.len() - 1))
    }

    /// The parameters in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Parameter> {
        self.0.iter()
    }

    /// One parameter.
    pub fn get(&self, id: ParameterId) -> &Parameter {
        &self.0[id.0]
    }

    /// The parameter at a position.
    pub fn at(&self, index: usize) -> &Parameter {
        &self.0[index]
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// No tensors at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of trained values.
    pub fn count(&self) -> usize {
        self.0.iter().map(|p| p.tensor.elem_count()).sum()
    }

    /// Bytes of all values.
    pub fn bytes(&self) -> u64 {
        self.0
            .iter()
            .map(|p| (p.tensor.elem_count() * p.tensor.dtype().size_in_bytes()) as u64)
            .sum()
    }

    /// The same parameters for computing in a half type: matrices and kernels rounded to `dtype`, norms and biases as they
    /// are and in the same memory.
    pub fn rounded(&self, dtype: DType) -> Result<Parameters> {
        let round = |p: &Parameter| -> Result<Parameter> {
            let tensor = match p.tensor.dims().len() {
                0 | 1 => p.tensor.clone(),
                _ => p.tensor.to_dtype(dtype)?,
            };
            Ok(Parameter {
                tensor,
                ..p.clone()
            })
        };
        Ok(Parameters(self.0.iter().map(round).collect::<Result<_>>()?))
    }

    /// Bytes of the values that are held in `dtype`.
    pub fn bytes_in(&self, dtype: DType) -> u64 {
        let held = self.0.iter().filter(|p| p.tensor.dtype() == dtype);
        held.map(|p| (p.tensor.elem_count() * dtype.size_in_bytes()) as u64)
            .sum()
    }

    /// Replaces the values of parameter `index`; the shape must stay.
    pub fn set(&mut self, index: usize, tensor: Tensor) -> Result<()> {
        let parameter = &mut self.0[index];
        if parameter.tensor.shape() != tensor.shape() {
            return Err(TapeError::Shape {
                op: "set parameter",
                what: parameter.name.clone(),
                expected: format!("{:?}", parameter.tensor.dims()),
                found: tensor.shape().clone(),
            });
        }
        parameter.tensor = tensor;
        Ok(())
    }
}

/// A tensor from host values in the wanted element type.
pub(crate) fn host_tensor(
    values: Vec<f64>,
    shape: &[usize],
    dtype: DType,
    device: &Device,
) -> Result<Tensor> {
    Ok(match dtype {
        DType::F64 => Tensor::from_vec(values, shape, device)?,
        DType::F32 => Tensor::from_vec(
            values.into_iter().map(|v| v as f32).collect::<Vec<_>>(),
            shape,
            device,
        )?,
        dtype if is_half(dtype) => {
            host_tensor(values, shape, DType::F32, device)?.to_dtype(dtype)?
        }
        dtype => {
            return Err(TapeError::Type {
                op: "parameter",
                dtype,
            });
        }
    })
}
