//! What the user can choose by name: optimizers, augmentation, mixing.

use dataset::Mix;

/// Optimizers, by their name in configs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptimizerKind {
    /// Adam with decoupled weight decay.
    AdamW,
    /// AdamW with moments in one byte per value, a quarter of the state.
    AdamW8bit,
    /// Stochastic gradient descent with momentum 0.9.
    Sgd,
}

impl OptimizerKind {
    /// All of them, the suggested one first.
    pub const ALL: [OptimizerKind; 3] = [
        OptimizerKind::AdamW,
        OptimizerKind::AdamW8bit,
        OptimizerKind::Sgd,
    ];

    /// The name in configs and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            OptimizerKind::AdamW => "adamw",
            OptimizerKind::AdamW8bit => "adamw8bit",
            OptimizerKind::Sgd => "sgd",
        }
    }
}

/// Augmentation of images, by its name in configs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Augmentation {
    /// Center crop only.
    None,
    /// Crop, flip and colour.
    Standard,
    /// Standard augmentation with smaller crops, and RandAugment.
    RandAugment,
}

impl Augmentation {
    /// All of them, the suggested one first.
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

/// How samples are mixed, by their names in configs.
pub(super) const MIXES: [(&str, Mix); 4] = [
    ("none", Mix::None),
    ("mixup", Mix::Mixup),
    ("cutmix", Mix::CutMix),
    ("both", Mix::Both),
];

#[cfg(test)]
mod tests {
    use runlog::RunConfig;

    #[test]
    fn configs_accept_every_network_of_the_catalog() {
        for name in models::catalog::CATALOG.iter().map(|entry| entry.name) {
            let config = RunConfig {
                model: Some(name.to_owned()),
                ..RunConfig::default()
            };
            assert!(config.validate().is_ok(), "{name}");
        }
    }
}
