//! What lighter ways to fine-tune a language model would free of its state: adapters, and frozen
//! weights in fewer bits. It is counted from the shapes of the parameters, in almost no time.

use super::MemoryEstimate;
use crate::error::Result;
use crate::optimizer::{OptimizerKind, state_sizes};
use crate::plan::Plan;
use crate::precision::Precision;
use candle_core::{Device, Tensor};
use models::Pretrained;
use models::hub_format::TrainedLayers;
use models::pretrained::BuildOptions;
use pressure::LighterTuning;
use tape::{Bits, Frozen};

impl Plan {
    /// What lighter ways to fine-tune would free; nothing for other runs than those of language
    /// models from pretrained weights.
    ///
    /// # Errors
    /// The weights do not fit the network.
    pub(crate) fn lighter_tuning(&self) -> Result<LighterTuning> {
        match &self.pretrained {
            Some(pretrained) => {
                MemoryEstimate::lighter_tuning(pretrained, self.optimizer, self.precision)
            }
            None => Ok(LighterTuning::default()),
        }
    }
}

impl MemoryEstimate {
    /// What lighter ways to fine-tune these weights would free, in bytes, besides activations.
    /// Nothing if they are not those of a language model.
    ///
    /// # Errors
    /// The weights do not fit the network.
    pub fn lighter_tuning(
        pretrained: &Pretrained,
        optimizer: OptimizerKind,
        precision: Precision,
    ) -> Result<LighterTuning> {
        if !pretrained.is_language_model() {
            return Ok(LighterTuning::default());
        }
        let bytes = |tuned: &Pretrained| state_bytes(tuned, optimizer, precision);
        let own_bytes = bytes(pretrained)?;
        let freed = |tuned: Option<Pretrained>| -> Result<u64> {
            let tuned = tuned.map(|tuned| bytes(&tuned)).transpose()?;
            Ok(tuned.map_or(0, |bytes| own_bytes.saturating_sub(bytes)))
        };
        let tuning = pretrained.tuning();
        let trains_all = tuning.trained == TrainedLayers::All && tuning.adapter.is_none();
        let with_adapters = pretrained.with_adapters();
        // Weights that train cannot be quantized.
        let frozen = if trains_all {
            with_adapters.clone()
        } else {
            Some(pretrained.clone())
        };
        let quantized = |bits| frozen.as_ref().and_then(|frozen| frozen.with_bits(bits));
        Ok(LighterTuning {
            adapters_bytes: freed(with_adapters)?,
            eight_bits_bytes: freed(quantized(Bits::Eight))?,
            nf4_bytes: freed(quantized(Bits::Nf4))?,
            trains_all,
        })
    }
}

/// Weights, their copy in a half precision, moments, and accumulated gradients.
fn state_bytes(
    pretrained: &Pretrained,
    optimizer: OptimizerKind,
    precision: Precision,
) -> Result<u64> {
    let options = BuildOptions {
        input_size: 0,
        outputs: 0,
        seed: 0,
        dtype: precision.master_dtype(),
        device: &Device::Cpu,
    };
    // Zeros in a half precision would be written, and take memory.
    let (_, masters) = pretrained.with_zeros(&options, None)?;
    let half_bytes = precision
        .is_half()
        .then(|| precision.dtype().size_in_bytes());
    let in_half = |tensor: &Tensor| match half_bytes {
        Some(bytes) if tensor.dims().len() > 1 => Some((tensor.elem_count() * bytes) as u64),
        _ => None,
    };
    let copied = masters.iter().filter_map(|p| in_half(&p.tensor));
    let copy_bytes: u64 = copied.sum();
    let frozen = masters.frozen().map(|(_, values)| match values {
        Frozen::Whole(tensor) => in_half(tensor).unwrap_or_else(|| values.bytes()),
        Frozen::Quantized(_) => values.bytes(),
    });
    let frozen_bytes: u64 = frozen.sum();
    let moments_bytes: u64 = state_sizes(optimizer, &masters).iter().sum();
    Ok(2 * masters.bytes() + frozen_bytes + copy_bytes + moments_bytes)
}
