//! Which kernels may run. The kernels of one operation are a group: the device check refuses a
//! group in one precision, and the operation then runs in its composed form. A smaller part cannot
//! fall back: the backward kernel of an operation reads what its forward kernel saved.

use super::convolution_choice;
use candle_core::DType;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The kernels of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KernelGroup {
    /// AdamW steps.
    AdamW,
    /// Sums of tensors.
    Add,
    /// Attention.
    Attention,
    /// Average pooling.
    AvgPool,
    /// Convolutions.
    Conv2d,
    /// Weights rounded to a half type.
    Conversion,
    /// Copies between layouts.
    Copy,
    /// Cross-entropy.
    CrossEntropy,
    /// Dropout.
    Dropout,
    /// Embeddings.
    Embedding,
    /// Values gathered by index.
    Gather,
    /// GELU in its tanh form.
    Gelu,
    /// GELU in its exact form.
    GeluExact,
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
    /// Quantized linear layers.
    QuantizedLinear,
    /// ReLU.
    Relu,
    /// Layouts of sequences.
    Sequence,
    /// SGD steps.
    Sgd,
    /// SiLU.
    Silu,
    /// Moving averages of weights.
    WeightAverage,
    /// Accumulation of gradients.
    Accumulate,
    /// Convolutions without columns.
    DirectConv2d,
    /// Attention whose heads share keys, or with a window, a soft cap or several documents.
    GroupedAttention,
    /// Norms by the root mean square.
    RmsNorm,
    /// Rotary position embeddings.
    RotaryEmbedding,
    /// Gated feed-forward branches.
    Gated,
}

impl KernelGroup {
    /// All groups.
    pub const ALL: [KernelGroup; 32] = [
        KernelGroup::AdamW,
        KernelGroup::Add,
        KernelGroup::Attention,
        KernelGroup::AvgPool,
        KernelGroup::Conv2d,
        KernelGroup::Conversion,
        KernelGroup::Copy,
        KernelGroup::CrossEntropy,
        KernelGroup::Dropout,
        KernelGroup::Embedding,
        KernelGroup::Gather,
        KernelGroup::Gelu,
        KernelGroup::GeluExact,
        KernelGroup::GeluLinear,
        KernelGroup::GradientNorm,
        KernelGroup::GroupNorm,
        KernelGroup::LayerNorm,
        KernelGroup::Linear,
        KernelGroup::LinearCrossEntropy,
        KernelGroup::MaxPool,
        KernelGroup::QuantizedLinear,
        KernelGroup::Relu,
        KernelGroup::Sequence,
        KernelGroup::Sgd,
        KernelGroup::Silu,
        KernelGroup::WeightAverage,
        KernelGroup::Accumulate,
        KernelGroup::DirectConv2d,
        KernelGroup::GroupedAttention,
        KernelGroup::RmsNorm,
        KernelGroup::RotaryEmbedding,
        KernelGroup::Gated,
    ];

    /// Its name in reports: "layer normalization".
    pub const fn name(self) -> &'static str {
        match self {
            KernelGroup::AdamW => "AdamW steps",
            KernelGroup::Add => "additions",
            KernelGroup::Attention => "attention",
            KernelGroup::AvgPool => "average pooling",
            KernelGroup::Conv2d => "convolutions",
            KernelGroup::Conversion => "conversions",
            KernelGroup::Copy => "copies",
            KernelGroup::CrossEntropy => "cross-entropy",
            KernelGroup::Dropout => "dropout",
            KernelGroup::Embedding => "embeddings",
            KernelGroup::Gather => "gathered values",
            KernelGroup::Gelu => "GELU",
            KernelGroup::GeluExact => "exact GELU",
            KernelGroup::GeluLinear => "feed-forward layers",
            KernelGroup::GradientNorm => "gradient norm",
            KernelGroup::GroupNorm => "group normalization",
            KernelGroup::LayerNorm => "layer normalization",
            KernelGroup::Linear => "linear layers",
            KernelGroup::LinearCrossEntropy => "language model head",
            KernelGroup::MaxPool => "max pooling",
            KernelGroup::QuantizedLinear => "quantized layers",
            KernelGroup::Relu => "ReLU",
            KernelGroup::Sequence => "sequence layouts",
            KernelGroup::Sgd => "SGD steps",
            KernelGroup::Silu => "SiLU",
            KernelGroup::WeightAverage => "averages of weights",
            KernelGroup::Accumulate => "gradient sums",
            KernelGroup::DirectConv2d => "direct convolutions",
            KernelGroup::GroupedAttention => "grouped-query attention",
            KernelGroup::RmsNorm => "RMS normalization",
            KernelGroup::RotaryEmbedding => "rotary embeddings",
            KernelGroup::Gated => "gated activations",
        }
    }

    /// Its bit in a set of refused kernels.
    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// The place of an element type in [`REFUSED`].
