//! Which convolutions run without columns. The device check measures both methods on typical
//! convolutions; any other one uses the method that was faster for the typical one most like it.
//! The choice is saved with the check, so that runs on one GPU always make the same one. Without a
//! measurement, columns are used.

use crate::cpu::im2col::Window;
use candle_core::DType;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// One of the three products of a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConvolutionPass {
    Forward,
    InputGradient,
    WeightGradient,
}

impl ConvolutionPass {
    /// All of them.
    pub const ALL: [ConvolutionPass; 3] = [
        ConvolutionPass::Forward,
        ConvolutionPass::InputGradient,
        ConvolutionPass::WeightGradient,
    ];

    const fn name(self) -> &'static str {
        match self {
            ConvolutionPass::Forward => "output",
            ConvolutionPass::InputGradient => "input gradient",
            ConvolutionPass::WeightGradient => "weight gradient",
        }
    }
}

/// A convolution of square images that both methods are measured on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TypicalConvolution {
    pub samples: usize,
    pub channels: usize,
    pub out: usize,
    pub side: usize,
    pub kernel: usize,
    pub stride: usize,
}

const fn typical(
    samples: usize,
    channels: usize,
    out: usize,
    side: usize,
    kernel: usize,
    stride: usize,
) -> TypicalConvolution {
    TypicalConvolution {
        samples,
        channels,
        out,
        side,
        kernel,
        stride,
    }
}

/// Layers of ResNets and of ConvNeXt at 224 px, with few and with many samples; at most 64.
pub(crate) const TYPICAL: [TypicalConvolution; 27] = [
    typical(2, 3, 64, 224, 7, 2),
    typical(16, 3, 64, 224, 7, 2),
    typical(2, 64, 64, 56, 3, 1),
    typical(32, 64, 64, 56, 3, 1),
    typical(2, 128, 128, 28, 3, 1),
    typical(32, 128, 128, 28, 3, 1),
    typical(2, 256, 256, 14, 3, 1),
    typical(32, 256, 256, 14, 3, 1),
    typical(2, 512, 512, 7, 3, 1),
    typical(32, 512, 512, 7, 3, 1),
    typical(2, 64, 128, 56, 3, 2),
    typical(32, 64, 128, 56, 3, 2),
    typical(2, 128, 256, 28, 3, 2),
    typical(32, 128, 256, 28, 3, 2),
    typical(2, 256, 512, 14, 3, 2),
    typical(32, 256, 512, 14, 3, 2),
    typical(2, 64, 128, 56, 1, 2),
    typical(32, 64, 128, 56, 1, 2),
    typical(32, 128, 256, 28, 1, 2),
    typical(32, 256, 512, 14, 1, 2),
    typical(2, 64, 256, 56, 1, 1),
    typical(32, 64, 256, 56, 1, 1),
    typical(32, 256, 64, 56, 1, 1),
    typical(2, 1024, 256, 14, 1, 1),
    typical(32, 1024, 256, 14, 1, 1),
    typical(2, 96, 192, 56, 2, 2),
    typical(32, 96, 192, 56, 2, 2),
];

/// Weights of the differences in [`TypicalConvolution::logarithms`]: the kernel and the stride
/// decide more than the numbers of channels and pixels.
const WEIGHTS: [f64; 5] = [1.0, 1.0, 1.0, 2.0, 4.0];

/// Number of typical convolutions.
pub const TYPICAL_CONVOLUTIONS: usize = TYPICAL.len();

impl TypicalConvolution {
    /// The sizes of one sample. A kernel of odd size keeps the size of the image at stride 1.
    pub fn window(&self) -> Window {
        Window {
            channels: self.channels,
            height: self.side,
            width: self.side,
            kernel: (self.kernel, self.kernel),
            stride: self.stride,
            padding: (self.kernel - 1) / 2,
            groups: 1,
        }
    }

    /// Logarithms of the sizes that decide how long a method takes.
    fn logarithms(window: &Window, samples: usize, out: usize) -> [f64; 5] {
        let (rows, columns) = window.kernel;
        let pixels = samples * window.pixels();
        let sizes = [window.channels, out, pixels, rows * columns, window.stride];
        sizes.map(|size| (size.max(1) as f64).log2())
    }

    /// How little a convolution is like this one; 0 if they are the same.
    fn distance(&self, sizes: [f64; 5]) -> f64 {
        let own = Self::logarithms(&self.window(), self.samples, self.out);
        let apart = own.iter().zip(sizes).zip(WEIGHTS);
        apart
            .map(|((own, size), weight)| (weight * (own - size)).powi(2))
            .sum()
    }

    /// The name of one product of it, under which a choice is saved.
    pub fn name(&self, pass: ConvolutionPass, dtype: DType) -> String {
        format!(
            "{} of {k}x{k} stride {}, {} to {} channels, {side} x {side} pixels, {} samples, {}",
            pass.name(),
            self.stride,
            self.channels,
            self.out,
            self.samples,
            if slot(dtype) == Some(0) {
                "f32"
            } else {
                "half precision"
            },
            k = self.kernel,
            side = self.side,
        )
    }
}

