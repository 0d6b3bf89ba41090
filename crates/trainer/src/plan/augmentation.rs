//! Augmentation of images and how they are mixed, by the names in configs.

use dataset::Mix;

/// Augmentation of training images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Augmentation {
    /// Center crop only.
    None,
    /// Random crop, flip and color.
    Standard,
    /// As `Standard`, with smaller crops and RandAugment (Cubuk et al. 2020).
    RandAugment,
}

impl Augmentation {
    /// All of them, the default first.
    pub const ALL: [Augmentation; 3] = [
        Augmentation::Standard,
        Augmentation::RandAugment,
        Augmentation::None,
    ];

    /// The name in configs and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Augmentation::None => "none",
            Augmentation::Standard => "standard",
            Augmentation::RandAugment => "randaugment",
        }
    }
}

/// How images are mixed, by name.
pub(super) const MIXES: [(&str, Mix); 4] = [
    ("none", Mix::None),
    ("mixup", Mix::Mixup),
    ("cutmix", Mix::CutMix),
    ("both", Mix::Both),
];
