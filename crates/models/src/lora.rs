//! Low-rank adapters (LoRA, Hu et al. 2021): a small trained term added to a frozen linear map, `y
//! = x Wᵀ + b + (alpha / rank) (x Aᵀ) Bᵀ`. A rank-stabilized adapter divides alpha by the square
//! root of the rank. `A` [rank, inputs] starts random and `B` [outputs, rank] starts at zero, so
//! training begins with the output of the frozen map. In training, dropout of the adapter's input
//! is possible, as in PEFT. The frozen map may be quantized to 8 or 4 bits. Adapters are saved
//! separately and can be merged into the map.
//!
//! Weight-decomposed adapters (DoRA, Liu et al. 2024, <https://arxiv.org/abs/2402.09353>) also
//! train the norm `m` [outputs] of each row: `y = x (m / ‖V‖ V)ᵀ + b` with `V = W + (alpha / rank)
//! B A`. `m` starts as the norms of the rows of `W`. The norms `‖V‖` are constants in the backward
//! pass (section 4.3), as in PEFT.

use crate::error::{ModelError, Result, naming};
use crate::parameter_builder::{AdapterShape, ParameterBuilder};
use candle_core::{DType, Device, Tensor, safetensors};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use tape::device::to_host;
use tape::inplace::to_f64;
use tape::{
    Bits, Cancel, Kernels, LowRankTerm, OutputWeights, ParameterId, Parameters, Quantized, Tape,
    Value,
};

/// Suffixes of the trained tensors, after the name of the map. Only weight-decomposed adapters have
/// the third one.
const DOWN: &str = "lora_A.weight";
const UP: &str = "lora_B.weight";
const MAGNITUDE: &str = "lora_magnitude_vector";
/// Suffixes of the names of an adapter's tensors. PEFT and Ebb use the same.
pub(crate) const ADAPTER_PARTS: [&str; 3] = [DOWN, UP, MAGNITUDE];

/// Values of the largest matrix whose rows are measured at once.
const MEASURED_VALUES: usize = 1 << 21;
/// Added to the norm of each row, so that no row of zeros is divided by 0.
const SMALLEST_NORM: f64 = 1e-30;

/// Whether this is the name of an adapter's tensor.
pub fn is_adapter(name: &str) -> bool {
    ADAPTER_PARTS.iter().any(|part| name.ends_with(part))
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
        self.as_base(bias.as_ref()).forward(tape, x)
    }

    fn as_base<'a>(&'a self, bias: Option<&'a Value>) -> BaseMap<'a> {
        let weight = match &self.weight {
            Frozen::Full(weight) => BaseWeight::Full(Value::constant(weight.clone())),
            Frozen::Quantized(weight) => BaseWeight::Quantized(weight),
        };
        BaseMap { weight, bias }
    }

    /// The Euclidean norm of each row of the weight.
    fn row_norms(&self) -> tape::Result<Vec<f64>> {
        let none = Parameters::default();
        let tape = Tape::forward_only(&none, Cancel::default(), Kernels::Fused);
        let dtype = match &self.weight {
            Frozen::Full(weight) if weight.dtype() == DType::F64 => DType::F64,
            _ => DType::F32,
        };
        let norms = self.as_base(None).weight.row_norms(&tape, None, dtype)?;
        to_f64(&norms)
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

/// The weight of a linear map.
pub(crate) enum BaseWeight<'a> {
    Full(Value),
    Quantized(&'a Quantized),
}

/// A linear map that an adapter may be added to.
pub(crate) struct BaseMap<'a> {
    /// [outputs, inputs].
    pub weight: BaseWeight<'a>,
    /// [outputs].
    pub bias: Option<&'a Value>,
}

impl<'a> BaseWeight<'a> {
    /// The weight that is a parameter, quantized or not.
    pub fn from_parameter(tape: &Tape<'a>, id: ParameterId) -> Self {
        match tape.quantized(id) {
            Some(weight) => BaseWeight::Quantized(weight),
            None => BaseWeight::Full(tape.parameter(id)),
        }
    }

