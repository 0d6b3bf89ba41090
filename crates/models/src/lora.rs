//! Low-rank adapters (LoRA, Hu et al. 2021): a small trained term added to a frozen linear map, `y
//! = x Wᵀ + b + (alpha / rank) (x Aᵀ) Bᵀ`. A rank-stabilized adapter divides alpha by the square
//! root of the rank. `A` [rank, inputs] starts random and `B` [outputs, rank] starts at zero, so
//! training begins with the output of the frozen map. The frozen map may be quantized to 8 or 4
//! bits. Adapters are saved separately and can be merged into the map.

use crate::error::{ModelError, Result, naming};
use crate::parameter_builder::{AdapterShape, ParameterBuilder};
use candle_core::{DType, Device, Tensor, safetensors};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use tape::device::to_host;
use tape::{Bits, Cancel, Kernels, ParameterId, Parameters, Quantized, Tape, Value};

/// Suffixes of the two trained tensors, after the name of the map.
const DOWN: &str = "lora_A.weight";
const UP: &str = "lora_B.weight";

/// Whether this is the name of an adapter's tensor.
pub fn is_adapter(name: &str) -> bool {
    name.ends_with(DOWN) || name.ends_with(UP)
}

/// A linear map that is not trained.
#[derive(Debug, Clone)]
pub struct FrozenLinear {
    weight: Frozen,
    bias: Option<Tensor>,
}

#[derive(Debug, Clone)]
enum Frozen {
    Full(Tensor),
    Quantized(Quantized),
}

impl FrozenLinear {
    /// A map with `weight` [outputs, inputs] and `bias` [outputs] in floating point.
    pub fn new(weight: Tensor, bias: Option<Tensor>) -> Self {
        FrozenLinear {
            weight: Frozen::Full(weight),
            bias,
        }
    }

    /// A map whose weight is quantized to `bits` per value.
    ///
    /// # Errors
    /// The weight is not a matrix, or has values that are not finite.
    pub fn quantized(weight: &Tensor, bias: Option<Tensor>, bits: Bits) -> Result<Self> {
        Ok(FrozenLinear {
            weight: Frozen::Quantized(Quantized::from_weight(weight, bits)?),
            bias,
        })
    }

    /// Size of the weight in bytes.
    pub fn bytes(&self) -> u64 {
        match &self.weight {
            Frozen::Full(weight) => (weight.elem_count() * weight.dtype().size_in_bytes()) as u64,
            Frozen::Quantized(weight) => weight.bytes(),
        }
    }

    /// Maps [.., inputs] to [.., outputs]. Only `x` gets a gradient.
    pub fn forward(&self, tape: &Tape, x: &Value) -> tape::Result<Value> {
        let bias = self.bias.clone().map(Value::constant);
        match &self.weight {
            Frozen::Full(weight) => tape.linear(x, &Value::constant(weight.clone()), bias.as_ref()),
            Frozen::Quantized(weight) => tape.quantized_linear(x, weight, bias.as_ref()),
        }
    }

    fn dims(&self) -> tape::Result<[usize; 2]> {
        match &self.weight {
            Frozen::Full(weight) => {
                let (outputs, inputs) = weight.dims2()?;
                Ok([outputs, inputs])
            }
            Frozen::Quantized(weight) => Ok(weight.dims()),
        }
    }

    /// The weight in floating point; a quantized one is dequantized to `dtype`.
    fn full_weight(&self, dtype: DType) -> tape::Result<Tensor> {
        match &self.weight {
            Frozen::Full(weight) => Ok(weight.clone()),
            Frozen::Quantized(weight) => {
                let none = Parameters::default();
                let tape = Tape::forward_only(&none, Cancel::default(), Kernels::Fused);
                let rows: Vec<u32> = (0..weight.dims()[0] as u32).collect();
                let full = tape.quantized_embedding(weight, &rows, &[rows.len()])?;
                Ok(full.tensor().to_dtype(dtype)?)
            }
        }
    }
}

/// The two trained maps of an adapter.
#[derive(Debug, Clone)]
pub(crate) struct Adapter {
    down: ParameterId,
    up: ParameterId,
    factor: f64,
}

impl Adapter {
    /// The adapter of the linear map [outputs, inputs] under the builder's prefix; `None` if maps
    /// there are not adapted.
    pub fn for_map(
        b: &mut ParameterBuilder,
        outputs: usize,
        inputs: usize,
    ) -> tape::Result<Option<Self>> {
        b.adapter_shape()
            .map(|shape| Adapter::build(b, shape, outputs, inputs))
            .transpose()
    }

    fn build(
        b: &mut ParameterBuilder,
        shape: AdapterShape,
        outputs: usize,
        inputs: usize,
    ) -> tape::Result<Self> {
        Ok(Adapter {
            down: b.new_normal(DOWN, &[shape.rank, inputs], (1.0 / inputs as f64).sqrt())?,
            up: b.constant(UP, &[outputs, shape.rank], 0.0)?,
            factor: shape.factor(),
        })
    }

    /// Adds the adapter's term to `y`, the frozen map's output for `x`.
    pub fn add(&self, tape: &Tape, name: &str, x: &Value, y: &Value) -> tape::Result<Value> {
        let (down, up) = (tape.parameter(self.down), tape.parameter(self.up));
        let term = tape.linear(&naming(name, tape.linear(x, &down, None))?, &up, None)?;
        tape.add(y, &tape.scale(&term, self.factor)?)
    }
}

