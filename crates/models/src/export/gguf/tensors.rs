//! The tensors of a GGUF file: their names, their order of rows, and how each is stored.

use super::{Description, GgufWeights, refuse};
use crate::decoder::DecoderShape;
use crate::error::{ModelError, Result};
use crate::export::safetensors_file::to_cpu;
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use std::collections::{BTreeMap, HashMap};
use tape::device::contiguous;

/// The largest 16-bit float.
const MAX_F16: f32 = 65_504.0;
/// Ebb's names of the parts of a block, and those of llama.cpp.
const PARTS: [(&str, &str); 15] = [
    ("query", "attn_q"),
    ("key", "attn_k"),
    ("value", "attn_v"),
    ("qkv", "attn_qkv"),
    ("projection", "attn_output"),
    ("query_norm", "attn_q_norm"),
    ("key_norm", "attn_k_norm"),
    ("gate", "ffn_gate"),
    ("up", "ffn_up"),
    ("gate_up", "ffn_up"),
    ("down", "ffn_down"),
    ("norm1", "attn_norm"),
    ("norm2", "ffn_norm"),
    ("norm3", "post_attention_norm"),
    ("norm4", "post_ffw_norm"),
];
const EMBEDDINGS: &str = "token_embd.weight";
const OUTPUT: &str = "output.weight";

/// Chooses how matrices are stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WeightTypes {
    weights: GgufWeights,
    layers: usize,
    has_output: bool,
}

impl WeightTypes {
    pub fn new(weights: GgufWeights, shape: &DecoderShape) -> Self {
        WeightTypes {
            weights,
            layers: shape.layers.len(),
            has_output: !shape.has_tied_embeddings,
        }
    }

    /// The type of a tensor. If rows are not whole blocks, a type with smaller blocks is used, or
    /// else 16-bit floats, as in llama.cpp.
    fn of(&self, name: &str, dims: &[usize]) -> GgmlDType {
        let [_, width] = dims else {
            return GgmlDType::F32;
        };
        let wanted = match self.weights {
            GgufWeights::F32 => GgmlDType::F32,
            GgufWeights::F16 => GgmlDType::F16,
            GgufWeights::Q8_0 => GgmlDType::Q8_0,
            GgufWeights::Q4KM => self.mixed(name),
        };
        let smaller = match wanted {
            GgmlDType::Q4K => GgmlDType::Q5_0,
            GgmlDType::Q5K => GgmlDType::Q5_1,
            GgmlDType::Q6K => GgmlDType::Q8_0,
            other => other,
        };
        let fits = |kind: &GgmlDType| width.is_multiple_of(kind.block_size());
        let mut kinds = [wanted, smaller].into_iter();
        kinds.find(fits).unwrap_or(GgmlDType::F16)
    }

    /// The types of llama.cpp's mixture `Q4_K_M`.
    fn mixed(&self, name: &str) -> GgmlDType {
        let block = name.strip_prefix("blk.").and_then(|rest| {
            let (layer, part) = rest.split_once('.')?;
            Some((layer.parse::<usize>().ok()?, part))
        });
        match block {
            None if name == OUTPUT || (name == EMBEDDINGS && !self.has_output) => GgmlDType::Q6K,
            Some((layer, "attn_v.weight" | "ffn_down.weight")) if self.needs_more_bits(layer) => {
                GgmlDType::Q6K
            }
            Some((_, "attn_qkv.weight")) => GgmlDType::Q5K,
            _ => GgmlDType::Q4K,
        }
    }

    /// The first and the last eighth of the layers, and every third one between.
    fn needs_more_bits(&self, layer: usize) -> bool {
        let eighth = self.layers / 8;
        layer < eighth || layer >= 7 * self.layers / 8 || (layer - eighth) % 3 == 2
    }
}

/// The tensors of a network, from its parameters with merged adapters, in the order of their names.
///
/// # Errors
/// A weight is too large for its type, or has no name in llama.cpp.
pub(crate) fn tensors(
    parameters: HashMap<String, Tensor>,
    description: &Description,
    types: WeightTypes,
) -> Result<Vec<(String, QTensor)>> {
    let mut all = Vec::new();
    // One after the other, so that few exist in two forms.
    for (ours, tensor) in parameters.into_iter().collect::<BTreeMap<_, _>>() {
        let Some(name) = gguf_name(&ours) else {
            return Err(refuse(&format!("it has the tensor {ours}")));
        };
        let tensor = ordered(&ours, to_cpu(&tensor)?, description)?;
        if name == EMBEDDINGS && description.repeats_embeddings() {
            all.push((OUTPUT.to_owned(), stored(OUTPUT, &tensor, types)?));
        }
        let tensor = stored(&name, &tensor, types)?;
        all.push((name, tensor));
    }
    for (name, divisors) in description.frequency_divisors() {
        let count = divisors.len();
        let tensor = Tensor::from_vec(divisors, count, &Device::Cpu)?;
        all.push((name.to_owned(), stored(name, &tensor, types)?));
    }
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(all)
}

