//! How pixel values are normalized before a network sees them.

/// Mean of each channel over ImageNet, as published with its models.
const IMAGENET_MEAN: [f32; 3] = [0.485, 0.456, 0.406];
/// Standard deviation of each channel over ImageNet.
const IMAGENET_STD: [f32; 3] = [0.229, 0.224, 0.225];

/// Mean and standard deviation of each channel (red, green, blue) of pixels in `0.0..=1.0`: a pixel
/// becomes `(pixel - mean) / std`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PixelNormalization {
    /// Mean per channel.
    pub mean: [f32; 3],
    /// Standard deviation per channel.
    pub std: [f32; 3],
}

impl Default for PixelNormalization {
    /// The statistics of ImageNet.
    fn default() -> Self {
        PixelNormalization {
            mean: IMAGENET_MEAN,
            std: IMAGENET_STD,
        }
    }
}