/// Element types with a choice each. Both half types have the same: a GPU computes with both at the
/// same speed.
const TYPES: [DType; 2] = [DType::F32, DType::BF16];

/// The index of the choice for an element type.
fn slot(dtype: DType) -> Option<usize> {
    match dtype {
        DType::F32 => Some(0),
        DType::BF16 | DType::F16 => Some(1),
        _ => None,
    }
}

/// One bit per typical convolution whose product runs without columns, by element type and pass.
static DIRECT: [[AtomicU64; 3]; 2] = [const { [const { AtomicU64::new(0) }; 3] }; 2];

/// 1 if all convolutions use columns, 2 if none does that need not.
static FORCED: AtomicU8 = AtomicU8::new(0);

/// Uses columns for all convolutions, or for none, whatever was measured; `None` for what was
/// measured.
pub(super) fn force(direct: Option<bool>) {
    let forced = direct.map_or(0, |direct| 1 + u8::from(direct));
    FORCED.store(forced, Ordering::Relaxed);
}

/// What [`force`] was called with last.
pub(super) fn forced() -> Option<bool> {
    match FORCED.load(Ordering::Relaxed) {
        0 => None,
        forced => Some(forced == 2),
    }
}

/// The bits of all products whose names are in `direct`.
fn bits(direct: &[String], dtype: DType, pass: ConvolutionPass) -> u64 {
    let all = TYPICAL.iter().enumerate();
    let chosen = all.filter(|(_, typical)| direct.contains(&typical.name(pass, dtype)));
    chosen.fold(0, |bits, (index, _)| bits | 1 << index)
}

/// From now on, the products with these names run without columns, all others with columns. Other
/// names, which an earlier version saved, are ignored.
pub fn use_direct_convolutions(direct: &[String]) {
    for (dtype, of_type) in TYPES.into_iter().zip(&DIRECT) {
        for (pass, chosen) in ConvolutionPass::ALL.into_iter().zip(of_type) {
            chosen.store(bits(direct, dtype, pass), Ordering::Relaxed);
        }
    }
}

/// True if `bits` say that the typical convolution most like this one runs without columns.
fn is_chosen(bits: u64, window: &Window, samples: usize, out: usize) -> bool {
    if bits == 0 {
        return false;
    }
    let sizes = TypicalConvolution::logarithms(window, samples, out);
    let by_distance = |typical: &TypicalConvolution| typical.distance(sizes);
    let nearest = TYPICAL
        .iter()
        .enumerate()
        .min_by(|(_, a), (_, b)| by_distance(a).total_cmp(&by_distance(b)));
    nearest.is_some_and(|(index, _)| (bits >> index) & 1 == 1)
}

/// True if a product of a convolution should run without columns.
pub(crate) fn prefers_direct(
    window: &Window,
    samples: usize,
    out: usize,
    pass: ConvolutionPass,
    dtype: DType,
) -> bool {
    let Some(slot) = slot(dtype) else {
        return false;
    };
    let bits = DIRECT[slot][pass as usize].load(Ordering::Relaxed);
    forced().unwrap_or_else(|| is_chosen(bits, window, samples, out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_product_has_a_name_and_a_bit_of_its_own() {
        let mut names = BTreeSet::new();
        for dtype in TYPES {
            for pass in ConvolutionPass::ALL {
                let all: Vec<String> = TYPICAL.iter().map(|t| t.name(pass, dtype)).collect();
                assert_eq!(bits(&all, dtype, pass).count_ones() as usize, TYPICAL.len());
                let other = if dtype == DType::F32 {
                    DType::BF16
                } else {
                    DType::F32
                };
                assert_eq!(bits(&all, other, pass), 0);
                names.extend(all);
            }
        }
        assert_eq!(names.len(), 6 * TYPICAL.len());
        assert!(TYPICAL.len() <= 64);
        let name = TYPICAL[3].name(ConvolutionPass::InputGradient, DType::BF16);
        assert_eq!(
            name,
            "input gradient of 3x3 stride 1, 64 to 64 channels, 56 x 56 pixels, 32 samples, half precision"
        );
        let in_f16 = TYPICAL[3].name(ConvolutionPass::InputGradient, DType::F16);
        assert_eq!(name, in_f16);
        assert_eq!(
            bits(
                &["an old name".to_owned()],
                DType::F32,
                ConvolutionPass::Forward
            ),
            0
        );
    }

    #[test]
    fn a_convolution_follows_the_typical_one_most_like_it() {
        for (index, typical) in TYPICAL.iter().enumerate() {
            let chosen = |bits| is_chosen(bits, &typical.window(), typical.samples, typical.out);
            assert!(chosen(1 << index), "{typical:?}");
            assert!(!chosen(!(1 << index)), "{typical:?}");
            assert!(!chosen(0));
        }
        // 24 samples of 60 channels and 50 x 50 pixels are like 32 of 64 and 56 x 56.
        let window = Window {
            channels: 60,
            height: 50,
            width: 50,
            ..TYPICAL[3].window()
        };
        assert!(is_chosen(1 << 3, &window, 24, 60));
        assert!(!is_chosen(1 << 2, &window, 24, 60));
    }
}