/// The weight that an adapter adds to its map: `factor B A`.
fn term(down: &Tensor, up: &Tensor, factor: f64) -> tape::Result<Tensor> {
    Ok((up.matmul(down)? * factor)?)
}

/// A frozen linear map with an adapter.
#[derive(Debug, Clone)]
pub struct AdaptedLinear {
    name: Arc<str>,
    base: FrozenLinear,
    adapter: Adapter,
}

impl AdaptedLinear {
    /// Builds an adapter of `base` under `name`.
    pub fn build(
        b: &mut ParameterBuilder,
        name: &str,
        base: FrozenLinear,
        shape: AdapterShape,
    ) -> tape::Result<Self> {
        let [outputs, inputs] = base.dims()?;
        b.within(name, |b| {
            Ok(AdaptedLinear {
                name: b.prefix(),
                adapter: Adapter::build(b, shape, outputs, inputs)?,
                base,
            })
        })
    }

    /// Maps [.., inputs] to [.., outputs].
    pub fn forward(&self, tape: &Tape, x: &Value) -> tape::Result<Value> {
        let y = naming(&self.name, self.base.forward(tape, x))?;
        self.adapter.add(tape, &self.name, x, &y)
    }

    /// One map with the same outputs, in floating point: `W + (alpha / rank) B A`.
    ///
    /// # Errors
    /// The device cannot hold the full weight.
    pub fn merged(&self, parameters: &Parameters) -> tape::Result<FrozenLinear> {
        let Adapter { down, up, factor } = self.adapter;
        let (down, up) = (parameters.whole(down)?, parameters.whole(up)?);
        let term = term(&down, &up, factor)?;
        let weight = self.base.full_weight(term.dtype())?;
        let sum = (weight.to_dtype(term.dtype())? + term)?;
        Ok(FrozenLinear::new(
            sum.to_dtype(weight.dtype())?,
            self.base.bias.clone(),
        ))
    }
}

/// All parameters by name, trained and frozen, with every adapter merged into its map. Quantized
/// parameters are dequantized.
///
/// # Errors
/// The device cannot hold all of them in floating point.
pub fn merged_parameters(
    parameters: &Parameters,
    shape: Option<AdapterShape>,
) -> Result<HashMap<String, Tensor>> {
    let mut all = HashMap::new();
    for id in parameters.ids() {
        all.insert(parameters.name(id).to_owned(), parameters.whole(id)?);
    }
    let Some(shape) = shape else { return Ok(all) };
    let names: Vec<String> = all.keys().filter(|n| n.ends_with(DOWN)).cloned().collect();
    for name in names {
        let map = name.strip_suffix(DOWN).unwrap_or(&name);
        let (weight, up) = (format!("{map}weight"), format!("{map}{UP}"));
        if let (Some(down), Some(up)) = (all.remove(&name), all.remove(&up))
            && let Some(weight) = all.get_mut(&weight)
        {
            let term = term(&down, &up, shape.factor())?;
            *weight = (&*weight + term.to_dtype(weight.dtype())?)?;
        }
    }
    Ok(all)
}

/// Writes only the adapters among `parameters`, in f32, to a safetensors file.
///
/// # Errors
/// The file cannot be written.
pub fn save_adapters(parameters: &Parameters, file: &Path) -> Result<()> {
    let tensors = adapters(parameters)
        .map(|(_, name, tensor)| Ok((name.to_owned(), to_host(tensor)?.to_dtype(DType::F32)?)))
        .collect::<Result<HashMap<String, Tensor>>>()?;
    safetensors::save(&tensors, file).map_err(|error| misfit(file, error.to_string()))
}

/// Reads adapters into `parameters`.
///
/// # Errors
/// The file cannot be read, or its adapters are not exactly those among `parameters`. The error
/// names every missing, misshaped or unknown tensor, and no parameter is changed.
pub fn load_adapters(parameters: &mut Parameters, file: &Path) -> Result<()> {
    let mut found =
        safetensors::load(file, &Device::Cpu).map_err(|error| misfit(file, error.to_string()))?;
    let mut complaints = BTreeSet::new();
    let mut ready = Vec::new();
    for (index, name, tensor) in adapters(parameters) {
        match found.remove(name) {
            None => complaints.insert(format!("{name} is missing")),
            Some(found) if found.dims() != tensor.dims() => complaints.insert(format!(
                "{name} has the shape {:?} instead of {:?}",
                found.dims(),
                tensor.dims()
            )),
            Some(found) => {
                let found = found.to_dtype(tensor.dtype())?;
                ready.push((index, found.to_device(tensor.device())?));
                false
            }
        };
    }
    complaints.extend(found.keys().map(|name| format!("{name} is not known")));
    if !complaints.is_empty() {
        let all: Vec<String> = complaints.into_iter().collect();
        return Err(misfit(file, all.join("; ")));
    }
    for (index, tensor) in ready {
        parameters.set(index, tensor)?;
    }
    Ok(())
}

/// Index, name and values of each adapter tensor.
fn adapters(parameters: &Parameters) -> impl Iterator<Item = (usize, &str, &Tensor)> {
    let all = (0..).zip(parameters.iter());
    all.filter(|(_, p)| is_adapter(&p.name))
        .map(|(index, p)| (index, &*p.name, &p.tensor))
}

fn misfit(file: &Path, what: String) -> ModelError {
    ModelError::Misfit {
        path: file.to_owned(),
        what,
    }
}
