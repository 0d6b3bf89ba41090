//! Fills parameters with pretrained weights by a tensor table. All tensors are checked first: if
//! one does not fit, no parameter is changed and the error names every tensor that does not fit.

use super::fine_tuning::{BlockLayout, FineTuning};
use super::safetensors_reader::TensorIndex;
use crate::error::{ModelError, Result};
use crate::tensor_map::{BATCH_NORM_EPSILON, TensorLayout, TensorPair, TensorTable};
use candle_core::{Device, Tensor};
use std::collections::{BTreeMap, BTreeSet};
use tape::{ParameterId, Parameters, Quantized};

/// The four tensors of a published BatchNorm.
const BATCH_NORM: [&str; 4] = ["weight", "bias", "running_mean", "running_var"];

/// Pretrained weights, and how they fill parameters.
pub(super) struct WeightFiller<'a> {
    pub tensors: &'a TensorIndex,
    pub table: &'a TensorTable,
    /// Whether the published head is used; otherwise it is ignored.
    pub uses_head: bool,
    pub tuning: FineTuning,
    pub layout: BlockLayout,
}

/// For each parameter, the published tensors that fill it.
type Sources = BTreeMap<ParameterId, Vec<(String, TensorLayout)>>;

impl WeightFiller<'_> {
    /// Finds the published tensors that fill each parameter.
    ///
    /// # Errors
    /// Tensors are missing, misshaped or unknown.
    pub fn check(&self, parameters: &Parameters) -> Result<Sources> {
        let mut complaints = BTreeSet::new();
        let prefix = self.prefix();
        let body = self.table.body.iter().map(|row| (row, prefix, true));
        let head = self.table.head.iter();
        let head = head.map(|row| (row, "", self.uses_head));
        let by_name: BTreeMap<&str, ParameterId> = parameters
            .ids()
            .map(|id| (parameters.name(id), id))
            .collect();
        let (mut sources, mut known) = (Sources::new(), BTreeSet::new());
        for (row, prefix, is_used) in body.chain(head) {
            let name = format!("{prefix}{}", row.theirs);
            let parts = parts(&name, row);
            known.extend(parts.iter().cloned());
            if !is_used {
                continue;
            }
            let Some(&id) = by_name.get(&*row.ours) else {
                complaints.insert(format!("Ebb's network has no parameter {name}"));
                continue;
            };
            let expected = row.layout.published_shape(parameters.whole(id)?.dims());
            complaints.extend(parts.iter().filter_map(|part| self.misfit(part, &expected)));
            if row.layout != TensorLayout::Unused {
                sources.entry(id).or_default().push((name, row.layout));
            }
        }
        complaints.extend(self.unknown(&known));
        if complaints.is_empty() {
            return Ok(sources);
        }
        Err(ModelError::WeightsMisfit {
            folder: self.tensors.folder().to_owned(),
            complaints: complaints.into_iter().collect(),
        })
    }

    /// Fills trained and frozen parameters. One parameter at a time is in f32, on the CPU; the
    /// device only gets values as it keeps them.
    pub fn fill(&self, parameters: &mut Parameters) -> Result<()> {
        parameters.set_half(self.tuning.half);
        for (id, sources) in self.check(parameters)? {
            let like = parameters.whole(id)?;
            let values = self.values(&sources, &like)?;
            let tensor = Tensor::from_vec(values, like.dims(), &Device::Cpu)?;
            let dims = like.dims().len();
            if let Some(bits) = self.tuning.bits_of(parameters, id, dims, self.layout) {
                let weight = Quantized::from_weight(&tensor, bits)?;
                parameters.put_quantized(id, weight.to_device(like.device())?)?;
                continue;
            }
            let dtype = self.tuning.dtype_of(parameters, id, dims, like.dtype());
            parameters.put(id, tensor.to_dtype(dtype)?.to_device(like.device())?)?;
        }
        Ok(parameters.end_placeholders()?)
    }

    /// The values of a parameter of the shape of `like`.
    fn values(&self, sources: &[(String, TensorLayout)], like: &Tensor) -> Result<Vec<f32>> {
        if let [(name, TensorLayout::Same)] = sources {
            return self.tensors.read(name);
        }
        let mut values = vec![0.0; like.elem_count()];
        for (name, layout) in sources {
            match layout {
                TensorLayout::BatchNormScale | TensorLayout::BatchNormShift => {
                    self.read_batch_norm(name, *layout, &mut values)?
                }
                layout => layout.read(&self.tensors.read(name)?, like.dims(), &mut values),
            }
        }
        Ok(values)
    }

    /// The prefix of the body's names in this folder.
    fn prefix(&self) -> &'static str {
        let prefix = self.table.prefix;
        let is_prefixed = self.tensors.names().any(|name| name.starts_with(prefix));
        if is_prefixed { prefix } else { "" }
    }

    /// How a tensor differs from the `expected` shape.
    fn misfit(&self, name: &str, expected: &[usize]) -> Option<String> {
        match self.tensors.shape(name) {
            None => Some(format!("{name} {expected:?} is missing")),
            Some(found) if found != expected => Some(format!(
                "{name} has the shape {found:?} instead of {expected:?}"
            )),
            Some(_) => None,
        }
    }

    /// Tensors that are neither in the table nor ignored.
    fn unknown(&self, known: &BTreeSet<String>) -> impl Iterator<Item = String> {
        let prefix = self.prefix();
        let names = self.tensors.names();
        let unknown = names.filter(move |name| {
            let bare = name.strip_prefix(prefix).unwrap_or(name);
            let is_ignored = self.table.is_unneeded(bare) || self.table.is_unneeded(name);
            !known.contains(*name) && !is_ignored
        });
        unknown.map(|name| format!("{name} is not known"))
    }

    /// Reads a published BatchNorm as one factor or one term per channel.
    fn read_batch_norm(&self, name: &str, layout: TensorLayout, values: &mut [f32]) -> Result<()> {
        let mut read = Vec::with_capacity(BATCH_NORM.len());
        for part in BATCH_NORM {
            read.push(self.tensors.read(&format!("{name}.{part}"))?);
        }
        for (channel, value) in values.iter_mut().enumerate() {
            let [weight, bias, mean, variance] =
                [0, 1, 2, 3].map(|part: usize| f64::from(read[part][channel]));
            let scale = weight / (variance + BATCH_NORM_EPSILON).sqrt();
            *value = match layout {
                TensorLayout::BatchNormScale => scale as f32,
                _ => (bias - mean * scale) as f32,
            };
        }
        Ok(())
    }
}

/// The tensors that a row reads.
fn parts(name: &str, row: &TensorPair) -> Vec<String> {
    match row.layout {
        TensorLayout::BatchNormScale | TensorLayout::BatchNormShift => BATCH_NORM
            .iter()
            .map(|part| format!("{name}.{part}"))
            .collect(),
        _ => vec![name.to_owned()],
    }
}