fn stored(name: &str, tensor: &Tensor, types: WeightTypes) -> Result<QTensor> {
    let kind = types.of(name, tensor.dims());
    if kind == GgmlDType::F16 {
        let values = tape::device::read::<f32>(tensor)?;
        if !values.iter().all(|value| value.abs() <= MAX_F16) {
            return Err(ModelError::NotExportable(format!(
                "{name} has a value that does not fit in a 16-bit float; choose --weights f32"
            )));
        }
    }
    Ok(QTensor::quantize(tensor, kind)?)
}

/// The name of a parameter in llama.cpp.
fn gguf_name(ours: &str) -> Option<String> {
    match ours {
        "embedding.weight" => return Some(EMBEDDINGS.to_owned()),
        "output.weight" => return Some(OUTPUT.to_owned()),
        "norm.weight" => return Some("output_norm.weight".to_owned()),
        _ => {}
    }
    let (layer, rest) = ours.strip_prefix("blocks.")?.split_once('.')?;
    let (part, kind) = rest.split_once('.')?;
    let (_, theirs) = PARTS.iter().find(|(ours, _)| *ours == part)?;
    Some(format!("blk.{layer}.{theirs}.{kind}"))
}

/// A parameter with the values and the order of rows that llama.cpp expects.
fn ordered(ours: &str, tensor: Tensor, description: &Description) -> Result<Tensor> {
    let shape = description.shape();
    let mut parts = ours.rsplit('.').skip(1);
    let part = parts.next().unwrap_or_default();
    if part.contains("norm") {
        return Ok((tensor + shape.norm.offset)?);
    }
    let heads = match part {
        "query" => shape.heads,
        "key" => shape.key_heads,
        _ => return Ok(tensor),
    };
    if !description.rotates_neighbors() {
        return Ok(tensor);
    }
    // Values half a head apart become neighbors.
    let dims = tensor.dims().to_vec();
    let columns: usize = dims[1..].iter().product();
    let halves = (heads, 2, shape.head_width / 2, columns);
    let neighbors = contiguous(&tensor.reshape(halves)?.transpose(1, 2)?)?;
    Ok(neighbors.reshape(dims)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_get_the_types_of_llama_cpp() {
        let types = |weights, has_output| WeightTypes {
            weights,
            layers: 32,
            has_output,
        };
        let mixed = types(GgufWeights::Q4KM, false);
        let of = |name: &str, width| mixed.of(name, &[8, width]);
        assert_eq!(of("token_embd.weight", 512), GgmlDType::Q6K);
        assert_eq!(of("blk.0.attn_v.weight", 512), GgmlDType::Q6K);
        assert_eq!(of("blk.4.attn_v.weight", 512), GgmlDType::Q4K);
        assert_eq!(of("blk.6.ffn_down.weight", 512), GgmlDType::Q6K);
        assert_eq!(of("blk.31.ffn_down.weight", 512), GgmlDType::Q6K);
        assert_eq!(of("blk.31.ffn_up.weight", 512), GgmlDType::Q4K);
        assert_eq!(of("blk.9.attn_qkv.weight", 512), GgmlDType::Q5K);
        assert_eq!(of("blk.4.attn_q.weight", 96), GgmlDType::Q5_0);
        assert_eq!(of("blk.0.attn_v.weight", 96), GgmlDType::Q8_0);
        assert_eq!(of("blk.4.attn_q.weight", 40), GgmlDType::F16);
        assert_eq!(mixed.of("blk.4.attn_norm.weight", &[512]), GgmlDType::F32);
        let with_output = types(GgufWeights::Q4KM, true);
        assert_eq!(
            with_output.of("token_embd.weight", &[8, 512]),
            GgmlDType::Q4K
        );
        assert_eq!(with_output.of("output.weight", &[8, 512]), GgmlDType::Q6K);
        let eight = types(GgufWeights::Q8_0, true);
        assert_eq!(eight.of("output.weight", &[8, 64]), GgmlDType::Q8_0);
        assert_eq!(eight.of("output.weight", &[8, 24]), GgmlDType::F16);
    }

    #[test]
    fn parameters_have_the_names_of_llama_cpp() {
        let name = |ours: &str| gguf_name(ours).unwrap_or_default();
        assert_eq!(name("blocks.11.gate_up.weight"), "blk.11.ffn_up.weight");
        assert_eq!(name("blocks.0.query.bias"), "blk.0.attn_q.bias");
        assert_eq!(name("norm.weight"), "output_norm.weight");
        assert_eq!(name("blocks.0.other.weight"), "");
    }
}