    /// This weight as output weights of a loss.
    pub fn of_loss(&self) -> OutputWeights<'_> {
        match self {
            BaseWeight::Full(weight) => weight.into(),
            BaseWeight::Quantized(weight) => OutputWeights::Quantized(weight),
        }
    }

    fn dims(&self) -> tape::Result<[usize; 2]> {
        match self {
            BaseWeight::Full(weight) => {
                let (outputs, inputs) = weight.tensor().dims2()?;
                Ok([outputs, inputs])
            }
            BaseWeight::Quantized(weight) => Ok(weight.dims()),
        }
    }

    /// `x Wᵀ + b`.
    pub fn map(&self, tape: &Tape, x: &Value, bias: Option<&Value>) -> tape::Result<Value> {
        match self {
            BaseWeight::Full(weight) => tape.linear(x, weight, bias),
            BaseWeight::Quantized(weight) => {
                // In a half type the sum is rounded anyway, so the bias may be too.
                let bias = bias.map(|bias| tape.cast(bias, x.tensor().dtype()));
                tape.quantized_linear(x, weight, bias.transpose()?.as_ref())
            }
        }
    }

    /// Some rows as constants of type `dtype`.
    fn rows(&self, tape: &Tape, rows: Range<usize>, dtype: DType) -> tape::Result<Value> {
        let found = match self {
            BaseWeight::Full(weight) => {
                Value::constant(weight.tensor().narrow(0, rows.start, rows.len())?)
            }
            BaseWeight::Quantized(weight) => {
                let ids: Vec<u32> = rows.map(|row| row as u32).collect();
                tape.quantized_embedding(weight, &ids, &[ids.len()])?
            }
        };
        tape.cast(&found, dtype)
    }

    /// The Euclidean norm of each row of this weight plus `added`, [outputs], as a constant of type
    /// `dtype`. The memory does not grow with the number of rows.
    fn row_norms(
        &self,
        tape: &Tape,
        added: Option<&LowRank>,
        dtype: DType,
    ) -> tape::Result<Tensor> {
        let [outputs, inputs] = self.dims()?;
        let at_once = (MEASURED_VALUES / inputs.max(1)).max(1);
        let mut squares = Vec::new();
        for start in (0..outputs).step_by(at_once) {
            let rows = start..outputs.min(start + at_once);
            let mut values = self.rows(tape, rows.clone(), dtype)?;
            if let Some(added) = added {
                values = tape.add(&values, &added.rows(tape, rows, dtype)?)?;
            }
            let ones = Tensor::ones((1, inputs), dtype, values.tensor().device())?;
            let squared = tape.mul(&values, &values)?;
            let sums = tape.linear(&squared, &Value::constant(ones), None)?;
            squares.push(tape.reshape(&sums, &[sums.dims()[0]])?);
        }
        let squares = tape.concat(&squares.iter().collect::<Vec<_>>())?;
        Ok((squares.tensor().sqrt()? + SMALLEST_NORM)?)
    }
}

impl BaseMap<'_> {
    /// Maps [.., inputs] to [.., outputs].
    pub fn forward(&self, tape: &Tape, x: &Value) -> tape::Result<Value> {
        self.weight.map(tape, x, self.bias)
    }
}

/// The matrix `factor B A`.
struct LowRank {
    down: Tensor,
    up: Tensor,
    factor: f64,
}

impl LowRank {
    fn new(tape: &Tape, down: ParameterId, up: ParameterId, factor: f64) -> Self {
        LowRank {
            down: tape.parameter(down).tensor().clone(),
            up: tape.parameter(up).tensor().clone(),
            factor,
        }
    }

    /// Some rows as constants of type `dtype`.
    fn rows(&self, tape: &Tape, rows: Range<usize>, dtype: DType) -> tape::Result<Value> {
        let up = self.up.narrow(0, rows.start, rows.len())?;
        let up = tape.cast(&Value::constant(up), dtype)?;
        let down = tape.cast(&Value::constant(self.down.clone()), dtype)?;
        tape.scale(&tape.matmul(&up, &down)?, self.factor)
    }
}

/// The trained parameters of an adapter.
#[derive(Debug, Clone)]
pub(crate) struct Adapter {
    down: ParameterId,
    up: ParameterId,
    /// The norms of the rows, if the adapter is weight-decomposed.
    magnitude: Option<ParameterId>,
    factor: f64,
    /// Fraction of the adapter's inputs that are zero in training.
    dropout: f64,
}

impl Adapter {
    /// The adapter of the linear map [outputs, inputs] under the builder's prefix; `None` if maps
    /// there are not adapted. [`set_magnitudes`] has to follow when the map has its values.
    pub fn for_map(
        b: &mut ParameterBuilder,
        outputs: usize,
        inputs: usize,
    ) -> tape::Result<Option<Self>> {
        let Some(shape) = b.adapter_shape() else {
            return Ok(None);
        };
        let norms = shape.is_weight_decomposed.then(|| vec![1.0; outputs]);
        Adapter::build(b, shape, [outputs, inputs], norms).map(Some)
    }