const fn place(dtype: DType) -> usize {
    match dtype {
        DType::BF16 => 1,
        DType::F16 => 2,
        _ => 0,
    }
}

impl fmt::Display for KernelGroup {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The refused kernels in f32, bf16 and f16, one bit for each group. A word for each element type,
/// so that an operation never sees a part of a change.
static REFUSED: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];

/// Set when f32 products may not use tensor cores.
static PLAIN_F32: AtomicBool = AtomicBool::new(false);

thread_local! {
    static USED: RefCell<BTreeSet<(KernelGroup, &'static str)>> = RefCell::default();
}

/// Allows or refuses every kernel on the GPU of this process. They are allowed until a check finds
/// one wrong.
pub fn allow(allowed: bool) {
    let bits = if allowed { 0 } else { u32::MAX };
    REFUSED
        .iter()
        .for_each(|all| all.store(bits, Ordering::Relaxed));
}

/// Allows every kernel of this process except those of these groups in these element types, all at
/// once: another thread that computes meanwhile never uses a refused kernel.
pub fn allow_all_except(refused: impl IntoIterator<Item = (KernelGroup, DType)>) {
    let mut words = [0; REFUSED.len()];
    for (group, dtype) in refused {
        words[place(dtype)] |= group.bit();
    }
    for (all, bits) in REFUSED.iter().zip(words) {
        all.store(bits, Ordering::Relaxed);
    }
}

/// Which kernels the GPU of this process may use, for measurements that compare them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllowedKernels {
    /// Ebb's own kernels of every group; otherwise operations run in their composed form.
    pub own: bool,
    /// f32 products on tensor cores, which split operands into bf16 sums of the same precision.
    pub tensor_cores: bool,
    /// Convolutions without columns, for all or for none; `None` for those that were measured to be
    /// faster.
    pub direct_convolutions: Option<bool>,
}

impl AllowedKernels {
    /// What is allowed now. If kernels of some group are refused in f32, `own` is false.
    pub fn current() -> Self {
        AllowedKernels {
            own: REFUSED[place(DType::F32)].load(Ordering::Relaxed) == 0,
            tensor_cores: !PLAIN_F32.load(Ordering::Relaxed),
            direct_convolutions: convolution_choice::forced(),
        }
    }

    /// Allows and refuses them from now on.
    pub fn apply(self) {
        allow(self.own);
        PLAIN_F32.store(!self.tensor_cores, Ordering::Relaxed);
        convolution_choice::force(self.direct_convolutions);
    }
}

/// Allows or refuses the kernels of one group in one element type.
pub fn allow_group(group: KernelGroup, dtype: DType, allowed: bool) {
    let all = &REFUSED[place(dtype)];
    if allowed {
        all.fetch_and(!group.bit(), Ordering::Relaxed);
    } else {
        all.fetch_or(group.bit(), Ordering::Relaxed);
    }
}

/// True unless the group is refused in this element type.
pub(super) fn is_allowed(group: KernelGroup, dtype: DType) -> bool {
    REFUSED[place(dtype)].load(Ordering::Relaxed) & group.bit() == 0
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
    use std::sync::{Mutex, PoisonError};

    /// Held by tests that refuse kernels, which belong to the process.
    static REFUSES: Mutex<()> = Mutex::new(());

    #[test]
    fn a_group_is_refused_in_one_precision() {
        let _alone = REFUSES.lock().unwrap_or_else(PoisonError::into_inner);
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
    fn every_group_has_a_bit_and_a_name_of_its_own() {
        let all = KernelGroup::ALL.into_iter();
        let bits = all.clone().fold(0, |bits, group| bits | group.bit());
        assert_eq!(bits.count_ones() as usize, KernelGroup::ALL.len());
        let names: BTreeSet<&str> = all.map(KernelGroup::name).collect();
        assert_eq!(names.len(), KernelGroup::ALL.len());
        let places = [DType::F32, DType::BF16, DType::F16].map(place);
        assert_eq!(places, [0, 1, 2]);
    }

    #[test]
    fn a_refused_kernel_is_not_allowed_while_others_are_refused_again() {
        let _alone = REFUSES.lock().unwrap_or_else(PoisonError::into_inner);
        // Nothing else in these tests uses quantized kernels in bf16 on a GPU.
        let refused = (KernelGroup::QuantizedLinear, DType::BF16);
        allow_all_except([refused]);
        let is_done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    allow_all_except([refused]);
                }
                is_done.store(true, Ordering::Relaxed);
            });
            while !is_done.load(Ordering::Relaxed) {
                assert!(!is_allowed(refused.0, refused.1));
            }
        });
        allow_all_except([]);
        assert!(is_allowed(refused.0, refused.1));
    }
}
