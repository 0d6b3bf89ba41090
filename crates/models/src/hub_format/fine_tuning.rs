//! Which pretrained weights are trained, and how the frozen ones are stored. Parameters are
//! recognized by their names, for every architecture.

use crate::error::Result;
use crate::lora::is_adapter;
use crate::parameter_builder::AdapterShape;
use candle_core::{DType, Tensor};
use tape::{Bits, ParameterId, Parameters, Quantized};

/// Which pretrained weights are trained. A new head always is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TrainedLayers {
    /// None of them.
    Head,
    /// The last `n` blocks and the layers after them.
    Last(u32),
    /// All of them.
    #[default]
    All,
}

impl TrainedLayers {
    /// The value of `train_only` in a config: `head`, `last:2` or `all`.
    pub fn name(self) -> String {
        match self {
            TrainedLayers::Head => "head".to_owned(),
            TrainedLayers::Last(last) => format!("last:{last}"),
            TrainedLayers::All => "all".to_owned(),
        }
    }
}

/// Which weights are trained, and how the frozen ones are stored.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FineTuning {
    /// The pretrained weights that are trained.
    pub trained: TrainedLayers,
    /// Shape of the adapter of every linear map of the blocks; `None` for no adapters.
    pub adapter: Option<AdapterShape>,
    /// Bits per value of frozen matrices; `None` for floating point.
    pub bits: Option<Bits>,
    /// Half type of frozen matrices and kernels that are not quantized; `None` for the type of the
    /// trained parameters. Each is rounded as soon as it is read.
    pub half: Option<DType>,
}

/// Position of a network's last norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastNorm {
    /// After the blocks, named `norm`.
    AfterBlocks,
    /// In the last block; `norm` comes before the first block.
    InBlock,
}

/// The blocks of a network, for fine-tuning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockLayout {
    pub count: usize,
    /// Position of the last norm.
    pub last_norm: LastNorm,
    /// Whether the token embeddings are only used for lookups, not as output weights.
    pub has_embedding_table: bool,
}

impl FineTuning {
    /// Whether the parameter of this name is trained.
    pub(super) fn trains(&self, name: &str, layout: BlockLayout) -> bool {
        if is_adapter(name) || name.starts_with("head.") {
            return true;
        }
        let last = match self.trained {
            TrainedLayers::Head => return false,
            TrainedLayers::All => return true,
            TrainedLayers::Last(last) => last as usize,
        };
        match name.strip_prefix("blocks.") {
            Some(rest) => {
                let block = rest.split('.').next().and_then(|n| n.parse::<usize>().ok());
                block.is_some_and(|block| block + last >= layout.count)
            }
            None if name.starts_with("norm.") => layout.last_norm == LastNorm::AfterBlocks,
            None => name.starts_with("pooler.") || name.starts_with("output."),
        }
    }

    /// Bits per value of a parameter with `dims` axes, if it is quantized: frozen matrices of
    /// blocks and embedding tables are. Output weights have 8 bits, because every score of the next
    /// token depends on them.
    pub(super) fn bits_of(
        &self,
        parameters: &Parameters,
        id: ParameterId,
        dims: usize,
        layout: BlockLayout,
    ) -> Option<Bits> {
        let asked = self.bits.filter(|_| dims == 2 && !parameters.trains(id))?;
        match parameters.name(id) {
            "output.weight" => Some(Bits::Eight),
            "embedding.weight" if layout.has_embedding_table => Some(asked),
            name if name.starts_with("blocks.") => Some(asked),
            _ => None,
        }
    }

    /// The element type of a parameter with `dims` axes, which is `dtype` if it is trained.
    pub(super) fn dtype_of(
        &self,
        parameters: &Parameters,
        id: ParameterId,
        dims: usize,
        dtype: DType,
    ) -> DType {
        let half = self.half.filter(|_| dims > 1 && !parameters.trains(id));
        half.unwrap_or(dtype)
    }

    /// Stores parameters of zeros as they will be stored, to estimate memory.
    pub(super) fn store(&self, parameters: &mut Parameters, layout: BlockLayout) -> Result<()> {
        parameters.set_half(self.half);
        for id in parameters.ids() {
            let whole = parameters.whole(id)?;
            let (dims, device) = (whole.dims(), whole.device());
            let bits = self.bits_of(parameters, id, dims.len(), layout);
            let dtype = self.dtype_of(parameters, id, dims.len(), whole.dtype());
            if let (Some(bits), &[rows, columns]) = (bits, dims) {
                let zeros = Quantized::of_zeros(bits, [rows, columns], device)?;
                parameters.put_quantized(id, zeros)?;
            } else if dtype != whole.dtype() {
                parameters.put(id, Tensor::zeros(dims, dtype, device)?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_blocks_are_trained_with_the_layers_after_them() {
        let check = |trained: TrainedLayers, last_norm: LastNorm, name: &str, expected: bool| {
            let tuning = FineTuning {
                trained,
                ..FineTuning::default()
            };
            let layout = BlockLayout {
                count: 12,
                last_norm,
                has_embedding_table: true,
            };
            assert_eq!(tuning.trains(name, layout), expected, "{trained:?} {name}");
        };
        for (name, expected) in [
            ("head.weight", true),
            ("pooler.bias", true),
            ("output.weight", true),
            ("blocks.11.qkv.weight", true),
            ("blocks.10.norm1.bias", true),
            ("blocks.9.up.weight", false),
            ("blocks.1.up.weight", false),
            ("embedding.weight", false),
            ("positions", false),
        ] {
            check(
                TrainedLayers::Last(2),
                LastNorm::AfterBlocks,
                name,
                expected,
            );
            check(
                TrainedLayers::Head,
                LastNorm::AfterBlocks,
                name,
                name == "head.weight",
            );
            check(TrainedLayers::All, LastNorm::AfterBlocks, name, true);
        }
        check(
            TrainedLayers::Last(1),
            LastNorm::AfterBlocks,
            "norm.weight",
            true,
        );
        check(
            TrainedLayers::Last(1),
            LastNorm::InBlock,
            "norm.weight",
            false,
        );
        check(
            TrainedLayers::Head,
            LastNorm::AfterBlocks,
            "blocks.0.up.lora_A.weight",
            true,
        );
    }
}