    /// The adapter of a map with `dims` [outputs, inputs]. `norms` are those of its rows if the
    /// adapter is weight-decomposed.
    fn build(
        b: &mut ParameterBuilder,
        shape: AdapterShape,
        dims: [usize; 2],
        norms: Option<Vec<f64>>,
    ) -> tape::Result<Self> {
        let [outputs, inputs] = dims;
        Ok(Adapter {
            down: b.new_normal(DOWN, &[shape.rank, inputs], (1.0 / inputs as f64).sqrt())?,
            up: b.constant(UP, &[outputs, shape.rank], 0.0)?,
            magnitude: match norms {
                Some(norms) => Some(b.vector(MAGNITUDE, norms)?),
                None => None,
            },
            factor: shape.factor(),
            dropout: shape.dropout,
        })
    }

    /// The output of `base` with this adapter for `x` [.., inputs]. `name` is that of the map.
    pub fn forward(
        &self,
        tape: &Tape,
        name: &str,
        x: &Value,
        base: &BaseMap,
    ) -> tape::Result<Value> {
        if tape.is_without_adapters() {
            return naming(name, base.forward(tape, x));
        }
        match self.magnitude {
            None => {
                let y = naming(name, base.forward(tape, x))?;
                let x = tape.sample_dropout(x, self.dropout, name)?;
                let (down, up) = (tape.parameter(self.down), tape.parameter(self.up));
                let term = LowRankTerm {
                    down: &down,
                    up: &up,
                    factor: self.factor,
                };
                naming(name, tape.add_low_rank(y, &x, &term))
            }
            Some(magnitude) => self.decomposed(tape, name, x, base, magnitude),
        }
    }

    /// Whether the adapter draws noise on this tape.
    pub fn drops(&self, tape: &Tape) -> bool {
        tape.drops(self.dropout)
    }

    /// The adapter's term for its input.
    fn term(&self, tape: &Tape, name: &str, x: &Value) -> tape::Result<Value> {
        let (down, up) = (tape.parameter(self.down), tape.parameter(self.up));
        let term = tape.linear(&naming(name, tape.linear(x, &down, None))?, &up, None)?;
        tape.scale(&term, self.factor)
    }

    /// The output of a weight-decomposed adapter. With `f = m / ‖V‖` and the input `d` after
    /// dropout it is `W x + b + (f - 1) W d + f (alpha / rank) B A d`, as in PEFT.
    fn decomposed(
        &self,
        tape: &Tape,
        name: &str,
        x: &Value,
        base: &BaseMap,
        magnitude: ParameterId,
    ) -> tape::Result<Value> {
        let (id, magnitude) = (magnitude, tape.parameter(magnitude));
        let dropped = tape.sample_dropout(x, self.dropout, name)?;
        let product = naming(name, base.weight.map(tape, &dropped, None))?;
        let sum = tape.add(&product, &self.term(tape, name, &dropped)?)?;
        let norms = match tape.derived(id) {
            Some(norms) => norms.clone(),
            None => {
                let added = LowRank::new(tape, self.down, self.up, self.factor);
                let dtype = magnitude.tensor().dtype();
                base.weight.row_norms(tape, Some(&added), dtype)?
            }
        };
        let factors = tape.mul(&magnitude, &Value::constant(norms.recip()?))?;
        let factors = tape.cast(&factors, sum.tensor().dtype())?;
        let scaled = naming(name, tape.broadcast_mul(&sum, &factors))?;
        if tape.drops(self.dropout) {
            let y = base.forward(tape, x)?;
            let rest = tape.add(&y, &tape.scale(&product, -1.0)?)?;
            return tape.add(&rest, &scaled);
        }
        match base.bias {
            Some(bias) => naming(name, tape.broadcast_add(&scaled, bias)),
            None => Ok(scaled),
        }
    }
}

/// The weight that an adapter adds to its map: `factor B A`.
fn term(down: &Tensor, up: &Tensor, factor: f64) -> tape::Result<Tensor> {
    Ok((up.matmul(down)? * factor)?)
}

/// `weight` [outputs, inputs], with `term` added and its rows scaled to the norms `magnitude`, if
/// the adapter is weight-decomposed. The result has the type of `weight`.
fn merged_weight(
    weight: &Tensor,
    term: &Tensor,
    magnitude: Option<&Tensor>,
) -> tape::Result<Tensor> {
    let Some(magnitude) = magnitude else {
        return Ok((weight + term.to_dtype(weight.dtype())?)?);
    };
    let dtype = magnitude.dtype();
    let sum = (weight.to_dtype(dtype)? + term.to_dtype(dtype)?)?;
    let norms = (sum.sqr()?.sum_keepdim(1)?.sqrt()? + SMALLEST_NORM)?;
    let factors = (magnitude.unsqueeze(1)? / norms)?;
    Ok(sum.broadcast_mul(&factors)?.to_dtype(weight.dtype())?)
}

