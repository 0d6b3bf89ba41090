//! The named tensors of a model: the trained ones in a fixed order, and the frozen ones. The order
//! of the trained ones is their identity: gradients, moments and checkpoints follow it.

use crate::convert_dtype::host_tensor;
use crate::error::{Result, TapeError};
use crate::fault_injection;
use crate::kernels::{elementwise, rounds};
use crate::objective_c::guarded;
use crate::quantized::Quantized;
use candle_core::{DType, Device, Tensor};
use std::collections::BTreeMap;

/// A parameter of a [`Parameters`], trained or frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParameterId(pub(crate) usize);

/// One trained tensor.
#[derive(Debug, Clone)]
pub struct Parameter {
    /// Name in published weights: `blocks.0.norm1.weight`.
    pub name: String,
    /// Current values.
    pub tensor: Tensor,
    /// True if weight decay applies: for matrices and kernels, not for norms and biases.
    pub decays: bool,
}

/// All parameters of a model. Trained ones have positions, which gradients, moments and checkpoints
/// follow. Frozen ones have neither a position nor a gradient.
#[derive(Debug, Clone, Default)]
pub struct Parameters {
    trained: Vec<Parameter>,
    frozen: Vec<(String, Frozen)>,
    /// Indexed by id.
    places: Vec<Place>,
    /// What was computed from the values, by the parameter that it is used with.
    derived: BTreeMap<ParameterId, Tensor>,
    /// The half type that operations compute in; `None` for the type of the trained parameters.
    half: Option<DType>,
}

/// The list that a parameter is in, and its index there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Trained(usize),
    Frozen(usize),
}

/// The values of a frozen parameter.
#[derive(Debug, Clone)]
pub enum Frozen {
    /// In floating point.
    Whole(Tensor),
    /// A matrix with 8 or 4 bits per value.
    Quantized(Quantized),
}

impl Frozen {
    /// Size of the values in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Frozen::Whole(tensor) => (tensor.elem_count() * tensor.dtype().size_in_bytes()) as u64,
            Frozen::Quantized(weight) => weight.bytes(),
        }
    }

    /// Number of values.
    pub fn count(&self) -> usize {
        match self {
            Frozen::Whole(tensor) => tensor.elem_count(),
            Frozen::Quantized(weight) => weight.dims().iter().product(),
        }
    }

    /// The values in floating point; a quantized matrix is dequantized to f32.
    pub fn whole(&self) -> Result<Tensor> {
        match self {
            Frozen::Whole(tensor) => Ok(tensor.clone()),
            Frozen::Quantized(weight) => weight.whole(DType::F32),
        }
    }
}

impl Parameters {
    /// Adds a trained parameter from host values, so that the device allocates its exact size.
    pub fn add(
        &mut self,
        name: String,
        values: Vec<f64>,
        shape: &[usize],
        dtype: DType,
        device: &Device,
    ) -> Result<ParameterId> {
        fault_injection::begin()?;
        let tensor = host_tensor(values, shape, dtype, device)?;
        Ok(self.push(name, tensor))
    }

    /// Adds a trained parameter whose values are put later. Until then it is a single zero in the
    /// memory of the device.
    pub fn add_placeholder(
        &mut self,
        name: String,
        shape: &[usize],
        dtype: DType,
        device: &Device,
    ) -> Result<ParameterId> {
        let zero = Tensor::zeros((), dtype, device)?;
        Ok(self.push(name, zero.broadcast_as(shape)?))
    }

    /// Makes zeros of the placeholders that got no values.
    ///
    /// # Errors
    /// The device has no memory.
    pub fn end_placeholders(&mut self) -> Result<()> {
        let frozen = self
            .frozen
            .iter_mut()
            .filter_map(|(_, values)| match values {
                Frozen::Whole(tensor) => Some(tensor),
                Frozen::Quantized(_) => None,
            });
        let all = self.trained.iter_mut().map(|p| &mut p.tensor).chain(frozen);
        for tensor in all.filter(|tensor| !tensor.is_contiguous()) {
            *tensor = Tensor::zeros(tensor.shape(), tensor.dtype(), tensor.device())?;
        }
        Ok(())
    }

    /// Adds a trained parameter of zeros. On the CPU it takes no memory until something is written
    /// to it.
    pub fn add_zeros(
        &mut self,
        name: String,
        shape: &[usize],
        dtype: DType,
        device: &Device,
    ) -> Result<ParameterId> {
        let tensor = Tensor::zeros(shape, dtype, device)?;
        Ok(self.push(name, tensor))
    }

