//! The tensors of a GGUF file under the names of the transformers library, and how their values
//! differ.

use super::families::family_of;
use super::header::{GgufHeader, GgufTensor};
use crate::error::Result;

/// How the values of a tensor in a GGUF file differ from the published ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowOrder {
    /// Not at all.
    Same,
    /// In each of `heads` heads, the rows of values that are half a head apart are neighbors.
    Neighbors { heads: usize },
    /// 1 was added.
    OneAdded,
}

impl RowOrder {
    /// Turns values of `shape` into the published ones.
    pub fn restore(self, values: Vec<f32>, shape: &[usize]) -> Vec<f32> {
        match self {
            RowOrder::Same => values,
            RowOrder::OneAdded => values.into_iter().map(|value| value - 1.0).collect(),
            RowOrder::Neighbors { heads } => {
                let rows = shape.first().copied().unwrap_or(1);
                let (columns, half) = (values.len() / rows.max(1), rows / heads / 2);
                let mut ordered = vec![0.0; values.len()];
                for row in 0..rows {
                    let (head, within) = (row / (2 * half), row % (2 * half));
                    let to = head * 2 * half + within % 2 * half + within / 2;
                    ordered[to * columns..][..columns]
                        .copy_from_slice(&values[row * columns..][..columns]);
                }
                ordered
            }
        }
    }
}

/// Tensors that `config.json` describes.
const FREQUENCIES: [&str; 3] = [
    "rope_freqs.weight",
    "rope_factors_long.weight",
    "rope_factors_short.weight",
];

/// The parts of a block in llama.cpp and in the transformers library.
const PARTS: [(&str, &str); 11] = [
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_qkv", "self_attn.qkv_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_down", "mlp.down_proj"),
    ("attn_norm", "input_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];

/// Each tensor under its published name. One that has none keeps its name, and is refused when the
/// tensors are compared with the network.
///
/// # Errors
/// The architecture is unknown, or its heads are.
pub(crate) fn published_tensors(
    header: &GgufHeader,
) -> Result<Vec<(String, GgufTensor, RowOrder)>> {
    let family = family_of(header)?;
    let architecture = header.text("general.architecture")?.unwrap_or_default();
    let heads = |key: &str| header.count(&format!("{architecture}.attention.{key}"));
    let queries = heads("head_count")?.unwrap_or(0);
    let keys = heads("head_count_kv")?.unwrap_or(queries);
    let mut all = Vec::new();
    for (name, tensor) in header.tensors() {
        if FREQUENCIES.contains(&name.as_str()) {
            continue;
        }
        let rows = tensor.shape().first().copied().unwrap_or(0);
        let heads = match part_of(name) {
            Some("attn_q") => queries,
            Some("attn_k") => keys,
            _ => 0,
        };
        let has_whole_heads = heads > 0 && rows > 0 && rows.is_multiple_of(2 * heads);
        let order = if family.is_gemma && name.ends_with("norm.weight") {
            RowOrder::OneAdded
        } else if family.rotates_neighbors && has_whole_heads {
            RowOrder::Neighbors { heads }
        } else {
            // A wrong number of rows is refused when the shapes are compared.
            RowOrder::Same
        };
        let published = published_name(header, name, family.is_gemma);
        all.push((published, tensor.clone(), order));
    }
    Ok(all)
}

/// The part of a block: `attn_q` of `blk.3.attn_q.weight`.
fn part_of(name: &str) -> Option<&str> {
    let (_, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    Some(rest.split_once('.')?.0)
}

fn published_name(header: &GgufHeader, name: &str, is_gemma: bool) -> String {
    let whole = match name {
        "token_embd.weight" => Some("model.embed_tokens.weight"),
        "output_norm.weight" => Some("model.norm.weight"),
        "output.weight" => Some("lm_head.weight"),
        _ => None,
    };
    let block = || {
        let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
        let (part, kind) = rest.split_once('.')?;
        let has_gate = header
            .tensors()
            .contains_key(&format!("blk.{layer}.ffn_gate.weight"));
        let theirs = match part {
            "ffn_up" if has_gate => "mlp.up_proj",
            "ffn_up" => "mlp.gate_up_proj",
            "ffn_norm" if is_gemma => "pre_feedforward_layernorm",
            "ffn_norm" | "post_attention_norm" => "post_attention_layernorm",
            _ => PARTS.iter().find(|(ours, _)| *ours == part)?.1,
        };
        Some(format!("model.layers.{layer}.{theirs}.{kind}"))
    };
    let whole = whole.map(str::to_owned);
    whole.or_else(block).unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbors_become_halves_of_a_head() {
        // Two heads of four rows with two columns; the file has rows 0, 2, 1, 3 of each.
        let row = |n: usize| [n as f32, n as f32 + 0.5];
        let stored: Vec<f32> = [0, 2, 1, 3, 4, 6, 5, 7].into_iter().flat_map(row).collect();
        let published: Vec<f32> = (0..8).flat_map(row).collect();
        let order = RowOrder::Neighbors { heads: 2 };
        assert_eq!(order.restore(stored, &[8, 2]), published);
        assert_eq!(RowOrder::OneAdded.restore(vec![1.5], &[1]), [0.5]);
    }
}
