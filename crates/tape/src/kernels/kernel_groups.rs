//! Which kernels may run. The kernels of one operation are a group: the device check refuses a
//! group in one precision, and the operation then runs in its composed form.

use candle_core::DType;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

/// The kernels of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KernelGroup {
    /// ReLU, GELU and other functions of each value.
    Activation,
    /// Sums of tensors.
    Add,
    /// Attention.
    Attention,
    /// Average pooling.
    AvgPool,
    /// Convolutions.
    Conv2d,
    /// Copies between layouts.
    Copy,
    /// Cross-entropy.
    CrossEntropy,
    /// Dropout.
    Dropout,
    /// Embeddings, and gradients of gathered values.
    Embedding,
    /// The second half of a feed-forward layer.
    GeluLinear,
    /// Norm of all gradients.
    GradientNorm,
    /// Group normalization.
    GroupNorm,
    /// Layer normalization.
    LayerNorm,
    /// Linear layers.
    Linear,
    /// The head of a language model with its cross-entropy.
    LinearCrossEntropy,
    /// Max pooling.
    MaxPool,
    /// Optimizer steps.
    Optimizer,
    /// Quantized linear layers.
    QuantizedLinear,
    /// Layouts of sequences.
    Sequence,
    /// Accumulation of gradients.
    Accumulate,
}

impl KernelGroup {
    /// All groups.
    pub const ALL: [KernelGroup; 20] = [
        KernelGroup::Activation,
        KernelGroup::Add,
        KernelGroup::Attention,
        KernelGroup::AvgPool,
        KernelGroup::Conv2d,
        KernelGroup::Copy,
        KernelGroup::CrossEntropy,
        KernelGroup::Dropout,
        KernelGroup::Embedding,
        KernelGroup::GeluLinear,
        KernelGroup::GradientNorm,
        KernelGroup::GroupNorm,
        KernelGroup::LayerNorm,
        KernelGroup::Linear,
        KernelGroup::LinearCrossEntropy,
        KernelGroup::MaxPool,
        KernelGroup::Optimizer,
        KernelGroup::QuantizedLinear,
        KernelGroup::Sequence,
        KernelGroup::Accumulate,
    ];

    /// Its name in reports: "layer normalization".
    pub const fn name(self) -> &'static str {
        match self {
            KernelGroup::Activation => "activations",
            KernelGroup::Add => "additions",
            KernelGroup::Attention => "attention",
            KernelGroup::AvgPool => "average pooling",
            KernelGroup::Conv2d => "convolutions",
            KernelGroup::Copy => "copies",
            KernelGroup::CrossEntropy => "cross-entropy",
            KernelGroup::Dropout => "dropout",
            KernelGroup::Embedding => "embeddings",
            KernelGroup::GeluLinear => "feed-forward layers",
            KernelGroup::GradientNorm => "gradient norm",
            KernelGroup::GroupNorm => "group normalization",
            KernelGroup::LayerNorm => "layer normalization",
            KernelGroup::Linear => "linear layers",
            KernelGroup::LinearCrossEntropy => "language model head",
            KernelGroup::MaxPool => "max pooling",
            KernelGroup::Optimizer => "optimizer steps",
            KernelGroup::QuantizedLinear => "quantized layers",
            KernelGroup::Sequence => "sequence layouts",
            KernelGroup::Accumulate => "gradient sums",
        }
    }

    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

impl fmt::Display for KernelGroup {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Groups that are refused, one bit each: in f32, in bf16 and in f16.
static REFUSED: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];

thread_local! {
    static USED: RefCell<BTreeSet<(KernelGroup, &'static str)>> = RefCell::default();
}

fn refused(dtype: DType) -> &'static AtomicU32 {
    match dtype {
        DType::BF16 => &REFUSED[1],
        DType::F16 => &REFUSED[2],
        _ => &REFUSED[0],
    }
}

/// Allows or refuses every kernel on the GPU of this process. They are allowed until a check finds
/// one wrong.
pub fn allow(allowed: bool) {
    let bits = if allowed { 0 } else { u32::MAX };
    REFUSED
        .iter()
        .for_each(|r| r.store(bits, Ordering::Relaxed));
}

/// True unless kernels of some group are refused in f32.
pub fn allowed() -> bool {
    REFUSED[0].load(Ordering::Relaxed) == 0
}

/// Allows or refuses the kernels of one group in one element type.
pub fn allow_group(group: KernelGroup, dtype: DType, allowed: bool) {
    if allowed {
        refused(dtype).fetch_and(!group.bit(), Ordering::Relaxed);
    } else {
        refused(dtype).fetch_or(group.bit(), Ordering::Relaxed);
    }
}

/// True unless the group is refused in this element type.
pub(super) fn is_allowed(group: KernelGroup, dtype: DType) -> bool {
    refused(dtype).load(Ordering::Relaxed) & group.bit() == 0
}

/// Remembers that kernels of a group are used.
pub(super) fn record(group: KernelGroup, dtype: DType) {
    USED.with_borrow_mut(|used| used.insert((group, super::suffix(dtype))));
}

/// The groups that were used on this thread since the last call, each with its precision.
pub fn take_used() -> BTreeSet<(KernelGroup, &'static str)> {
    USED.with_borrow_mut(std::mem::take)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_refused_in_one_precision() {
        // Nothing else in these tests uses quantized kernels in f16 on a GPU.
        let group = KernelGroup::QuantizedLinear;
        allow_group(group, DType::F16, false);
        assert!(!is_allowed(group, DType::F16));
        assert!(is_allowed(group, DType::F32) && is_allowed(group, DType::BF16));
        assert!(is_allowed(KernelGroup::Linear, DType::F16));
        allow_group(group, DType::F16, true);
        assert!(is_allowed(group, DType::F16));
    }

    #[test]
    fn every_group_has_a_bit_of_its_own() {
        let bits = KernelGroup::ALL
            .iter()
            .fold(0, |bits, group| bits | group.bit());
        assert_eq!(bits.count_ones() as usize, KernelGroup::ALL.len());
    }
}