    fn push(&mut self, name: String, tensor: Tensor) -> ParameterId {
        self.places.push(Place::Trained(self.trained.len()));
        self.trained.push(Parameter {
            decays: tensor.dims().len() > 1,
            name,
            tensor,
        });
        ParameterId(self.places.len() - 1)
    }

    /// Freezes every trained parameter for whose name `trains` returns false. It keeps its id and
    /// loses its position.
    pub fn freeze(&mut self, trains: impl Fn(&str) -> bool) {
        let (mut kept, mut moved) = (Vec::new(), vec![None; self.trained.len()]);
        for (index, parameter) in std::mem::take(&mut self.trained).into_iter().enumerate() {
            if trains(&parameter.name) {
                moved[index] = Some(Place::Trained(kept.len()));
                kept.push(parameter);
            } else {
                moved[index] = Some(Place::Frozen(self.frozen.len()));
                let values = Frozen::Whole(parameter.tensor);
                self.frozen.push((parameter.name, values));
            }
        }
        self.trained = kept;
        for place in &mut self.places {
            if let Place::Trained(index) = *place {
                *place = moved[index].unwrap_or(*place);
            }
        }
    }

    /// The trained parameters in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Parameter> {
        self.trained.iter()
    }

    /// The names and values of the frozen parameters.
    pub fn frozen(&self) -> impl Iterator<Item = (&str, &Frozen)> {
        self.frozen.iter().map(|(name, values)| (&**name, values))
    }

    pub(crate) fn place(&self, id: ParameterId) -> Place {
        self.places[id.0]
    }

    pub(crate) fn frozen_at(&self, index: usize) -> &Frozen {
        &self.frozen[index].1
    }

    /// All parameters, trained or frozen, in the order in which they were added.
    pub fn ids(&self) -> impl Iterator<Item = ParameterId> + use<> {
        (0..self.places.len()).map(ParameterId)
    }

    /// The name of a parameter, trained or frozen.
    pub fn name(&self, id: ParameterId) -> &str {
        match self.places[id.0] {
            Place::Trained(index) => &self.trained[index].name,
            Place::Frozen(index) => &self.frozen[index].0,
        }
    }

    /// True if the parameter is trained.
    pub fn trains(&self, id: ParameterId) -> bool {
        matches!(self.places[id.0], Place::Trained(_))
    }

    /// The values of a parameter, trained or frozen, in floating point.
    pub fn whole(&self, id: ParameterId) -> Result<Tensor> {
        match self.places[id.0] {
            Place::Trained(index) => Ok(self.trained[index].tensor.clone()),
            Place::Frozen(index) => self.frozen[index].1.whole(),
        }
    }

    /// Sets the half type that operations compute in; `None` for the type of the trained
    /// parameters. Quantized matrices do not tell it.
    pub fn set_half(&mut self, half: Option<DType>) {
        self.half = half;
    }

    /// Keeps a constant that was computed from the current values, for use with a parameter.
    /// Methods that replace values remove all of these constants. An optimizer that overwrites
    /// values does not: they have to be computed again after its step.
    pub fn set_derived(&mut self, id: ParameterId, tensor: Tensor) {
        self.derived.insert(id, tensor);
    }

    /// The half type that operations compute in, if there is one.
    pub fn half(&self) -> Option<DType> {
        self.half
    }

    /// The constant that was computed for a parameter, if there is one.
    pub fn derived(&self, id: ParameterId) -> Option<&Tensor> {
        self.derived.get(&id)
    }

    /// Replaces the values of a parameter, trained or frozen. The shape must be the same.
    pub fn put(&mut self, id: ParameterId, tensor: Tensor) -> Result<()> {
        self.derived.clear();
        match self.places[id.0] {
            Place::Trained(index) => self.set(index, tensor),
            Place::Frozen(index) => {
                let (name, values) = &mut self.frozen[index];
                let dims = match values {
                    Frozen::Whole(tensor) => tensor.dims().to_vec(),
                    Frozen::Quantized(weight) => weight.dims().to_vec(),
                };
                expect_shape(name, &dims, &tensor)?;
                *values = Frozen::Whole(tensor);
                Ok(())
            }
        }
    }

    /// Replaces the values of a frozen matrix by quantized ones of the same shape.
    ///
    /// # Errors
    /// The shape differs, or the parameter is trained.
    pub fn put_quantized(&mut self, id: ParameterId, weight: Quantized) -> Result<()> {
        self.derived.clear();
        let dims = self.whole(id)?.dims().to_vec();
        let name = self.name(id).to_owned();
        match self.places[id.0] {
            Place::Frozen(index) if dims == weight.dims() => {
                self.frozen[index].1 = Frozen::Quantized(weight);
                Ok(())
            }
            _ => Err(TapeError::Shape {
                op: "set parameter",
                what: name,
                expected: format!("a frozen matrix {:?}", weight.dims()),
                found: dims.into(),
            }),
        }
    }

    /// The trained parameter at a position.
    pub fn at(&self, index: usize) -> &Parameter {
        &self.trained[index]
    }

    /// Number of trained tensors.
    pub fn len(&self) -> usize {
        self.trained.len()
    }

    /// True if nothing is trained.
    pub fn is_empty(&self) -> bool {
        self.trained.is_empty()
    }

    /// Number of trained values.
    pub fn count(&self) -> usize {
        self.trained.iter().map(|p| p.tensor.elem_count()).sum()
    }

    /// Bytes of all trained values.
    pub fn bytes(&self) -> u64 {
        self.trained
            .iter()
            .map(|p| (p.tensor.elem_count() * p.tensor.dtype().size_in_bytes()) as u64)
            .sum()
    }

    /// Bytes of all frozen values.
    pub fn frozen_bytes(&self) -> u64 {
        self.frozen().map(|(_, values)| values.bytes()).sum()
    }

    /// These parameters for computing in a half type: matrices and kernels are rounded to `dtype`;
    /// norms, biases and quantized matrices share the memory of the original. Constants that were
    /// computed from the original values are left out.
    pub fn rounded(&self, dtype: DType) -> Result<Parameters> {
        let round = |tensor: &Tensor| match tensor.dims().len() {
            0 | 1 => Ok(tensor.clone()),
            _ => in_dtype(tensor, dtype),
        };
        let trained = self.trained.iter().map(|p| -> Result<Parameter> {
            Ok(Parameter {
                tensor: round(&p.tensor)?,
                ..p.clone()
            })
        });
        let frozen = self.frozen.iter().map(|(name, values)| -> Result<_> {
            let values = match values {
                Frozen::Whole(tensor) => Frozen::Whole(round(tensor)?),
                Frozen::Quantized(weight) => Frozen::Quantized(weight.clone()),
            };
            Ok((name.clone(), values))
        });
        Ok(Parameters {
            trained: trained.collect::<Result<_>>()?,
            frozen: frozen.collect::<Result<_>>()?,
            places: self.places.clone(),
            derived: BTreeMap::new(),
            half: Some(dtype),
        })
    }

    /// Bytes of the trained values whose type is `dtype`.
    pub fn bytes_in(&self, dtype: DType) -> u64 {
        let held = self.trained.iter().filter(|p| p.tensor.dtype() == dtype);
        held.map(|p| (p.tensor.elem_count() * dtype.size_in_bytes()) as u64)
            .sum()
    }

    /// Replaces the values of the trained parameter at a position. The shape must be the same.
    pub fn set(&mut self, index: usize, tensor: Tensor) -> Result<()> {
        self.derived.clear();
        let parameter = &mut self.trained[index];
        expect_shape(&parameter.name, parameter.tensor.dims(), &tensor)?;
        parameter.tensor = tensor;
        Ok(())
    }
}

fn expect_shape(name: &str, dims: &[usize], tensor: &Tensor) -> Result<()> {
    if tensor.dims() == dims {
        return Ok(());
    }
    Err(TapeError::Shape {
        op: "set parameter",
        what: name.to_owned(),
        expected: format!("{dims:?}"),
        found: tensor.shape().clone(),
    })
}
/// A tensor in another element type. On a GPU by a kernel, so that the result is not larger than
/// its values: candle's memory on Metal is a power of two.
fn in_dtype(tensor: &Tensor, dtype: DType) -> Result<Tensor> {
    if rounds(tensor, dtype) {
        return elementwise::rounded(tensor, dtype);
    }
    let rounded = guarded(|| Ok(tensor.to_dtype(dtype)?))?;
    Ok(fault_injection::computed(rounded))
}