/// Sets the trained norms of all weight-decomposed adapters to those of the rows of their maps.
pub(crate) fn set_magnitudes(parameters: &mut Parameters) -> tape::Result<()> {
    let by_name = ids_by_name(parameters);
    let mut found = Vec::new();
    {
        let tape = Tape::forward_only(parameters, Cancel::default(), Kernels::Fused);
        for (name, &id) in &by_name {
            let map = name.strip_suffix(MAGNITUDE);
            let Some(weight) = map.and_then(|map| by_name.get(&format!("{map}weight"))) else {
                continue;
            };
            let dtype = tape.parameter(id).tensor().dtype();
            let weight = BaseWeight::from_parameter(&tape, *weight);
            found.push((id, weight.row_norms(&tape, None, dtype)?));
        }
    }
    for (id, norms) in found {
        parameters.put(id, norms)?;
    }
    Ok(())
}

/// Measures the rows of `W + (alpha / rank) B A` for all weight-decomposed adapters of this shape
/// among `parameters`. Forward passes then use these norms instead of measuring them. Has to be
/// called again after the values have changed.
///
/// # Errors
/// The device fails or has no memory.
pub fn measure_row_norms(parameters: &mut Parameters, shape: AdapterShape) -> tape::Result<()> {
    let by_name = ids_by_name(parameters);
    let mut found = Vec::new();
    {
        let tape = Tape::forward_only(parameters, Cancel::default(), Kernels::Fused);
        for (name, &id) in &by_name {
            let Some(map) = name.strip_suffix(MAGNITUDE) else {
                continue;
            };
            let part = |part: &str| by_name.get(&format!("{map}{part}")).copied();
            let (Some(weight), Some(down), Some(up)) = (part("weight"), part(DOWN), part(UP))
            else {
                continue;
            };
            let added = LowRank::new(&tape, down, up, shape.factor());
            let dtype = tape.parameter(id).tensor().dtype();
            let weight = BaseWeight::from_parameter(&tape, weight);
            found.push((id, weight.row_norms(&tape, Some(&added), dtype)?));
        }
    }
    for (id, norms) in found {
        parameters.set_derived(id, norms);
    }
    Ok(())
}

/// The ids of all parameters.
fn ids_by_name(parameters: &Parameters) -> HashMap<String, ParameterId> {
    let ids = parameters.ids();
    ids.map(|id| (parameters.name(id).to_owned(), id)).collect()
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
        let dims = base.dims()?;
        let norms = if shape.is_weight_decomposed {
            Some(base.row_norms()?)
        } else {
            None
        };
        b.within(name, |b| {
            Ok(AdaptedLinear {
                name: b.prefix(),
                adapter: Adapter::build(b, shape, dims, norms)?,
                base,
            })
        })
    }

    /// Maps [.., inputs] to [.., outputs].
    pub fn forward(&self, tape: &Tape, x: &Value) -> tape::Result<Value> {
        let bias = self.base.bias.clone().map(Value::constant);
        let base = self.base.as_base(bias.as_ref());
        self.adapter.forward(tape, &self.name, x, &base)
    }

    /// One map with the same outputs, in floating point: `W + (alpha / rank) B A`, whose rows have
    /// the trained norms if the adapter is weight-decomposed.
    ///
    /// # Errors
    /// The device cannot hold the full weight.
    pub fn merged(&self, parameters: &Parameters) -> tape::Result<FrozenLinear> {
        let adapter = &self.adapter;
        let (down, up) = (
            parameters.whole(adapter.down)?,
            parameters.whole(adapter.up)?,
        );
        let magnitude = adapter.magnitude.map(|id| parameters.whole(id));
        let term = term(&down, &up, adapter.factor)?;
        let weight = self.base.full_weight(term.dtype())?;
        let sum = merged_weight(
            &weight.to_dtype(term.dtype())?,
            &term,
            magnitude.transpose()?.as_ref(),
        )?;
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
        let [weight, up, magnitude] = ["weight", UP, MAGNITUDE].map(|part| format!("{map}{part}"));
        let magnitude = all.remove(&magnitude);
        if let (Some(down), Some(up)) = (all.remove(&name), all.remove(&up))
            && let Some(weight) = all.get_mut(&weight)
        {
            let term = term(&down, &up, shape.factor())?;
            *weight = merged_weight(weight, &term, magnitude.as_ref())?;
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
